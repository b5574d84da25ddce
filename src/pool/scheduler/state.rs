//! The state of one shard: its parts, what it promises at all times, and what it can be asked.
//!
//! Its transitions are in `admission` (acquire, cancel, collect), `capacity` (connections that come, go and
//! break), `life` (what is kept and for how long), `resize` (more slots or fewer, addresses that change) and `ending`
//! (deadlines, handles that go, shutdown). Whoever changes anything calls
//! [`State::debug_check`] last.

use std::time::{Duration, Instant};

use super::backoff::{Backoff, Retry};
use super::leases::Leases;
use super::life::{Keep, Life};
use super::queue::Waiters;
use super::slots::Slots;
use super::waits::Waits;
use super::{Counters, Gauges, Lifecycle, SlotId, WaiterKey};
use crate::pool::Fairness;

/// What a shard is limited to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at most, those being opened or closed included.
    pub slots: usize,
    /// Acquires that may be queued at the same time. Zero admits only what can be granted at once; then only the
    /// connections that are to be kept idle are ever opened, for the other opens are for waiters.
    pub max_waiters: usize,
    /// Opens that may be under way at the same time.
    pub max_connecting: usize,
    /// In which order waiters are served.
    pub fairness: Fairness,
    /// How long to leave a peer alone that could not be reached.
    pub backoff: Backoff,
    /// Which connections to keep, and for how long.
    pub keep: Keep,
    /// What is done about more acquires than can be served.
    pub overload: Overload,
}

/// What a shard does about more acquires than it can serve, beyond the bound on its queue, and what it watches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overload {
    /// Refuse at once what cannot be served before its deadline.
    pub exact: bool,
    /// How long one lease takes, if that was said; otherwise what is measured counts.
    pub service_time: Option<Duration>,
    /// Somebody wants to hear of each wait.
    pub detailed_waits: bool,
    /// Leases that are out for longer are told of.
    pub leak_after: Option<Duration>,
}

/// The slots and waiters of one shard. `C` is a connection, `W` the address to which a waiter's owner wants
/// the news sent; neither is looked into.
///
/// What holds after every transition:
/// - each slot is in exactly one phase, and an id whose connection has gone matches nothing;
/// - no connection is idle while an acquire stands in line, nor once the shard has stopped running, so that an
///   idle connection may be leased without asking about either;
/// - an acquire that is queued stands in line unless its handle has as many leases, grants and acquires in line as
///   it may;
/// - a slot is reserved for exactly one waiter, which holds it until it collects, cancels or is revoked;
/// - once the shard has stopped running, nobody is queued.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct State<C, W> {
    pub(super) lifecycle: Lifecycle,
    pub(super) slots: Slots<C>,
    pub(super) waiters: Waiters<W>,
    pub(super) retry: Retry,
    pub(super) life: Life,
    pub(super) counters: Counters,
    pub(super) max_waiters: usize,
    pub(super) max_connecting: usize,
    /// The shard runs, and nobody wants to hear of releases: one may go straight to the next waiter or to the idle
    /// ones.
    pub(super) unheeded: bool,
    /// No open may begin: the pool has no connection to spare.
    blocked: bool,
    pub(super) overload: Overload,
    pub(super) waits: Waits,
    pub(super) leases: Leases,
    /// The latest time that it was told.
    pub(super) now: Option<Instant>,
    /// Whether an idle connection is fit for its next lease.
    pub(super) usable: fn(&mut C) -> bool,
}

impl<C, W> State<C, W> {
    /// A running shard without connections. What a sweep finds idle goes to a waiter only if it is `usable`, as what an
    /// acquire finds does.
    pub(crate) fn new(limits: Limits, usable: fn(&mut C) -> bool) -> Self {
        let mut slots = Slots::new(limits.slots);
        slots.notes_holders = limits.overload.leak_after.is_some();
        Self {
            lifecycle: Lifecycle::Running,
            slots,
            waiters: Waiters::new(limits.fairness),
            retry: Retry::new(limits.backoff, limits.keep.seed),
            life: Life::new(limits.keep),
            counters: Counters::default(),
            max_waiters: limits.max_waiters,
            max_connecting: limits.max_connecting,
            unheeded: true,
            blocked: false,
            overload: limits.overload,
            waits: Waits::new(limits.overload.detailed_waits),
            leases: Leases::default(),
            now: None,
            usable,
        }
    }

