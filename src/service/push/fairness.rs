//! Which queue is next: a decision, without queues, await or a clock of its own.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use super::handle::Priority;

/// High goes before low; but the frame of low priority that is next is passed over at most so many times in a row, and
/// for no longer than the slice.
///
/// What counts is the passing over: a run of high priority that nobody waited behind owes nothing. And as the count
/// begins anew with each frame of low priority that goes, one of high priority waits behind one of them at most.
#[derive(Debug)]
pub(super) struct Fairness {
    /// How often low may be passed over in a row.
    bound: NonZeroU32,
    /// How long it may be.
    slice: Option<Duration>,
    /// How often it was.
    passed: u32,
    /// When it was first.
    since: Option<Instant>,
}

impl Fairness {
    pub(super) fn new(bound: NonZeroU32, slice: Option<Duration>) -> Fairness {
        Fairness { bound, slice, passed: 0, since: None }
    }

    /// Which of the queues that have something is next. The clock is read only when both have and there is a slice.
    #[inline]
    pub(super) fn next(&mut self, high: bool, low: bool, now: impl FnOnce() -> Instant) -> Option<Priority> {
        if high && low {
            return Some(self.contended(now));
        }
        self.passed = 0;
        self.since = None;
        match (high, low) {
            (true, _) => Some(Priority::High),
            (_, true) => Some(Priority::Low),
            _ => None,
        }
    }

    fn contended(&mut self, now: impl FnOnce() -> Instant) -> Priority {
        if self.passed >= self.bound.get() || self.slice.is_some_and(|slice| self.is_over(slice, now())) {
            self.passed = 0;
            self.since = None;
            return Priority::Low;
        }
        self.passed += 1;
        Priority::High
    }

    fn is_over(&mut self, slice: Duration, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        now.saturating_duration_since(since) >= slice
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fairness(bound: u32, slice: Option<u64>) -> Fairness {
        Fairness::new(NonZeroU32::new(bound).unwrap(), slice.map(Duration::from_millis))
    }

    /// Checks one run of decisions; each look is what is ready, and the milliseconds since the last.
    fn check(bound: u32, slice: Option<u64>, looks: impl IntoIterator<Item = (bool, bool, u64)>) {
        let mut fairness = fairness(bound, slice);
        let mut now = Instant::now();
        let (mut passed, mut since, mut lows_before_high) = (0, None, 0);
        for (high, low, pause) in looks {
            now += Duration::from_millis(pause);
            let mut clock_reads = 0;
            let next = fairness.next(high, low, || {
                clock_reads += 1;
                now
            });
            assert!(clock_reads <= usize::from(high && low && slice.is_some()), "a clock read in vain");
            assert_eq!(next.is_some(), high || low, "what is ready is served, and nothing else");
            match next {
                Some(Priority::High) => {
                    assert!(high);
                    lows_before_high = 0;
                    if low {
                        passed += 1;
                        let since = *since.get_or_insert(now);
                        assert!(passed <= bound, "low was passed over {passed} times");
                        let waited = (now - since).as_millis() as u64;
                        assert!(slice.is_none_or(|slice| waited < slice), "low has waited for {waited} ms");
                    }
                }
                Some(Priority::Low) => {
                    assert!(low);
                    if high {
                        lows_before_high += 1;
                        assert_eq!(lows_before_high, 1, "high waited behind more than one of low priority");
                        let over = slice.is_some_and(|slice| {
                            since.is_some_and(|since| (now - since).as_millis() as u64 >= slice)
                        });
                        assert!(passed == bound || over, "low went before its turn");
                    }
                    (passed, since) = (0, None);
                }
                None => {}
            }
            if !low {
                (passed, since) = (0, None);
            }
            if !high {
                lows_before_high = 0;
            }
        }
    }

    #[test]
    fn every_short_run_of_looks_keeps_both_bounds() {
        const LOOKS: u32 = 5;
        for bound in 1..=4 {
            for slice in [None, Some(1), Some(2), Some(3)] {
                for run in 0..8_u32.pow(LOOKS) {
                    let look = |at: u32| run >> (3 * at);
                    check(
                        bound,
                        slice,
                        (0..LOOKS).map(|at| {
                            let look = look(at);
                            (look & 1 != 0, look & 2 != 0, u64::from(look >> 2 & 1))
                        }),
                    );
                }
            }
        }
    }

    #[test]
    fn a_flood_of_high_priority_lets_every_ninth_be_low() {
        let mut fairness = fairness(8, None);
        let order: Vec<_> = (0..27).map(|_| fairness.next(true, true, || unreachable!()).unwrap()).collect();
        let lows: Vec<_> = (0..27).filter(|at| order[*at] == Priority::Low).collect();
        assert_eq!(lows, [8, 17, 26]);
    }

    #[test]
    fn a_run_that_nobody_waited_behind_owes_nothing() {
        let mut fairness = fairness(2, None);
        for _ in 0..10 {
            assert_eq!(fairness.next(true, false, || unreachable!()), Some(Priority::High));
        }
        assert_eq!(fairness.next(true, true, || unreachable!()), Some(Priority::High));
    }

    proptest! {
        #[test]
        fn any_run_of_looks_keeps_both_bounds(
            bound in 1..20_u32,
            slice in proptest::option::of(1..50_u64),
            looks in proptest::collection::vec((any::<bool>(), proptest::bool::weighted(0.8), 0..9_u64), 0..200),
        ) {
            check(bound, slice, looks);
        }
    }
}
