//! The task cell: one allocation that holds a task's header, and its future while it runs or its result afterwards.
//!
//! Who may touch what:
//! 1. A task lives on its core's thread only; it is reached through `Rc` and is not `Send`.
//! 2. The future is polled and dropped in place, by the executor alone.
//! 3. The result is taken by the join handle alone, after the executor has stored it.
//! 4. No panic of the future, of its drop, or of its result's drop leaves this file through `poll` or `cancel`.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::cycles::Cycles;
use super::waker::WakeTarget;
use super::{Short, TaskState};
use crate::runtime::identity::RawPid;
use crate::runtime::join::JoinError;

/// What the executor knows of a task, in front of its future or result. Written by its own core only.
pub(super) struct Header {
    /// What its wakers carry: core, slot and part of the generation. The slot is filled in when the task enters the
    /// table.
    pub(super) target: Cell<WakeTarget>,
    pub(super) generation: u32,
    pub(super) state: Cell<TaskState>,
    pub(super) stop: Cell<bool>,
    /// The join handle's drop leaves the task running.
    detached: Cell<bool>,
    pub(super) parent: Option<Short>,
    pub(super) polls: Cell<u64>,
    pub(super) overruns: Cell<u32>,
    pub(super) cycles: Cycles,
    pub(super) received: Cell<u64>,
    pub(super) record: OnceCell<Rc<dyn Record>>,
    joiner: Cell<Option<Waker>>,
}

/// What an upper layer keeps with a task, from when it first has something to keep until the task has ended.
pub(crate) trait Record: Any {
    /// The task has ended: its future is dropped, and its identity names nobody any more. Called once, on its core,
    /// with nothing borrowed.
    fn ended(self: Rc<Self>, ending: Ending);
}

/// How a task ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its future returned.
    Returned,
    /// It was stopped.
    Stopped,
    /// It panicked, with this text.
    Panicked(String),
    /// Its core ended first.
    CoreEnded,
}

impl Header {
    pub(super) fn pid(&self) -> RawPid {
        let target = self.target.get();
        RawPid { core: target.core(), index: target.index() as u32, generation: self.generation }
    }

    /// Whether somebody waits for the result.
    pub(super) fn is_joined(&self) -> bool {
        let joiner = self.joiner.take();
        let joined = joiner.is_some();
        self.joiner.set(joiner);
        joined
    }
}

/// A task: header, and a stage whose type only its spawner and its join handle know.
pub(super) struct Task<S: ?Sized> {
    pub(super) header: Header,
    stage: S,
}

/// What the executor can do with a stage.
pub(super) trait Run {
    /// Polls the future once; true when the task has ended.
    fn poll(&self, cx: &mut Context<'_>) -> bool;
    /// Drops the future and leaves `Cancelled` as the result; false when the task had ended.
    fn cancel(&self) -> bool;
    /// How the task ended, while its result is there.
    fn ending(&self) -> Ending;
}

/// What a join handle sees of a task.
pub(crate) trait Joinable {
    type Output;
    /// The result, once; registers the waker until there is one.
    fn poll_join(&self, cx: &mut Context<'_>) -> Poll<Result<Self::Output, JoinError>>;
    fn is_finished(&self) -> bool;
    fn pid(&self) -> RawPid;
    /// From now on the handle's drop leaves the task running.
    fn detach(&self);
    fn is_detached(&self) -> bool;
}

enum Stage<F: Future> {
    Running(F),
    Finished(Result<F::Output, JoinError>),
    Taken,
}

pub(super) struct StageCell<F: Future>(RefCell<Stage<F>>);

impl<F: Future> Task<StageCell<F>> {
    #[inline]
    pub(super) fn new(pid: RawPid, parent: Option<Short>, future: F) -> Self {
        let header = Header {
            target: Cell::new(pid.into()),
            generation: pid.generation,
            state: Cell::new(TaskState::Queued),
            stop: Cell::new(false),
            parent,
            polls: Cell::new(0),
            overruns: Cell::new(0),
            cycles: Cycles::default(),
            received: Cell::new(0),
            record: OnceCell::new(),
            detached: Cell::new(false),
            joiner: Cell::new(None),
        };
        Task { header, stage: StageCell(RefCell::new(Stage::Running(future))) }
    }
}

impl<S: Run + ?Sized> Task<S> {
    /// Polls the future once; true when the task has ended.
    #[inline]
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> bool {
        let ended = self.stage.poll(cx);
        if ended {
            self.wake_joiner();
        }
        ended
    }

