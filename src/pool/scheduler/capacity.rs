//! Connections that come, go and break, and the sweep in which they meet the waiters.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::{CloseReason, Notice, Refusal, SlotId, State};

impl<C, W> State<C, W> {
    /// A lease ended cleanly and nobody waits: its connection goes in front of the idle ones. Otherwise nothing
    /// happens and the connection comes back.
    #[inline(always)]
    pub(crate) fn release_idle(&mut self, slot: SlotId, connection: C) -> Option<C> {
        if self.waiters.queued() > 0 || !self.unheeded || !self.slots.is_leased(slot) {
            return Some(connection);
        }
        self.slots.shelve(slot, connection);
        self.debug_check();
        None
    }

    /// A lease ended cleanly and somebody waits: the connection goes to the next waiter, whose notice is given at once.
    /// Otherwise nothing happens and the connection comes back.
    #[inline]
    pub(crate) fn hand_over(&mut self, slot: SlotId, connection: C) -> Result<Notice<W>, C> {
        if !self.unheeded || !(self.slots.is_leased(slot) || self.end_charged(slot)) {
            return Err(connection);
        }
        if self.wants_time() {
            self.shed();
        }
        let Some(notice) = self.waiters.serve_next(slot) else { return Err(connection) };
        self.slots.set_aside(slot, connection);
        self.debug_check();
        Ok(notice)
    }

    /// A lease ended cleanly: its connection goes to the next waiter or in front of the idle ones. With a
    /// stale id it is merely dropped.
    pub(crate) fn handle_release(&mut self, slot: SlotId, connection: C) {
        if self.end_lease(slot) {
            self.supply(slot, connection);
        }
        self.debug_check();
    }

    /// Makes a lease that counts for a handle an ordinary one that does not. False when it is none, or its connection's
    /// last.
    #[cold]
    fn end_charged(&mut self, slot: SlotId) -> bool {
        self.slots.is_charged(slot) && self.end_lease(slot)
    }

    /// The lease of a slot is over, and no longer counts for a handle; whoever calls this says at once what becomes of
    /// the connection. False when that connection is not out.
    fn end_lease(&mut self, slot: SlotId) -> bool {
        if self.slots.is_leased(slot) {
            return true;
        }
        let out = self.slots.is_out(slot);
        if out {
            self.slots.discharge(slot);
            self.waiters.discharge(slot);
        }
        out
    }

    /// A lease ended and its connection must not be used again. The slot is not free until
    /// [`State::handle_closed`]. With a stale id the connection is merely dropped.
    pub(crate) fn handle_discard(&mut self, slot: SlotId, connection: C, reason: CloseReason) {
        if self.end_lease(slot) {
            self.condemn(slot, connection, reason);
            // Another of its handle's waiters may have joined its line, and something else may be idle.
            self.sweep();
        }
        self.debug_check();
    }

    /// A leased connection has gone and there is nothing to close: the slot is free at once.
    pub(crate) fn handle_lost(&mut self, slot: SlotId, reason: CloseReason) {
        if self.end_lease(slot) {
            self.counters.count_close(reason);
            self.slots.vacate(slot);
            self.sweep();
        }
        self.debug_check();
    }

    /// An idle connection was found dead. If it is no longer idle, whoever leased it will find out.
    #[cold]
    pub(crate) fn handle_evict(&mut self, slot: SlotId) {
        self.evict(slot, CloseReason::Broken);
        self.debug_check();
    }

    /// Another shard is to have the connection that was not used for the longest time. False when none is idle.
    pub(crate) fn give_up_oldest(&mut self) -> bool {
        let given_up = self
            .slots
            .oldest_idle()
            .is_some_and(|slot| self.slots.condemn_idle(slot, CloseReason::Rebalanced));
        if given_up {
            self.counters.count_close(CloseReason::Rebalanced);
        }
        self.debug_check();
        given_up
    }

    /// An open succeeded. With a stale id the connection is merely dropped.
    pub(crate) fn handle_connected(&mut self, slot: SlotId, connection: C) {
        if self.slots.end_open(slot) {
            self.retry.succeed();
            if self.slots.surplus() > 0 {
                self.condemn(slot, connection, CloseReason::Resized);
            } else {
                self.supply(slot, connection);
            }
            self.retire_overdue();
        }
        self.debug_check();
    }

    /// An open failed. If that leaves no connection that is there or might yet come, all who wait are told why
    /// at once; otherwise they have something to wait for.
    pub(crate) fn handle_connect_failed(&mut self, slot: SlotId, error: Arc<io::Error>, now: Instant) {
        if self.slots.end_open(slot) {
            self.slots.vacate(slot);
            self.counters.connect_failures += 1;
            self.retry.fail(Arc::clone(&error), now);
            if self.slots.alive() == 0 {
                self.refuse_all(&Refusal::Connect(error));
            }
        }
        self.debug_check();
    }

    /// A close is finished: the slot is free.
    pub(crate) fn handle_closed(&mut self, slot: SlotId) {
        self.slots.end_close(slot);
        self.debug_check();
    }

    /// A slot in which a connection is to be opened now; answer with [`State::handle_connected`] or
    /// [`State::handle_connect_failed`]. There are never more opens under way, when one begins, than acquires are
    /// queued and idle connections missing. A cancel afterwards does not stop it: the connection lands with the idle
    /// ones.
    pub(crate) fn poll_open(&mut self, now: Instant) -> Option<SlotId> {
        if !self.wants_open() || !self.retry.allows(now) {
            return None;
        }
        let wanted = self.wanted();
        let slot = self.slots.begin_open()?;
        self.counters.opens += 1;
        self.begin_life(slot, now);
        debug_assert!(
            self.slots.opening() <= wanted,
            "an open is for a waiter, or for an idle one that is missing"
        );
        self.debug_check();
        Some(slot)
    }

    /// A connection to be closed now; answer with [`State::handle_closed`].
    pub(crate) fn poll_close(&mut self) -> Option<(SlotId, C, CloseReason)> {
        self.slots.poll_close()
    }

    /// Brings idle connections and waiters together. What decides is what is there, not what has been
    /// announced, so it may run at any time and any number of times. A connection that is not usable is closed as
    /// broken.
    pub(crate) fn sweep(&mut self) {
        while self.waiters.queued() > 0
            && let Some(idle) = self.slots.newest_idle()
        {
            if !self.slots.connection_mut(idle).is_some_and(self.usable) {
                self.evict(idle, CloseReason::Broken);
                continue;
            }
            if self.wants_time() {
                self.shed();
            }
            let Some(slot) = self.slots.reserve_newest() else {
                break;
            };
            let granted = self.waiters.grant_next(slot);
            debug_assert!(granted.is_some(), "a waiter that is counted stands in a line");
        }
        self.debug_check();
    }

    /// Closes a connection if it is idle.
    pub(super) fn evict(&mut self, slot: SlotId, reason: CloseReason) {
        if self.slots.condemn_idle(slot, reason) {
            self.counters.count_close(reason);
        }
    }

    pub(super) fn condemn(&mut self, slot: SlotId, connection: C, reason: CloseReason) {
        self.counters.count_close(reason);
        self.slots.condemn(slot, connection, reason);
    }
}
