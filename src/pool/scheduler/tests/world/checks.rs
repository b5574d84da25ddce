//! What must hold of a shard after every step, when two situations are the same, and how everything ends.

use super::*;

type CloseReasonName = &'static str;

impl World {
    /// What must hold after every step.
    pub(super) fn check(&mut self) {
        self.shard.check_invariants();
        let gauges = self.shard.gauges();
        assert_eq!(gauges.waiting, self.queued.len() + self.held_back.len());
        assert_eq!(gauges.held_back, self.held_back.len());
        for &(_, handle) in &self.held_back {
            assert!(!self.has_room(handle), "{handle:?} may have another lease, and a waiter is held back");
        }
        assert_eq!(gauges.reserved, self.granted.len());
        assert_eq!(gauges.leased, self.leases.len() + self.granted.len());
        assert_eq!(gauges.opening, self.opening.len());
        assert_eq!(gauges.closing, self.closing.len());
        assert_eq!(gauges.checking, self.checking.len());
        let connections = gauges.idle + gauges.leased + gauges.opening + gauges.checking + gauges.closing;
        self.allowed = self.allowed.min(connections).max(self.slots);
        assert!(connections <= self.allowed, "{connections} connections, of {} at most", self.allowed);
        let kept = self.limits.keep.min_idle.min(self.slots);
        let probes = self.limits.backoff.breaker.is_some() && connections == gauges.opening + gauges.closing;
        let unserved =
            self.shard.slots.vacant() > 0 && self.shard.paused_until().is_none() && !probes && !self.blocked;
        assert!(
            self.shard.lifecycle() != Lifecycle::Running
                || !unserved
                || self.opening.len() >= self.limits.max_connecting
                || gauges.idle + gauges.opening + gauges.checking >= kept,
            "too few are idle, and none is opened: {gauges:?}"
        );
        let ended = self.ended.len() + self.queued.len() + self.held_back.len() + self.granted.len();
        assert_eq!(self.issued, ended, "every waiter ends exactly once");
        for &waiter in self.ended.iter().rev().take(4) {
            assert!(matches!(self.shard.take(waiter), Taken::Gone), "a dead waiter gets nothing");
        }
    }

    /// What can matter for anything that happens from here on, without the names of slots, waiters and
    /// connections: worlds that agree in it behave alike.
    pub(in crate::pool::scheduler::tests) fn essence(&self) -> impl std::hash::Hash + Eq + use<> {
        let handles = |waiters: &[(WaiterKey, HandleId)]| waiters.iter().map(|w| w.1).collect::<Vec<_>>();
        // Whose lease it is matters to the handles that are limited.
        let whose = |handle: HandleId| (self.may_hold)(handle).map(|_| handle);
        (
            handles(&self.held_back),
            handles(&self.queued),
            self.turns.clone(),
            handles(&self.granted),
            self.shard.slots.idle_ids().iter().map(|slot| self.shard.is_overdue(*slot)).collect::<Vec<_>>(),
            self.leases
                .iter()
                .map(|(slot, _, handle)| (self.fate(*slot), whose(*handle)))
                .collect::<Vec<_>>(),
            self.granted.iter().map(|(waiter, _)| self.grant_fate(*waiter)).collect::<Vec<_>>(),
            self.slots,
            self.checking.len(),
            self.opening.len(),
            self.closing.len(),
            (self.blocked, self.heeded, self.shard.lifecycle() as u8),
        )
    }

    /// Whether this connection's lease is its last, and whether it is to be replaced.
    fn fate(&self, slot: SlotId) -> (Option<CloseReasonName>, bool) {
        (self.shard.slots.last_reason(slot).map(CloseReason::name), self.shard.is_overdue(slot))
    }

    fn grant_fate(&self, waiter: WaiterKey) -> (bool, bool) {
        match self.shard.waiters.fate(waiter) {
            Fate::Granted(slot) => (self.shard.slots.is_reserved_last(*slot), self.shard.is_overdue(*slot)),
            _ => unreachable!("it is granted"),
        }
    }

    /// Winds everything up; whatever went before, the shard must come to rest and be empty.
    pub(in crate::pool::scheduler::tests) fn wind_up(mut self) {
        self.apply(Step::Shutdown(Lifecycle::Closed));
        while self.apply(Step::Take(0)) {}
        while self.apply(Step::Release(0)) {}
        while self.apply(Step::Connected) {}
        while self.apply(Step::Checked(true)) {}
        while self.apply(Step::Closed) {}
        assert!(self.shard.is_quiet());
        assert_eq!(self.issued, self.ended.len());
        let counters = self.shard.counters();
        assert_eq!(counters.acquires(), counters.settled());
    }
}
