//! deadpool, managed, on tokio, with a manager that creates and recycles for nothing.

use super::{Acquire, Load, measure};
use crate::meter::Throughput;
use crate::runtimes::{Runtime, tokio::Tokio};
use anyhow::{Result, ensure};
use deadpool::managed::{Manager, Metrics, Pool, RecycleResult};
use std::convert::Infallible;
use std::time::Duration;

struct Numbers;

impl Manager for Numbers {
    type Type = u64;
    type Error = Infallible;

    async fn create(&self) -> Result<u64, Infallible> {
        Ok(7)
    }

    async fn recycle(&self, _: &mut u64, _: &Metrics) -> RecycleResult<Infallible> {
        Ok(())
    }
}

impl Acquire for Pool<Numbers> {
    async fn acquire(&self) -> impl Sized {
        self.get().await.expect("connections never fail")
    }
}

pub fn run(load: &Load, slice: Duration) -> Result<Throughput> {
    let load = *load;
    Tokio::run(move || async move {
        let pool: Pool<Numbers> = Pool::builder(Numbers).max_size(load.size).build()?;
        // It has no minimum to open at the start: hold all at once, then give them back.
        let mut all = Vec::with_capacity(load.size);
        for _ in 0..load.size {
            all.push(pool.get().await?);
        }
        drop(all);
        ensure!(pool.status().available == load.size, "deadpool opened {:?}", pool.status());
        measure::<Tokio, _>(load, slice, || pool.clone()).await
    })?
}
