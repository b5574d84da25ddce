//! monoio: its io_uring driver, with timers.

use super::{Runtime, Timers};
use anyhow::{Context, Result};
use std::future::Future;
use std::time::Duration;

pub struct Monoio;

impl Runtime for Monoio {
    fn run<T, F>(main: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let mut runtime = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
            .enable_timer()
            .build()
            .context("cannot build monoio")?;
        Ok(runtime.block_on(async { main().await }))
    }

    fn spawn(task: impl Future<Output = ()> + 'static) -> impl Future + 'static {
        monoio::spawn(task)
    }
}

impl Timers for Monoio {
    fn sleep(duration: Duration) -> impl Future + 'static {
        monoio::time::sleep(duration)
    }
}
