//! Starting actors, stopping them, and what an actor does with itself.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use futures_channel::oneshot;

use super::channel::{Queue, Receiver};
use super::exit::ExitReason;
use super::link;
use super::monitor::{Monitor, monitor};
use super::pid::{Addressable, Pid};
use super::process::Process;
use crate::runtime::local::Local;
use crate::runtime::{RawPid, RuntimeHandle, UnknownCore, context};

/// Starts an actor on the current core, detached.
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn spawn<F: Future + 'static>(future: F) -> Pid {
    let task = context::spawn(future);
    let pid = task.pid();
    task.detach();
    pid.into()
}

/// Starts an actor that is linked to the calling one before it runs.
///
/// # Panics
/// When not called in a task of a core.
#[track_caller]
pub fn spawn_link<F: Future + 'static>(future: F) -> Pid {
    let (local, me) = own_process();
    let pid = spawn(future);
    if let Some(child) = Process::of(&local, pid.raw()) {
        link::tie(&me, &child);
    }
    pid
}

/// Starts an actor that is monitored before it runs.
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn spawn_monitor<F: Future + 'static>(future: F) -> (Pid, Monitor) {
    let pid = spawn(future);
    (pid, monitor(pid))
}

/// Starts an actor with an address, detached. Its mailbox, which has no bound, is there when this returns: what is sent at
/// once arrives.
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn spawn_addr<A, F, Fut>(body: F) -> Pid<A>
where
    A: Addressable,
    F: FnOnce(Receiver<A::Msg>) -> Fut,
    Fut: Future + 'static,
{
    let local = context::current();
    let queue = Rc::new(Queue::new(usize::MAX));
    let pid = spawn(body(Receiver::new(Rc::clone(&queue)))).raw();
    if let Some(process) = Process::of(&local, pid) {
        process.publish(&queue);
    }
    Pid::new(pid)
}

/// As [`spawn_addr`], on another core: `body` is called there. The address is known when the actor is there, and what is sent
/// from then on arrives.
///
/// # Errors
/// [`UnknownCore`] when `core` is not of this runtime, or has ended.
///
/// # Cancel safety
/// When the future is dropped the actor may have been started or not.
pub async fn spawn_addr_on<A, F, Fut>(
    runtime: &RuntimeHandle,
    core: crate::runtime::CoreId,
    body: F,
) -> Result<Pid<A>, UnknownCore>
where
    A: Addressable,
    F: FnOnce(Receiver<A::Msg>) -> Fut + Send + 'static,
    Fut: Future + 'static,
{
    let (started, pid) = oneshot::channel();
    runtime
        .spawn_on(core, move || {
            // Whoever asked may have lost interest.
            let _ = started.send(spawn_addr::<A, _, _>(body));
            std::future::ready(())
        })?
        .detach();
    pid.await.map_err(|_| UnknownCore { core })
}

/// Gives the calling actor an address that leads to `receiver`: what is sent to its pid arrives there. An actor may have one
/// mailbox for each type of message; a later one replaces an earlier one of the same type.
///
/// # Panics
/// When not called in a task of a core.
#[track_caller]
pub fn install<A: Addressable>(receiver: &Receiver<A::Msg>) -> Pid<A> {
    let (_, me) = own_process();
    me.publish(receiver.queue());
    Pid::new(me.pid())
}

/// Stops an actor, on whatever core, from any thread: its future is dropped at its next scheduling point, with
/// [`ExitReason::Stopped`]. It cannot refuse, and code between two awaits is not interrupted. To stop one that has ended, or
/// is being stopped, does nothing.
pub fn request_stop(pid: impl Into<RawPid>) {
    context::stop(pid.into());
}

/// Ends the calling actor with [`ExitReason::Failed`].
///
/// # Panics
/// When not called in a task of a core.
pub async fn exit(why: impl Into<Arc<str>>) -> ! {
    let (_, me) = own_process();
    me.set_reason(ExitReason::Failed(why.into()));
    context::stop(me.pid());
    match std::future::pending::<std::convert::Infallible>().await {}
}

/// The calling actor; none outside a task.
pub fn myself() -> Option<Pid> {
    context::current_task().map(Pid::from)
}

/// A scheduling point for loops that have none: ends the task here if it is to be stopped, and lets others run when it has
/// spent its cooperative budget of 128 steps.
///
/// # Cancel safety
/// Cancel safe.
///
/// # Panics
/// When not called on a core.
pub async fn checkpoint() {
    let mut yielded = false;
    poll_fn(|cx| {
        let local = context::current();
        if local.executor().must_stop() || !(yielded || local.executor().spend_budget()) {
            yielded = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// The current core and the record of the calling actor.
///
/// # Panics
/// When not called in a task of a core.
#[track_caller]
pub(super) fn own_process() -> (Rc<Local>, Rc<Process>) {
    let local = context::current();
    let process = local.executor().current().and_then(|pid| Process::of(&local, pid));
    match process {
        Some(process) => (local, process),
        None => panic!("this must be called in a task of a core"),
    }
}
