//! Which connections a shard keeps, and for how long: how many idle ones there are to be, when an idle one is closed,
//! and when any connection has lived long enough.
//!
//! No clock is looked at on the way of a lease. An idle connection is stamped with a *tick*, a count that moves on with
//! the maintenance timer; the timer runs only while there is a connection that it could one day close or check. A
//! lifetime is drawn once, when the connection is opened, and kept as a deadline.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::slots::Phase;
use super::{CloseReason, Lifecycle, SlotId, State};

/// Which connections to keep, and for how long.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keep {
    /// Connections to have idle, or being opened, beyond those for waiters.
    pub min_idle: usize,
    /// How long a connection may be idle, if it is not among those.
    pub idle_timeout: Option<Duration>,
    /// How old a connection may grow.
    pub max_lifetime: Option<Duration>,
    /// How much of its lifetime chance may take from a connection, from 0 to 1.
    pub lifetime_jitter: f64,
    /// How long a connection may be idle without being checked.
    pub check_interval: Option<Duration>,
    /// What the lifetimes and pauses are drawn from.
    pub seed: u64,
}

/// Ticks in the shortest of the times that are measured in them: how exactly those are kept.
const TICKS: u32 = 8;
/// The timer beats no faster than this.
const SHORTEST_TICK: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Life {
    pub(super) min_idle: usize,
    tick: Duration,
    /// When the tick moves on, while the timer runs.
    tick_due: Option<Instant>,
    idle_ticks: Option<u32>,
    pub(super) check_ticks: Option<u32>,
    /// A tick has passed since the idle connections were last looked through for some to check.
    pub(super) checks_due: bool,
    lifetime: Option<(Duration, f64)>,
    /// What is missing is not to be opened: others need the connections that there may be.
    forgone: bool,
    /// Connections that have lived long enough and stay until their replacement is there.
    overdue: Vec<SlotId>,
    random: fastrand::Rng,
}

impl Life {
    pub(super) fn new(keep: Keep) -> Self {
        let shortest = keep.idle_timeout.into_iter().chain(keep.check_interval).min().unwrap_or(LONGEST);
        let tick = (shortest.min(LONGEST) / TICKS).max(SHORTEST_TICK);
        // One more, for a stamp may be as old as its tick is long.
        let ticks = |time: Duration| {
            let whole = time.min(LONGEST).as_nanos().div_ceil(tick.as_nanos());
            u32::try_from(whole).unwrap_or(u32::MAX - 1) + 1
        };
        Self {
            min_idle: keep.min_idle,
            tick,
            tick_due: None,
            idle_ticks: keep.idle_timeout.map(ticks),
            check_ticks: keep.check_interval.map(ticks),
            checks_due: false,
            lifetime: keep.max_lifetime.map(|max| (max.min(LONGEST), keep.lifetime_jitter.clamp(0.0, 1.0))),
            forgone: false,
            overdue: Vec::new(),
            random: fastrand::Rng::with_seed(keep.seed ^ 0x6c69_6665),
        }
    }
}

impl<C, W> State<C, W> {
    /// Connections that are to be kept idle. Never more than there are slots.
    pub(super) fn min_idle(&self) -> usize {
        self.life.min_idle.min(self.slots.target())
    }

    /// Idle connections that should be there and are not. One that is about to be replaced does not count as there.
    #[inline]
    pub(super) fn missing(&self) -> usize {
        if self.life.min_idle == 0 || self.life.forgone || self.lifecycle != Lifecycle::Running {
            return 0;
        }
        let leaving = self.life.overdue.iter().filter(|slot| self.slots.is(**slot, Phase::Idle)).count();
        self.min_idle().saturating_sub(self.slots.idle() + self.slots.checking() - leaving)
    }

    /// Whether as many connections are open as are to be kept, or as there may be.
    pub(crate) fn is_warm(&self) -> bool {
        self.life.forgone || self.slots.alive() - self.slots.opening() >= self.min_idle()
    }

    /// Whether the next open would be for a waiter.
    pub(crate) fn opens_for_waiters(&self) -> bool {
        self.slots.opening() < self.waiters.queued()
    }

    /// Does without the idle connections that are missing, until this says otherwise: none may be opened for them.
    pub(crate) fn forgo_missing(&mut self, forgo: bool) {
        self.life.forgone = forgo;
        self.retire_overdue();
        self.debug_check();
    }