    /// Whether releases are to be left to `handle_release`, because their owner wants to hear of them.
    pub(crate) fn heed_releases(&mut self, heed: bool) {
        self.unheeded = !heed && self.lifecycle == Lifecycle::Running;
    }

    /// Whether opens are held back, until this says otherwise.
    pub(crate) fn block_opens(&mut self, blocked: bool) {
        self.blocked = blocked;
    }

    /// Whether a decision about whom to serve would now depend on the time: then [`State::tell_time`] comes first.
    #[inline]
    pub(crate) fn wants_time(&self) -> bool {
        self.waiters.accounts.shed()
    }

    pub(crate) fn tell_time(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// The reply address of a queued waiter, to change it. `None` once its fate is known.
    pub(crate) fn reply_mut(&mut self, waiter: WaiterKey) -> Option<&mut W> {
        self.waiters.reply_mut(waiter)
    }

    /// How far the shard has come.
    #[inline]
    pub(crate) fn lifecycle(&self) -> Lifecycle {
        self.lifecycle
    }

    /// Whether `poll_notice` or `poll_close` has something. Opens are not output in this sense, for in
    /// back-off one may be wanted that cannot be had: see [`State::wants_open`].
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.waiters.has_notices() || self.slots.has_doomed()
    }

    /// Whether another open would serve a waiter, or bring the idle connections up to those that are to be kept, and
    /// the limits allow it. In back-off too: then `poll_open` gives nothing before [`State::next_deadline`].
    #[inline]
    pub(crate) fn wants_open(&self) -> bool {
        self.openable() > 0 && self.slots.opening() < self.most_opens()
    }

    /// Opens that may be under way at this moment.
    fn most_opens(&self) -> usize {
        // One attempt is enough to find out whether a peer that kept failing is back.
        let probes = self.retry.is_tripped() && self.slots.alive() == self.slots.opening();
        let most = if probes { self.max_connecting.min(1) } else { self.max_connecting };
        most.min(self.wanted())
    }

    /// Whether an open may begin now, as [`poll_open`](State::poll_open) would.
    pub(crate) fn may_open(&mut self, now: Instant) -> bool {
        self.wants_open() && self.retry.allows(now)
    }

    /// Whether an acquire that came now would have to wait for a lease to end: nothing is idle, and no open is under way
    /// or could begin that would be for it. `may_open` says whether the pool has a connection to spare.
    pub(crate) fn is_exhausted(&self, may_open: bool) -> bool {
        let Gauges { waiting, idle, opening, .. } = self.gauges();
        let can_open =
            may_open && self.openable() > 0 && opening < self.max_connecting && self.retry.until().is_none();
        self.lifecycle == Lifecycle::Running && idle == 0 && opening <= waiting && !can_open
    }

    /// What this shard has to spare, in one word: idle connections in the upper half, waiters in the lower.
    pub(crate) fn hint(&self) -> u64 {
        (self.slots.idle() as u64) << 32 | self.waiters.queued() as u64
    }

    /// Slots in which a connection could be opened.
    pub(super) fn openable(&self) -> usize {
        if self.blocked { 0 } else { self.slots.vacant() }
    }

    /// Slots that are not vacant.
    pub(crate) fn occupied(&self) -> usize {
        self.slots.occupied()
    }

    /// How many opens may be under way: one for each queued acquire and for each idle connection that is missing.
    pub(super) fn wanted(&self) -> usize {
        self.waiters.queued() + self.missing()
    }

