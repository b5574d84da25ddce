//! How long acquires waited, in buckets that double.

use std::time::Duration;

/// Buckets in all. The last one holds everything from 2^46 ns, 19.5 hours, on.
const BUCKETS: usize = 48;

/// Waits by length. The first bucket holds those of no time, which were served within the turn of the core in which they
/// came; each following one reaches twice as far as the one before, in nanoseconds. So a quantile is exact to a factor
/// of two, and recording takes a few instructions.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use corelet::pool::WaitHistogram;
///
/// let mut waits = WaitHistogram::default();
/// for micros in [0, 10, 20, 3000] {
///     waits.record(Duration::from_micros(micros));
/// }
/// assert_eq!((waits.count(), waits.max()), (4, Duration::from_millis(3)));
/// let median = waits.quantile(0.5).unwrap();
/// assert!((Duration::from_micros(10)..Duration::from_micros(20)).contains(&median));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitHistogram {
    buckets: [u64; BUCKETS],
    sum: Duration,
    max: Duration,
}

impl Default for WaitHistogram {
    fn default() -> WaitHistogram {
        WaitHistogram { buckets: [0; BUCKETS], sum: Duration::ZERO, max: Duration::ZERO }
    }
}

impl WaitHistogram {
    /// Adds one wait.
    #[inline]
    pub fn record(&mut self, wait: Duration) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - nanos.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        if nanos > 0 {
            self.sum = self.sum.saturating_add(wait);
            self.max = self.max.max(wait);
        }
    }

    /// Adds all waits of another histogram, such as another shard's.
    pub fn merge(&mut self, other: &WaitHistogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += theirs;
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// How many waits there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All waits together.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// The longest wait.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The wait that a share `q` of all (0.5 for the median; less than 0 counts as 0, more than 1 as 1) did not exceed,
    /// rounded up to the end of its bucket but not beyond the longest. `None` when there are no waits.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (reach, waits) in self.buckets() {
            seen += waits;
            if waits > 0 && seen >= rank {
                return Some(reach.min(self.max));
            }
        }
        (count > 0).then_some(self.max)
    }

    /// Each bucket's longest wait and how many waits it holds, the shortest first.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.buckets.iter().enumerate().map(|(bucket, waits)| {
            let reach = if bucket == BUCKETS - 1 { u64::MAX } else { (1 << bucket) - 1 };
            (Duration::from_nanos(reach), *waits)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_bucket_reaches_twice_as_far_as_the_one_before() {
        for (nanos, bucket) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1 << 46, 47), (u64::MAX, 47)] {
            let mut waits = WaitHistogram::default();
            waits.record(Duration::from_nanos(nanos));
            assert_eq!(waits.buckets[bucket], 1, "{nanos} ns");
        }
    }

    #[test]
    fn an_empty_histogram_has_no_quantile() {
        assert_eq!(WaitHistogram::default().quantile(0.5), None);
    }

    proptest! {
        #[test]
        fn a_quantile_is_never_too_short_and_at_most_twice_too_long(
            mut waits in prop::collection::vec(0_u64..10_000_000, 1..200),
            q in 0.0_f64..=1.0,
        ) {
            let mut histogram = WaitHistogram::default();
            waits.iter().for_each(|nanos| histogram.record(Duration::from_nanos(*nanos)));
            waits.sort_unstable();
            let rank = ((q * waits.len() as f64).ceil() as usize).max(1);
            let exact = waits[rank - 1];
            let quantile = histogram.quantile(q).unwrap().as_nanos() as u64;
            prop_assert!(quantile >= exact && quantile <= exact.max(1) * 2, "{} for {}", quantile, exact);
            prop_assert_eq!(histogram.count(), waits.len() as u64);
            prop_assert_eq!(histogram.sum(), Duration::from_nanos(waits.iter().sum()));
        }

        #[test]
        fn merging_is_the_same_as_recording_in_one(
            ours in prop::collection::vec(any::<u32>(), 0..50),
            theirs in prop::collection::vec(any::<u32>(), 0..50),
        ) {
            let of = |waits: &[u32]| {
                let mut histogram = WaitHistogram::default();
                waits.iter().for_each(|nanos| histogram.record(Duration::from_nanos((*nanos).into())));
                histogram
            };
            let mut merged = of(&ours);
            merged.merge(&of(&theirs));
            prop_assert_eq!(merged, of(&[ours, theirs].concat()));
        }
    }
}
