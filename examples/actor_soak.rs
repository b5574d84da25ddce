//! Actors by the hundred thousand over two cores, spawned, linked, monitored, killed and restarted at random. Every exit
//! signal is accounted for, once, and at the end the memory is back where it was.
//!
//! `cargo run --release --example actor_soak -- --seconds 120` is the whole; by default it is a small one of three seconds.
//!
//! Each of two keepers, one on each core, has half of the population, in pairs of two linked actors: some with both on its
//! own core, some with one on each. In each round it ends some of them, in every way in which an actor can end, and then waits
//! for what must follow: the end of the partner for the same reason, or, if the partner traps exits, its word that it has
//! heard. What does not come, comes twice or says something else, fails the run. Beside that a supervisor restarts children
//! that fail.
#![allow(unsafe_code)] // The allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use corelet::actor::supervisor::{ChildRef, ChildSpec, Supervisor, SupervisorRef};
use corelet::actor::{self, Addressable, ExitReason, Monitors, Pid, Reply, channel};
use corelet::runtime::{
    CoreId, Cores, Runtime, RuntimeHandle, core_stats, current_core, handle, timeout, yield_now,
};
use futures_util::future::join_all;

/// How long what must happen may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pairs of which one member ends, in each round.
const ROUND: usize = 200;
/// Children of each keeper's supervisor.
const SUPERVISED: usize = 64;

#[derive(Parser)]
struct Args {
    /// How long to go on.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How many actors there are at a time.
    #[arg(long, default_value_t = 20_000)]
    actors: usize,
    /// What chance is drawn from.
    #[arg(long)]
    seed: Option<u64>,
}

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

struct Counting;

// SAFETY: hands every call on to the system's allocator unchanged; the counter is an atomic.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: likewise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE_BYTES.fetch_add(size as i64 - layout.size() as i64, Ordering::Relaxed);
        // SAFETY: likewise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The sums of both keepers.
#[derive(Default)]
struct Counts {
    spawned: AtomicU64,
    ended: AtomicU64,
    /// Ends that were told by a monitor.
    downs: AtomicU64,
    /// Ends that were told as trapped exits.
    exits: AtomicU64,
    /// Ends that took a linked actor along.
    followed: AtomicU64,
    across: AtomicU64,
    restarts: AtomicU64,
    rounds: AtomicU64,
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

enum Member {}

enum Order {
    Panic,
    Return,
    Fail,
    /// Whether the link is made, and whether anything was heard that has not been reported.
    Ready(Reply<bool>),
}

impl Addressable for Member {
    type Msg = Order;
}

/// The way in which an actor ends.
#[derive(Clone, Copy, Debug)]
enum Way {
    Panic,
    Return,
    Fail,
    Stop,
}

impl Way {
    fn reason(self) -> ExitReason {
        match self {
            Way::Panic => ExitReason::Panicked("on purpose".into()),
            Way::Return => ExitReason::Normal,
            Way::Fail => ExitReason::Failed("had enough".into()),
            Way::Stop => ExitReason::Stopped,
        }
    }

