//! What changes from outside while a shard runs: how many slots there are to be, and which connections are still of use.
//!
//! No lease is ever broken. A leased connection that has become one too many, or may lead to the wrong place, is closed
//! when its lease ends.

use super::slots::Phase;
use super::{CloseReason, Lifecycle, SlotId, State};

impl<C, W> State<C, W> {
    /// There are to be so many slots, at least one. More are there at once. Of those that are too many, the vacant
    /// ones go first, then those of idle connections, the longest idle first; an open under way is closed when it has
    /// succeeded, a lease when it ends. Repeating it does nothing.
    pub(crate) fn handle_resize(&mut self, slots: usize) {
        if self.lifecycle != Lifecycle::Running || slots == self.slots.target() {
            return;
        }
        self.slots.set_target(slots);
        while self.slots.surplus() > 0
            && let Some(slot) = self.slots.oldest_idle()
        {
            self.evict(slot, CloseReason::Resized);
        }
        // What is being opened or checked is looked at when it arrives.
        let out = self.slots.surplus().saturating_sub(self.slots.opening() + self.slots.checking());
        self.slots.mark_some_last(out, CloseReason::Resized);
        self.debug_check();
    }

    /// Which connections are of use may have changed: an idle one for which `is_current` does not hold is closed, and
    /// one on lease is *in question* when its lease ends.
    pub(crate) fn handle_refresh(&mut self, is_current: impl Fn(&C) -> bool) {
        if self.lifecycle != Lifecycle::Running {
            return;
        }
        let ids: Vec<SlotId> = self.slots.ids().collect();
        for slot in ids {
            let phase = self.slots.phase(slot);
            match (phase, self.slots.connection_mut(slot)) {
                (Some(Phase::Idle), Some(connection)) if !is_current(connection) => {
                    self.evict(slot, CloseReason::Superseded);
                }
                (Some(Phase::Reserved), Some(connection)) if !is_current(connection) => {
                    self.slots.mark_last(slot, CloseReason::Superseded);
                }
                (Some(Phase::Leased), _) => self.slots.mark_last(slot, CloseReason::Superseded),
                _ => {}
            }
        }
        self.debug_check();
    }

    /// Whether the present lease of a connection is to be its last; none if it is not on lease.
    #[cfg(feature = "framed")]
    pub(crate) fn is_last_lease(&self, slot: SlotId) -> Option<bool> {
        self.slots.is_out(slot).then(|| self.slots.last_reason(slot).is_some())
    }

    /// Whether it has yet to be found out if this leased connection is still of use.
    pub(crate) fn is_in_question(&self, slot: SlotId) -> bool {
        self.slots.last_reason(slot) == Some(CloseReason::Superseded)
    }

    /// A connection in question is of use after all.
    pub(crate) fn pardon(&mut self, slot: SlotId) {
        if self.is_in_question(slot) {
            self.slots.pardon(slot);
            if self.slots.surplus() > 0 {
                self.slots.mark_last(slot, CloseReason::Resized);
            }
        }
        self.debug_check();
    }

    /// An open succeeded, and what it opened is of no use any more. With a stale id the connection is merely dropped.
    pub(crate) fn handle_connected_in_vain(&mut self, slot: SlotId, connection: C) {
        if self.slots.end_open(slot) {
            self.retry.succeed();
            self.condemn(slot, connection, CloseReason::Superseded);
        }
        self.debug_check();
    }
}
