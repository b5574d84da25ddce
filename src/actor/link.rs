//! Links: two actors that share their fate.
//!
//! Never: lose a signal, or let one take effect twice.

use std::fmt;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll};

use super::channel::{AnyQueue, Queue};
use super::exit::{Exit, ExitReason};
use super::process::Process;
use super::spawn::own_process;
use crate::runtime::executor::contain;
use crate::runtime::local::Local;
use crate::runtime::mesh::{self, Letter};
use crate::runtime::{RawPid, context};

/// Links the calling actor with another, on whatever core. When one of them ends [abnormally](ExitReason::is_abnormal),
/// the other is stopped with the same reason, unless it [traps exits](trap_exits): then it is told, also of a normal end.
/// Linking twice is linking once.
///
/// To link with an actor that has ended is an exit of [`ExitReason::NoProcess`], as if it had ended just now.
///
/// # Panics
/// When not called in a task of a core.
#[track_caller]
pub fn link(pid: impl Into<RawPid>) {
    let other = pid.into();
    let (local, me) = own_process();
    if other == me.pid() || !me.bonds().links.link(other) {
        return;
    }
    if other.core() == local.id() {
        match Process::of(&local, other) {
            Some(other) => other.bonds().links.accept(me.pid()),
            None => signal(me.pid(), other, ExitReason::NoProcess),
        }
        return;
    }
    // A request that does not arrive says so as it is dropped.
    drop(mesh::post(other.core(), LinkRequest { from: me.pid(), to: other, answered: false }));
}

/// Takes a link back. An exit of the other that had not taken effect is without effect from now on.
///
/// # Panics
/// When not called in a task of a core.
#[track_caller]
pub fn unlink(pid: impl Into<RawPid>) {
    let other = pid.into();
    let (local, me) = own_process();
    if other.core() == local.id() {
        me.bonds().links.remove(other);
        if let Some(Some(other)) = Process::find(&local, other) {
            other.bonds().links.remove(me.pid());
        }
        return;
    }
    if let Some(number) = me.bonds().links.begin_unlink(other) {
        // One that does not arrive answers as it is dropped.
        drop(mesh::post(other.core(), Unlink { from: me.pid(), to: other, number, answered: false }));
    }
}

/// From now on exits of linked actors do not stop the calling actor: it receives them as messages. While the returned
/// [`Exits`] lives; when it is dropped, exits stop the actor again.
///
/// # Panics
/// When not called in a task of a core, or when the actor traps exits already.
#[track_caller]
pub fn trap_exits() -> Exits {
    let (_, me) = own_process();
    let queue = Rc::new(Queue::new(usize::MAX));
    queue.publish();
    let kept = me.bonds().exits.replace(Some(Rc::clone(&queue)));
    assert!(kept.is_none(), "the actor traps exits already");
    Exits { process: me, queue }
}

/// The trapped exits of linked actors, none of which is ever lost; made by [`trap_exits`].
///
/// # Drop
/// Exits stop the actor again from now on. Those that were not received are dropped.
pub struct Exits {
    process: Rc<Process>,
    queue: Rc<Queue<Exit>>,
}

impl Exits {
    /// The next exit of a linked actor.
    ///
    /// # Cancel safety
    /// Cancel safe: an exit is taken when the future is ready, never before.
    pub fn recv(&mut self) -> impl Future<Output = Exit> + '_ {
        poll_fn(|cx| self.poll_recv(cx))
    }

    /// As [`recv`](Exits::recv), for futures written by hand.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Exit> {
        // The queue counts as published for as long as this lives, so it never runs dry for good.
        match self.queue.poll_pop(cx) {
            Poll::Ready(Some(exit)) => Poll::Ready(exit),
            _ => Poll::Pending,
        }
    }

    /// The next exit, if one has come.
    pub fn try_recv(&mut self) -> Option<Exit> {
        self.queue.take_counted()
    }
}

impl Drop for Exits {
    fn drop(&mut self) {
        self.process.bonds().exits.replace(None);
        drop(self.queue.close());
    }
}

impl fmt::Debug for Exits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exits").field("len", &self.queue.depth()).finish()
    }
}

/// Links two actors of this core, neither of which has run on since.
pub(super) fn tie(one: &Process, other: &Process) {
    one.bonds().links.accept(other.pid());
    other.bonds().links.accept(one.pid());
}