    fn end(self, pid: Pid<Member>) {
        let order = match self {
            Way::Panic => Order::Panic,
            Way::Return => Order::Return,
            Way::Fail => Order::Fail,
            Way::Stop => return actor::request_stop(pid),
        };
        actor::send_to(pid, order).expect("it lives");
    }
}

async fn obey(order: Order, heard: bool) -> bool {
    match order {
        Order::Panic => panic!("on purpose"),
        Order::Return => return false,
        Order::Fail => actor::exit("had enough").await,
        Order::Ready(reply) => reply.send(!heard),
    }
    true
}

async fn plain(partner: Option<Pid<Member>>, mut inbox: channel::Receiver<Order>) {
    if let Some(partner) = partner {
        actor::link(partner);
    }
    while let Ok(order) = inbox.recv().await {
        if !obey(order, false).await {
            return;
        }
    }
}

/// As `plain`, and says what it hears of its partner's end.
async fn trapping(
    partner: Pid<Member>,
    mut inbox: channel::Receiver<Order>,
    tell: channel::Sender<(Pid, ExitReason)>,
) {
    let mut exits = actor::trap_exits();
    actor::link(partner);
    loop {
        match actor::select((exits.recv(), inbox.recv())).await {
            actor::Arm::First(exit) => tell.send((exit.from, exit.reason)).expect("the keeper lives"),
            actor::Arm::Second(Ok(order)) => {
                if !obey(order, exits.try_recv().is_some()).await {
                    return;
                }
            }
            _ => return,
        }
    }
}

/// Two linked actors, the second of which has made the link.
#[derive(Clone, Copy)]
struct Pair {
    first: Pid<Member>,
    second: Pid<Member>,
    traps: bool,
}

struct Keeper {
    here: CoreId,
    there: CoreId,
    random: fastrand::Rng,
    pairs: Vec<Pair>,
    monitors: Monitors,
    tell: channel::Sender<(Pid, ExitReason)>,
    told: channel::Receiver<(Pid, ExitReason)>,
    counts: Arc<Counts>,
}

impl Keeper {
    fn new(cores: &[CoreId], seed: u64, counts: &Arc<Counts>) -> Keeper {
        let here = current_core().expect("a keeper runs on a core");
        let there = cores.iter().copied().find(|core| *core != here).unwrap_or(here);
        let (tell, told) = channel::unbounded();
        let random = fastrand::Rng::with_seed(seed ^ u64::from(here.get()));
        let (pairs, monitors) = (Vec::new(), Monitors::new());
        Keeper { here, there, random, pairs, monitors, tell, told, counts: Arc::clone(counts) }
    }

    /// Spawns so many pairs, and waits until they are linked.
    async fn spawn(&mut self, pairs: usize) {
        let mut starts = Vec::with_capacity(pairs);
        for _ in 0..pairs {
            let first = actor::spawn_addr::<Member, _, _>(|inbox| plain(None, inbox));
            let core = if self.random.bool() { self.here } else { self.there };
            let traps = self.random.bool();
            let tell = self.tell.clone();
            starts.push(async move {
                let runtime = handle();
                let second = if traps {
                    let body = move |inbox| trapping(first, inbox, tell);
                    actor::spawn_addr_on::<Member, _, _>(&runtime, core, body).await
                } else {
                    actor::spawn_addr_on::<Member, _, _>(&runtime, core, move |inbox| {
                        plain(Some(first), inbox)
                    })
                    .await
                };
                let second = second.expect("the core runs");
                // It answers when it has asked for the link; and by the answer of the first, which the same way takes, the
                // link is made.
                assert!(actor::call(second, Order::Ready).await.expect("it lives"));
                assert!(actor::call(first, Order::Ready).await.expect("it lives"));
                Pair { first, second, traps }
            });
        }
        for pair in soon(join_all(starts)).await {
            assert!(self.monitors.watch(pair.first) && self.monitors.watch(pair.second));
            count(&self.counts.across, u64::from(pair.first.core() != pair.second.core()));
            self.pairs.push(pair);
        }
        count(&self.counts.spawned, 2 * pairs as u64);
    }

    async fn down(&mut self) -> (Pid, ExitReason) {
        let down = soon(self.monitors.recv()).await;
        count(&self.counts.downs, 1);
        count(&self.counts.ended, 1);
        (down.pid, down.reason)
    }

