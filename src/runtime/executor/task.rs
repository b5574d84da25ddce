//! The task cell: one allocation that holds a task's future while it runs and its result afterwards.
//!
//! Who may touch what:
//! 1. A cell lives on its core's thread only; it is reached through `Rc` and is not `Send`.
//! 2. The future is polled and dropped in place, by the executor alone.
//! 3. The result is taken by the join handle alone, after the executor has stored it.
//! 4. No panic of the future, of its drop, or of its result's drop leaves this file through `poll` or `cancel`.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::runtime::join::JoinError;

/// What the executor sees of a cell.
pub(super) trait Runnable {
    /// Polls the future once; true when the task has ended.
    fn poll(&self, cx: &mut Context<'_>) -> bool;
    /// Drops the future; the join handle gets `Cancelled`. Nothing when the task has ended.
    fn cancel(&self);
}

/// What a join handle sees of a cell.
pub(crate) trait Joinable {
    type Output;
    /// The result, once; registers the waker until there is one.
    fn poll_join(&self, cx: &mut Context<'_>) -> Poll<Result<Self::Output, JoinError>>;
    fn is_finished(&self) -> bool;
}

enum Stage<F: Future> {
    Running(F),
    Finished(Result<F::Output, JoinError>),
    Taken,
}

pub(super) struct TaskCell<F: Future> {
    stage: RefCell<Stage<F>>,
    joiner: Cell<Option<Waker>>,
}

impl<F: Future> TaskCell<F> {
    pub(super) fn new(future: F) -> TaskCell<F> {
        TaskCell { stage: RefCell::new(Stage::Running(future)), joiner: Cell::new(None) }
    }

    /// Replaces the future by a result that is not its own. A panic in the future's drop counts as the task's panic.
    fn finish(&self, result: Result<F::Output, JoinError>) {
        let dropped = catch_unwind(AssertUnwindSafe(|| *self.stage.borrow_mut() = Stage::Taken));
        let result = match dropped {
            Ok(()) => result,
            Err(payload) => Err(JoinError::panicked(payload)),
        };
        *self.stage.borrow_mut() = Stage::Finished(result);
        self.wake_joiner();
    }

    fn wake_joiner(&self) {
        if let Some(joiner) = self.joiner.take() {
            joiner.wake();
        }
    }
}

impl<F: Future> Runnable for TaskCell<F> {
    #[inline]
    fn poll(&self, cx: &mut Context<'_>) -> bool {
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let mut stage = self.stage.borrow_mut();
            let Stage::Running(future) = &mut *stage else { return true };
            // SAFETY: the future lies inside an `Rc` allocation, which never moves its contents. Nothing moves it out
            // of the stage: it ends by being overwritten, here or in `finish`, which drops it in place, and
            // `poll_join` moves out only a `Finished` stage. So a future that was pinned here stays put until it is
            // dropped.
            let future = unsafe { Pin::new_unchecked(future) };
            match future.poll(cx) {
                Poll::Pending => false,
                Poll::Ready(output) => {
                    *stage = Stage::Finished(Ok(output));
                    true
                }
            }
        }));
        match polled {
            Ok(false) => false,
            Ok(true) => {
                self.wake_joiner();
                true
            }
            Err(payload) => {
                self.finish(Err(JoinError::panicked(payload)));
                true
            }
        }
    }

    fn cancel(&self) {
        let running = matches!(*self.stage.borrow(), Stage::Running(_));
        if running {
            self.finish(Err(JoinError::cancelled()));
        }
    }
}

impl<F: Future> Joinable for TaskCell<F> {
    type Output = F::Output;

    fn poll_join(&self, cx: &mut Context<'_>) -> Poll<Result<F::Output, JoinError>> {
        // A task that awaits its own handle finds its cell borrowed: it waits for itself, for ever, as it asked.
        let Ok(mut stage) = self.stage.try_borrow_mut() else { return Poll::Pending };
        if matches!(*stage, Stage::Running(_)) {
            drop(stage);
            let kept = self.joiner.take().filter(|kept| kept.will_wake(cx.waker()));
            self.joiner.set(Some(kept.unwrap_or_else(|| cx.waker().clone())));
            return Poll::Pending;
        }
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Finished(result) => Poll::Ready(result),
            Stage::Taken => panic!("a join handle was polled after it had given its result"),
            Stage::Running(_) => unreachable!("checked above, on the same borrow"),
        }
    }

    fn is_finished(&self) -> bool {
        self.stage.try_borrow().is_ok_and(|stage| !matches!(*stage, Stage::Running(_)))
    }
}

/// Runs `f`; a panic in it is logged and goes no further. For drops of user values outside any task's poll.
pub(crate) fn contain(what: &str, f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        tracing::error!(panic = panic_message(&*payload), "panic while dropping {what}; contained");
    }
}

/// The text of a panic, where it has one.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "(not a text)"
    }
}
