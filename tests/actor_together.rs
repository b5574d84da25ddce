//! Supervisors, named servers, process groups, links and timers together, while children fail, supervisors are stopped and a
//! core is lost: whoever asks hears the truth, nobody is there twice, and nothing is left at the end.
//!
//! `CORELET_SEED=N` repeats a system, `CORELET_SEEDS=M` tries M of them.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corelet::actor::server::{self, Context, Server, ServerName};
use corelet::actor::supervisor::{
    ChildRef, ChildSpec, Strategy, Supervisor, SupervisorBuilder, SupervisorRef,
};
use corelet::actor::{self, Addressable, CallError, Name, Reply, SendError, group, snapshot};
use corelet::runtime::{CoreId, Faults, Simulation, handle, yield_now};
use support::{Random, on_cores, poll_until, soon};

/// Who lives, by what they are called.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Lives>>);

#[derive(Default)]
struct Lives {
    live: BTreeMap<&'static str, u32>,
    twice: Vec<&'static str>,
    begun: u64,
}

impl Book {
    fn begin(&self, who: &'static str) -> Life {
        let lives = &mut *self.0.lock().unwrap();
        let live = lives.live.entry(who).or_default();
        *live += 1;
        if *live > 1 {
            lives.twice.push(who);
        }
        lives.begun += 1;
        Life(self.clone(), who)
    }

    fn nobody_lives(&self) -> bool {
        self.0.lock().unwrap().live.values().all(|live| *live == 0)
    }
}

struct Life(Book, &'static str);

impl Drop for Life {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap().live.get_mut(self.1).unwrap() -= 1;
    }
}

/// A server with a name.
struct Keeper {
    book: Book,
    life: Option<Life>,
    ticks: u64,
}

const KEEPER: ServerName<Keeper> = Name::new("keeper");

enum Ask {
    Ticks,
    Panic,
    Stop,
    Forget,
}

impl Server for Keeper {
    type Call = Ask;
    type Reply = u64;
    type Cast = u64;
    type Info = Infallible;

    async fn init(&mut self, _: &Context<Self>) {
        self.life = Some(self.book.begin("keeper"));
    }

    async fn handle_call(&mut self, ask: Ask, reply: Reply<u64>, ctx: &Context<Self>) {
        match ask {
            Ask::Ticks => reply.send(self.ticks),
            Ask::Panic => panic!("on purpose"),
            Ask::Stop => ctx.stop(),
            Ask::Forget => drop(reply),
        }
    }

    async fn handle_cast(&mut self, ticks: u64, _: &Context<Self>) {
        self.ticks += ticks;
        yield_now().await;
    }
}

/// A member of a group.
enum Worker {}

impl Addressable for Worker {
    type Msg = (u64, Reply<u64>);
}

const WORKERS: [&str; 3] = ["worker 0", "worker 1", "worker 2"];

fn worker(book: &Book, number: usize, core: CoreId) -> ChildSpec {
    let book = book.clone();
    ChildSpec::addressed(WORKERS[number], &ChildRef::<Worker>::new(), async move |mut inbox| {
        let life = book.begin(WORKERS[number]);
        group::join("workers", actor::myself().unwrap());
        yield_now().await;
        Ok::<_, Infallible>(async move {
            let _life = life;
            while let Ok((number, reply)) = inbox.recv().await {
                match number {
                    13 => panic!("on purpose"),
                    14 => actor::exit("on purpose").await,
                    _ => reply.send(number),
                }
            }
        })
    })
    .on(core)
}

/// A keeper on the last core and a worker on each.
fn staff(book: &Book, strategy: Strategy, cores: &[CoreId]) -> SupervisorBuilder {
    let keeper = {
        let book = book.clone();
        let build = move || {
            let keeper = Keeper { book: book.clone(), life: None, ticks: 0 };
            server::build(keeper).bounded(4).named(KEEPER)
        };
        server::child("keeper", &ChildRef::new(), build).on(*cores.last().unwrap())
    };
    let builder =
        Supervisor::builder().strategy(strategy).intensity(1000, Duration::from_secs(5)).child(keeper);
    cores
        .iter()
        .enumerate()
        .fold(builder, |builder, (number, core)| builder.child(worker(book, number, *core)))
}

