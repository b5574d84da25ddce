//! The decisions of one shard: who gets which slot, and when.
//!
//! Nothing in here does I/O, awaits, reads a clock, wakes anybody or spawns. Events come in through the
//! `handle_*` transitions of [`State`], with the time as an argument where it matters; what is to be done
//! about them goes out by return value or through `poll_open`, `poll_close` and `poll_notice`. So every order
//! of events can be tried in a test, without a runtime.
//!
//! The state holds no command sender and no join handle: whoever owns it decides how long it lives.

mod accounts;
mod admission;
mod asker;
mod backoff;
mod capacity;
mod check;
mod codel;
mod counters;
mod ending;
mod leases;
mod life;
mod links;
mod outcome;
mod pace;
mod queue;
mod resize;
mod rotation;
mod slots;
mod state;
mod waits;
mod watch;

#[cfg(test)]
mod tests;

pub(crate) use asker::{Asker, Patience, Rules, Shedding, Site};
pub(crate) use backoff::Backoff;
pub(crate) use counters::{Counters, Gauges};
pub(crate) use leases::{Holder, Outstanding};
pub(crate) use life::Keep;
pub(crate) use outcome::{Admission, Elsewhere, Grant, Lifecycle, Notice, Refusal, Taken, Ticket};
pub use outcome::{CloseReason, Stage};
pub(crate) use state::{Limits, Overload, State};
pub(crate) use waits::Wait;

/// A handle's name inside its shard. Handles are not registered: the state knows those that wait, no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HandleId(pub u64);

/// Names one connection's stay in a slot, from the decision to open it until the slot is vacant again. An id
/// whose connection has gone matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotId {
    index: u32,
    generation: u32,
}

impl SlotId {
    /// The id in one word, for those who carry it and do not look.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_bits(bits: u64) -> SlotId {
        SlotId { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// Names one queued acquire until its owner has taken the result or cancelled it, and matches nothing after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WaiterKey {
    index: u32,
    generation: u32,
}
