//! What the benches share: where they run, a connection that costs nothing, and how the work of several tasks is timed.
//!
//! Never: a threshold on time. A bench shows figures; machines differ, and the tests hold the promises.
// Each bench uses a part of it.
#![allow(dead_code)]

pub mod alloc;

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use core_affinity::CoreId;
use corelet::pool::{Connection, Connector, Fairness, Handle, Lease, Pool};
use corelet::runtime::{Core, Cores, JoinHandle, Runtime, RuntimeHandle, Watch, spawn};
use criterion::Criterion;

/// Where the measured thread runs, and where its peer does: the first two cores that this process may use.
pub const HERE: usize = 0;
pub const THERE: usize = 1;

/// The settings of all benches, for this thread, which it pins. The command line still overrides them.
pub fn settings() -> Criterion {
    pin(HERE);
    Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
}

/// Binds the current thread to one of the cores that this process may use.
pub fn pin(position: usize) {
    // Asked once, before any thread is pinned: a pinned one sees its own core only.
    static ALLOWED: LazyLock<Vec<CoreId>> =
        LazyLock::new(|| core_affinity::get_core_ids().unwrap_or_default());
    let core = *ALLOWED.get(position).unwrap_or_else(|| {
        panic!("this bench needs {} cores and may use {}", position + 1, ALLOWED.len());
    });
    assert!(core_affinity::set_for_current(core), "cannot pin a thread to core {}", core.id);
}

/// One core of its own on the current thread.
pub fn core(busy_poll: Duration) -> Core {
    let builder = Runtime::builder().cores(Cores::Count(1)).pinned(false).busy_poll(busy_poll);
    let (_, mut guests) = builder.build_guests().unwrap();
    guests.remove(0).start().unwrap()
}

/// Operations that several tasks share, so that all of them end at the same time.
pub struct Countdown(Cell<u64>);

impl Countdown {
    pub fn new(operations: u64) -> Rc<Countdown> {
        Rc::new(Countdown(Cell::new(operations)))
    }

    /// Takes one; false when none is left.
    #[inline]
    pub fn take(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }
}

/// Starts the tasks and gives the time from then until the last has ended.
pub async fn time_tasks(tasks: impl IntoIterator<Item: Future<Output = ()> + 'static>) -> Duration {
    // They are queued here, and run only when this task waits for them.
    let tasks: Vec<JoinHandle<()>> = tasks.into_iter().map(spawn).collect();
    let begun = Instant::now();
    for task in tasks {
        task.await.unwrap();
    }
    begun.elapsed()
}

/// Connects to nothing.
pub struct Numbers;

/// A connection that is only a number, always fit for use.
pub struct Number(pub u64);

impl Connector for Numbers {
    type Connection = Number;

    async fn connect(&self) -> io::Result<Number> {
        Ok(Number(7))
    }
}

impl Connection for Number {
    type Detached = Number;

    #[inline]
    fn is_quiet(&self) -> bool {
        true
    }

    #[inline]
    fn arm(&mut self, _watch: Watch) {}

    fn poll_quiesce(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn detach(self) -> Result<Number, Number> {
        Ok(self)
    }

    fn attach(detached: Number) -> Number {
        detached
    }

    async fn close(self) {}
}

/// A pool of numbers.
pub fn numbers(runtime: &RuntimeHandle, slots: usize, fairness: Fairness) -> Pool<Numbers> {
    Pool::builder(Numbers).slots_per_core(slots).fairness(fairness).build(runtime).unwrap()
}

/// Opens every connection of the handle's shard, so that none is opened while measuring.
pub async fn warm<C: Connector>(handle: &Handle<C>, slots: usize) {
    let mut leases: Vec<Lease<C>> = Vec::with_capacity(slots);
    for _ in 0..slots {
        leases.push(handle.acquire().await.unwrap());
    }
}
