//! monoio: its io_uring driver, with timers.

use super::{Runtime, Timers};
use anyhow::{Context, Result};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::task::{Poll, Waker};
use std::time::Duration;

pub struct Monoio;

thread_local! {
    /// The task that yielded last. monoio puts a task that wakes itself at the *front* of its queue, so
    /// that it runs again before all the others; only another's wake-up puts it at the back. So each
    /// task that yields wakes the one that yielded before it.
    static YIELDED_BEFORE: Cell<Option<Waker>> = const { Cell::new(None) };
}

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

    fn yield_in_turn() -> impl Future<Output = ()> {
        let mut yielded = false;
        poll_fn(move |context| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            if let Some(before) = YIELDED_BEFORE.replace(Some(context.waker().clone())) {
                before.wake();
            }
            Poll::Pending
        })
    }

    fn leave_turns() {
        if let Some(before) = YIELDED_BEFORE.take() {
            before.wake();
        }
    }
}

impl Timers for Monoio {
    fn sleep(duration: Duration) -> impl Future + 'static {
        monoio::time::sleep(duration)
    }
}
