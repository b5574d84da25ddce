//! How many frames may be pushed in a while.

use std::fmt;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

use crate::runtime::context;

/// So many frames in so much time, and so many at once.
///
/// A permit comes back at even intervals, not all of them at the end of the period: `Rate::new(100, SECOND)` gives one
/// each ten milliseconds, and whoever has waited for long may push a hundred at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    frames: u32,
    per: Duration,
    burst: u32,
}

impl Rate {
    /// `frames` in each `per`, and as many at once.
    pub const fn new(frames: u32, per: Duration) -> Rate {
        Rate { frames, per, burst: frames }
    }

    /// How many may go at once after a pause, instead of a whole period's.
    pub const fn burst(mut self, frames: u32) -> Rate {
        self.burst = frames;
        self
    }

    /// What the limiter makes of it; none when it can make nothing of it.
    pub(super) fn quota(self) -> Option<Quota> {
        let (frames, burst) = (NonZeroU32::new(self.frames)?, NonZeroU32::new(self.burst)?);
        let interval = self.per / frames.get();
        // It counts nanoseconds in 64 bits, the whole burst's at once and beside the time that has passed.
        let all = interval.as_nanos().checked_mul(burst.get().into())?;
        if all > u128::from(u64::MAX / 4) {
            return None;
        }
        Some(Quota::with_period(interval)?.allow_burst(burst))
    }
}

/// The clock of the core that asks, which may be a simulated one; the thread's, where there is no core.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreClock;

impl Clock for CoreClock {
    type Instant = Instant;

    fn now(&self) -> Instant {
        context::with(|local| local.now()).unwrap_or_else(Instant::now)
    }
}

/// Keeps a rate, for all threads together.
pub(super) struct Limiter(RateLimiter<NotKeyed, InMemoryState, CoreClock, NoOpMiddleware<Instant>>);

impl Limiter {
    pub(super) fn new(quota: Quota) -> Limiter {
        Limiter(RateLimiter::direct_with_clock(quota, CoreClock))
    }

    /// Takes a permit, or says how long it is until there is one.
    pub(super) fn take(&self) -> Result<(), Duration> {
        self.0
            .check()
            .map_err(|refused| refused.earliest_possible().saturating_duration_since(CoreClock.now()))
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_rate_that_cannot_be_kept_is_none() {
        for rate in [
            Rate::new(0, SECOND),
            Rate::new(1, SECOND).burst(0),
            Rate::new(1, Duration::ZERO),
            Rate::new(2, Duration::from_nanos(1)),
            Rate::new(1, Duration::MAX),
            Rate::new(1, 3600 * SECOND).burst(u32::MAX),
        ] {
            assert_eq!(rate.quota(), None, "{rate:?}");
        }
    }

    #[test]
    fn the_longest_rates_that_are_taken_do_not_overflow() {
        let longest = Duration::from_nanos(u64::MAX / 4);
        for rate in [
            Rate::new(1, longest),
            Rate::new(u32::MAX, longest),
            Rate::new(1, longest / u32::MAX).burst(u32::MAX),
        ] {
            let limiter = Limiter::new(rate.quota().unwrap());
            for _ in 0..3 {
                let _ = limiter.take();
            }
        }
    }
}
