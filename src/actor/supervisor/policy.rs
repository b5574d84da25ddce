//! What a supervisor is told to do when a child ends: the settings, and the two rules that need a memory.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Whom a supervisor restarts when one child fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// That child alone: the others do not depend on it.
    #[default]
    OneForOne,
    /// All children: each depends on each.
    OneForAll,
    /// That child and those that were added after it: each depends on those before it.
    RestForOne,
}

/// When a child is started again after it ended without having been told to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Restart {
    /// Always.
    #[default]
    Permanent,
    /// When it [failed](crate::actor::ExitReason::is_failure). Otherwise it stays in the list, and may be
    /// [restarted](super::SupervisorRef::restart_child).
    Transient,
    /// Never. It leaves the list when it ends.
    Temporary,
}

/// How long a child may take to end once it is told to.
///
/// An actor that does not trap exits is stopped at its next scheduling point. One that traps them receives an
/// [`Exit`](crate::actor::Exit) from its supervisor with the reason `Stopped`, so that it can end in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Shutdown {
    /// So long. Then it is stopped, whether it traps exits or not. It cannot refuse that, but a poll that does not return can
    /// delay it; so, when as long again has passed, the supervisor says that it is *overdue* and goes on without it.
    Within(Duration),
    /// As long as it likes: for children that are supervisors.
    Unlimited,
}

impl Default for Shutdown {
    fn default() -> Shutdown {
        Shutdown::Within(Duration::from_secs(5))
    }
}

impl Shutdown {
    pub(super) fn limit(self) -> Option<Duration> {
        match self {
            Shutdown::Within(limit) => Some(limit),
            Shutdown::Unlimited => None,
        }
    }
}

/// What a supervisor goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    pub(super) strategy: Strategy,
    pub(super) intensity: Intensity,
    pub(super) backoff: Backoff,
}

/// How many restarts within how long are too many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intensity {
    pub(super) restarts: u32,
    pub(super) within: Duration,
}

/// The latest failures.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Failures {
    limit: Intensity,
    latest: VecDeque<Instant>,
}

impl Failures {
    pub(super) fn new(limit: Intensity) -> Failures {
        Failures { limit, latest: VecDeque::new() }
    }

    /// Counts one more; false when that is one too many.
    pub(super) fn count(&mut self, now: Instant) -> bool {
        self.latest.push_back(now);
        let within = self.limit.within;
        while self.latest.front().is_some_and(|first| now.saturating_duration_since(*first) > within) {
            self.latest.pop_front();
        }
        self.latest.len() <= self.limit.restarts as usize
    }
}

/// How long a failed child stays down: the first pause, and the longest one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    pub(super) initial: Duration,
    pub(super) max: Duration,
}

impl Backoff {
    /// The pause after a failure, and what the next one starts from. Equal jitter: half of it is certain and half random, so
    /// that children that failed together do not come back together.
    pub(super) fn pause(self, from: Option<Duration>, random: &mut fastrand::Rng) -> (Duration, Duration) {
        let full = from.unwrap_or(self.initial).min(self.max);
        (full.mul_f64(0.5 + 0.5 * random.f64()), full.saturating_mul(2).min(self.max))
    }
}
