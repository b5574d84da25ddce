//! Questions and answers: a message that carries the slip its answer comes back on.
//!
//! [`call`] is Erlang's `gen_server:call` for actors of any kind. It needs no monitor: the [`Reply`] travels with the
//! question, and wherever it is dropped unanswered, in the actor's code, with its mailbox or with its core, the caller
//! hears of it.
//!
//! The places where answers arrive are kept on the caller's core and used again, so a call allocates nothing of its own.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::kit::Kit;
use super::pid::{Addressable, Pid};
use super::send::{SendError, send_to};
use crate::runtime::executor::contain;
use crate::runtime::local::Local;
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
    let (core, desk) = match context::peek(|local| (local.id(), Kit::of(local).desks().of::<R>())) {
        Some(here) => here,
        None => panic!("an answer arrives on a core: this must be called on one"),
    };
    let place = desk.open();
    let reply = Reply { core, place: Some(place), answer: PhantomData };
    (reply, Answer { desk, place })
}

/// What a question is answered on, once, from anywhere.
///
/// # Drop
/// Dropped unanswered, it ends the caller's wait with [`CallError::NoReply`].
pub struct Reply<R: Send + 'static> {
    /// The caller's.
    core: CoreId,
    /// None once it is used.
    place: Option<Place>,
    answer: PhantomData<fn(R)>,
}

impl<R: Send + 'static> Reply<R> {
    /// Answers. When nobody waits for the answer any more it is dropped, here or on the caller's core.
    #[inline]
    pub fn send(mut self, answer: R) {
        if let Some(place) = self.place.take() {
            deliver(self.core, place, Some(answer));
        }
    }
}

impl<R: Send + 'static> Drop for Reply<R> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            deliver::<R>(self.core, place, None);
        }
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
    place: Place,
}

impl<R: Send + 'static> Future for Answer<R> {
    type Output = Result<R, CallError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.desk.poll(self.place, cx)
    }
}

impl<R: Send + 'static> Drop for Answer<R> {
    #[inline]
    fn drop(&mut self) {
        drop(self.desk.close(self.place));
    }
}

impl<R: Send + 'static> fmt::Debug for Answer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

/// The places of one core where answers arrive, by the type of the answer.
pub(super) struct Desks {
    life: u32,
    desks: RefCell<Vec<Rc<dyn Any>>>,
    numbers: RefCell<FxHashMap<TypeId, u32>>,
    /// The one that was asked for last, in the hope that it is asked for next.
    last: Cell<u32>,
}

impl Desks {
    pub(super) fn new(life: u32) -> Desks {
        Desks { life, desks: RefCell::default(), numbers: RefCell::default(), last: Cell::default() }
    }

    #[inline]
    fn of<R: 'static>(&self) -> Rc<Desk<R>> {
        match self.get(self.last.get()) {
            Some(desk) => desk,
            None => self.search(),
        }
    }

    #[inline]
    fn get<R: 'static>(&self, number: u32) -> Option<Rc<Desk<R>>> {
        Rc::clone(self.desks.borrow().get(number as usize)?).downcast().ok()
    }

    fn search<R: 'static>(&self) -> Rc<Desk<R>> {
        let new = self.desks.borrow().len() as u32;
        let number = *self.numbers.borrow_mut().entry(TypeId::of::<R>()).or_insert(new);
        self.last.set(number);
        if let Some(desk) = self.get(number) {
            return desk;
        }
        let desk =
            Rc::new(Desk { life: self.life, number, slots: RefCell::default(), free: RefCell::default() });
        self.desks.borrow_mut().push(Rc::clone(&desk) as Rc<dyn Any>);
        desk
    }

    pub(super) fn clear(&self) {
        self.numbers.borrow_mut().clear();
        drop(self.desks.take());
    }
}

/// Where answers of one type arrive.
struct Desk<R> {
    life: u32,
    number: u32,
    slots: RefCell<Vec<Slot<R>>>,
    free: RefCell<Vec<u32>>,
}

