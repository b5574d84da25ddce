//! How long a shard leaves its peer alone after a failed open, and when it stops letting acquires wait for that.
//!
//! The pauses grow exponentially and are drawn with *equal jitter*: half of each is certain, the other half random, so
//! that the shards of many processes do not come back to a recovering peer all at once. (M. Brooker, "Exponential
//! Backoff and Jitter", AWS Architecture Blog, 2015.) Refusing at once while a peer is known to be gone, and trying
//! it with a single open after the pause, is M. Nygard's *circuit breaker* ("Release It!", 2007).

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pause after the first failed open, and the longest one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// After the first failure.
    pub initial: Duration,
    /// Doubling stops here.
    pub max: Duration,
    /// So many failures in a row trip the breaker; none ever does.
    pub breaker: Option<u32>,
}

/// Where in its back-off a shard is.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Retry {
    backoff: Backoff,
    /// The pause the next failure starts.
    pause: Duration,
    /// No open begins before this instant.
    until: Option<Instant>,
    last_error: Option<Arc<io::Error>>,
    /// Failures in a row; those of one round of opens count once.
    failures: u32,
    random: fastrand::Rng,
}

impl Retry {
    pub(super) fn new(backoff: Backoff, seed: u64) -> Self {
        // Keeps `now + pause` representable; nobody configures a year and means it.
        let max = backoff.max.min(LONGEST);
        let backoff = Backoff { initial: backoff.initial.min(max), max, ..backoff };
        let random = fastrand::Rng::with_seed(seed);
        Self { backoff, pause: backoff.initial, until: None, last_error: None, failures: 0, random }
    }

    /// Starts a pause. A failure during a pause belongs to the round of opens that started it and changes
    /// nothing: or else one peer that refuses ten simultaneous opens would look like ten outages in a row.
    pub(super) fn fail(&mut self, error: Arc<io::Error>, now: Instant) {
        self.last_error = Some(error);
        if self.allows(now) {
            self.failures = self.failures.saturating_add(1);
            self.until = Some(now + self.pause.mul_f64(0.5 + 0.5 * self.random.f64()));
            self.pause = (self.pause * 2).min(self.backoff.max);
        }
    }

    /// The peer answers again.
    pub(super) fn succeed(&mut self) {
        self.pause = self.backoff.initial;
        self.until = None;
        self.last_error = None;
        self.failures = 0;
    }

    /// Whether the peer has failed so often that one open at a time is enough to find out whether it is back.
    pub(super) fn is_tripped(&self) -> bool {
        self.backoff.breaker.is_some_and(|breaker| self.failures >= breaker)
    }

    /// Why nothing should wait for this peer now: the breaker has tripped and the pause is not known to be over.
    pub(super) fn verdict(&self) -> Option<&Arc<io::Error>> {
        if self.until.is_some() && self.is_tripped() { self.last_error.as_ref() } else { None }
    }

    /// Whether an open may begin at `now`. Forgets a pause that is over.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        if self.until.is_some_and(|until| until <= now) {
            self.until = None;
        }
        self.until.is_none()
    }

    /// When the pause ends, if there is one.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    pub(super) fn last_error(&self) -> Option<&Arc<io::Error>> {
        self.last_error.as_ref()
    }
}

const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
