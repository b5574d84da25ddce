//! Waiters that end without a connection: deadlines, handles that go, shutdown.

use std::time::{Duration, Instant};

use super::{CloseReason, HandleId, Lifecycle, Refusal, Stage, State, WaiterKey};

impl<C, W> State<C, W> {
    /// The acquires that were queued since the last call count their time from `now`. To be called soon: an acquire
    /// that stays queued meanwhile waits that much longer.
    pub(crate) fn start_clocks(&mut self, now: Instant) {
        self.waiters.start_clocks(now);
    }

    /// Refuses every queued waiter whose deadline is `now` or before.
    pub(crate) fn handle_deadline(&mut self, now: Instant) {
        while let Some(waiter) = self.waiters.pop_due(now) {
            // What an open can still serve: slots being opened, and vacant ones that wait for a back-off or
            // for their turn to be opened. They go to the first in order; the others wait for leases.
            let can_open = self.slots.opening() + self.openable();
            let stage =
                if self.waiters.is_among_next(can_open, waiter) { Stage::Connecting } else { Stage::Waiting };
            let refusal = Refusal::TimedOut {
                stage,
                waited: self
                    .waiters
                    .since(waiter)
                    .map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
                queued: self.waiters.queued(),
                last_connect_error: self.retry.last_error().cloned(),
            };
            self.refuse(waiter, refusal);
        }
        self.debug_check();
    }

    /// A handle has gone: its queued waiters are refused and its uncollected grants passed on to others.
    /// Doing it twice, or for a handle that never waited, does nothing.
    pub(crate) fn handle_deregister(&mut self, handle: HandleId) {
        // Queued ones first, or they would be given the connections that the revoked grants set free.
        let first = self.waiters.first_beside(handle);
        self.for_each_of(handle, first, |state, waiter| state.refuse(waiter, Refusal::Deregistered));
        for waiter in self.waiters.granted_to(handle) {
            self.revoke(waiter, Refusal::Deregistered);
        }
        self.debug_check();
    }

    /// Stops the shard: the new status first, so that nothing is admitted any more, then everybody queued is
    /// refused and everything idle is to be closed. Granted but uncollected connections can still be
    /// collected; leases end when they end. Repeating it does nothing, except that a closed shard can still
    /// fail.
    pub(crate) fn drain_for_shutdown(&mut self, to: Lifecycle) {
        self.lifecycle = self.lifecycle.max(to);
        let refusal = match self.lifecycle {
            Lifecycle::Running => return,
            Lifecycle::Closed => Refusal::Closed,
            Lifecycle::Failed => Refusal::Failed,
        };
        self.unheeded = false;
        self.refuse_all(&refusal);
        self.stop_upkeep();
        while let Some(slot) = self.slots.newest_idle() {
            self.slots.condemn_idle(slot, CloseReason::Shutdown);
            self.counters.count_close(CloseReason::Shutdown);
        }
        self.debug_check();
    }

    /// Refuses everybody who is queued, in the order in which they would have been served.
    pub(super) fn refuse_all(&mut self, refusal: &Refusal) {
        while let Some(waiter) = self.waiters.first() {
            self.refuse(waiter, refusal.clone());
        }
    }

    /// Calls `end` for each waiter of `handle` on the list that begins with `next`. `end` may take the waiter
    /// it is given off the list, and append to it.
    fn for_each_of(
        &mut self,
        handle: HandleId,
        mut next: Option<WaiterKey>,
        mut end: impl FnMut(&mut Self, WaiterKey),
    ) {
        while let Some(waiter) = next {
            next = self.waiters.next_beside(waiter);
            if self.waiters.handle(waiter) == handle {
                end(self, waiter);
            }
        }
    }
}