struct Slot<R> {
    generation: u32,
    state: State<R>,
}

enum State<R> {
    Vacant,
    Asked(Option<Waker>),
    Answered(R),
    Dropped,
}

/// Names one use of a slot.
#[derive(Clone, Copy)]
struct Place {
    /// Tells the core from an earlier one with the same id.
    life: u32,
    desk: u32,
    index: u32,
    generation: u32,
}

impl<R> Desk<R> {
    #[inline]
    fn open(&self) -> Place {
        let mut slots = self.slots.borrow_mut();
        let index = match self.free.borrow_mut().pop() {
            Some(index) => index,
            None => {
                slots.push(Slot { generation: 0, state: State::Vacant });
                (slots.len() - 1) as u32
            }
        };
        let slot = &mut slots[index as usize];
        slot.state = State::Asked(None);
        Place { life: self.life, desk: self.number, index, generation: slot.generation }
    }

    #[inline]
    fn poll(&self, place: Place, cx: &mut Context<'_>) -> Poll<Result<R, CallError>> {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[place.index as usize];
        debug_assert_eq!(slot.generation, place.generation, "a slot is its asker's until it is closed");
        match &mut slot.state {
            State::Asked(Some(waker)) if waker.will_wake(cx.waker()) => Poll::Pending,
            State::Asked(waker) => {
                let former = waker.replace(cx.waker().clone());
                drop(slots);
                drop(former);
                Poll::Pending
            }
            state => match std::mem::replace(state, State::Dropped) {
                State::Answered(answer) => Poll::Ready(Ok(answer)),
                _ => Poll::Ready(Err(CallError::NoReply)),
            },
        }
    }

    /// Brings an answer, or none. Gives it back when nobody waits, else who is to be woken.
    #[inline]
    fn bring(&self, place: Place, answer: Option<R>) -> Result<Option<Waker>, Option<R>> {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(place.index as usize) else { return Err(answer) };
        let meant = place.life == self.life && place.generation == slot.generation;
        if !meant || !matches!(slot.state, State::Asked(_)) {
            return Err(answer);
        }
        match std::mem::replace(&mut slot.state, answer.map_or(State::Dropped, State::Answered)) {
            State::Asked(waker) => Ok(waker),
            _ => unreachable!("checked above, on the same borrow"),
        }
    }

    /// Ends a use of a slot; what was in it is for the caller to drop.
    #[inline]
    fn close(&self, place: Place) -> Option<State<R>> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(place.index as usize)?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.borrow_mut().push(place.index);
        Some(std::mem::replace(&mut slot.state, State::Vacant))
    }
}

#[inline]
fn deliver<R: Send + 'static>(core: CoreId, place: Place, answer: Option<R>) {
    let desk = |local: &Local| (local.id() == core).then(|| Kit::of(local).desks().get(place.desk));
    match context::peek(desk).flatten() {
        Some(desk) => bring(desk, place, answer),
        // Refused by a core that has ended, and the asker with it.
        None => drop(mesh::post(core, Answered { core, place, answer })),
    }
}

#[inline]
fn bring<R>(desk: Option<Rc<Desk<R>>>, place: Place, answer: Option<R>) {
    let brought = match desk {
        Some(desk) => desk.bring(place, answer),
        None => Err(answer),
    };
    match brought {
        Ok(Some(waker)) => waker.wake(),
        Ok(None) => {}
        Err(unwanted) => drop(unwanted),
    }
}

/// An answer on its way to another core.
struct Answered<R> {
    core: CoreId,
    place: Place,
    answer: Option<R>,
}

impl<R: Send + 'static> Letter for Answered<R> {
    fn open(self: Box<Self>) {
        let Answered { core, place, answer } = *self;
        debug_assert_eq!(context::current().id(), core);
        let desk = context::peek(|local| Kit::of(local).desks().get(place.desk)).flatten();
        contain("an answer that nobody waits for", || bring::<R>(desk, place, answer));
    }
}
