//! A bare `tokio::sync::Semaphore`: the waiting of a pool, without the pool.

use super::{Acquire, Load, measure};
use crate::meter::Throughput;
use crate::runtimes::{Runtime, tokio::Tokio};
use anyhow::Result;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;

impl Acquire for Rc<Semaphore> {
    async fn acquire(&self) -> impl Sized {
        Semaphore::acquire(self).await.expect("never closed")
    }
}

pub fn run(load: &Load, slice: Duration) -> Result<Throughput> {
    let load = *load;
    Tokio::run(move || async move {
        let permits = Rc::new(Semaphore::new(load.size));
        measure::<Tokio, _>(load, slice, || permits.clone()).await
    })?
}
