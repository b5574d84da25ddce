//! The runtimes under comparison, behind what the benches need of them: run, spawn, sleep.
//!
//! Each is built as a service would build it: local to one thread, with both I/O and timers on, and
//! otherwise with its own defaults.

pub mod compio;
pub mod corelet;
pub mod glommio;
pub mod monoio;
pub mod tokio;
pub mod tokio_uring;

use anyhow::Result;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

pub trait Runtime: 'static {
    /// Builds the runtime on the calling thread, which is already pinned, and runs `main` to its end.
    /// The closure and its outcome are `Send` for the sake of a runtime that starts its own threads.
    fn run<T, F>(main: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static;

    /// Starts a task on the running runtime; the returned future ends with the task.
    fn spawn(task: impl Future<Output = ()> + 'static) -> impl Future + 'static;

    /// Queues the calling task behind every other ready one. Not every runtime has a yield of its own,
    /// so it is the task waking itself, unless that does not have this effect.
    fn yield_in_turn() -> impl Future<Output = ()> {
        wake_itself()
    }

    /// To be called by each of several tasks that take turns, when it has had its last.
    fn leave_turns() {}
}

pub trait Timers: Runtime {
    fn sleep(duration: Duration) -> impl Future + 'static;
}

/// Runs `work` as a task. The future given to [`Runtime::run`] is one in some runtimes and not in others,
/// where it is polled at a different price.
pub async fn in_task<R: Runtime, T: 'static>(work: impl Future<Output = T> + 'static) -> T {
    let outcome = Rc::new(Cell::new(None));
    let inside = outcome.clone();
    R::spawn(async move { inside.set(Some(work.await)) }).await;
    outcome.take().expect("the task has ended")
}

/// Returns to the runtime once and is ready again at once.
pub fn wake_itself() -> impl Future<Output = ()> {
    Yield { yielded: false }
}

struct Yield {
    yielded: bool,
}

impl Future for Yield {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A runtime on which tasks neither alternate nor end would make every figure meaningless.
    fn tasks_alternate_and_end<R: Runtime>() {
        let order = R::run(|| async {
            let order = Rc::new(RefCell::new(Vec::new()));
            let tasks: Vec<_> = (0..3)
                .map(|task| {
                    let order = order.clone();
                    R::spawn(async move {
                        for _ in 0..2 {
                            order.borrow_mut().push(task);
                            R::yield_in_turn().await;
                        }
                        R::leave_turns();
                    })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            order.take()
        });
        assert_eq!(order.unwrap(), [0, 1, 2, 0, 1, 2]);
    }

    fn a_sleep_lasts<R: Timers>() {
        let slept = R::run(|| async {
            let began = std::time::Instant::now();
            R::sleep(Duration::from_millis(5)).await;
            began.elapsed()
        });
        assert!(slept.unwrap() >= Duration::from_millis(5));
    }

    #[test]
    fn corelet() {
        tasks_alternate_and_end::<super::corelet::Corelet>();
        a_sleep_lasts::<super::corelet::Corelet>();
    }

    #[test]
    fn tokio() {
        tasks_alternate_and_end::<super::tokio::Tokio>();
        a_sleep_lasts::<super::tokio::Tokio>();
    }

    #[test]
    fn tokio_uring() {
        tasks_alternate_and_end::<super::tokio_uring::TokioUring>();
    }

    #[test]
    fn monoio() {
        tasks_alternate_and_end::<super::monoio::Monoio>();
        a_sleep_lasts::<super::monoio::Monoio>();
    }

    #[test]
    fn compio() {
        tasks_alternate_and_end::<super::compio::Compio>();
        a_sleep_lasts::<super::compio::Compio>();
    }

    #[test]
    fn glommio() {
        tasks_alternate_and_end::<super::glommio::Glommio>();
        a_sleep_lasts::<super::glommio::Glommio>();
    }
}
