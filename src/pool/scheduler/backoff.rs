//! How long a shard leaves its peer alone after a failed open.

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
}

impl Retry {
    pub(super) fn new(backoff: Backoff) -> Self {
        // Keeps `now + pause` representable; nobody configures a year and means it.
        let max = backoff.max.min(LONGEST);
        let backoff = Backoff { initial: backoff.initial.min(max), max };
        Self { backoff, pause: backoff.initial, until: None, last_error: None }
    }

    /// Starts a pause. A failure during a pause belongs to the round of opens that started it and changes
    /// nothing: or else one peer that refuses ten simultaneous opens would look like ten outages in a row.
    pub(super) fn fail(&mut self, error: Arc<io::Error>, now: Instant) {
        self.last_error = Some(error);
        if self.allows(now) {
            self.until = Some(now + self.pause);
            self.pause = (self.pause * 2).min(self.backoff.max);
        }
    }

    /// The peer answers again.
    pub(super) fn succeed(&mut self) {
        self.pause = self.backoff.initial;
        self.until = None;
        self.last_error = None;
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