/// Tells `to` that `from`, to which it is linked, has ended.
pub(super) fn signal(to: RawPid, from: RawPid, reason: ExitReason) {
    let here = context::with(|local| (local.id() == to.core()).then(|| Rc::clone(local))).flatten();
    match here {
        Some(local) => take_effect(&local, to, from, reason),
        // Refused by a core that has ended: nobody is linked there any more.
        None => drop(mesh::post(to.core(), ExitSignal { to, from, reason })),
    }
}

fn take_effect(local: &Rc<Local>, to: RawPid, from: RawPid, reason: ExitReason) {
    let Some(Some(process)) = Process::find(local, to) else { return };
    // Not linked any more: the signal was overtaken by an unlink.
    if !process.bonds().links.remove(from) {
        return;
    }
    if !trap(&process, from, &reason) && reason.is_abnormal() {
        // The first reason stands: whoever is stopped already is not stopped by this.
        if !local.executor().is_stopping(to) {
            process.set_reason(reason);
        }
        local.executor().stop(to);
    }
}

/// Tells an actor to end, in the name of its supervisor: one that ends of its own doing is asked to, one that traps exits
/// receives that as a message, any other is stopped.
pub(super) fn shut_down(to: RawPid, from: RawPid) {
    match context::with(|local| (local.id() == to.core()).then(|| Rc::clone(local))).flatten() {
        Some(local) => take_shutdown(&local, to, from),
        // Refused by a core that has ended, and the actor with it.
        None => drop(mesh::post(to.core(), ShutdownSignal { to, from })),
    }
}

fn take_shutdown(local: &Rc<Local>, to: RawPid, from: RawPid) {
    let process = Process::find(local, to).flatten();
    let tell = |process: Rc<Process>| process.ask_to_end(local) || trap(&process, from, &ExitReason::Stopped);
    if !process.is_some_and(tell) {
        local.executor().stop(to);
    }
}

/// Gives an exit to an actor that traps exits; false when it does not.
fn trap(process: &Process, from: RawPid, reason: &ExitReason) -> bool {
    let Some(exits) = process.bonds().exits.borrow().clone() else { return false };
    // Closed only together with the trap, and without a bound.
    if let Ok(Some(reader)) = exits.push(Exit::new(from, reason.clone())) {
        contain("a waker", || reader.wake());
    }
    true
}

/// Asks the core of `to` for its half of a link.
struct LinkRequest {
    from: RawPid,
    to: RawPid,
    answered: bool,
}

impl Letter for LinkRequest {
    fn open(mut self: Box<Self>) {
        self.answered = true;
        match Process::of(&context::current(), self.to) {
            Some(process) => process.bonds().links.accept(self.from),
            None => signal(self.from, self.to, ExitReason::NoProcess),
        }
    }
}

impl Drop for LinkRequest {
    fn drop(&mut self) {
        if !self.answered {
            signal(self.from, self.to, ExitReason::CoreEnded);
        }
    }
}

/// Asks the core of `to` to remove its half of a link.
struct Unlink {
    from: RawPid,
    to: RawPid,
    number: u32,
    answered: bool,
}

impl Unlink {
    fn answer(&mut self) {
        if !std::mem::replace(&mut self.answered, true) {
            let Unlink { from, to, number, .. } = *self;
            // Refused by a core that has ended: nobody is linked there any more.
            let _ = mesh::post(from.core(), Unlinked { from, to, number });
        }
    }
}

impl Letter for Unlink {
    fn open(mut self: Box<Self>) {
        if let Some(Some(process)) = Process::find(&context::current(), self.to) {
            process.bonds().links.unlinked(self.from);
        }
        self.answer();
    }
}

impl Drop for Unlink {
    fn drop(&mut self) {
        self.answer();
    }
}

/// Answers an [`Unlink`] of `from`.
struct Unlinked {
    from: RawPid,
    to: RawPid,
    number: u32,
}

impl Letter for Unlinked {
    fn open(self: Box<Self>) {
        if let Some(Some(process)) = Process::find(&context::current(), self.from) {
            process.bonds().links.end_unlink(self.to, self.number);
        }
    }
}

struct ExitSignal {
    to: RawPid,
    from: RawPid,
    reason: ExitReason,
}

impl Letter for ExitSignal {
    fn open(self: Box<Self>) {
        take_effect(&context::current(), self.to, self.from, self.reason);
    }
}

struct ShutdownSignal {
    to: RawPid,
    from: RawPid,
}

impl Letter for ShutdownSignal {
    fn open(self: Box<Self>) {
        take_shutdown(&context::current(), self.to, self.from);
    }
}
