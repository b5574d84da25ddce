//! Asking for a connection, giving up, collecting.

use std::time::Duration;

use super::queue::Fate;
use super::slots::Newest;
use super::{
    Admission, Asker, CloseReason, Elsewhere, Grant, Holder, Lifecycle, Notice, Refusal, SlotId, State,
    Taken, Ticket, Wait, WaiterKey,
};

impl<C, W> State<C, W> {
    /// Leases the most recently used idle connection if it is `usable`. Otherwise nothing happens; the rest is for
    /// [`handle_acquire`](State::handle_acquire).
    #[inline(always)]
    pub(crate) fn grant_idle(
        &mut self,
        holder: impl FnOnce() -> Holder,
        usable: impl FnOnce(&mut C) -> bool,
    ) -> Option<Grant<C>> {
        let Newest::Leased(grant) = self.slots.lease_newest(holder, usable) else { return None };
        self.counters.granted_immediately += 1;
        self.debug_check();
        Some(grant)
    }

    /// Asks for a connection. The most recently used idle one for which `usable` holds is granted at once;
    /// those for which it does not hold are closed as broken. Otherwise the acquire is queued, unless the
    /// queue is full or it could not be served in time, and `ticket` is asked for only then.
    pub(crate) fn handle_acquire(
        &mut self,
        asker: &Asker,
        mut usable: impl FnMut(&mut C) -> bool,
        ticket: impl FnOnce() -> Ticket<W>,
    ) -> Admission<C> {
        // Nothing is idle while somebody waits, nor in a shard that does not run: an idle connection is
        // answer enough to both questions, and no newcomer can overtake.
        if !self.waiters.may_lease(asker.handle, asker.rules) {
            return self.acquire_without_idle(asker, ticket);
        }
        loop {
            match self.slots.lease_newest(|| asker.holder(), &mut usable) {
                Newest::Leased(grant) => {
                    self.counters.granted_immediately += 1;
                    self.begin_lease_at_once(asker, grant.slot);
                    self.debug_check();
                    return Admission::Granted(grant);
                }
                Newest::Unusable(slot) => self.handle_evict(slot),
                Newest::None => return self.acquire_without_idle(asker, ticket),
            }
        }
    }

    /// A lease begins without a wait.
    fn begin_lease_at_once(&mut self, asker: &Asker, slot: SlotId) {
        if asker.rules.limit.is_some() {
            let account = self.waiters.accounts.open(asker);
            self.waiters.accounts.charge(account, slot);
            self.slots.charge(slot);
        }
    }

