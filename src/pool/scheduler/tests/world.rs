//! A shard with everything around it played by a model: who asked, who holds what, and whose turn it is.
//!
//! The model of the queue is as plain as can be, two vectors searched from the front. It says who must be
//! granted next, and every notice is held against it.

mod checks;
mod turns;

use std::num::NonZeroU32;

use super::*;
use crate::pool::scheduler::queue::Fate;

/// Something that happens to the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Acquire(HandleId),
    /// As `Acquire`, and every idle connection is found unusable.
    AcquireUnusable(HandleId),
    AcquireUntil(HandleId, u32),
    /// The n-th queued waiter, by age.
    Cancel(usize),
    CancelNewest,
    /// Asks the n-th queued waiter how many are before it.
    Look(usize),
    /// The oldest that is held back by its handle's limit.
    CancelHeldBack,
    /// The n-th that was granted and has not collected.
    CancelGranted(usize),
    Take(usize),
    /// A grant that crosses a cancel on its way to another core: collected for it and handed back.
    Forward,
    Deregister(HandleId),
    Release(usize),
    Discard(usize),
    Lose(usize),
    Evict,
    Connected,
    ConnectFailed,
    Closed,
    Advance(u32),
    /// There are to be so many slots.
    Resize(usize),
    /// The n-th lease's connection has lived long enough.
    ExpireLeased(usize),
    /// So has the longest idle one.
    ExpireIdle,
    /// Idle connections are of use or not; those on lease are in question.
    Refresh(bool),
    /// A health check has ended, well or not.
    Checked(bool),
    /// The pool has no connection to spare, or has one again.
    Block(bool),
    /// Somebody wants to hear of releases, or nobody any more.
    Heed(bool),
    /// Another shard is to have the oldest idle connection.
    GiveUp,
    /// Another shard's acquire is served if something is idle.
    LendIdle,
    /// One of this shard's is served by another.
    ServedElsewhere,
    Shutdown(Lifecycle),
}

#[derive(Clone)]
pub(super) struct World {
    pub shard: Shard,
    limits: Limits,
    /// How many leases each handle may have.
    may_hold: fn(HandleId) -> Option<NonZeroU32>,
    now: Instant,
    /// In line, by the time that they joined it.
    queued: Vec<(WaiterKey, HandleId)>,
    /// By age.
    held_back: Vec<(WaiterKey, HandleId)>,
    /// Handles with waiters, in order of their turns. Unused under FIFO.
    turns: Vec<HandleId>,
    granted: Vec<(WaiterKey, HandleId)>,
    leases: Vec<(SlotId, u32, HandleId)>,
    opening: Vec<SlotId>,
    checking: Vec<(SlotId, u32)>,
    closing: Vec<SlotId>,
    blocked: bool,
    heeded: bool,
    next_connection: u32,
    slots: usize,
    /// The most connections there may be: what there are to be, or what there were when that became fewer.
    allowed: usize,
    /// Waiters there ever were, and those that have ended.
    issued: usize,
    ended: Vec<WaiterKey>,
}

impl World {
    pub(super) fn new(limits: Limits) -> Self {
        Self::limited(limits, |_| None)
    }

    pub(super) fn limited(limits: Limits, may_hold: fn(HandleId) -> Option<NonZeroU32>) -> Self {
        Self {
            shard: fresh(limits),
            limits,
            may_hold,
            now: Instant::now(),
            queued: Vec::new(),
            held_back: Vec::new(),
            turns: Vec::new(),
            granted: Vec::new(),
            leases: Vec::new(),
            opening: Vec::new(),
            checking: Vec::new(),
            closing: Vec::new(),
            blocked: false,
            heeded: false,
            next_connection: 0,
            slots: limits.slots,
            allowed: limits.slots,
            issued: 0,
            ended: Vec::new(),
        }
    }

    /// Lets `step` happen and checks everything. `false` if it cannot happen here.
    pub(super) fn apply(&mut self, step: Step) -> bool {
        if !self.happen(step) {
            return false;
        }
        self.serve_outputs();
        self.check();
        true
    }

