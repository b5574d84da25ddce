//! The cases, written once for all libraries.

use super::{Case, Outcome, xcore};
use crate::alloc;
use crate::meter::{Meter, Throughput};
use crate::rounds::Plan;
use crate::runtimes::wake_itself;
use anyhow::{Context, Result, bail, ensure};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How many casts are under way at once at most.
pub const CASTS: u64 = 64;

/// What the cases need of an actor library.
pub trait Kit: Sized + Send + 'static {
    /// Reaches an adder: an actor that adds up the numbers it is sent.
    type Address: Send + 'static;

    /// Starts the library's runtime on the calling thread, or on one of its own that has the calling thread's
    /// affinity, and runs `main` to its end as a task like any other there.
    fn run<T, F>(main: impl FnOnce(Self) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static;

    /// Starts an adder.
    fn adder(&self, sum: Sum) -> impl Future<Output = Result<Self::Address>>;

    /// Adds `number` and waits for the sum.
    fn call(adder: &Self::Address, number: u64) -> impl Future<Output = Result<u64>>;

    /// Adds `number`, without a reply.
    fn cast(adder: &Self::Address, number: u64) -> impl Future<Output = Result<()>>;

    /// Starts an actor, has it stop and waits for its exit signal, until the slice is over.
    fn spawns(&self, meter: Meter) -> impl Future<Output = Result<Throughput>>;
}

/// A library that has supervisors.
pub trait Supervising: Kit {
    /// Has a supervised actor fail and asks the one that is started in its place, until the slice is over. The actor's
    /// answer is how many were started before it.
    fn restarts(&self, meter: Meter) -> impl Future<Output = Result<Throughput>>;
}

/// An adder's sum, which others may look at. Only its adder writes it.
#[derive(Clone, Default)]
pub struct Sum(Arc<AtomicU64>);

impl Sum {
    #[inline]
    pub fn add(&self, number: u64) -> u64 {
        let sum = self.get() + number;
        self.0.store(sum, Ordering::Relaxed);
        sum
    }

    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub fn run<K: Supervising>(case: Case, plan: &Plan) -> Result<Outcome> {
    let slice = plan.slice;
    match case {
        Case::SupervisedRestart => {
            K::run(move |kit| async move { kit.restarts(Meter::new(slice)).await })?.map(of)
        }
        _ => run_unsupervised::<K>(case, plan),
    }
}

pub fn run_unsupervised<K: Kit>(case: Case, plan: &Plan) -> Result<Outcome> {
    let (slice, crowd) = (plan.slice, plan.crowd);
    match case {
        Case::Call => K::run(move |kit| calls(kit, slice))?.map(of),
        Case::Cast => K::run(move |kit| casts(kit, slice))?.map(of),
        Case::CallXcore(_) => xcore::run::<K>(1, slice),
        Case::CastXcore(_) => xcore::run::<K>(CASTS, slice),
        Case::Spawn => K::run(move |kit| async move { kit.spawns(Meter::new(slice)).await })?.map(of),
        Case::IdleActor => K::run(move |kit| idle(kit, crowd))?,
        Case::SupervisedRestart | Case::Snapshot => bail!("not for every library"),
    }
}

fn of(throughput: Throughput) -> Outcome {
    Outcome {
        ns_per_op: throughput.ns_per_op(),
        allocs_per_op: throughput.allocs_per_op(),
        bytes_per_item: None,
    }
}

/// What a meter says after its slice.
pub fn over(meter: &Meter) -> Result<Throughput> {
    meter.outcome().context("the slice is not over")
}

async fn calls<K: Kit>(kit: K, slice: Duration) -> Result<Throughput> {
    let adder = kit.adder(Sum::default()).await?;
    let meter = Meter::new(slice);
    let (mut made, mut sum) = (0, 0);
    while meter.add(1) {
        sum = K::call(&adder, 1).await?;
        made += 1;
    }
    ensure!(sum == made, "{made} calls have added up to {sum}");
    over(&meter)
}

async fn casts<K: Kit>(kit: K, slice: Duration) -> Result<Throughput> {
    let sum = Sum::default();
    let adder = kit.adder(sum.clone()).await?;
    let meter = Meter::new(slice);
    let mut made = 0;
    while meter.add(CASTS) {
        for _ in 0..CASTS {
            K::cast(&adder, 1).await?;
        }
        made += CASTS;
        while sum.get() < made {
            wake_itself().await;
        }
    }
    over(&meter)
}

async fn idle<K: Kit>(kit: K, crowd: usize) -> Result<Outcome> {
    let sum = Sum::default();
    let mut adders = Vec::with_capacity(crowd);
    let (bytes, allocations, began) = (alloc::held_by_this_thread(), alloc::on_this_thread(), Instant::now());
    for _ in 0..crowd {
        adders.push(kit.adder(sum.clone()).await?);
    }
    settle().await;
    let (bytes, allocations, elapsed) =
        (alloc::held_by_this_thread() - bytes, alloc::on_this_thread() - allocations, began.elapsed());
    for (asked, adder) in adders.iter().enumerate() {
        ensure!(K::call(adder, 1).await? == asked as u64 + 1, "an idle actor did not answer");
    }
    let per_actor = |figure: f64| figure / crowd as f64;
    Ok(Outcome {
        ns_per_op: per_actor(elapsed.as_nanos() as f64),
        allocs_per_op: per_actor(allocations as f64),
        bytes_per_item: Some(per_actor(bytes as f64)),
    })
}

/// Lists a crowd over and over. `list` returns a list and how many are on it.
pub async fn lists<L>(
    crowd: usize,
    slice: Duration,
    list: impl AsyncFn() -> Result<(L, usize)>,
) -> Result<Outcome> {
    let before = alloc::held_by_this_thread();
    let (first, _) = list().await?;
    let bytes = alloc::held_by_this_thread() - before;
    drop(first);
    let meter = Meter::new(slice);
    // The meter looks at the clock after a number of operations that would take minutes.
    while meter.add(crowd as u64) {
        let (_list, length) = list().await?;
        ensure!(length >= crowd, "{length} of {crowd} actors are on the list");
    }
    let throughput = over(&meter)?;
    let lists = Throughput { operations: throughput.operations / crowd as u64, ..throughput };
    Ok(Outcome { bytes_per_item: Some(bytes as f64 / crowd as f64), ..of(lists) })
}

/// Lets everything that was started run until it waits. More than once, because a library may pass on to another task
/// what it has begun in one.
pub async fn settle() {
    for _ in 0..4 {
        wake_itself().await;
    }
}