    /// Ends one member of each of some pairs, sees to what follows, and takes the others down.
    async fn end(&mut self, pairs: Vec<Pair>) {
        let mut expected = std::collections::BTreeMap::new();
        let mut words = std::collections::BTreeMap::new();
        let mut left = Vec::new();
        for pair in pairs {
            let way = [Way::Panic, Way::Return, Way::Fail, Way::Stop][self.random.usize(..4)];
            let ends_first = self.random.bool();
            let (ends, other) =
                if ends_first { (pair.first, pair.second) } else { (pair.second, pair.first) };
            expected.insert(ends.erase(), way.reason());
            if pair.traps && ends_first {
                words.insert(ends.erase(), way.reason());
                left.push(other);
            } else if way.reason().is_abnormal() {
                expected.insert(other.erase(), way.reason());
                count(&self.counts.followed, 1);
            } else {
                left.push(other);
            }
            way.end(ends);
        }
        for _ in 0..expected.len() {
            let (pid, reason) = self.down().await;
            assert_eq!(expected.remove(&pid), Some(reason), "the end of {pid}");
        }
        for _ in 0..words.len() {
            let (from, reason) = soon(self.told.recv()).await.expect("there are senders");
            assert_eq!(words.remove(&from), Some(reason), "the exit of {from}");
            count(&self.counts.exits, 1);
        }
        // Those that are left have heard what they had to, and nothing besides.
        let ready = left.iter().map(|pid| actor::call(*pid, Order::Ready));
        assert!(
            soon(join_all(ready)).await.into_iter().all(|ready| ready == Ok(true)),
            "heard twice, or not alive"
        );
        for pid in &left {
            actor::request_stop(*pid);
        }
        for _ in 0..left.len() {
            let (pid, reason) = self.down().await;
            assert!(left.iter().any(|left| *left == pid) && reason == ExitReason::Stopped);
        }
        assert!(self.told.is_empty() && self.monitors.try_recv().is_none(), "heard of twice");
    }

    async fn round(&mut self) {
        let ending = (0..ROUND.min(self.pairs.len()))
            .map(|_| {
                let at = self.random.usize(..self.pairs.len());
                self.pairs.swap_remove(at)
            })
            .collect::<Vec<_>>();
        let ended = ending.len();
        self.end(ending).await;
        self.spawn(ended).await;
        count(&self.counts.rounds, 1);
    }

    async fn end_all(&mut self) {
        while !self.pairs.is_empty() {
            let rest = self.pairs.len().saturating_sub(ROUND);
            let some = self.pairs.split_off(rest);
            self.end(some).await;
        }
        assert!(self.monitors.is_empty());
    }
}

/// A supervised child that fails when it is told to.
enum Frail {}

impl Addressable for Frail {
    type Msg = ();
}

struct Supervised {
    supervisor: SupervisorRef,
    places: Vec<ChildRef<Frail>>,
    kills: u64,
}

impl Supervised {
    async fn start(cores: &[CoreId]) -> Supervised {
        let places: Vec<_> = (0..SUPERVISED).map(|_| ChildRef::new()).collect();
        let mut builder = Supervisor::builder().intensity(u32::MAX, Duration::from_millis(1));
        for (number, place) in places.iter().enumerate() {
            let child = ChildSpec::addressed(format!("frail {number}"), place, async |mut inbox| {
                if inbox.recv().await.is_ok() {
                    panic!("on purpose");
                }
            });
            builder = builder.child(child.on(cores[number % cores.len()]));
        }
        let supervisor = soon(builder.start()).await.expect("all start");
        Supervised { supervisor, places, kills: 0 }
    }

    /// Ends some children and waits until they are back.
    async fn round(&mut self, random: &mut fastrand::Rng) {
        let first = random.usize(..SUPERVISED);
        let chosen: Vec<_> = (0..8).map(|step| &self.places[(first + step) % SUPERVISED]).collect();
        let before: Vec<_> = chosen.iter().map(|place| place.pid().expect("it is up")).collect();
        for pid in &before {
            actor::send_to(*pid, ()).expect("it is up");
        }
        self.kills += before.len() as u64;
        for (place, before) in chosen.into_iter().zip(before) {
            soon(async {
                while place.pid().is_none_or(|pid| pid == before) {
                    yield_now().await;
                }
            })
            .await;
        }
    }