    /// A connection is about to be opened: its lifetime begins, and with it the need for the timer.
    pub(super) fn begin_life(&mut self, slot: SlotId, now: Instant) {
        if let Some((longest, jitter)) = self.life.lifetime {
            let shortened = longest.mul_f64(1.0 - jitter * self.life.random.f64());
            self.slots.set_expiry(slot, now + shortened);
        }
        if self.life.tick_due.is_none() && self.needs_ticks() {
            // What was idle before keeps its stamp: its age begins to count anew, which errs on the safe side.
            self.life.tick_due = Some(now + self.life.tick);
        }
    }

    /// Whether there is a connection that the passing of time could have closed or checked. Those on lease count: how
    /// they come back is nothing that anybody hears of.
    fn needs_ticks(&self) -> bool {
        let alive = self.slots.alive();
        (self.life.idle_ticks.is_some() && alive > self.min_idle())
            || (self.life.check_ticks.is_some() && alive > 0)
    }

    /// When the connections' ages are to be looked at next.
    pub(super) fn next_upkeep(&self) -> Option<Instant> {
        self.life.tick_due.into_iter().chain(self.slots.expiries.next()).min()
    }

    /// Looks at the connections' ages, if it is time to.
    pub(crate) fn handle_upkeep(&mut self, now: Instant) {
        if self.life.tick_due.is_some_and(|due| due <= now) {
            self.slots.tick = self.slots.tick.wrapping_add(1);
            self.life.checks_due = self.life.check_ticks.is_some();
            self.close_long_idle();
            self.life.tick_due = self.needs_ticks().then(|| now + self.life.tick);
        }
        let before = self.life.overdue.len();
        while let Some(slot) = self.slots.pop_expired(now) {
            self.life.overdue.push(slot);
        }
        if self.life.overdue.len() > before {
            self.retire_overdue();
        }
        self.debug_check();
    }

    fn close_long_idle(&mut self) {
        let Some(ticks) = self.life.idle_ticks else { return };
        while self.slots.idle() > self.min_idle()
            && let Some(slot) = self.slots.idle_for(ticks)
        {
            self.evict(slot, CloseReason::Idle);
        }
    }

    /// Retires the connections that have lived long enough. One that is leased is closed when its lease ends. An idle
    /// one that the shard would miss stays, and stays in use, until its replacement has come.
    pub(super) fn retire_overdue(&mut self) {
        if self.life.overdue.is_empty() {
            return;
        }
        let mut overdue = std::mem::take(&mut self.life.overdue);
        overdue.retain(|slot| match self.slots.phase(*slot) {
            Some(Phase::Idle) if self.can_spare_one() => {
                self.evict(*slot, CloseReason::Expired);
                false
            }
            Some(Phase::Idle | Phase::Opening | Phase::Checking) => true,
            Some(_) => {
                self.slots.mark_last(*slot, CloseReason::Expired);
                false
            }
            None => false,
        });
        self.life.overdue = overdue;
    }

    /// Whether an idle connection may go now: enough others are idle, or no slot is left to open its replacement in.
    fn can_spare_one(&self) -> bool {
        let others = self.slots.idle() + self.slots.checking();
        others > self.min_idle()
            || self.life.forgone
            || self.openable() + self.slots.opening() + self.slots.closing() == 0
    }

    /// Why an acquire that finds nothing idle is not to wait: nothing is there or on its way, and the peer has failed
    /// so often that the next attempt is put off.
    pub(super) fn cut_off(&self) -> Option<Arc<io::Error>> {
        let verdict = self.retry.verdict()?;
        (self.slots.alive() == 0).then(|| Arc::clone(verdict))
    }

    /// Forgets a pause that is over, for those who ask before the timer does.
    pub(crate) fn lapse(&mut self, now: Instant) {
        self.retry.allows(now);
    }

    /// This connection has lived long enough.
    #[cfg(test)]
    pub(super) fn expire(&mut self, slot: SlotId) {
        self.slots.cancel_expiry(slot);
        self.life.overdue.push(slot);
        self.retire_overdue();
        self.debug_check();
    }

    /// Whether the connection stays until its replacement is there.
    #[cfg(test)]
    pub(super) fn is_overdue(&self, slot: SlotId) -> bool {
        self.life.overdue.contains(&slot)
    }

    /// The shard has stopped: nothing is kept, and no time is waited for.
    pub(super) fn stop_upkeep(&mut self) {
        self.life.tick_due = None;
        self.life.overdue.clear();
        self.life.checks_due = false;
        self.slots.forget_expiries();
    }
}