    /// The end of the back-off, if there is one: no open begins before.
    #[inline]
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.retry.until()
    }

    /// Whether anybody stands in line: a connection that becomes free now goes to a waiter.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiters.queued() > 0
    }

    /// Whether the connection of this lease goes to a waiter if the lease ends now: to one in line, or to one of its own
    /// handle's that was held back until then.
    #[inline]
    pub(crate) fn has_waiters_for(&self, slot: SlotId) -> bool {
        self.has_waiters() || (self.waiters.held_back() > 0 && self.waiters.accounts.is_awaited(slot))
    }

    /// Whether anybody is queued or has a grant to collect, or a handle is known.
    pub(crate) fn has_claims(&self) -> bool {
        self.has_waiters() || self.slots.reserved() > 0 || !self.waiters.accounts.is_empty()
    }

    /// The most recently used idle connection, to be looked after.
    pub(crate) fn newest_idle_mut(&mut self) -> Option<&mut C> {
        self.slots.newest_idle_mut()
    }

    /// The idle connection that has not been used for the longest time, to be looked after.
    pub(crate) fn oldest_idle_mut(&mut self) -> Option<&mut C> {
        self.slots.oldest_idle_mut()
    }

    /// Every idle connection, to be looked after.
    pub(crate) fn for_each_idle(&mut self, show: impl FnMut(&mut C)) {
        self.slots.for_each_idle(show);
    }

    /// When something falls due: the earliest deadline of a queued waiter, the end of the back-off if an open waits
    /// for it, or the next look at the connections' ages.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let retry = if self.wants_open() { self.retry.until() } else { None };
        [self.waiters.next_deadline(), retry, self.next_upkeep()].into_iter().flatten().min()
    }

    /// Whether every slot is vacant, nobody waits and no output is left: a stopped shard may then go.
    #[cfg(test)]
    pub(crate) fn is_quiet(&self) -> bool {
        let Gauges { waiting, held_back: _, idle, leased, reserved: _, opening, checking, closing } =
            self.gauges();
        waiting + idle + leased + opening + checking + closing == 0 && !self.has_output()
    }

    /// What has happened so far.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the shard holds now.
    pub(crate) fn gauges(&self) -> Gauges {
        Gauges {
            waiting: self.waiters.waiting(),
            held_back: self.waiters.held_back(),
            idle: self.slots.idle(),
            leased: self.slots.leased(),
            reserved: self.slots.reserved(),
            opening: self.slots.opening(),
            checking: self.slots.checking(),
            closing: self.slots.closing(),
        }
    }

    /// Looks at every slot and every waiter and panics at the first thing that should not be. For tests.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        self.slots.check_invariants();
        let (mut reserved, charged) = self.waiters.check_invariants();
        assert!(
            charged.iter().all(|slot| self.slots.may_be_charged(*slot)),
            "what counts is out or set aside"
        );
        assert!(
            self.slots.charged().all(|slot| charged.contains(&slot)),
            "a charged lease counts for a handle"
        );
        assert!(reserved.iter().all(|slot| self.slots.is_reserved(*slot)), "a grant has its slot");
        let grants = reserved.len();
        reserved.sort_unstable_by_key(|slot| slot.index);
        reserved.dedup();
        assert_eq!(reserved.len(), grants, "no slot is granted twice");
        assert_eq!(grants, self.slots.reserved(), "every reserved slot is some waiter's");
        self.check_totals();
    }

    /// The part of the invariants that takes no walk, after every transition of a debug build. Not in a failed
    /// shard: a transition was broken off half-way there, and winding it up must not panic again.
    #[inline]
    pub(super) fn debug_check(&self) {
        if cfg!(debug_assertions) && self.lifecycle != Lifecycle::Failed {
            self.check_totals();
        }
    }

    fn check_totals(&self) {
        let Gauges { waiting, held_back, idle, leased, reserved, opening, checking, closing: _ } =
            self.gauges();
        let running = self.lifecycle == Lifecycle::Running;
        assert!(waiting == held_back || idle == 0, "a waiter and an idle connection meet at once");
        assert!(running || waiting + idle == 0, "a stopped shard has nobody queued and nothing idle");
        assert!(running || !self.unheeded, "a stopped shard's releases go nowhere unheeded");
        assert!(waiting <= self.max_waiters, "{waiting} waiters, and {} may wait", self.max_waiters);
        assert!(opening <= self.max_connecting, "{opening} opens, of {} at most", self.max_connecting);
        let counters = &self.counters;
        let pending = (waiting + reserved) as u64;
        assert_eq!(counters.acquires(), counters.settled() + pending, "every acquire is accounted for once");
        let ended = counters.connect_failures + counters.closes.iter().sum::<u64>();
        let alive = (opening + idle + leased + checking) as u64;
        assert_eq!(counters.opens, ended + alive, "every open is accounted for once");
    }
}
