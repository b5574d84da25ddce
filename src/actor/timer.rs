//! Messages that are sent after a delay, and can be taken back until then. Erlang's `erlang:send_after`.
//!
//! An actor that waits for messages anyway needs no second thing to wait for: its idle time-out, its tick, its debounce and
//! its back-off are messages to itself, armed and taken back as the case may be. A time-out of one await is
//! [`timeout`](crate::runtime::timeout), and of a call, [`call_timeout`](super::call_timeout).
//!
//! A timer belongs to the core that armed it, whoever the message is for, and is one of that core's deadlines like a
//! [`sleep`](crate::runtime::sleep): exact, in order, and gone when it is taken back. It ends with its core: then its message is
//! dropped.
//!
//! # Examples
//!
//! An idle time-out: each message puts it off.
//!
//! ```
//! use std::time::Duration;
//! use corelet::actor::{self, Addressable, ExitReason};
//! use corelet::runtime::{Cores, Runtime};
//!
//! enum Session {}
//! enum Event {
//!     Data(u32),
//!     Idle,
//! }
//! impl Addressable for Session {
//!     type Msg = Event;
//! }
//!
//! # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
//! runtime.block_on(|| async {
//!     let session = actor::spawn_addr::<Session, _, _>(async |mut inbox| {
//!         let me = actor::myself().unwrap();
//!         let arm = || actor::send_after_dyn(me, Event::Idle, Duration::from_millis(5));
//!         let mut idle = arm();
//!         while let Ok(Event::Data(_)) = inbox.recv().await {
//!             actor::cancel_timer(idle);
//!             idle = arm();
//!         }
//!     });
//!     actor::send_to(session, Event::Data(1)).unwrap();
//!     assert_eq!(actor::monitor(session).await.reason, ExitReason::Normal);
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Never: run or drop a message while the table of timers is borrowed, or leave a cancel unanswered.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_channel::oneshot;
use slab::Slab;

use super::kit::Kit;
use super::name::Name;
use super::pid::{Addressable, Pid};
use super::registry::Tables;
use super::send::{send_dyn, send_to};
use crate::runtime::executor::contain;
use crate::runtime::local::{Due, Local};
use crate::runtime::mesh::{self, Letter};
use crate::runtime::timer::DeadlineKey;
use crate::runtime::{CoreId, context, far};

/// Names a timer, for whoever is to take it back; on every thread and at any time. A timer that has fired is never mistaken for
/// a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    core: CoreId,
    /// Tells the core from an earlier one with the same id.
    life: u32,
    index: u32,
    serial: u32,
}

/// Sends `message` to exactly this actor, on whatever core, after `delay`, as [`send_to`](super::send_to) does. If it has
/// ended by then, has dropped its receiver, has no mailbox for the message or no room in it, the message is dropped.
///
/// A delay of zero fires in the core's next turn.
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn send_after<A: Addressable>(pid: Pid<A>, message: A::Msg, delay: Duration) -> TimerId {
    arm(delay, move |_| drop(send_to(pid, message)))
}

/// As [`send_after`], where the type of the message is known and the kind of the actor is not; as for an actor's messages to
/// [itself](super::myself).
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn send_after_dyn<M: Send + 'static>(pid: Pid, message: M, delay: Duration) -> TimerId {
    arm(delay, move |_| drop(send_dyn(pid, message)))
}

/// As [`send_after`], to whoever has the name when the time has come: an actor that was started again under it gets the
/// message. It is dropped if nobody has the name then, or the holder's channel refuses it.
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn send_after_named<M: Send + 'static>(name: Name<M>, message: M, delay: Duration) -> TimerId {
    arm(delay, move |local| drop(Tables::of(local.runtime()).send(name.as_str(), message)))
}

/// Takes a timer back, from any thread; the message is dropped. What is returned tells whether it came in time. It need not be
/// awaited: the cancel is under way when this returns, and for a timer of the current core it is done.
pub fn cancel_timer(id: TimerId) -> CancelTimer {
    if let Some(cancelled) =
        context::with(|local| (local.id() == id.core).then(|| cancel(local, id))).flatten()
    {
        return CancelTimer(Fate::Known(cancelled));
    }
    let (answer, fate) = oneshot::channel();
    // Refused by a core that has ended: the answer that is dropped says no.
    drop(mesh::post(id.core, CancelRequest { id, answer }));
    CancelTimer(Fate::Asked(fate))
}

