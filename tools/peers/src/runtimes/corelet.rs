//! corelet: one core on the calling thread, which drives it until the main task ends.

use super::{Runtime, Timers};
use anyhow::{Context, Result};
use corelet::runtime::{Core, Cores, Runtime as Threads, RuntimeBuilder};
use std::future::Future;
use std::time::Duration;

pub struct Corelet;

/// One core on the calling thread, with `settings` over the defaults.
pub fn core(settings: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Result<Core> {
    // The caller has pinned the thread.
    let builder = settings(Threads::builder().cores(Cores::Count(1)).pinned(false));
    let (_, mut guests) = builder.build_guests().context("cannot build corelet")?;
    guests.remove(0).start().context("cannot build corelet")
}

impl Runtime for Corelet {
    fn run<T, F>(main: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        Ok(core(|builder| builder)?.block_on(async { main().await })?)
    }

    fn spawn(task: impl Future<Output = ()> + 'static) -> impl Future + 'static {
        corelet::runtime::spawn(task)
    }
}

impl Timers for Corelet {
    fn sleep(duration: Duration) -> impl Future + 'static {
        corelet::runtime::sleep(duration)
    }
}
