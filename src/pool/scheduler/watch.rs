//! What a shard can be asked about its waiters and leases: places, waits, leases that are out for too long.

use std::time::{Duration, Instant};

use super::{Outstanding, Rules, SlotId, State, Wait, WaiterKey};
use crate::pool::histogram::WaitHistogram;

impl<C, W> State<C, W> {
    /// How many are served before a queued acquire, if nobody comes or goes meanwhile. Who is held back comes last.
    /// `None` for one that is not queued. Takes a step for each.
    pub(crate) fn position(&self, waiter: WaiterKey) -> Option<usize> {
        self.waiters.position(waiter, usize::MAX)
    }

    /// What the handle is held to that the lease, or the grant, of that slot counts for, if it counts.
    pub(crate) fn charged_to(&self, slot: SlotId) -> Option<Rules> {
        self.waiters.accounts.charged_to(slot)
    }

    /// Whether [`State::measure_waits`] has something to do.
    #[inline]
    pub(crate) fn has_unmeasured(&self) -> bool {
        self.waits.is_pending()
    }

    /// Measures the waits of those that were served since the last call; `out` gets those of `least` or longer.
    pub(crate) fn measure_waits(&mut self, now: Instant, least: Duration, out: &mut Vec<Wait>) {
        self.waits.measure(now, least, out);
    }

    /// How long those that were served had waited.
    pub(crate) fn waits(&self) -> &WaitHistogram {
        &self.waits.histogram
    }

    /// The leases that are out, if leases are watched.
    pub(crate) fn outstanding(&self, now: Instant) -> Vec<Outstanding> {
        match self.overload.leak_after {
            Some(_) => self.leases.outstanding(&self.slots, now),
            None => Vec::new(),
        }
    }

    /// Looks for leases that are out for too long. `out` gets each once. Gives whether any lease is out.
    pub(crate) fn look_for_leaks(&mut self, now: Instant, out: &mut Vec<Outstanding>) -> bool {
        let Some(limit) = self.overload.leak_after else { return false };
        self.leases.look(&self.slots, now, limit, out)
    }
}