/// Asks and disturbs, and says how often it was answered.
async fn client(mut random: Random) -> u64 {
    let mut answered = 0;
    for _ in 0..60 {
        match random.below(16) {
            0 => drop(actor::send_after_named(KEEPER, server::Request::cast(1), Duration::from_micros(50))),
            1 => match server::cast(KEEPER, 1) {
                Ok(()) | Err(SendError::Unresolved(1) | SendError::Closed(1) | SendError::Full(1)) => {}
                Err(error) => panic!("{error}"),
            },
            2 => drop(soon(server::shutdown(KEEPER)).await),
            3..7 => {
                let ask = match random.below(8) {
                    0 => Ask::Panic,
                    1 => Ask::Stop,
                    2 => Ask::Forget,
                    _ => Ask::Ticks,
                };
                match soon(server::call(KEEPER, ask)).await {
                    Ok(_) => answered += 1,
                    Err(CallError::Unresolved | CallError::Closed | CallError::Full | CallError::NoReply) => {
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            7..12 => {
                let number = random.below(20);
                let (reply, answer) = actor::reply();
                match group::dispatch::<Worker>("workers", (number, reply)) {
                    Ok(_) => match soon(answer).await {
                        Ok(same) => {
                            assert_eq!(same, number);
                            answered += 1;
                        }
                        Err(error) => assert_eq!(error, CallError::NoReply),
                    },
                    Err(SendError::NoMember(_) | SendError::Closed(_)) => drop(answer),
                    Err(error) => panic!("{error}"),
                }
            }
            12 => {
                // Whoever is linked with two of them is stopped by the first that fails.
                let members = group::members("workers");
                let linked = actor::spawn(async move {
                    for member in members {
                        actor::link(member.pid);
                    }
                    pending::<()>().await;
                });
                let end = actor::monitor(linked);
                yield_now().await;
                actor::request_stop(linked);
                soon(end).await;
            }
            13 => {
                let seen = snapshot().await;
                let pids: BTreeSet<_> = seen.actors().map(|actor| actor.pid).collect();
                assert_eq!(pids.len(), seen.actors().count(), "everybody is there once");
            }
            _ => yield_now().await,
        }
    }
    answered
}

async fn all_answer(workers: usize) -> bool {
    let pids = group::members_as::<Worker>("workers");
    let mut whole = pids.len() == workers && soon(server::call(KEEPER, Ask::Ticks)).await.is_ok();
    for pid in pids {
        whole &= soon(actor::call(pid, |reply| (1, reply))).await == Ok(1);
    }
    whole
}

/// Disturbs a system of two levels of supervisors until it is told to go, and checks that it was whole all the time.
async fn storm(seed: u64, cores: Vec<CoreId>, book: Book, mut loses: Option<Faults>) -> u64 {
    let mut random = Random::seeded(seed);
    let strategies = [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne];
    let strategy = strategies[random.below(3) as usize];
    let place = ChildRef::<Supervisor>::new();
    let inner = {
        let (book, cores) = (book.clone(), cores.clone());
        ChildSpec::supervisor("staff", &place, move || staff(&book, strategy, &cores))
    };
    let top = Supervisor::builder().intensity(1000, Duration::from_secs(5)).child(inner);
    let top = soon(top.start()).await.unwrap();
    let mut clients = Vec::new();
    for (number, core) in cores.iter().enumerate() {
        let seed = seed * 8 + number as u64;
        clients.push(handle().spawn_on(*core, move || client(Random::seeded(seed))).unwrap());
    }
    let mut lost = false;
    let mut cut_off = false;
    for step in 0..20 {
        match random.below(10) {
            0 => {
                if let Some(staff) = place.pid() {
                    cut_off = true;
                    actor::request_stop(staff);
                }
            }
            1 if step > 10 => {
                if let Some(faults) = loses.take() {
                    lost = true;
                    faults.kill_core(2);
                }
            }
            2 => {
                if let Some(staff) = place.pid() {
                    let _ = soon(SupervisorRef::new(staff).restart_child("keeper")).await;
                }
            }
            _ => {}
        }
        for _ in 0..random.below(30) {
            yield_now().await;
        }
    }
    let mut answered = 0;
    for client in clients {
        match client.await {
            Ok(count) => answered += count,
            // One is lost with its core.
            Err(error) => assert!(error.is_cancelled(), "{error}"),
        }
    }
    if !lost {
        // What was disturbed last may take its time.
        poll_until(async || all_answer(cores.len()).await).await;
    }
    soon(top.shutdown()).await;
    poll_until(async || book.nobody_lives()).await;
    assert_eq!(actor::whereis(KEEPER), None);
    assert_eq!(group::members("workers"), []);
    let lives = book.0.lock().unwrap();
    // A supervisor that is stopped waits for none of its children.
    assert!(cut_off || lives.twice.is_empty(), "there were two lives of {:?} at once", lives.twice);
    assert!(!lives.twice.contains(&"keeper"), "a name has one holder");
    assert!(lives.begun >= 3);
    answered
}

#[test]
fn a_simulated_system_heals_and_leaves_nothing_behind() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("CORELET_SEED").unwrap_or(0);
    let count = number("CORELET_SEEDS").unwrap_or(if number("CORELET_SEED").is_some() { 1 } else { 200 });
    let mut answered = 0;
    for seed in first..first + count {
        println!("CORELET_SEED={seed}");
        let mut simulation = Simulation::new(seed, 3);
        let (cores, faults) = (simulation.cores(), simulation.faults());
        let book = Book::default();
        let loses = (seed % 3 == 2).then_some(faults);
        answered += simulation.block_on(move || storm(seed, cores, book, loses)).unwrap();
        simulation.run_until_idle().unwrap();
        for position in 0..3 {
            let live = simulation.stats(position).map_or(0, |stats| stats.executor.live);
            assert_eq!(live, 0, "somebody is left on core {position}");
        }
    }
    assert!(answered > 10 * count, "{answered}");
}

#[test]
fn a_system_on_two_cores_heals_and_leaves_nothing_behind() {
    for seed in 0..8 {
        on_cores(2, async move |_, cores| {
            storm(seed, cores, Book::default(), None).await;
        });
    }
}