    fn happen(&mut self, step: Step) -> bool {
        match step {
            Step::Acquire(handle) => self.acquire(handle, true, None),
            Step::AcquireUnusable(handle) => self.acquire(handle, false, None),
            Step::AcquireUntil(handle, ticks) => self.acquire(handle, true, Some(self.now + MS * ticks)),
            Step::Cancel(nth) => return self.cancel_queued(nth),
            Step::CancelNewest => return self.queued.len() > 1 && self.cancel_queued(self.queued.len() - 1),
            Step::Look(nth) => {
                let Some(&(waiter, _)) = self.queued.get(nth) else { return false };
                assert_eq!(self.shard.position(waiter), Some(self.position(waiter)));
            }
            Step::CancelHeldBack => {
                let Some(&(waiter, handle)) = self.held_back.first() else { return false };
                assert_eq!(self.shard.handle_cancel(waiter), Some(handle.0));
                self.end(waiter);
            }
            Step::CancelGranted(nth) => {
                let Some(&(waiter, handle)) = self.granted.get(nth) else { return false };
                self.granted.remove(nth);
                assert_eq!(self.shard.handle_cancel(waiter), None, "its notice took the reply away");
                self.ended.push(waiter);
                self.promote(handle);
            }
            Step::Take(nth) => return self.take(nth),
            Step::Forward => {
                if !self.take(0) {
                    return false;
                }
                let late = self.ended[self.ended.len() - 1];
                assert_eq!(self.shard.handle_cancel(late), None);
                return self.release(self.leases.len() - 1);
            }
            Step::Deregister(handle) => {
                let of =
                    |waiters: &[(WaiterKey, HandleId)]| waiters.iter().any(|&(_, whose)| whose == handle);
                if !of(&self.queued) && !of(&self.granted) && !of(&self.held_back) {
                    return false;
                }
                self.shard.handle_deregister(handle);
                let (revoked, kept) = self.granted.drain(..).partition(|&(_, whose)| whose == handle);
                self.granted = kept;
                let revoked: Vec<(WaiterKey, HandleId)> = revoked;
                for (waiter, _) in revoked {
                    assert!(matches!(collect_refusal(&mut self.shard, waiter), Refusal::Deregistered));
                    self.ended.push(waiter);
                }
            }
            Step::Release(nth) => return self.release(nth),
            Step::Discard(nth) => {
                let Some((slot, connection, handle)) = self.pick_lease(nth) else { return false };
                self.shard.handle_discard(slot, connection, CloseReason::Dirty);
                self.promote(handle);
            }
            Step::Lose(nth) => {
                let Some((slot, _, handle)) = self.pick_lease(nth) else { return false };
                self.shard.handle_lost(slot, CloseReason::Lost);
                self.promote(handle);
            }
            Step::Evict => match self.shard.slots.newest_idle() {
                Some(slot) => self.shard.handle_evict(slot),
                None => return false,
            },
            Step::Connected => {
                let Some(slot) = self.opening.pop() else { return false };
                self.shard.handle_connected(slot, self.next_connection);
                self.next_connection += 1;
            }
            Step::ConnectFailed => {
                let Some(slot) = self.opening.pop() else { return false };
                self.shard.handle_connect_failed(slot, refused(), self.now);
            }
            Step::Closed => {
                let Some(slot) = self.closing.pop() else { return false };
                self.shard.handle_closed(slot);
            }
            Step::Advance(ticks) => {
                self.now += MS * ticks;
                self.shard.handle_deadline(self.now);
                self.shard.handle_upkeep(self.now);
            }
            Step::Resize(slots) => {
                if slots == self.slots || self.shard.lifecycle() != Lifecycle::Running {
                    return false;
                }
                self.shard.handle_resize(slots);
                self.slots = slots;
            }
            Step::ExpireLeased(nth) => {
                let Some(&(slot, ..)) = self.leases.get(nth) else { return false };
                if self.shard.slots.last_reason(slot).is_some() || self.shard.is_overdue(slot) {
                    return false;
                }
                self.shard.expire(slot);
                assert!(
                    self.shard.slots.last_reason(slot).is_some(),
                    "a lease of an expired one is its last"
                );
            }
            Step::ExpireIdle => match self.shard.slots.oldest_idle() {
                Some(slot) if !self.shard.is_overdue(slot) => self.shard.expire(slot),
                _ => return false,
            },
            Step::Refresh(of_use) => {
                if self.shard.lifecycle() != Lifecycle::Running {
                    return false;
                }
                self.shard.handle_refresh(|_| of_use);
                assert!(of_use || self.shard.gauges().idle == 0, "what is of no use is not kept");
            }
            Step::Checked(passed) => {
                let Some((slot, connection)) = self.checking.pop() else { return false };
                match passed {
                    true => self.shard.handle_checked(slot, connection),
                    false => self.shard.handle_unhealthy(slot, connection, CloseReason::Unhealthy),
                }
            }
            Step::Block(blocked) => {
                if self.blocked == blocked {
                    return false;
                }
                self.blocked = blocked;
                self.shard.block_opens(blocked);
            }
            Step::Heed(heeded) => {
                if self.heeded == heeded {
                    return false;
                }
                self.heeded = heeded;
                self.shard.heed_releases(heeded);
            }
            Step::GiveUp => {
                let idle = self.shard.gauges().idle;
                let oldest = self.shard.oldest_idle_mut().copied();
                assert_eq!(self.shard.give_up_oldest(), idle > 0);
                let (Some(oldest), Some((slot, connection, reason))) = (oldest, self.shard.poll_close())
                else {
                    return false;
                };
                assert_eq!((connection, reason), (oldest, CloseReason::Rebalanced));
                self.closing.push(slot);
            }
            Step::LendIdle => {
                let before = (self.shard.gauges().idle, self.shard.counters().acquires());
                let lent = self.shard.lend_idle(&asker(B), |_| true);
                assert_eq!((lent.is_some(), self.shard.counters().acquires()), (before.0 > 0, before.1));
                let Some(grant) = lent else { return false };
                self.hold(grant, HandleId(0));
            }
            Step::ServedElsewhere => {
                let before = self.shard.counters().acquires();
                self.shard.count_elsewhere(Elsewhere::Served);
                assert_eq!(self.shard.counters().acquires(), before + 1);
            }
            Step::Shutdown(to) => {
                if self.shard.lifecycle() >= to {
                    return false;
                }
                self.shard.drain_for_shutdown(to);
            }
        }
        true
    }

