//! corelet's pool, its connection a number that needs no looking after.

use super::{Acquire, Load, Policy, measure};
use crate::meter::Throughput;
use crate::runtimes::{Runtime, corelet::Corelet};
use anyhow::{Context as _, Result};
use corelet::pool::{Connection, Connector, Fairness, Handle, Pool};
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

/// On the current core, whoever drives it.
pub async fn on_core(load: Load, slice: Duration) -> Result<Throughput> {
    let pool = pool(load.size, load.policy, &corelet::runtime::handle())?;
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
    let fairness = match policy {
        Some(Policy::RoundRobin) => Fairness::RoundRobin,
        _ => Fairness::Fifo,
    };
    Pool::builder(Numbers)
        .slots_per_core(size)
        .fairness(fairness)
        .build(runtime)
        .context("cannot build the pool")
}