/// Takes back every timer that the current core has armed for a message, and says how many
/// there were. Their messages are dropped.
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn clear_timers() -> usize {
    let local = context::current();
    Kit::of(&local).timers().clear(&local)
}

/// Tells whether a timer was taken back in time: true when its message will never be sent, and this cancel is why. False when
/// it has fired, was taken back before, or went with its core.
///
/// # Cancel safety
/// Cancel safe; dropping it does not undo the cancel.
#[derive(Debug)]
pub struct CancelTimer(Fate);

#[derive(Debug)]
enum Fate {
    Known(bool),
    Asked(oneshot::Receiver<bool>),
}

impl CancelTimer {
    /// The answer, if it is there. For a timer of the core that cancelled it always is.
    pub fn now(&mut self) -> Option<bool> {
        match &mut self.0 {
            Fate::Known(cancelled) => Some(*cancelled),
            Fate::Asked(fate) => match fate.try_recv() {
                Ok(cancelled) => self.known(cancelled?),
                Err(oneshot::Canceled) => self.known(false),
            },
        }
    }

    fn known(&mut self, cancelled: bool) -> Option<bool> {
        self.0 = Fate::Known(cancelled);
        Some(cancelled)
    }
}

impl Future for CancelTimer {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        match &mut self.0 {
            Fate::Known(cancelled) => Poll::Ready(*cancelled),
            Fate::Asked(fate) => {
                let Poll::Ready(answer) = Pin::new(fate).poll(cx) else { return Poll::Pending };
                let cancelled = answer.unwrap_or(false);
                self.0 = Fate::Known(cancelled);
                Poll::Ready(cancelled)
            }
        }
    }
}

/// The message timers of one core.
pub(super) struct Timers {
    life: u32,
    armed: RefCell<Armed>,
}

#[derive(Default)]
struct Armed {
    timers: Slab<(u32, DeadlineKey)>,
    serial: u32,
}

impl Timers {
    pub(super) fn new(life: u32) -> Timers {
        Timers { life, armed: RefCell::default() }
    }

    /// Gives up every timer; also for a core that ends.
    pub(super) fn clear(&self, local: &Local) -> usize {
        let armed = std::mem::take(&mut self.armed.borrow_mut().timers);
        // All of them first: a drop may arm others.
        let dues: Vec<Due> = armed.into_iter().filter_map(|(_, (_, key))| local.take_timer(key)).collect();
        let count = dues.len();
        for due in dues {
            contain("the message of a timer", || drop(due));
        }
        count
    }

    fn take(&self, id: TimerId) -> Option<DeadlineKey> {
        let timers = &mut self.armed.borrow_mut().timers;
        let (serial, _) = timers.get(id.index as usize)?;
        if *serial != id.serial || self.life != id.life {
            return None;
        }
        Some(timers.remove(id.index as usize).1)
    }
}

#[track_caller]
fn arm(delay: Duration, fire: impl FnOnce(&Rc<Local>) + 'static) -> TimerId {
    let local = context::current();
    let at = far(local.now(), delay);
    let timers = Kit::of(&local).timers();
    let mut armed = timers.armed.borrow_mut();
    let serial = armed.serial.wrapping_add(1);
    armed.serial = serial;
    let entry = armed.timers.vacant_entry();
    let id = TimerId { core: local.id(), life: timers.life, index: entry.key() as u32, serial };
    let job = move || {
        let local = context::current();
        let due = Kit::of(&local).timers().take(id);
        debug_assert!(due.is_some(), "a timer that fires was armed until now");
        fire(&local);
    };
    entry.insert((serial, local.arm_timer(at, Due::Run(Box::new(job)))));
    id
}

/// Takes back a timer of this core.
fn cancel(local: &Local, id: TimerId) -> bool {
    let due = Kit::of(local).timers().take(id).and_then(|key| local.take_timer(key));
    let cancelled = due.is_some();
    // In the poll of somebody who does not know the message, or in none.
    contain("the message of a cancelled timer", || drop(due));
    cancelled
}

/// Asks a timer's core to take it back. Dropped unopened, the timer went with its core.
struct CancelRequest {
    id: TimerId,
    answer: oneshot::Sender<bool>,
}

impl Letter for CancelRequest {
    fn open(self: Box<Self>) {
        let cancelled = cancel(&context::current(), self.id);
        // Whoever asked may have lost interest.
        let _ = self.answer.send(cancelled);
    }
}
