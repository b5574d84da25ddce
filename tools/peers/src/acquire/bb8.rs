//! bb8 on tokio. The check of a connection on every checkout is off, which is the fastest it can be.

use super::{Acquire, Load, measure};
use crate::meter::Throughput;
use crate::runtimes::{Runtime, tokio::Tokio};
use anyhow::{Result, ensure};
use bb8::{ManageConnection, Pool};
use std::convert::Infallible;
use std::time::Duration;

struct Numbers;

impl ManageConnection for Numbers {
    type Connection = u64;
    type Error = Infallible;

    async fn connect(&self) -> Result<u64, Infallible> {
        Ok(7)
    }

    async fn is_valid(&self, _: &mut u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut u64) -> bool {
        false
    }
}

impl Acquire for Pool<Numbers> {
    async fn acquire(&self) -> impl Sized {
        self.get().await.expect("connections never fail and none is held for long")
    }
}

pub fn run(load: &Load, slice: Duration) -> Result<Throughput> {
    let load = *load;
    Tokio::run(move || async move {
        let size = load.size as u32;
        let builder = Pool::builder().max_size(size).min_idle(size).test_on_check_out(false);
        let Ok(pool) = builder.build(Numbers).await;
        ensure!(pool.state().connections == size, "bb8 opened {:?}", pool.state());
        measure::<Tokio, _>(load, slice, || pool.clone()).await
    })?
}
