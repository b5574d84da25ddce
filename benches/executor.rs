//! What the operations of a core's executor cost.
//!
//! - `yield`: 64 tasks yield in turn, each going behind the other 63; per yield.
//! - `spawn_join`: 100 tasks are spawned and joined, over and over; per task.
//! - `ping_pong`: 100 pairs of tasks pass a message to and fro; per round trip, which is two wake-ups.
//! - `spawn_storm`: a task spawns two, and each of those two, until there were enough; per task.
//! - `timer`: a sleep of one second is armed, polled once and cancelled, with 100 armed at any time; per sleep.

//!
//! `CORELET_WAKE_SLOT=1` switches the wake slot on. After each bench a line says how the slot was used, as
//! `slot,<bench>,<on or off>,<hits>,<displaced>,<polls>`; `tools/executor-slot` runs both and puts them side by side.

mod common;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use corelet::runtime::{Sleep, sleep, spawn, yield_now};
use criterion::{Criterion, criterion_group, criterion_main};

use common::{Countdown, core, settings, time_tasks};

const YIELDING_TASKS: usize = 64;
const SPAWN_BATCH: u64 = 100;
const PAIRS: usize = 100;
const ARMED_TIMERS: usize = 100;
const TIMER: Duration = Duration::from_secs(1);

/// Measures `run`, which gives the time that so many operations took.
fn bench<F>(criterion: &mut Criterion, name: &str, run: impl Fn(u64) -> F)
where
    F: Future<Output = Duration> + 'static,
{
    let slot = std::env::var_os("CORELET_WAKE_SLOT").is_some_and(|value| value == "1");
    let mut made = None;
    criterion.bench_function(&format!("executor/{name}"), |bencher| {
        let core = made.get_or_insert_with(|| {
            let core = core(Duration::ZERO);
            core.set_wake_slot(slot);
            core
        });
        bencher.iter_custom(|operations| core.block_on(run(operations)).unwrap());
    });
    if let Some(core) = made {
        let stats = core.stats().executor;
        let state = if slot { "on" } else { "off" };
        println!("slot,{name},{state},{},{},{}", stats.slot_hits, stats.slot_displaced, stats.polls);
    }
}

async fn yields(operations: u64) -> Duration {
    let left = Countdown::new(operations);
    let task = |left: Rc<Countdown>| async move {
        while left.take() {
            yield_now().await;
        }
    };
    time_tasks((0..YIELDING_TASKS).map(|_| task(Rc::clone(&left)))).await
}

async fn spawns(operations: u64) -> Duration {
    let mut tasks = Vec::with_capacity(SPAWN_BATCH as usize);
    let mut left = operations;
    let begun = Instant::now();
    while left > 0 {
        let batch = left.min(SPAWN_BATCH);
        tasks.extend((0..batch).map(|_| spawn(async {})));
        for task in tasks.drain(..) {
            task.await.unwrap();
        }
        left -= batch;
    }
    begun.elapsed()
}

/// Spawns two more as long as there are some left to spawn.
fn branch(left: Rc<Countdown>, alive: Rc<Cell<u64>>) {
    for _ in 0..2 {
        if left.take() {
            alive.set(alive.get() + 1);
            let (left, alive) = (Rc::clone(&left), Rc::clone(&alive));
            spawn(async move {
                branch(left, Rc::clone(&alive));
                alive.set(alive.get() - 1);
            })
            .detach();
        }
    }
}

async fn spawn_storm(operations: u64) -> Duration {
    let (left, alive) = (Countdown::new(operations), Rc::new(Cell::new(0)));
    let begun = Instant::now();
    branch(left, Rc::clone(&alive));
    while alive.get() > 0 {
        yield_now().await;
    }
    begun.elapsed()
}

/// A place for one message on its way to a task of the same core. As little as possible, so that the wake-ups are what
/// shows.
#[derive(Default)]
struct Seat {
    message: Cell<Option<Message>>,
    reader: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy)]
enum Message {
    Ball,
    End,
}

impl Seat {
    fn send(&self, message: Message) {
        self.message.set(Some(message));
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    async fn receive(&self) -> Message {
        poll_fn(|cx| match self.message.take() {
            Some(message) => Poll::Ready(message),
            None => {
                self.reader.replace(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}

async fn ping_pong(operations: u64) -> Duration {
    let left = Countdown::new(operations);
    let mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::with_capacity(2 * PAIRS);
    for _ in 0..PAIRS {
        let left = Rc::clone(&left);
        let (ping, pong) = (Rc::new(Seat::default()), Rc::new(Seat::default()));
        let (pinged, ponged) = (Rc::clone(&ping), Rc::clone(&pong));
        tasks.push(Box::pin(async move {
            while let Message::Ball = pinged.receive().await {
                pong.send(Message::Ball);
            }
        }));
        tasks.push(Box::pin(async move {
            while left.take() {
                ping.send(Message::Ball);
                ponged.receive().await;
            }
            ping.send(Message::End);
        }));
    }
    time_tasks(tasks).await
}

/// Each new sleep takes the place of the oldest, which cancels that one; in place, so that no box is part of the figure.
async fn timers(operations: u64) -> Duration {
    let mut armed: Vec<Pin<Box<Option<Sleep>>>> = (0..ARMED_TIMERS).map(|_| Box::pin(None)).collect();
    let mut left = operations;
    let begun = Instant::now();
    while left > 0 {
        let batch = left.min(ARMED_TIMERS as u64);
        let fired = poll_fn(|cx| {
            let mut fired = false;
            for place in armed.iter_mut().take(batch as usize) {
                place.set(Some(sleep(TIMER)));
                let sleep = place.as_mut().as_pin_mut().unwrap();
                fired |= sleep.poll(cx).is_ready();
            }
            Poll::Ready(fired)
        });
        assert!(!fired.await, "a sleep of a second ended at once");
        left -= batch;
        yield_now().await;
    }
    begun.elapsed()
}

fn executor(criterion: &mut Criterion) {
    bench(criterion, "yield", yields);
    bench(criterion, "spawn_join", spawns);
    bench(criterion, "spawn_storm", spawn_storm);
    bench(criterion, "ping_pong", ping_pong);
    bench(criterion, "timer", timers);
}

criterion_group! { name = benches; config = settings(); targets = executor }
criterion_main!(benches);
