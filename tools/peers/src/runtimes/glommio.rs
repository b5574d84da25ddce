//! glommio: a local executor on the calling thread. The thread is pinned already, so the executor is
//! left unbound rather than bound a second time.

use super::{Runtime, Timers};
use anyhow::{Result, anyhow};
use glommio::{LocalExecutorBuilder, Placement};
use std::future::Future;
use std::time::Duration;

pub struct Glommio;

impl Runtime for Glommio {
    fn run<T, F>(main: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let executor = LocalExecutorBuilder::new(Placement::Unbound)
            .make()
            .map_err(|error| anyhow!("cannot build glommio: {error}"))?;
        Ok(executor.run(async { main().await }))
    }

    fn spawn(task: impl Future<Output = ()> + 'static) -> impl Future + 'static {
        glommio::spawn_local(task)
    }
}

impl Timers for Glommio {
    fn sleep(duration: Duration) -> impl Future + 'static {
        glommio::timer::sleep(duration)
    }
}
