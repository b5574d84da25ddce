//! Health checks: idle connections that are taken away, looked at, and put back or closed.

use super::{CloseReason, Lifecycle, SlotId, State};

impl<C, W> State<C, W> {
    /// An idle connection to be checked now, which nobody can lease meanwhile; answer with [`State::handle_checked`] or
    /// [`State::handle_unhealthy`].
    pub(crate) fn poll_check(&mut self) -> Option<(SlotId, C)> {
        if !self.life.checks_due || self.slots.checking() >= self.max_connecting {
            return None;
        }
        let check = self.life.check_ticks.and_then(|ticks| self.slots.begin_check(ticks));
        self.life.checks_due = check.is_some();
        self.debug_check();
        check
    }

    /// A connection has passed its check: to the next waiter, or back to its place among the idle ones.
    pub(crate) fn handle_checked(&mut self, slot: SlotId, connection: C) {
        if self.slots.end_check(slot) {
            if self.lifecycle != Lifecycle::Running {
                self.condemn(slot, connection, CloseReason::Shutdown);
            } else if self.slots.surplus() > 0 {
                self.condemn(slot, connection, CloseReason::Resized);
            } else if self.waiters.grant_next(slot).is_some() {
                self.slots.set_aside(slot, connection);
            } else {
                self.slots.unshelve(slot, connection);
            }
            self.retire_overdue();
        }
        self.debug_check();
    }

    /// A connection has failed its check, or is of no use any more.
    pub(crate) fn handle_unhealthy(&mut self, slot: SlotId, connection: C, reason: CloseReason) {
        if self.slots.end_check(slot) {
            self.condemn(slot, connection, reason);
        }
        self.debug_check();
    }
}
