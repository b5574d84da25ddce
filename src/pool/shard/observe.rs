//! What a shard tells of itself: waits that were long, leases that are out for too long, events. Always outside of
//! transitions, since observers and subscribers run here.

use std::time::{Duration, Instant};

use tracing::{Level, Span};

use super::Shard;
use crate::pool::connector::Connector;
use crate::pool::error::AcquireError;
use crate::pool::event::{Event, EventKind};
use crate::pool::remote::Token;
use crate::pool::scheduler::{Asker, Refusal, WaiterKey};
use crate::pool::stats::OutstandingLease;

/// What the spans of acquires that wait are called by those who filter.
const SPANS: &str = "corelet::pool::acquire";

/// A wait on this core: of a task of it, here or at another core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Waiting {
    Here(WaiterKey),
    Elsewhere(Token),
}

/// Leases are looked at so many times in the time after which they are told of.
const LOOKS: u32 = 4;

impl<C: Connector> Shard<C> {
    /// Tells the pool's observer, if there is one; only then is the event made.
    pub(crate) fn observe(&self, kind: impl FnOnce() -> EventKind) {
        if let Some(observer) = &self.shared.settings.observer {
            observer.tell(&Event { pool: self.shared.id, core: self.local.id(), kind: kind() });
        }
    }

    pub(crate) fn observe_refusal(&self, refusal: &Refusal) {
        self.observe(|| EventKind::Refused { error: AcquireError::from(refusal.clone()) });
    }

    /// An acquire has to wait: opens a span for the wait, if a subscriber is interested in it.
    #[inline(always)]
    pub(super) fn begin_span(&self, wait: Waiting, asker: &Asker) {
        if tracing::enabled!(target: SPANS, Level::TRACE) {
            self.begin_span_now(wait, asker);
        }
    }

    #[cold]
    fn begin_span_now(&self, wait: Waiting, asker: &Asker) {
        let span = tracing::trace_span!(
            target: SPANS,
            parent: Span::current(),
            "acquire",
            pool = self.shared.id,
            core = %self.local.id(),
            handle = asker.handle.0,
            site = %asker.site
        );
        self.spans.borrow_mut().insert(wait, span);
        self.has_spans.set(true);
    }

    /// The wait is over, in whatever way.
    #[inline]
    pub(super) fn end_span(&self, wait: Waiting) {
        if self.has_spans.get() {
            self.end_span_now(wait);
        }
    }

    #[cold]
    fn end_span_now(&self, wait: Waiting) {
        let mut spans = self.spans.borrow_mut();
        let span = spans.remove(&wait);
        self.has_spans.set(!spans.is_empty());
        drop(spans);
        drop(span);
    }

    /// A waiter has collected its connection. How long it waited is measured at the end of the turn.
    #[inline]
    pub(super) fn note_lease_after_wait(&self) {
        // Who came in this very turn has set it already.
        self.unclocked.set(true);
        self.watch_lease();
    }

    /// Measures the waits that ended since the last call.
    pub(super) fn measure_waits(&self, now: Instant) {
        if !self.state.borrow().has_unmeasured() {
            return;
        }
        let warn_after = self.shared.settings.warn_slow_acquires;
        let least =
            if crate::pool::metrics::ENABLED { Duration::ZERO } else { warn_after.unwrap_or(Duration::MAX) };
        let mut waits = self.waits.take();
        self.state.borrow_mut().measure_waits(now, least, &mut waits);
        for wait in waits.drain(..) {
            self.metrics.wait(wait.waited);
            if warn_after.is_none_or(|least| wait.waited < least) {
                continue;
            }
            self.slow_acquires.set(self.slow_acquires.get() + 1);
            tracing::warn!(
                pool = self.shared.id,
                core = %self.local.id(),
                handle = wait.handle.0,
                waited = ?wait.waited,
                position = wait.position,
                site = %wait.site,
                "an acquire was slow"
            );
            self.observe(|| EventKind::SlowAcquire {
                handle: wait.handle.0,
                site: wait.site,
                waited: wait.waited,
                position: wait.position as usize,
            });
        }
        // Kept for the next time, unless an observer has used the pool meanwhile.
        self.waits.replace(waits);
    }

    /// At the end of a turn.
    #[inline]
    pub(crate) fn publish(&self) {
        self.metrics.publish(|| self.stats());
    }

    /// A lease has begun: if leases are watched, the actor looks at them until none is out.
    #[inline]
    pub(super) fn watch_lease(&self) {
        if self.unwatched.get() {
            self.unwatched.set(false);
            self.wake_actor();
        }
    }

    /// Whether leases are out that are to be looked at from time to time.
    pub(crate) fn watches_leases(&self) -> bool {
        self.shared.settings.detect_leaks.is_some() && !self.unwatched.get()
    }

    pub(crate) fn outstanding_leases(&self) -> Vec<OutstandingLease> {
        let core = self.local.id();
        let out = self.state.borrow().outstanding(self.local.now());
        out.into_iter().map(|lease| OutstandingLease::new(core, lease)).collect()
    }

    /// Tells of leases that are out for too long.
    pub(crate) fn look_for_leaks(&self, now: Instant) {
        let Some(limit) = self.shared.settings.detect_leaks.filter(|_| !self.unwatched.get()) else {
            return;
        };
        if self.next_look.get().is_some_and(|at| now < at) {
            return;
        }
        let mut leaks = Vec::new();
        let any = self.with_state(|state| state.look_for_leaks(now, &mut leaks));
        self.unwatched.set(!any);
        self.next_look.set(if any { now.checked_add(limit / LOOKS) } else { None });
        for leak in leaks {
            self.leaks.set(self.leaks.get() + 1);
            tracing::warn!(
                pool = self.shared.id,
                core = %self.local.id(),
                handle = leak.handle.0,
                age = ?leak.age,
                site = %leak.site,
                "a lease has not been given back for a long time"
            );
            self.observe(|| EventKind::Leak { handle: leak.handle.0, site: leak.site, age: leak.age });
        }
    }
}
