//! How a shard ends: by a panic of its scheduler, with its pool, or with its core; and what comes back afterwards.

use super::Shard;
use crate::pool::carrier::Carrier;
use crate::pool::connector::Connector;
use crate::pool::scheduler::{CloseReason, Lifecycle, Refusal, SlotId};
use crate::runtime::executor::contain;

impl<C: Connector> Shard<C> {
    /// What comes back after the actor has ended was counted among the leases that outlive it.
    pub(super) fn close_late(&self) {
        loop {
            let Some((_, carrier, _)) = self.with_state(|state| state.poll_close()) else { return };
            self.give_back_late(carrier);
        }
    }

    #[cold]
    pub(super) fn give_back_late(&self, carrier: Box<Carrier<C>>) {
        contain("a pooled connection", || drop(carrier));
        self.shared.late_lease_ended(self.index);
    }

    /// Publishes that the scheduler is broken, before anybody is told anything; then ends all that waits.
    #[cold]
    pub(crate) fn fail(&self) {
        if self.ended.get() || self.state.borrow().lifecycle() == Lifecycle::Failed {
            return;
        }
        self.shared.publish(self.index, Lifecycle::Failed);
        self.failures.set(self.failures.get() + 1);
        tracing::error!(
            pool = self.shared.id,
            core = %self.local.id(),
            "a pool shard's scheduler panicked; this shard grants nothing any more"
        );
        self.state.borrow_mut().drain_for_shutdown(Lifecycle::Failed);
        self.flush();
        self.wake_actor();
    }

    /// The actor has gone: no transition comes after this.
    pub(crate) fn end(&self) {
        self.local.remove_extension(self.shared.id);
        if let Some(port) = self.port.take() {
            self.local.remove_port(port);
        }
        let mut stats = self.stats();
        // With the actor go the attempts it had under way, and what it had not finished closing.
        stats.connect_failures += stats.opening as u64;
        (stats.opening, stats.closing) = (0, 0);
        self.ended.set(true);
        let departures = self.departures.take();
        contain("pooled connections", || drop(departures));
        drop(self.warmups.take());
        drop(self.spares.take());
        drop(self.references.take());
        stats.closes[CloseReason::Shutdown as usize] += stats.checking as u64;
        stats.checking = 0;
        let outstanding = stats.leased as isize;
        let idle = self.with_state(|state| std::iter::from_fn(|| state.poll_close()).collect::<Vec<_>>());
        contain("pooled connections", || drop(idle));
        self.end_credits(stats.leased);
        stats.credits = stats.leased;
        let refusal = self.end_refusal();
        for home in 0..self.shared.links.len() {
            self.fail_home(home, &refusal);
        }
        self.shared.actor_ended(self.index, stats, outstanding);
    }

    /// What acquires get that this core, without its actor, can no longer forward.
    pub(super) fn end_refusal(&self) -> Refusal {
        self.shared.refusal(self.index).unwrap_or(Refusal::Closed)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.get()
    }
}

/// Fails the shard when it is dropped by a panic.
pub(super) struct FailOnUnwind<'a, C: Connector>(pub(super) &'a Shard<C>);

impl<C: Connector> FailOnUnwind<'_, C> {
    #[inline]
    pub(super) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl<C: Connector> Drop for FailOnUnwind<'_, C> {
    #[cold]
    fn drop(&mut self) {
        contain("a failed shard", || self.0.fail());
    }
}

/// Counts a slot's connection as lost when it is dropped by a panic that has taken the connection with it: nobody else
/// ever would, and a drain would wait for that lease.
pub(super) struct LoseOnUnwind<'a, C: Connector>(pub(super) &'a Shard<C>, pub(super) SlotId);

impl<C: Connector> LoseOnUnwind<'_, C> {
    #[inline]
    pub(super) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl<C: Connector> Drop for LoseOnUnwind<'_, C> {
    #[cold]
    fn drop(&mut self) {
        contain("a failed shard", || {
            self.0.gone(self.1, CloseReason::Broken);
            // A credit is free.
            self.0.wake_actor();
        });
    }
}
