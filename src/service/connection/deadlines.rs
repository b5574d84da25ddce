//! Until when a connection waits for what: a value, without timers or a clock.
//!
//! What is waited for is noted when the connection has nothing else to do, and the clock is asked only then, and only for a
//! wait that is new and has a limit.

use std::time::{Duration, Instant};

use super::Limits;
use crate::runtime::far;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The rest of a frame.
    Frame,
    /// Anything from the peer.
    Idle,
    /// A handler.
    Request,
    /// Room in the transport.
    Write,
}

impl Wait {
    pub(super) const ALL: [Wait; 4] = [Wait::Frame, Wait::Idle, Wait::Request, Wait::Write];

    pub(super) fn limit(self, limits: &Limits) -> Option<Duration> {
        match self {
            Wait::Frame => limits.frame_timeout,
            Wait::Idle => limits.idle_timeout,
            Wait::Request => limits.request_timeout,
            Wait::Write => limits.write_timeout,
        }
    }
}

/// When each wait is over.
#[derive(Debug, Default)]
pub(super) struct Deadlines([Option<Instant>; Wait::ALL.len()]);

impl Deadlines {
    /// `wait` goes on, or begins now.
    #[inline]
    pub(super) fn wait(&mut self, wait: Wait, limits: &Limits, now: impl FnOnce() -> Instant) {
        let deadline = &mut self.0[wait as usize];
        if deadline.is_none()
            && let Some(limit) = wait.limit(limits)
        {
            *deadline = Some(far(now(), limit));
        }
    }

    /// `wait` is over, or was none.
    #[inline]
    pub(super) fn over(&mut self, wait: Wait) {
        self.0[wait as usize] = None;
    }

    /// All waits are.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.0 = Default::default();
    }

    /// The next time at which one of them may be due.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }

    pub(super) fn due(&self, now: Instant) -> Option<Wait> {
        let due = |wait: &Wait| self.0[*wait as usize].is_some_and(|deadline| deadline <= now);
        Wait::ALL.into_iter().find(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> Limits {
        let (frame, request) = (Some(2 * SECOND), Some(3 * SECOND));
        Limits { frame_timeout: frame, request_timeout: request, idle_timeout: None, ..Limits::default() }
    }

    #[test]
    fn a_wait_that_goes_on_is_not_renewed() {
        let (limits, mut deadlines) = (limits(), Deadlines::default());
        let begun = Instant::now();
        for passed in 0..5 {
            deadlines.wait(Wait::Frame, &limits, || begun + passed * SECOND / 4);
        }
        assert_eq!(deadlines.next(), Some(begun + 2 * SECOND));
        assert_eq!(deadlines.due(begun + 2 * SECOND - Duration::from_nanos(1)), None);
        assert_eq!(deadlines.due(begun + 2 * SECOND), Some(Wait::Frame));
        deadlines.over(Wait::Frame);
        assert_eq!((deadlines.next(), deadlines.due(begun + 9 * SECOND)), (None, None));
        deadlines.wait(Wait::Frame, &limits, || begun + 5 * SECOND);
        assert_eq!(deadlines.next(), Some(begun + 7 * SECOND));
    }

    #[test]
    fn the_clock_is_asked_only_for_a_new_wait_with_a_limit() {
        let (limits, mut deadlines) = (limits(), Deadlines::default());
        deadlines.wait(Wait::Idle, &limits, || panic!("no limit, no clock"));
        deadlines.wait(Wait::Request, &limits, Instant::now);
        deadlines.wait(Wait::Request, &limits, || panic!("this wait has begun"));
    }

    #[test]
    fn the_earliest_of_several_waits_is_next() {
        let (limits, mut deadlines) = (limits(), Deadlines::default());
        let begun = Instant::now();
        deadlines.wait(Wait::Request, &limits, || begun);
        deadlines.wait(Wait::Frame, &limits, || begun);
        assert_eq!(deadlines.next(), Some(begun + 2 * SECOND));
        deadlines.over(Wait::Frame);
        assert_eq!(deadlines.next(), Some(begun + 3 * SECOND));
        deadlines.clear();
        assert_eq!(deadlines.next(), None);
    }
}
