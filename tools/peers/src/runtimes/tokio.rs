//! tokio: a current-thread runtime with a `LocalSet`.

use super::{Runtime, Timers};
use anyhow::{Context, Result};
use std::future::Future;
use std::time::Duration;

pub struct Tokio;

impl Runtime for Tokio {
    fn run<T, F>(main: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot build tokio")?;
        Ok(tokio::task::LocalSet::new().block_on(&runtime, async { main().await }))
    }

    fn spawn(task: impl Future<Output = ()> + 'static) -> impl Future + 'static {
        tokio::task::spawn_local(task)
    }
}

impl Timers for Tokio {
    fn sleep(duration: Duration) -> impl Future + 'static {
        tokio::time::sleep(duration)
    }
}
