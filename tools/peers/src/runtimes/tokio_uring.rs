//! tokio-uring: tokio's current-thread runtime with a ring behind its epoll.

use super::Runtime;
use anyhow::Result;
use std::future::Future;

pub struct TokioUring;

impl Runtime for TokioUring {
    fn run<T, F>(main: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        Ok(tokio_uring::start(async { main().await }))
    }

    fn spawn(task: impl Future<Output = ()> + 'static) -> impl Future + 'static {
        tokio_uring::spawn(task)
    }
}
