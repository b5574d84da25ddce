//! A tree that heals: a store that two workers depend on, each on a core of its own, and a supervisor above that puts all of
//! it up again when a part fails too often.
//!
//! `cargo run --example supervisor` runs it, checks each step and exits with 0.

use std::error::Error;
use std::time::Duration;

use corelet::actor::supervisor::{ChildRef, ChildSpec, Restart, Strategy, Supervisor, SupervisorBuilder};
use corelet::actor::{self, Addressable, ExitReason, Pid, Reply};
use corelet::runtime::{CoreId, Cores, Runtime, handle, sleep, timeout};

/// Keeps a sum. Its state is lost when it fails, and so is whatever depends on that.
enum Store {}

enum StoreMsg {
    Add(u64),
    Sum(Reply<u64>),
    Corrupt,
}

impl Addressable for Store {
    type Msg = StoreMsg;
}

/// Adds what it is sent, by way of the store it found when it started.
enum Adder {}

impl Addressable for Adder {
    type Msg = u64;
}

#[derive(Clone, Default)]
struct Places {
    store: ChildRef<Store>,
    adders: [ChildRef<Adder>; 2],
    service: ChildRef<Supervisor>,
}

fn store(place: &ChildRef<Store>) -> ChildSpec {
    ChildSpec::addressed("store", place, async |mut inbox| {
        let mut sum = 0;
        while let Ok(message) = inbox.recv().await {
            match message {
                StoreMsg::Add(number) => sum += number,
                StoreMsg::Sum(reply) => reply.send(sum),
                StoreMsg::Corrupt => panic!("the sum does not add up"),
            }
        }
    })
}

fn adder(number: usize, places: &Places, core: CoreId) -> ChildSpec {
    let store = places.store.clone();
    let adder =
        ChildSpec::addressed(format!("adder {number}"), &places.adders[number], async move |mut inbox| {
            // The init: without a store there is nothing to do here.
            let store = store.pid().ok_or("there is no store")?;
            Ok::<_, &str>(async move {
                while let Ok(number) = inbox.recv().await {
                    assert_ne!(number, 0, "to add nothing is a mistake");
                    if actor::send_to(store, StoreMsg::Add(number)).is_err() {
                        actor::exit("lost the store").await;
                    }
                }
            })
        });
    adder.on(core).restart(Restart::Permanent)
}

/// The store first, then those that depend on it: with *rest for one* they start again when the store does.
fn service(places: &Places, cores: &[CoreId]) -> SupervisorBuilder {
    Supervisor::builder()
        .strategy(Strategy::RestForOne)
        .intensity(2, Duration::from_secs(60))
        .child(store(&places.store))
        .child(adder(0, places, cores[0]))
        .child(adder(1, places, cores[cores.len() - 1]))
}

async fn sum(places: &Places) -> u64 {
    match places.store.pid() {
        Some(store) => actor::call(store, StoreMsg::Sum).await.unwrap_or(0),
        None => 0,
    }
}

/// Waits for something that is about to happen.
async fn until(mut condition: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !condition().await {
            sleep(Duration::from_micros(200)).await;
        }
    };
    timeout(Duration::from_secs(10), wait).await.expect("the tree heals");
}

/// Ends a child by a message and waits for its next life.
async fn fail<A: Addressable>(place: &ChildRef<A>, message: A::Msg) -> Pid<A> {
    let before = place.pid().expect("it runs");
    let _ = actor::send_to(before, message);
    until(async || place.pid().is_some_and(|pid| pid != before)).await;
    place.pid().expect("it runs again")
}

async fn run() {
    let (places, cores) = (Places::default(), handle().cores());
    let (theirs, on) = (places.clone(), cores.clone());
    let root = Supervisor::builder()
        .child(ChildSpec::supervisor("service", &places.service, move || service(&theirs, &on)))
        .start()
        .await
        .expect("everything starts");
    println!("up: {}", names(&places).await);

    actor::send_to(places.adders[0].pid().unwrap(), 2).unwrap();
    actor::send_to(places.adders[1].pid().unwrap(), 3).unwrap();
    until(async || sum(&places).await == 5).await;

    // An adder fails: it alone starts again, and the sum is still there.
    let (store, other) = (places.store.pid(), places.adders[0].pid());
    fail(&places.adders[1], 0).await;
    assert_eq!((places.store.pid(), places.adders[0].pid()), (store, other));
    assert_eq!(sum(&places).await, 5);
    println!("an adder failed and is back: {}", names(&places).await);

    // The store fails: those that hold its pid start again with it.
    let adders = [places.adders[0].pid(), places.adders[1].pid()];
    fail(&places.store, StoreMsg::Corrupt).await;
    until(async || (0..2).all(|at| places.adders[at].pid().is_some_and(|pid| Some(pid) != adders[at]))).await;
    actor::send_to(places.adders[1].pid().unwrap(), 7).unwrap();
    until(async || sum(&places).await == 7).await;
    println!("the store failed and all are back: {}", names(&places).await);

    // A third failure within a minute is too much for the service; its own supervisor starts a fresh one.
    let service = places.service.pid().unwrap();
    let end = actor::monitor(service);
    fail(&places.store, StoreMsg::Corrupt).await;
    let down = end.await;
    assert!(matches!(&down.reason, ExitReason::Failed(text) if text.starts_with("gave up")));
    until(async || {
        places.adders[1].pid().is_some() && places.service.pid().is_some_and(|pid| pid != service)
    })
    .await;
    println!("the service {} and is back: {}", down.reason, names(&places).await);

    let watch =
        [actor::monitor(places.store.pid().unwrap()), actor::monitor(places.adders[1].pid().unwrap())];
    assert!(root.shutdown().await.is_empty(), "everybody has ended in time");
    for end in watch {
        assert_eq!(end.await.reason, ExitReason::Stopped);
    }
    println!("shut down, the last first");
}

async fn names(places: &Places) -> String {
    let service = corelet::actor::supervisor::SupervisorRef::new(places.service.pid().expect("it runs"));
    let children = service.which_children().await.expect("it runs");
    let name = |child: &corelet::actor::supervisor::ChildInfo| match child.pid {
        Some(pid) => format!("{} {pid}", child.id),
        None => format!("{} down", child.id),
    };
    children.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn main() -> Result<(), Box<dyn Error>> {
    let several = std::thread::available_parallelism()?.get() > 1;
    let runtime = Runtime::builder().cores(Cores::Count(2)).pinned(several).build()?;
    runtime.block_on(run)?;
    Ok(())
}
