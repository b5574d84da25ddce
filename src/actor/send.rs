//! Sending to an actor by its pid.

use super::kit::Kit;
use super::pid::{Addressable, Erased, Pid};
use super::process::Process;
use crate::runtime::RawPid;
use crate::runtime::context;
use crate::runtime::executor::contain;
use crate::runtime::local::Local;
use crate::runtime::mesh::{self, Letter};

use std::any::Any;
use std::fmt;

/// Why a message was not sent. It comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError<M> {
    /// Nobody has the name.
    Unresolved(M),
    /// The group has no live member.
    NoMember(M),
    /// The actor has ended. A new one in its place is never taken for it.
    Dead(M),
    /// The actor lives and has no mailbox for messages of this type.
    NoChannel(M),
    /// The receiver was dropped.
    Closed(M),
    /// A bounded mailbox is full.
    Full(M),
}

impl<M> SendError<M> {
    /// The message.
    pub fn into_inner(self) -> M {
        match self {
            SendError::Unresolved(message)
            | SendError::NoMember(message)
            | SendError::Dead(message)
            | SendError::NoChannel(message)
            | SendError::Closed(message)
            | SendError::Full(message) => message,
        }
    }

    /// The same error about what `change` makes of the message.
    pub fn map<N>(self, change: impl FnOnce(M) -> N) -> SendError<N> {
        match self {
            SendError::Unresolved(message) => SendError::Unresolved(change(message)),
            SendError::NoMember(message) => SendError::NoMember(change(message)),
            SendError::Dead(message) => SendError::Dead(change(message)),
            SendError::NoChannel(message) => SendError::NoChannel(change(message)),
            SendError::Closed(message) => SendError::Closed(change(message)),
            SendError::Full(message) => SendError::Full(change(message)),
        }
    }

    /// Whether there was no room: the same message may get in later.
    pub fn is_full(&self) -> bool {
        matches!(self, SendError::Full(_))
    }

    /// Whether the same send to the same actor can never succeed.
    pub fn is_final(&self) -> bool {
        matches!(self, SendError::Dead(_) | SendError::Closed(_))
    }

    fn parts(&self) -> (&'static str, &'static str) {
        match self {
            SendError::Unresolved(_) => ("Unresolved", "nobody has this name"),
            SendError::NoMember(_) => ("NoMember", "the group has no live member"),
            SendError::Dead(_) => ("Dead", "the actor has ended"),
            SendError::NoChannel(_) => ("NoChannel", "the actor has no mailbox for messages of this type"),
            SendError::Closed(_) => ("Closed", "the receiver was dropped"),
            SendError::Full(_) => ("Full", "the mailbox is full"),
        }
    }
}

// Written by hand so that a message need not be `Debug`.
impl<M> fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(..)", self.parts().0)
    }
}

impl<M> fmt::Display for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.parts().1)
    }
}

impl<M> std::error::Error for SendError<M> {}

/// Sends to exactly this actor, without waiting.
///
/// On the actor's own core the answer is the truth. From elsewhere the message is on its way when this returns, and the
/// sender learns of its fate only as in Erlang, by a reply or a [`monitor`](super::monitor): a message that finds its actor
/// dead, its mailbox full or no mailbox of its type when it arrives is dropped, and
/// [counted](super::undelivered).
///
/// # Errors
/// Gives the message back: [`SendError::Dead`] when the actor, or its core, has ended; [`SendError::NoChannel`] when it has no
/// mailbox of this type; [`SendError::Closed`] when it dropped the receiver; [`SendError::Full`].
#[inline]
pub fn send_to<A: Addressable>(pid: Pid<A>, message: A::Msg) -> Result<(), SendError<A::Msg>> {
    send_raw(pid.raw(), message)
}

/// As [`send_to`], where the type of the message is known and the kind of the actor is not.
///
/// # Errors
/// As [`send_to`]: [`SendError::NoChannel`] when the actor does not understand messages of this type.
#[inline]
pub fn send_dyn<M: Send + 'static>(pid: Pid<Erased>, message: M) -> Result<(), SendError<M>> {
    send_raw(pid.raw(), message)
}

/// How many messages from elsewhere the current core has dropped as they arrived: their actor or receiver was gone, or a
/// bounded mailbox was full. None outside a turn of a core.
pub fn undelivered() -> Option<u64> {
    context::with(|local| Kit::of(local).undelivered())
}

#[inline]
fn send_raw<M: Send + 'static>(pid: RawPid, message: M) -> Result<(), SendError<M>> {
    if context::with(|local| local.id() == pid.core()) != Some(true) {
        return send_abroad(pid, message);
    }
    match context::with(move |local| deliver(local, pid, message)) {
        Some(sent) => sent,
        None => unreachable!("the thread is on a core, as it was just now"),
    }
}

fn send_abroad<M: Send + 'static>(pid: RawPid, message: M) -> Result<(), SendError<M>> {
    mesh::post(pid.core(), Addressed { pid, message }).map_err(|returned| SendError::Dead(returned.message))
}

/// Puts a message into a mailbox of this core, and wakes whoever reads it.
#[inline]
fn deliver<M: 'static>(local: &Local, pid: RawPid, message: M) -> Result<(), SendError<M>> {
    let records = local.executor().records();
    let Some(record) = records.get(pid) else { return Err(SendError::Dead(message)) };
    let process = record.and_then(|record| (&**record as &dyn Any).downcast_ref::<Process>());
    let Some(process) = process else { return Err(SendError::NoChannel(message)) };
    let reader = process.push(message)?;
    // Woken only now: a waker may be a user's.
    drop(records);
    if let Some(reader) = reader {
        reader.wake();
    }
    Ok(())
}

/// A message on its way to an actor of another core.
struct Addressed<M> {
    pid: RawPid,
    message: M,
}

impl<M: Send + 'static> Letter for Addressed<M> {
    fn open(self: Box<Self>) {
        let Addressed { pid, message } = *self;
        let local = context::current();
        if let Err(refused) = deliver(&local, pid, message) {
            Kit::of(&local).count_undelivered();
            contain("a message that came too late", || drop(refused));
        }
    }
}
