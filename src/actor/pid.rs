//! Identity and typed address in one.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use crate::runtime::{CoreId, RawPid};

/// Says what the actors of a kind understand. The implementing type is only a name for the kind: it need not be what the
/// actor holds, and there need be no value of it.
///
/// ```
/// use corelet::actor::Addressable;
///
/// enum Counter {}
/// impl Addressable for Counter {
///     type Msg = u64;
/// }
/// ```
pub trait Addressable: 'static {
    /// The message that a [`Pid`] of this kind can be sent.
    type Msg: Send + 'static;
}

/// The kind of an actor of which nothing is known but its identity. It has no values and is not [`Addressable`]: a
/// [`Pid<Erased>`](Pid) can be monitored, linked and stopped, and sent to only by [`send_dyn`](super::send_dyn).
#[derive(Clone, Copy, Debug)]
pub enum Erased {}

/// An actor's identity, and what it understands.
///
/// As cheap as the identity alone: `Copy`, and good on every thread and at any time, also after the actor has ended. Two are
/// equal when they name the same actor, whatever their types say.
pub struct Pid<A = Erased> {
    raw: RawPid,
    kind: PhantomData<fn() -> A>,
}

impl<A> Pid<A> {
    pub(crate) fn new(raw: RawPid) -> Pid<A> {
        Pid { raw, kind: PhantomData }
    }

    /// The untyped identity.
    pub fn raw(self) -> RawPid {
        self.raw
    }

    /// Forgets what the actor understands.
    pub fn erase(self) -> Pid {
        Pid::new(self.raw)
    }

    /// The core that the actor lives on, for its whole life.
    pub fn core(self) -> CoreId {
        self.raw.core()
    }
}

impl From<RawPid> for Pid {
    fn from(raw: RawPid) -> Pid {
        Pid::new(raw)
    }
}

impl<A> From<Pid<A>> for RawPid {
    fn from(pid: Pid<A>) -> RawPid {
        pid.raw
    }
}

// Not derived: a derive would ask the same of `A`.
impl<A> Clone for Pid<A> {
    fn clone(&self) -> Pid<A> {
        *self
    }
}

impl<A> Copy for Pid<A> {}

impl<A, B> PartialEq<Pid<B>> for Pid<A> {
    fn eq(&self, other: &Pid<B>) -> bool {
        self.raw == other.raw
    }
}

impl<A> Eq for Pid<A> {}

impl<A> Hash for Pid<A> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}

impl<A> PartialOrd for Pid<A> {
    fn partial_cmp(&self, other: &Pid<A>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By core, then slot, then generation: an order for ordered collections, with no other meaning.
impl<A> Ord for Pid<A> {
    fn cmp(&self, other: &Pid<A>) -> Ordering {
        let key = |pid: RawPid| (pid.core(), pid.index(), pid.generation());
        key(self.raw).cmp(&key(other.raw))
    }
}

impl<A> fmt::Debug for Pid<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.raw, f)
    }
}

impl<A> fmt::Display for Pid<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.raw, f)
    }
}
