//! The current core: set on its thread for the length of a turn, and what tasks and wakers reach through it.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;

use super::executor::waker::WakeTarget;
use super::identity::{CoreId, RawPid};
use super::join::JoinHandle;
use super::local::{CoreStats, Local};
use super::mesh::{self, Mail};
use super::runtime_handle::RuntimeHandle;

pub(crate) use super::current::{enter, with};

const OUTSIDE: &str = "this must be called on a core: from a task of a corelet runtime";

/// Whether the thread is inside a turn of that core.
#[inline]
#[cfg_attr(not(feature = "pool"), allow(dead_code))]
pub(crate) fn is_inside(local: &Rc<Local>) -> bool {
    with(|current| Rc::ptr_eq(current, local)).unwrap_or(false)
}

/// Counts a message that the running task is about to receive, of its budget too; false when that is spent. Outside a
/// turn there is no budget.
#[inline]
pub(crate) fn may_receive() -> bool {
    with(|local| {
        let may = local.executor().spend_budget();
        if may {
            local.executor().count_received();
        }
        may
    })
    .unwrap_or(true)
}

/// Takes one unit of the running task's budget; false when it is spent. Outside a turn there is no budget.
#[inline]
pub(crate) fn spend_budget() -> bool {
    with(|local| local.executor().spend_budget()).unwrap_or(true)
}

/// Whether the running task's budget is spent: what is ready may then look as if it were not.
#[inline]
pub(crate) fn is_budget_spent() -> bool {
    with(|local| local.executor().is_budget_spent()).unwrap_or(false)
}

/// Counts a message that the running task has received.
#[inline]
pub(crate) fn count_received() {
    with(|local| local.executor().count_received());
}

/// The current core, inside a turn.
#[inline]
pub(crate) fn try_current() -> Option<Rc<Local>> {
    with(Rc::clone)
}

/// The current core.
///
/// # Panics
/// Outside a turn of a core.
#[track_caller]
pub(crate) fn current() -> Rc<Local> {
    match try_current() {
        Some(local) => local,
        None => panic!("{OUTSIDE}"),
    }
}

/// Wakes a task from anywhere: directly on its own core's thread, by its core's mailbox from elsewhere.
#[inline]
pub(crate) fn wake(target: WakeTarget) {
    let here = |local: &Rc<Local>| {
        let here = local.id() == target.core();
        if here {
            local.executor().wake(target);
        }
        here
    };
    if with(here) == Some(true) {
        return;
    }
    #[cfg(feature = "tokio")]
    if super::host::wake(target) {
        return;
    }
    mesh::send_to(target.core(), Mail::Wake(target));
}

/// Has a task dropped at its next scheduling point, from anywhere.
pub(crate) fn stop(pid: RawPid) {
    if let Some(local) = try_current()
        && local.id() == pid.core
    {
        return local.executor().stop(pid);
    }
    mesh::send_to(pid.core, Mail::Stop(pid));
}

/// Starts a task on the current core. It runs after the current task has returned to the executor, and may be
/// `!Send`: it never leaves this core.
///
/// A panic in the task ends that task only; its handle gives it as an error.
///
/// # Panics
/// When not called on a core.
///
/// # Examples
/// ```
/// use std::{cell::Cell, rc::Rc};
/// use corelet::runtime::{Cores, Runtime, spawn};
///
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// runtime.block_on(|| async {
///     let count = Rc::new(Cell::new(0));
///     let theirs = Rc::clone(&count);
///     let task = spawn(async move { theirs.set(1) });
///     assert!(task.await.is_ok() && count.get() == 1);
///
///     let failed = spawn(async { panic!("on purpose") });
///     assert!(failed.await.is_err_and(|error| error.is_panic()));
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    JoinHandle::new(current().executor().spawn(future))
}

/// The core that the caller runs on; none outside a turn of a core.
pub fn current_core() -> Option<CoreId> {
    try_current().map(|local| local.id())
}

/// The identity of the running task; none outside a task.
pub fn current_task() -> Option<RawPid> {
    try_current()?.executor().current()
}

/// The counts of the core that the caller runs on; none outside a turn of a core.
pub fn core_stats() -> Option<CoreStats> {
    try_current().map(|local| local.stats())
}

/// The runtime that the caller runs on.
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn handle() -> RuntimeHandle {
    current().runtime().clone()
}

/// Lets the other ready tasks of this core run once.
///
/// # Cancel safety
/// Cancel safe.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