    async fn stop(self, counts: &Counts) {
        let children = self.supervisor.which_children().await.expect("it runs");
        let restarts: u64 = children.iter().map(|child| u64::from(child.restarts)).sum();
        assert_eq!((children.len(), restarts), (SUPERVISED, self.kills), "each failure is one restart");
        count(&counts.restarts, restarts);
        assert!(soon(self.supervisor.shutdown()).await.is_empty());
    }
}

async fn soon<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("an exit is missing")
}

/// One core's part: fills up, goes on for so long, and ends all.
async fn keep(cores: Rc<[CoreId]>, pairs: usize, seconds: f64, seed: u64, counts: Arc<Counts>) {
    let mut keeper = Keeper::new(&cores, seed, &counts);
    while keeper.pairs.len() < pairs {
        keeper.spawn((pairs - keeper.pairs.len()).min(ROUND)).await;
    }
    let mut supervised = Supervised::start(&cores).await;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        keeper.round().await;
        supervised.round(&mut keeper.random).await;
    }
    supervised.stop(&counts).await;
    keeper.end_all().await;
}

/// Runs keepers on all cores, and gives the bytes that are left when only this task is.
fn cycle(
    runtime: &Runtime,
    args: &Args,
    seconds: f64,
    seed: u64,
    counts: &Arc<Counts>,
) -> Result<(i64, u64), Box<dyn Error>> {
    let (cores, counts) = (runtime.cores(), Arc::clone(counts));
    let pairs = args.actors / 2 / cores.len();
    runtime.block_on(move || async move {
        let runtime = handle();
        let mut before = Vec::new();
        for core in &cores {
            before.push(live(&runtime, *core).await);
        }
        let keepers = cores.iter().map(|core| {
            let (cores, counts) = (cores.clone(), Arc::clone(&counts));
            runtime
                .spawn_on(*core, move || keep(cores.into(), pairs, seconds, seed, counts))
                .expect("it runs")
        });
        for keeper in keepers.collect::<Vec<_>>() {
            keeper.await.expect("every exit is accounted for");
        }
        for (core, before) in cores.iter().zip(before) {
            // The tasks that brought the results may still be about.
            soon(async {
                while live(&runtime, *core).await > before {
                    yield_now().await;
                }
            })
            .await;
        }
    })?;
    Ok((LIVE_BYTES.load(Ordering::Relaxed), resident_kib()))
}

/// The tasks of a core, with the one that looks.
async fn live(runtime: &RuntimeHandle, core: CoreId) -> usize {
    let look = runtime.spawn_on(core, async || core_stats().expect("on a core").executor.live);
    soon(look.expect("it runs")).await.expect("it looks")
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed={seed}");
    // Thousands of panics are meant to happen.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref() != Some(&"on purpose") {
            hook(info);
        }
    }));
    let several = std::thread::available_parallelism()?.get() > 1;
    let runtime = Runtime::builder().cores(Cores::Count(2)).pinned(several).build()?;
    // Tables grow to their size once.
    let (base, base_kib) = cycle(&runtime, &args, 0.0, seed, &Arc::default())?;
    let counts = Arc::default();
    let (left, left_kib) = cycle(&runtime, &args, args.seconds, seed.wrapping_add(1), &counts)?;
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "actors={} rounds={} spawned={} pairs_across={} downs={} exits_trapped={} followed={} restarts={}",
        args.actors,
        get(&counts.rounds),
        get(&counts.spawned),
        get(&counts.across),
        get(&counts.downs),
        get(&counts.exits),
        get(&counts.followed),
        get(&counts.restarts),
    );
    println!("bytes_base={base} bytes_left={left} rss_base_kib={base_kib} rss_left_kib={left_kib}");
    assert_eq!(get(&counts.spawned), get(&counts.ended), "who was spawned has ended");
    assert_eq!(get(&counts.spawned), get(&counts.downs), "and was heard of, once");
    assert!(left <= base + base / 20 + (1 << 20), "the memory is not back where it was");
    println!("every exit accounted for");
    Ok(())
}
