//! What the libraries share that run their actors as tasks of tokio's current-thread scheduler.

use anyhow::{Context, Result};
use send_wrapper::SendWrapper;
use std::future::Future;

/// Runs `main` as a task of a current-thread runtime, without a `LocalSet`: the actors are tasks that may be sent to
/// other threads, and beside a `LocalSet` its own tasks would run 61 times before any of them does. Nothing moves to
/// another thread here; the wrapper checks that.
pub fn run<T, F>(main: impl FnOnce() -> F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot build tokio")?;
    runtime
        .block_on(async { tokio::spawn(SendWrapper::new(main())).await })
        .context("the measuring task has panicked")
}