    fn acquire(&mut self, handle: HandleId, usable: bool, deadline: Option<Instant>) {
        let before = self.shard.gauges();
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(self.now));
        let ticket = || Ticket { reply: handle.0, timeout };
        let asker = under(handle, Rules { limit: (self.may_hold)(handle), ..Rules::default() });
        self.shard.lapse(self.now);
        let admission = self.shard.handle_acquire(&asker, |_| usable, ticket);
        self.shard.start_clocks(self.now);
        match admission {
            Admission::Granted(grant) => {
                assert!(self.queued.is_empty(), "a newcomer never overtakes");
                assert!(self.has_room(handle), "a handle at its limit waits");
                self.hold(grant, handle);
            }
            Admission::Queued(waiter) => {
                let held_back = !self.has_room(handle);
                assert!(before.idle == 0 || !usable || held_back, "nobody waits beside an idle connection");
                self.issued += 1;
                match held_back {
                    true => self.held_back.push((waiter, handle)),
                    false => self.join(waiter, handle),
                }
            }
            Admission::Refused(Refusal::Saturated { limit }) => {
                assert_eq!((before.waiting, limit), (self.limits.max_waiters, self.limits.max_waiters));
            }
            Admission::Refused(Refusal::Connect(_)) => {
                assert!(self.limits.backoff.breaker.is_some(), "only a breaker refuses without a try");
                assert!(self.leases.is_empty() && self.opening.is_empty(), "there is something to wait for");
            }
            Admission::Refused(Refusal::Closed) => assert_eq!(self.shard.lifecycle(), Lifecycle::Closed),
            Admission::Refused(Refusal::Failed) => assert_eq!(self.shard.lifecycle(), Lifecycle::Failed),
            Admission::Refused(other) => panic!("an acquire is not refused at once with {other:?}"),
        }
    }

    fn cancel_queued(&mut self, nth: usize) -> bool {
        let Some(&(waiter, handle)) = self.queued.get(nth) else { return false };
        assert_eq!(self.shard.handle_cancel(waiter), Some(handle.0));
        self.end(waiter);
        true
    }

    fn take(&mut self, nth: usize) -> bool {
        if nth >= self.granted.len() {
            return false;
        }
        let (waiter, handle) = self.granted.remove(nth);
        let grant = collect(&mut self.shard, waiter);
        self.ended.push(waiter);
        self.hold(grant, handle);
        true
    }

    fn release(&mut self, nth: usize) -> bool {
        let Some((slot, connection, handle)) = self.pick_lease(nth) else { return false };
        // Every other connection in question proves to be of use.
        if self.shard.is_in_question(slot) && connection % 2 == 0 {
            self.shard.pardon(slot);
        }
        self.promote(handle);
        if self.heeded {
            assert!(self.shard.release_idle(slot, connection).is_some(), "a release that is not heard of");
        }
        match self.shard.hand_over(slot, connection) {
            Ok(notice) => assert_eq!(self.serve(), Some(notice.waiter), "handed over out of turn"),
            Err(connection) => self.shard.handle_release(slot, connection),
        }
        true
    }

    fn pick_lease(&mut self, nth: usize) -> Option<(SlotId, u32, HandleId)> {
        if nth < self.leases.len() { Some(self.leases.remove(nth)) } else { None }
    }

    fn hold(&mut self, grant: Grant<u32>, handle: HandleId) {
        let twice = self.leases.iter().any(|&(_, connection, _)| connection == grant.connection);
        assert!(!twice, "connection {} is leased twice", grant.connection);
        self.leases.push((grant.slot, grant.connection, handle));
    }

    fn serve_outputs(&mut self) {
        while let Some(notice) = self.shard.poll_notice() {
            match self.shard.waiters.fate(notice.waiter) {
                Fate::Granted(_) => assert_eq!(self.serve(), Some(notice.waiter), "out of turn"),
                Fate::Refused(_) => {
                    collect_refusal(&mut self.shard, notice.waiter);
                    let handle = self.end(notice.waiter);
                    assert_eq!(notice.reply, handle.0);
                }
                fate => panic!("{:?} was told of {fate:?}", notice.waiter),
            }
        }
        while let Some((slot, connection, _)) = self.shard.poll_close() {
            assert!(!self.leases.iter().any(|&(_, leased, _)| leased == connection), "closed while leased");
            self.closing.push(slot);
        }
        while let Some(slot) = self.shard.poll_open(self.now) {
            self.opening.push(slot);
            assert!(!self.blocked, "an open without a connection to spare");
            let wanted = self.queued.len() + self.limits.keep.min_idle;
            assert!(self.opening.len() <= wanted, "an open is for a waiter, or to be idle");
        }
        while let Some(check) = self.shard.poll_check() {
            self.checking.push(check);
        }
        assert!(!self.shard.has_output());
    }
}