    /// Drops the future; the join handle gets `Cancelled`. Nothing when the task has ended.
    pub(super) fn cancel(&self) {
        if self.stage.cancel() {
            self.wake_joiner();
        }
    }

    /// How the task ended, while its result is there.
    pub(super) fn ending(&self) -> Ending {
        self.stage.ending()
    }

    /// Tells the record, if there is one, how the task ended.
    #[inline]
    pub(super) fn tell_record(&self, core_ends: bool) {
        if let Some(record) = self.header.record.get() {
            let ending = if core_ends { Ending::CoreEnded } else { self.stage.ending() };
            Rc::clone(record).ended(ending);
        }
    }

    fn wake_joiner(&self) {
        if let Some(joiner) = self.header.joiner.take() {
            joiner.wake();
        }
    }
}

impl<F: Future> StageCell<F> {
    /// Replaces the future by a result that is not its own. A panic in the future's drop counts as the task's panic.
    #[cold]
    fn finish(&self, result: Result<F::Output, JoinError>) {
        let dropped = catch_unwind(AssertUnwindSafe(|| *self.0.borrow_mut() = Stage::Taken));
        let result = match (dropped, result) {
            (Ok(()), result) => result,
            // The first panic is the task's; this one only followed from it.
            (Err(later), Err(first)) if first.is_panic() => {
                contain("a panic's payload", || drop(later));
                Err(first)
            }
            (Err(payload), unwanted) => {
                contain("a task's result", || drop(unwanted));
                Err(JoinError::panicked(payload))
            }
        };
        *self.0.borrow_mut() = Stage::Finished(result);
    }
}

impl<F: Future> Run for StageCell<F> {
    #[inline]
    fn poll(&self, cx: &mut Context<'_>) -> bool {
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let mut stage = self.0.borrow_mut();
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
            Ok(ended) => ended,
            Err(payload) => {
                self.finish(Err(JoinError::panicked(payload)));
                true
            }
        }
    }

    fn cancel(&self) -> bool {
        let running = matches!(*self.0.borrow(), Stage::Running(_));
        if running {
            self.finish(Err(JoinError::cancelled()));
        }
        running
    }

    fn ending(&self) -> Ending {
        match &*self.0.borrow() {
            Stage::Finished(Err(error)) => error.panic_text().map_or(Ending::Stopped, Ending::Panicked),
            _ => Ending::Returned,
        }
    }
}

impl<F: Future> Joinable for Task<StageCell<F>> {
    type Output = F::Output;

    #[inline]
    fn poll_join(&self, cx: &mut Context<'_>) -> Poll<Result<F::Output, JoinError>> {
        // A task that awaits its own handle finds its stage borrowed: it waits for itself, for ever, as it asked.
        let Ok(mut stage) = self.stage.0.try_borrow_mut() else { return Poll::Pending };
        if matches!(*stage, Stage::Running(_)) {
            drop(stage);
            let joiner = &self.header.joiner;
            let kept = joiner.take().filter(|kept| kept.will_wake(cx.waker()));
            joiner.set(Some(kept.unwrap_or_else(|| cx.waker().clone())));
            return Poll::Pending;
        }
        match std::mem::replace(&mut *stage, Stage::Taken) {
            Stage::Finished(result) => Poll::Ready(result),
            Stage::Taken => panic!("a join handle was polled after it had given its result"),
            Stage::Running(_) => unreachable!("checked above, on the same borrow"),
        }
    }

    fn is_finished(&self) -> bool {
        self.stage.0.try_borrow().is_ok_and(|stage| !matches!(*stage, Stage::Running(_)))
    }

    fn pid(&self) -> RawPid {
        self.header.pid()
    }

    fn detach(&self) {
        self.header.detached.set(true);
    }

    fn is_detached(&self) -> bool {
        self.header.detached.get()
    }
}

/// Runs `f`; a panic in it is logged and goes no further. For drops of user values outside any task's poll.
pub(crate) fn contain(what: &str, f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        tracing::error!(panic = panic_message(&*payload), "panic while dropping {what}; contained");
        // A payload may panic in its own drop. What that leaves is leaked: there need be no end to it.
        if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(next);
        }
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
