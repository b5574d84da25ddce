//! Pools: who owns the slots and the waiters, and what serves them.
//!
//! The subject is [`Actor`](actor::Actor): one long-lived scheduler that owns its shard's state. The references are
//! [`SpawnOnDemand`](spawn_on_demand::SpawnOnDemand), whose state is shared behind a mutex and served by a task of
//! its own for each operation, and [`ClonedGraph`](cloned_graph::ClonedGraph), whose leases keep what is above them
//! alive by clones of shared references.

pub mod actor;
pub mod cloned_graph;
pub mod spawn_on_demand;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corelet::pool::Fairness;
use corelet::runtime::{RuntimeHandle, handle, sleep, spawn, yield_now};

use super::counts::{Counter, Counts, Mark};
use super::latency::Latency;
use crate::common::{Countdown, time_tasks};

pub const TASKS_PER_SLOT: usize = 8;

/// A pool of connections that are only numbers, on the current core.
pub trait Subject: Sized + 'static {
    const NAME: &'static str;
    /// Whether it is what came before.
    const REFERENCE: bool;
    /// Tasks that an acquire and its release spawn.
    const TASKS_PER_LEASE: u64;
    /// Allocations when it is made, beyond those of the subject, for so many slots. None where it is another design
    /// altogether, so that a difference says nothing.
    fn allocations_added(slots: usize) -> Option<u64>;

    type Handle: 'static;
    type Lease: 'static;

    /// Makes it, without opening a connection.
    fn new(runtime: &RuntimeHandle, slots: usize, fairness: Fairness) -> Self;

    fn handle(&self) -> Self::Handle;

    fn acquire(handle: &Self::Handle) -> impl Future<Output = Self::Lease>;

    /// Acquires that were admitted and had to wait, so far.
    fn capacity_waits(&self) -> impl Future<Output = u64>;

    /// Long-lived tasks that serve it, ever started.
    fn scheduler_spawns(&self) -> impl Future<Output = u64>;

    /// Returns when nothing of it runs any more.
    fn close(self) -> impl Future<Output = ()>;
}

/// What is on its way runs until nothing is: tasks of earlier operations, messages to the core itself.
pub async fn settle() {
    // A sleep, however short, is over at the end of a turn at the earliest, when messages have been read.
    for _ in 0..4 {
        sleep(Duration::from_nanos(1)).await;
    }
}

/// A pool with all connections open, and nothing left to do.
pub async fn open<S: Subject>(slots: usize, fairness: Fairness) -> S {
    let pool = S::new(&handle(), slots, fairness);
    let first = pool.handle();
    let mut leases = Vec::with_capacity(slots);
    for _ in 0..slots {
        leases.push(S::acquire(&first).await);
    }
    drop(leases);
    settle().await;
    pool
}

/// One task acquires and releases, one after the other.
pub async fn uncontended<S: Subject>(handle: &S::Handle, operations: u64) {
    for _ in 0..operations {
        drop(S::acquire(handle).await);
    }
}

pub async fn count_uncontended<S: Subject>(slots: usize, operations: u64) -> Counts {
    let pool = open::<S>(slots, Fairness::Fifo).await;
    let handle = pool.handle();
    uncontended::<S>(&handle, operations).await;
    settle().await;
    // The first who came waited for their connections to be opened.
    let waits = pool.capacity_waits().await;
    let mark = Mark::now();
    uncontended::<S>(&handle, operations).await;
    settle().await;
    let counts = mark.counts(operations);
    let counts = counts.with(Counter::CapacityWaits, pool.capacity_waits().await - waits);
    drop(handle);
    pool.close().await;
    counts
}

/// Eight tasks a slot, each with a handle of its own, keep their leases across one yield.
pub fn contending<S: Subject>(
    handles: &[Rc<S::Handle>],
    operations: u64,
    latency: Option<Rc<RefCell<Latency>>>,
) -> Vec<impl Future<Output = ()> + 'static> {
    let left = Countdown::new(operations);
    let task = |handle: &Rc<S::Handle>| {
        let (handle, left, latency) = (Rc::clone(handle), Rc::clone(&left), latency.clone());
        async move {
            while left.take() {
                let asked = latency.as_ref().map(|_| Instant::now());
                let lease = S::acquire(&handle).await;
                if let (Some(asked), Some(latency)) = (asked, &latency) {
                    latency.borrow_mut().record(asked.elapsed());
                }
                yield_now().await;
                drop(lease);
            }
        }
    };
    handles.iter().map(task).collect()
}

/// A handle for each contending task.
pub fn handles<S: Subject>(pool: &S, slots: usize) -> Vec<Rc<S::Handle>> {
    (0..TASKS_PER_SLOT * slots).map(|_| Rc::new(pool.handle())).collect()
}

pub async fn contended<S: Subject>(handles: &[Rc<S::Handle>], operations: u64) -> Duration {
    time_tasks(contending::<S>(handles, operations, None)).await
}

/// Counts are of the pool alone: those of the tasks that ask are taken off.
pub async fn count_contended<S: Subject>(slots: usize, fairness: Fairness, operations: u64) -> Counts {
    let pool = open::<S>(slots, fairness).await;
    let handles = handles(&pool, slots);
    contended::<S>(&handles, operations).await;
    settle().await;
    let waits = pool.capacity_waits().await;
    let tasks: Vec<_> = contending::<S>(&handles, operations, None).into_iter().map(spawn).collect();
    let mark = Mark::now();
    for task in tasks {
        task.await.expect("the scenario does not panic");
    }
    settle().await;
    let counts = mark.counts(operations);
    let counts = counts.with(Counter::CapacityWaits, pool.capacity_waits().await - waits);
    drop(handles);
    pool.close().await;
    counts
}

/// How long each acquire waited.
pub async fn latency_contended<S: Subject>(slots: usize, fairness: Fairness, operations: u64) -> Latency {
    let pool = open::<S>(slots, fairness).await;
    let handles = handles(&pool, slots);
    contended::<S>(&handles, operations / 10 + 1).await;
    let latency = Rc::new(RefCell::new(Latency::new()));
    time_tasks(contending::<S>(&handles, operations, Some(Rc::clone(&latency)))).await;
    settle().await;
    drop(handles);
    pool.close().await;
    Rc::into_inner(latency).expect("its tasks have ended").into_inner()
}

/// The life of a pool, phase by phase.
pub struct Phases {
    pub construction: Counts,
    pub acquisition: Counts,
    /// Since before the construction.
    pub close: Counts,
}

pub async fn phases<S: Subject>(slots: usize, operations: u64) -> Phases {
    let runtime = handle();
    settle().await;
    let before = Mark::now();
    let pool = S::new(&runtime, slots, Fairness::Fifo);
    settle().await;
    let construction = before.counts(1);
    let construction = construction.with(Counter::SchedulerSpawns, pool.scheduler_spawns().await);

    let handle = pool.handle();
    let spawns = pool.scheduler_spawns().await;
    let mark = Mark::now();
    uncontended::<S>(&handle, operations).await;
    settle().await;
    let acquisition = mark.counts(operations);
    let acquisition = acquisition.with(Counter::SchedulerSpawns, pool.scheduler_spawns().await - spawns);

    drop(handle);
    pool.close().await;
    settle().await;
    let close = before.counts(1).with(Counter::LiveTasks, before.live_since());
    Phases { construction, acquisition, close }
}
