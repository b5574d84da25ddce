//! Asking for a connection, giving up, collecting.

use super::queue::Fate;
use super::slots::Newest;
use super::{
    Admission, CloseReason, Elsewhere, Grant, HandleId, Lifecycle, Notice, Refusal, SlotId, State, Taken,
    Ticket, WaiterKey,
};

impl<C, W> State<C, W> {
    /// Leases the most recently used idle connection if it is `usable`. Otherwise nothing happens; the rest is for
    /// [`handle_acquire`](State::handle_acquire).
    #[inline(always)]
    pub(crate) fn grant_idle(&mut self, usable: impl FnOnce(&mut C) -> bool) -> Option<Grant<C>> {
        let Newest::Leased(grant) = self.slots.lease_newest(usable) else { return None };
        self.counters.granted_immediately += 1;
        self.debug_check();
        Some(grant)
    }

    /// Asks for a connection. The most recently used idle one for which `usable` holds is granted at once;
    /// those for which it does not hold are closed as broken. Otherwise the acquire is queued, unless the
    /// queue is full, and `ticket` is asked for only then.
    pub(crate) fn handle_acquire(
        &mut self,
        handle: HandleId,
        mut usable: impl FnMut(&mut C) -> bool,
        ticket: impl FnOnce() -> Ticket<W>,
    ) -> Admission<C> {
        // Nothing is idle while somebody waits, nor in a shard that does not run: an idle connection is
        // answer enough to both questions, and no newcomer can overtake.
        loop {
            match self.slots.lease_newest(&mut usable) {
                Newest::Leased(grant) => {
                    self.counters.granted_immediately += 1;
                    self.debug_check();
                    return Admission::Granted(grant);
                }
                Newest::Unusable(slot) => self.handle_evict(slot),
                Newest::None => return self.acquire_without_idle(handle, ticket),
            }
        }
    }

    /// Leases the most recently used idle connection for which `usable` holds to another shard's acquire, which counts
    /// there. Others are closed as broken.
    pub(crate) fn lend_idle(&mut self, mut usable: impl FnMut(&mut C) -> bool) -> Option<Grant<C>> {
        loop {
            match self.slots.lease_newest(&mut usable) {
                Newest::Leased(grant) => {
                    self.debug_check();
                    return Some(grant);
                }
                Newest::Unusable(slot) => self.handle_evict(slot),
                Newest::None => return None,
            }
        }
    }

    /// Counts an acquire of this shard that another shard was asked for.
    pub(crate) fn count_elsewhere(&mut self, fate: Elsewhere<'_>) {
        self.counters.not_at_once += 1;
        match fate {
            Elsewhere::Served => self.counters.granted_after_wait += 1,
            Elsewhere::Cancelled => self.counters.cancelled += 1,
            Elsewhere::Refused(refusal) => self.counters.count_refusal(refusal),
        }
        self.debug_check();
    }

    /// A grant never reached its owner, because its connection was found unfit on the way and discarded: the acquire is
    /// decided anew. It is counted once, as one that waited, whether it `waited` for the first grant or not, and stands
    /// in front of those that came after it; but when as many wait as may, it is refused.
    pub(crate) fn handle_readmission(
        &mut self,
        handle: HandleId,
        waited: bool,
        mut usable: impl FnMut(&mut C) -> bool,
        ticket: impl FnOnce() -> Ticket<W>,
    ) -> Admission<C> {
        if waited {
            self.counters.granted_after_wait -= 1;
        } else {
            self.counters.granted_immediately -= 1;
            self.counters.not_at_once += 1;
            self.counters.capacity_waits += 1;
        }
        let admission = loop {
            match self.slots.lease_newest(&mut usable) {
                Newest::Leased(grant) => {
                    self.counters.granted_after_wait += 1;
                    break Admission::Granted(grant);
                }
                Newest::Unusable(slot) => self.evict(slot, CloseReason::Broken),
                Newest::None => match self.refusal() {
                    Some(refusal) => {
                        self.counters.count_refusal(&refusal);
                        break Admission::Refused(refusal);
                    }
                    None => break Admission::Queued(self.waiters.requeue(handle, ticket())),
                },
            }
        };
        self.debug_check();
        admission
    }

