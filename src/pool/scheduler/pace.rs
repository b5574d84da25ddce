//! How fast a shard serves its waiters while it has some: the mean time from one grant to the next.
//!
//! It is told of grants without the time, and learns the time at the ends of turns. A sample lasts from the end of one
//! turn with a grant to that of another, with somebody waiting all the time in between; anything else would count
//! idleness as slowness.

use std::time::{Duration, Instant};

/// Grants in a sample: fewer, and the mean would follow every odd lease.
const SAMPLE: u32 = 8;
/// A rate that has not been measured for so long is forgotten.
const MEMORY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// When the present sample began, and grants in it.
    sample: Option<(Instant, u32)>,
    /// Grants since the last end of a turn.
    grants: u32,
    /// Nobody waited, at some moment since the last end of a turn.
    drained: bool,
    /// The mean, exponentially weighted, and when it last changed.
    interval: Option<(Duration, Instant)>,
}

impl Pace {
    /// A waiter was served.
    #[inline]
    pub(super) fn grant(&mut self) {
        self.grants += 1;
    }

    /// A waiter has left the queue, served or not, and so many are left.
    #[inline]
    pub(super) fn shrink(&mut self, left: usize) {
        self.drained |= left == 0;
    }

    /// A turn has ended with so many waiting.
    pub(super) fn end_turn(&mut self, now: Instant, waiting: usize) {
        let grants = std::mem::take(&mut self.grants);
        let drained = std::mem::take(&mut self.drained);
        if self.interval.is_some_and(|(_, at)| now.saturating_duration_since(at) > MEMORY) {
            self.interval = None;
        }
        if drained {
            self.sample = None;
        }
        if grants == 0 {
            return;
        }
        if let Some((began, count)) = &mut self.sample {
            *count += grants;
            if *count >= SAMPLE {
                let mean = now.saturating_duration_since(*began) / *count;
                let interval = self.interval.map_or(mean, |(before, _)| (before * 3 + mean) / 4);
                self.interval = Some((interval, now));
                self.sample = None;
            }
        }
        if self.sample.is_none() && waiting > 0 {
            self.sample = Some((now, 0));
        }
    }

    /// The mean time between two grants, if it is known.
    pub(super) fn interval(&self) -> Option<Duration> {
        self.interval.map(|(interval, _)| interval)
    }
}
