//! Whole systems of actors that link, watch, stop and fail at random over three simulated cores, one of which may be lost in
//! the midst of it: every end is heard of exactly once by each who watches, and takes along exactly those who are linked.
//!
//! `CORELET_SEED=N` repeats a world, `CORELET_SEEDS=M` tries M of them.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use corelet::actor::{self, Addressable, Arm, Down, Exit, ExitReason, Monitors, Pid, Reply, channel, select};
use corelet::runtime::{CoreId, Simulation, handle, yield_now};
use support::Random;

enum Dweller {}

impl Addressable for Dweller {
    type Msg = Order;
}

enum Order {
    Link(Pid<Dweller>),
    Unlink(Pid<Dweller>),
    Watch(Pid<Dweller>),
    Unwatch(Pid<Dweller>),
    Bear,
    Return,
    Panic,
    Fail,
    Pong(Reply<()>),
}

type Pair = (Pid<Dweller>, Pid<Dweller>);

/// What everybody has done and heard.
#[derive(Default)]
struct Book {
    everybody: Vec<(Pid<Dweller>, bool)>,
    /// Watches that nothing has been heard of yet.
    watches: BTreeSet<Pair>,
    /// What was heard of an end, from whoever heard.
    reasons: BTreeMap<Pid<Dweller>, BTreeSet<String>>,
    /// How often the first has linked with the second.
    links: BTreeMap<Pair, u32>,
    /// Either has unlinked, at some time.
    unlinked: BTreeSet<Pair>,
    /// How many exits of the second the first has heard.
    exits: BTreeMap<Pair, u32>,
    downs: u64,
}

type Shared = Arc<Mutex<Book>>;

fn late(reason: &ExitReason) -> bool {
    matches!(reason, ExitReason::NoProcess | ExitReason::CoreEnded)
}

async fn dwell(book: Shared, me: Pid<Dweller>, traps: bool, mut inbox: channel::Receiver<Order>) {
    let mut monitors = Monitors::new();
    let mut exits = traps.then(actor::trap_exits);
    loop {
        let exit = async {
            match &mut exits {
                Some(exits) => exits.recv().await,
                None => std::future::pending().await,
            }
        };
        match select((exit, monitors.recv(), inbox.recv())).await {
            Arm::First(Exit { from, reason, .. }) => {
                let from = retype(&book, from);
                let mut book = book.lock().unwrap();
                *book.exits.entry((me, from)).or_default() += 1;
                if !late(&reason) {
                    book.reasons.entry(from).or_default().insert(reason.to_string());
                }
            }
            Arm::Second(Down { pid, reason, .. }) => {
                let pid = retype(&book, pid);
                let mut book = book.lock().unwrap();
                book.downs += 1;
                assert!(book.watches.remove(&(me, pid)), "{me} heard of {pid} without a watch, or twice");
                if !late(&reason) {
                    book.reasons.entry(pid).or_default().insert(reason.to_string());
                }
            }
            Arm::Third(order) => match order.unwrap() {
                Order::Link(pid) => {
                    *book.lock().unwrap().links.entry((me, pid)).or_default() += 1;
                    actor::link(pid);
                }
                Order::Unlink(pid) => {
                    book.lock().unwrap().unlinked.extend([(me, pid), (pid, me)]);
                    actor::unlink(pid);
                }
                Order::Watch(pid) => {
                    if monitors.watch(pid) {
                        book.lock().unwrap().watches.insert((me, pid));
                    }
                }
                Order::Unwatch(pid) => {
                    let watched = monitors.unwatch(pid);
                    assert_eq!(book.lock().unwrap().watches.remove(&(me, pid)), watched);
                }
                Order::Bear => {
                    // It does not trap exits: its parent may end before it could say so.
                    let child = settle(&book, false);
                    let mut written = book.lock().unwrap();
                    *written.links.entry((me, child)).or_default() += 1;
                    drop(written);
                    actor::link(child);
                }
                Order::Return => return,
                Order::Panic => panic!("on purpose"),
                Order::Fail => actor::exit("had enough").await,
                Order::Pong(reply) => reply.send(()),
            },
        }
    }
}

/// The typed pid, from the book: exits and downs come without a type.
fn retype(book: &Shared, pid: Pid) -> Pid<Dweller> {
    let book = book.lock().unwrap();
    book.everybody.iter().find(|(known, _)| *known == pid).expect("only dwellers are heard of").0
}

fn settle(book: &Shared, traps: bool) -> Pid<Dweller> {
    let (theirs, mine) = (Arc::clone(book), Arc::clone(book));
    let pid = actor::spawn_addr::<Dweller, _, _>(move |inbox| async move {
        let myself = retype(&theirs, actor::myself().unwrap());
        dwell(theirs, myself, traps, inbox).await;
    });
    mine.lock().unwrap().everybody.push((pid, traps));
    pid
}