    /// Leases the most recently used idle connection for which `usable` holds to another shard's acquire, which counts
    /// there. Others are closed as broken.
    pub(crate) fn lend_idle(
        &mut self,
        asker: &Asker,
        mut usable: impl FnMut(&mut C) -> bool,
    ) -> Option<Grant<C>> {
        loop {
            match self.slots.lease_newest(|| asker.holder(), &mut usable) {
                Newest::Leased(grant) => {
                    self.begin_lease_at_once(asker, grant.slot);
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
        asker: &Asker,
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
            let newest = match self.waiters.may_lease(asker.handle, asker.rules) {
                true => self.slots.lease_newest(|| asker.holder(), &mut usable),
                false => Newest::None,
            };
            match newest {
                Newest::Leased(grant) => {
                    self.counters.granted_after_wait += 1;
                    self.begin_lease_at_once(asker, grant.slot);
                    break Admission::Granted(grant);
                }
                Newest::Unusable(slot) => self.evict(slot, CloseReason::Broken),
                Newest::None => match self.refusal() {
                    Some(refusal) => {
                        self.counters.count_refusal(&refusal);
                        break Admission::Refused(refusal);
                    }
                    None => break Admission::Queued(self.waiters.requeue(asker, ticket())),
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
                self.waiters.discharge(slot);
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
        let connection = self.slots.collect(slot);
        self.begin_lease(waiter, slot);
        self.debug_check();
        Some(connection)
    }

    /// A waiter, which is forgotten by now and whose entry is not yet used again, has collected its connection.
    #[inline(always)]
    fn begin_lease(&mut self, waiter: WaiterKey, slot: SlotId) {
        self.counters.granted_after_wait += 1;
        match self.waiters.since(waiter) {
            Some(since) if self.waits.detailed => self.waits.note(since, self.waiters.wait(waiter)),
            Some(since) => self.waits.note_time(since),
            None => self.waits.note_none(),
        }
        if self.waiters.accounts.is_charged(slot) {
            self.slots.charge(slot);
        }
        if self.overload.leak_after.is_some() {
            let Wait { handle, site, .. } = self.waiters.wait(waiter);
            self.slots.set_holder(slot, Holder { handle, site });
        }
    }

    /// Collects what became of a waiter. Anything but `Pending` ends it.
    pub(crate) fn take(&mut self, waiter: WaiterKey) -> Taken<C> {
        let taken = match self.waiters.settle_up(waiter) {
            Fate::Granted(slot) => {
                let connection = self.slots.collect(slot);
                self.begin_lease(waiter, slot);
                Taken::Granted(Grant { slot, connection })
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
    fn acquire_without_idle(&mut self, asker: &Asker, ticket: impl FnOnce() -> Ticket<W>) -> Admission<C> {
        self.counters.not_at_once += 1;
        let would_miss = |state: &Self| if state.overload.exact { state.would_miss(asker) } else { None };
        if let Some(refusal) = self.refusal().or_else(|| would_miss(self)) {
            self.counters.count_refusal(&refusal);
            self.debug_check();
            return Admission::Refused(refusal);
        }
        let waiter = self.waiters.enqueue(asker, ticket());
        self.counters.capacity_waits += 1;
        if asker.rules.limit.is_some() {
            self.counters.limit_waits += u64::from(self.waiters.is_held_back(waiter));
        }
        // Nothing is idle, or this one is held back: there is nothing to sweep.
        self.debug_check();
        Admission::Queued(waiter)
    }

    /// Why an acquire that finds nothing idle cannot wait. Where the breaker has tripped, its error says more than that the
    /// queue is full, as one without places always is.
    fn refusal(&self) -> Option<Refusal> {
        let full = || {
            let (waiting, limit) = (self.waiters.waiting(), self.max_waiters);
            (waiting >= limit).then_some(Refusal::Saturated { limit })
        };
        match self.lifecycle {
            Lifecycle::Closed => Some(Refusal::Closed),
            Lifecycle::Failed => Some(Refusal::Failed),
            Lifecycle::Running => self.cut_off().map(Refusal::Connect).or_else(full),
        }
    }

    /// Why an acquire that has to wait would do so in vain: at the rate at which the shard serves, its turn would come
    /// after its deadline. Decided only where the rate is known and every connection that there can be is leased; and by
    /// the least that it would have to wait, as if the next lease ended at once, so that nobody is refused who would
    /// have been served in time at that rate.
    fn would_miss(&self, asker: &Asker) -> Option<Refusal> {
        let patience = asker.patience.limit()?;
        let leased = self.slots.leased();
        if leased == 0
            || self.openable() + self.slots.opening() + self.slots.idle() + self.slots.checking() > 0
        {
            return None;
        }
        // Who is held back waits for his own leases, of which nothing is known.
        if !self.waiters.may_lease(asker.handle, asker.rules) {
            return None;
        }
        let position = self.waiters.position_of_newcomer(asker.handle);
        let times =
            |time: Duration, times: usize| time.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX));
        let predicted = match self.overload.service_time {
            // All leases run at the same time: that many are served in each round.
            Some(service) => times(service, position / leased),
            None => times(self.waiters.pace.interval()?, position),
        };
        (predicted > patience).then_some(Refusal::WouldMiss { position, predicted })
    }

    /// Ends those at the front of the queue that are to be shed. Somebody is left to be served, if somebody was there.
    pub(super) fn shed(&mut self) {
        let Some(now) = self.now else { return };
        while let Some(waiter) = self.waiters.first()
            && let Some(waited) = self.waiters.is_shed(waiter, now)
        {
            self.refuse(waiter, Refusal::Shed { waited });
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
        self.waiters.discharge(slot);
        self.supply(slot, connection);
    }

    /// A clean connection is at hand: to the next waiter, to the idle ones, or out.
    pub(super) fn supply(&mut self, slot: SlotId, connection: C) {
        if let Some(reason) = self.slots.last_reason(slot) {
            self.condemn(slot, connection, reason);
            // Another of its handle's waiters may have joined its line, and something else may be idle.
            self.sweep();
        } else if self.lifecycle == Lifecycle::Running {
            if self.wants_time() {
                self.shed();
            }
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
