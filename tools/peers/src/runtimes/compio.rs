//! compio: its runtime on the io_uring driver.

use super::{Runtime, Timers};
use anyhow::{Context, Result};
use std::future::Future;
use std::time::Duration;

pub struct Compio;

impl Runtime for Compio {
    fn run<T, F>(main: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let runtime = compio::runtime::Runtime::new().context("cannot build compio")?;
        Ok(runtime.block_on(async { main().await }))
    }

    fn spawn(task: impl Future<Output = ()> + 'static) -> impl Future + 'static {
        compio::runtime::spawn(task)
    }
}

impl Timers for Compio {
    fn sleep(duration: Duration) -> impl Future + 'static {
        compio::time::sleep(duration)
    }
}