/// Drives the dwellers at random.
async fn stir(
    book: Shared,
    cores: Vec<CoreId>,
    mut random: Random,
    killing: Option<corelet::runtime::Faults>,
) {
    for number in 0..24 {
        let (theirs, traps) = (Arc::clone(&book), random.below(3) == 0);
        let settled = handle().spawn_on(cores[number % 3], move || async move {
            settle(&theirs, traps);
        });
        settled.unwrap().await.unwrap();
    }
    let steps = 150 + random.below(150);
    let when = random.below(steps);
    for step in 0..steps {
        if step == when
            && let Some(faults) = &killing
        {
            faults.kill_core(2);
        }
        let (one, other) = {
            let book = book.lock().unwrap();
            let everybody = &book.everybody;
            let pick = |random: &mut Random| everybody[random.below(everybody.len() as u64) as usize].0;
            (pick(&mut random), pick(&mut random))
        };
        let order = match random.below(40) {
            0..12 if one != other => Order::Link(other),
            12..15 => Order::Unlink(other),
            15..26 => Order::Watch(other),
            26..28 => Order::Unwatch(other),
            28..30 => Order::Bear,
            30 | 31 => Order::Return,
            32 => Order::Panic,
            33 => Order::Fail,
            34 => {
                actor::request_stop(one);
                continue;
            }
            _ => {
                yield_now().await;
                continue;
            }
        };
        // To one that has ended, perhaps.
        let _ = actor::send_to(one, order);
    }
}

/// A core's end also takes what its actors have yet to say.
fn check(book: &Book, alive: &BTreeSet<Pid<Dweller>>, lost: Option<CoreId>) {
    for (watcher, watched) in &book.watches {
        assert!(!alive.contains(watcher) || alive.contains(watched), "{watcher} never heard of {watched}");
    }
    for (pid, reasons) in &book.reasons {
        assert!(!alive.contains(pid), "{pid} lives on");
        assert_eq!(reasons.len(), 1, "of {pid} there are two truths: {reasons:?}");
    }
    let traps: BTreeMap<_, _> = book.everybody.iter().copied().collect();
    for ((one, other), heard) in &book.exits {
        assert!(traps[one]);
        // Links from either side are one link, and one that was taken back may be made again.
        let count = |pair| book.links.get(&pair).copied().unwrap_or(0);
        let most = count((*one, *other)) + count((*other, *one));
        assert!(*heard <= most, "{one} heard {heard} times of {other}, and was linked {most} times");
    }
    for (one, other) in book.links.keys() {
        if book.unlinked.contains(&(*one, *other)) {
            continue;
        }
        for (ended, left) in [(one, other), (other, one)] {
            if alive.contains(ended) || !alive.contains(left) {
                continue;
            }
            let heard = book.exits.get(&(*left, *ended)).copied().unwrap_or(0);
            let reasons = book.reasons.get(ended);
            let abnormal = reasons.is_some_and(|reasons| !reasons.contains(&ExitReason::Normal.to_string()));
            // What was on its way from a lost core to make the link is lost as well.
            let was_made = left == one || lost != Some(ended.core());
            if traps[left] && was_made {
                assert!(heard >= 1, "{left} never heard of {ended}, to whom it is linked");
            }
            if !traps[left] && was_made {
                assert!(!abnormal, "{left} outlives {ended}, to whom it is linked: {reasons:?}");
                assert!(
                    lost != Some(ended.core()) || reasons.is_some(),
                    "{left} outlives a lost core's {ended}"
                );
            }
        }
    }
}

fn world(seed: u64) -> u64 {
    let mut random = Random::seeded(seed);
    let mut simulation = Simulation::new(seed, 3);
    let cores = simulation.cores();
    let kills = random.below(3) == 0;
    let killing = kills.then(|| simulation.faults());
    let lost = kills.then_some(cores[2]);
    let book = Shared::default();
    let theirs = Arc::clone(&book);
    simulation.block_on(move || stir(theirs, cores, random, killing)).unwrap();
    simulation.run_until_idle().unwrap();
    let theirs = Arc::clone(&book);
    let alive = simulation.block_on(move || async move {
        let everybody = theirs.lock().unwrap().everybody.clone();
        let mut alive = BTreeSet::new();
        for (pid, _) in everybody {
            if actor::call(pid, Order::Pong).await.is_ok() {
                alive.insert(pid);
            }
        }
        alive
    });
    let book = book.lock().unwrap();
    check(&book, &alive.unwrap(), lost);
    book.downs + book.exits.values().map(|heard| u64::from(*heard)).sum::<u64>()
}

#[test]
fn every_end_is_heard_of_once_by_all_who_watch_or_are_linked() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("CORELET_SEED").unwrap_or(0);
    let count = number("CORELET_SEEDS").unwrap_or(if number("CORELET_SEED").is_some() { 1 } else { 250 });
    let heard: u64 = (first..first + count).map(world).sum();
    println!("{heard} ends were heard of in {count} worlds");
    assert!(heard > 5 * count);
}
