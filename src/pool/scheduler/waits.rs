//! How long the waiters that were served had waited.
//!
//! Who is served within the turn in which it came has no clock and waited for no time. All others are noted, and
//! measured together at the end of the turn by one look at the clock.

use std::time::{Duration, Instant};

use super::HandleId;
use super::asker::Site;
use crate::pool::histogram::WaitHistogram;

/// A waiter that has collected its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub handle: HandleId,
    /// Where the acquire was made.
    pub site: Site,
    /// How many waited when it came.
    pub position: u32,
    /// How long it waited.
    pub waited: Duration,
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Waits {
    pub(super) histogram: WaitHistogram,
    /// Somebody wants to hear of each wait, and not only of how many of which length there were.
    pub(super) detailed: bool,
    /// Served since the last measurement: when their clocks were started.
    times: Vec<Instant>,
    /// The same, if somebody wants to hear of each.
    unmeasured: Vec<(Instant, Wait)>,
}

impl Waits {
    pub(super) fn new(detailed: bool) -> Waits {
        Waits { detailed, ..Waits::default() }
    }

    /// One has been served within its turn.
    #[inline]
    pub(super) fn note_none(&mut self) {
        self.histogram.record(Duration::ZERO);
    }

    /// One has been served that was there at the end of a turn.
    #[inline]
    pub(super) fn note(&mut self, since: Instant, wait: Wait) {
        self.unmeasured.push((since, wait));
    }

    /// As [`note`](Waits::note), for the histogram only.
    #[inline]
    pub(super) fn note_time(&mut self, since: Instant) {
        self.times.push(since);
    }

    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        !self.times.is_empty() || !self.unmeasured.is_empty()
    }

    /// Measures, and puts those that waited for `least` or longer into `out`.
    pub(super) fn measure(&mut self, now: Instant, least: Duration, out: &mut Vec<Wait>) {
        for since in self.times.drain(..) {
            self.histogram.record(now.saturating_duration_since(since));
        }
        for (since, mut wait) in self.unmeasured.drain(..) {
            wait.waited = now.saturating_duration_since(since);
            self.histogram.record(wait.waited);
            if wait.waited >= least {
                out.push(wait);
            }
        }
    }
}