    /// Gives up an acquire: one that is queued leaves the queue and its bound at once; if it was granted and
    /// the grant not collected, the connection goes to the next waiter. A stale key does nothing.
    ///
    /// Gives back the reply address if no notice carried it away, so that it is dropped where its drop may
    /// do as it likes.
    pub(crate) fn handle_cancel(&mut self, waiter: WaiterKey) -> Option<W> {
        let (fate, reply) = self.waiters.remove(waiter);
        match fate {
            Fate::Queued => self.counters.cancelled += 1,
            Fate::Granted(slot) => {
                self.counters.cancelled += 1;
                let connection = self.slots.collect(slot);
                self.supply(slot, connection);
            }
            Fate::Refused(_) | Fate::Free => {}
        }
        self.debug_check();
        reply
    }

    /// Collects the connection that a waiter was granted and told of. For all that may be otherwise there is
    /// [`take`](State::take).
    #[inline]
    pub(crate) fn collect(&mut self, waiter: WaiterKey) -> Option<C> {
        let slot = self.waiters.collect_told(waiter)?;
        self.counters.granted_after_wait += 1;
        let connection = self.slots.collect(slot);
        self.debug_check();
        Some(connection)
    }

    /// Collects what became of a waiter. Anything but `Pending` ends it.
    pub(crate) fn take(&mut self, waiter: WaiterKey) -> Taken<C> {
        let taken = match self.waiters.settle_up(waiter) {
            Fate::Granted(slot) => {
                self.counters.granted_after_wait += 1;
                Taken::Granted(Grant { slot, connection: self.slots.collect(slot) })
            }
            Fate::Queued => return Taken::Pending,
            Fate::Refused(refusal) => Taken::Refused(*refusal),
            Fate::Free => Taken::Gone,
        };
        self.debug_check();
        taken
    }

    /// The next waiter whose fate has become known.
    pub(crate) fn poll_notice(&mut self) -> Option<Notice<W>> {
        self.waiters.poll_notice()
    }

    #[inline(never)]
    fn acquire_without_idle(&mut self, handle: HandleId, ticket: impl FnOnce() -> Ticket<W>) -> Admission<C> {
        self.counters.not_at_once += 1;
        if let Some(refusal) = self.refusal() {
            self.counters.count_refusal(&refusal);
            self.debug_check();
            return Admission::Refused(refusal);
        }
        let waiter = self.waiters.enqueue(handle, ticket());
        self.counters.capacity_waits += 1;
        // Nothing is idle, so there is nothing to sweep.
        self.debug_check();
        Admission::Queued(waiter)
    }

    /// Why an acquire that finds nothing idle cannot wait, in order of severity. The breaker comes last, for it only
    /// spares the acquire a wait in vain.
    fn refusal(&self) -> Option<Refusal> {
        match self.lifecycle {
            Lifecycle::Closed => Some(Refusal::Closed),
            Lifecycle::Failed => Some(Refusal::Failed),
            Lifecycle::Running if self.waiters.queued() >= self.max_waiters => {
                Some(Refusal::Saturated { limit: self.max_waiters })
            }
            Lifecycle::Running => self.cut_off().map(Refusal::Connect),
        }
    }

    /// Ends a queued waiter.
    pub(super) fn refuse(&mut self, waiter: WaiterKey, refusal: Refusal) {
        self.counters.count_refusal(&refusal);
        self.waiters.refuse(waiter, refusal);
    }

    /// Takes a grant back that has not been collected, and passes the connection on.
    pub(super) fn revoke(&mut self, waiter: WaiterKey, refusal: Refusal) {
        let Fate::Granted(slot) = *self.waiters.fate(waiter) else {
            return;
        };
        self.counters.count_refusal(&refusal);
        self.waiters.revoke(waiter, refusal);
        let connection = self.slots.collect(slot);
        self.supply(slot, connection);
    }

    /// A clean connection is at hand: to the next waiter, to the idle ones, or out.
    pub(super) fn supply(&mut self, slot: SlotId, connection: C) {
        if let Some(reason) = self.slots.last_reason(slot) {
            self.condemn(slot, connection, reason);
        } else if self.lifecycle == Lifecycle::Running {
            // Nothing is idle while somebody waits, so this is all that a sweep would find.
            if self.waiters.grant_next(slot).is_some() {
                self.slots.set_aside(slot, connection);
            } else {
                self.slots.shelve(slot, connection);
            }
        } else {
            self.condemn(slot, connection, CloseReason::Shutdown);
        }
    }
}
