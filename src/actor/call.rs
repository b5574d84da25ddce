//! Questions and answers: a message that carries the slip its answer comes back on.
//!
//! [`call`] is Erlang's `gen_server:call` for actors of any kind. It needs no monitor: the [`Reply`] travels with the
//! question, and wherever it is dropped unanswered, in the actor's code, with its mailbox or with its core, the caller
//! hears of it.
//!
//! The places where answers arrive are kept on the caller's core and used again, so a call allocates nothing of its own.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::desk::{Desk, Place, Use};
use super::kit::Kit;
use super::pid::{Addressable, Pid};
use super::send::{SendError, send_to};
use crate::runtime::executor::contain;
use crate::runtime::mesh::{self, Letter};
use crate::runtime::{CoreId, context, timeout};

/// Why a call got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Nobody has the name that was called.
    #[error("nobody has the name that was called")]
    Unresolved,
    /// The actor had ended, or its core.
    #[error("the actor that was called has ended")]
    Dead,
    /// The actor has no mailbox for messages of this type.
    #[error("the actor that was called does not understand the question")]
    NoChannel,
    /// The actor has dropped its receiver.
    #[error("the actor that was called receives no more")]
    Closed,
    /// The actor's mailbox is full. Nothing was sent.
    #[error("the mailbox of the actor that was called is full")]
    Full,
    /// The question arrived or was on its way, and was dropped unanswered: mostly, its actor ended.
    #[error("the question was dropped unanswered")]
    NoReply,
    /// No answer came in time. The question may still be answered, to nobody.
    #[error("no answer came in time")]
    Timeout,
}

impl CallError {
    /// Whether the question was certainly not looked at, so that asking again repeats nothing.
    pub fn is_unsent(&self) -> bool {
        !matches!(self, CallError::NoReply | CallError::Timeout)
    }
}

impl<M> From<SendError<M>> for CallError {
    fn from(error: SendError<M>) -> CallError {
        match error {
            SendError::Unresolved(_) | SendError::NoMember(_) => CallError::Unresolved,
            SendError::Dead(_) => CallError::Dead,
            SendError::NoChannel(_) => CallError::NoChannel,
            SendError::Closed(_) => CallError::Closed,
            SendError::Full(_) => CallError::Full,
        }
    }
}

/// Asks an actor, on whatever core, and waits for its answer for as long as it takes.
///
/// # Errors
/// See [`CallError`]; never [`CallError::Timeout`].
///
/// # Cancel safety
/// Cancel safe in that nothing is left behind; the question is not taken back, and its answer goes to nobody.
///
/// # Panics
/// When not polled on a core.
///
/// # Examples
/// ```
/// use corelet::actor::{self, Addressable, CallError, Reply};
/// use corelet::runtime::{Cores, Runtime};
///
/// enum Doubler {}
/// impl Addressable for Doubler {
///     type Msg = (u64, Reply<u64>);
/// }
///
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// runtime.block_on(|| async {
///     let doubler = actor::spawn_addr::<Doubler, _, _>(async |mut inbox| {
///         while let Ok((number, reply)) = inbox.recv().await {
///             reply.send(2 * number);
///         }
///     });
///     assert_eq!(actor::call(doubler, |reply| (21, reply)).await, Ok(42));
///     actor::request_stop(doubler);
///     assert_eq!(actor::call(doubler, |reply| (1, reply)).await, Err(CallError::NoReply));
///     assert_eq!(actor::call(doubler, |reply| (1, reply)).await, Err(CallError::Dead));
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn call<A, R>(pid: Pid<A>, question: impl FnOnce(Reply<R>) -> A::Msg) -> Result<R, CallError>
where
    A: Addressable,
    R: Send + 'static,
{
    let (reply, answer) = reply();
    send_to(pid, question(reply))?;
    answer.await
}

/// As [`call`], for at most `limit`. An answer that is there when the time is over counts.
///
/// # Errors
/// See [`CallError`].
///
/// # Cancel safety
/// As [`call`].
///
/// # Panics
/// When not polled on a core.
pub async fn call_timeout<A, R>(
    pid: Pid<A>,
    question: impl FnOnce(Reply<R>) -> A::Msg,
    limit: Duration,
) -> Result<R, CallError>
where
    A: Addressable,
    R: Send + 'static,
{
    timeout(limit, call(pid, question)).await.unwrap_or(Err(CallError::Timeout))
}

/// A slip to answer on, and where the answer arrives: for questions that are sent by other ways than [`call`].
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn reply<R: Send + 'static>() -> (Reply<R>, Answer<R>) {
    let (core, desk) = match context::with(|local| (local.id(), Kit::of(local).desks().of::<R>())) {
        Some(here) => here,
        None => panic!("an answer arrives on a core: this must be called on one"),
    };
    let place = desk.open();
    let reply = Reply { core, place, answer: PhantomData };
    (reply, Answer { desk, slot: place.slot })
}

/// What a question is answered on, once, from anywhere.
///
/// # Drop
/// Dropped unanswered, it ends the caller's wait with [`CallError::NoReply`].
pub struct Reply<R: Send + 'static> {
    /// The caller's.
    core: CoreId,
    place: Place,
    answer: PhantomData<fn(R)>,
}

impl<R: Send + 'static> Reply<R> {
    /// Answers. When nobody waits for the answer any more it is dropped, here or on the caller's core.
    #[inline]
    pub fn send(self, answer: R) {
        let (core, place) = (self.core, self.place);
        // Its drop would say that it is dropped unanswered.
        std::mem::forget(self);
        deliver(core, place, Some(answer));
    }
}

impl<R: Send + 'static> Drop for Reply<R> {
    fn drop(&mut self) {
        deliver::<R>(self.core, self.place, None);
    }
}

impl<R: Send + 'static> fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("core", &self.core).finish_non_exhaustive()
    }
}

/// Ready when the question was answered, or its [`Reply`] dropped; made by [`reply`].
///
/// # Cancel safety
/// Cancel safe. Dropping it drops an answer that was not taken.
#[must_use = "the answer is dropped with this"]
pub struct Answer<R: Send + 'static> {
    desk: Rc<Desk<R>>,
    slot: Use,
}

impl<R: Send + 'static> Future for Answer<R> {
    type Output = Result<R, CallError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.desk.poll(self.slot, cx).map(|answer| answer.ok_or(CallError::NoReply))
    }
}

impl<R: Send + 'static> Drop for Answer<R> {
    #[inline]
    fn drop(&mut self) {
        drop(self.desk.close(self.slot));
    }
}

impl<R: Send + 'static> fmt::Debug for Answer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

#[inline]
fn deliver<R: Send + 'static>(core: CoreId, place: Place, answer: Option<R>) {
    if context::with(|local| local.id() == core) == Some(true) {
        bring(place, answer);
    } else {
        // Refused by a core that has ended, and the asker with it.
        drop(mesh::post(core, Answered { place, answer }));
    }
}

/// Brings an answer to its place on this core, and wakes who waits for it.
#[inline]
fn bring<R: 'static>(place: Place, answer: Option<R>) {
    match context::with(move |local| Kit::of(local).desks().bring(place, answer)) {
        Some(Ok(Some(waker))) => waker.wake(),
        Some(Err(unwanted)) => drop(unwanted),
        Some(Ok(None)) | None => {}
    }
}

/// An answer on its way to another core.
struct Answered<R> {
    place: Place,
    answer: Option<R>,
}

impl<R: Send + 'static> Letter for Answered<R> {
    fn open(self: Box<Self>) {
        let Answered { place, answer } = *self;
        contain("an answer that nobody waits for", || bring(place, answer));
    }
}
