//! corelet's pool, its connection a number that needs no looking after.

use super::{Acquire, Load, Policy, measure};
use crate::meter::Throughput;
use crate::runtimes::{Runtime, corelet::Corelet};
use anyhow::{Context as _, Result};
use corelet::pool::{Affinity, Connection, Connector, Fairness, Handle, Pool, PoolBuilder};
use corelet::runtime::Watch;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

pub struct Numbers;

pub struct Number(
    #[expect(dead_code, reason = "as the other pools' connections: held, never looked at")] u64,
);

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

impl Acquire for Handle<Numbers> {
    async fn acquire(&self) -> impl Sized {
        Handle::acquire(self).await.expect("a pool of numbers has nothing to refuse")
    }
}

pub fn run(load: &Load, slice: Duration) -> Result<Throughput> {
    let load = *load;
    Corelet::run(move || on_core(load, slice))?
}

/// With everything on that a pool can be told to keep, limit or watch.
pub fn run_with_everything(load: &Load, slice: Duration) -> Result<Throughput> {
    let load = *load;
    let everything = move || {
        builder(load.size, load.policy)
            .max_connections(load.size)
            .affinity(Affinity::Spill)
            .idle_timeout(Duration::from_secs(60))
            .max_lifetime(Duration::from_secs(3600))
            .health_check(Duration::from_secs(60))
            .exact_admission()
            .shed(Duration::from_millis(50), Duration::from_secs(1))
            .warn_slow_acquires(Duration::from_secs(10))
            .detect_leaks(Duration::from_secs(10))
            .on_event(|_| {})
    };
    Corelet::run(move || async move {
        measure_pool(everything().build(&corelet::runtime::handle())?, load, slice).await
    })?
}

/// On the current core, whoever drives it.
pub async fn on_core(load: Load, slice: Duration) -> Result<Throughput> {
    measure_pool(pool(load.size, load.policy, &corelet::runtime::handle())?, load, slice).await
}

async fn measure_pool(pool: Pool<Numbers>, load: Load, slice: Duration) -> Result<Throughput> {
    // All connections open at once, so that none is opened while measuring.
    let session = pool.handle();
    let mut leases = Vec::new();
    for _ in 0..load.size {
        leases.push(session.acquire().await?);
    }
    drop(leases);
    let idle: Vec<_> = (0..load.idle_handles).map(|_| pool.handle()).collect();
    let measured = measure::<Corelet, _>(load, slice, || pool.handle()).await;
    drop(idle);
    pool.close().await;
    measured
}

pub fn pool(
    size: usize,
    policy: Option<Policy>,
    runtime: &corelet::runtime::RuntimeHandle,
) -> Result<Pool<Numbers>> {
    builder(size, policy).build(runtime).context("cannot build the pool")
}

fn builder(size: usize, policy: Option<Policy>) -> PoolBuilder<Numbers> {
    let fairness = match policy {
        Some(Policy::RoundRobin) => Fairness::RoundRobin,
        _ => Fairness::Fifo,
    };
    Pool::builder(Numbers).slots_per_core(size).fairness(fairness)
}
