//! How long single operations took: a distribution.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longer than anything that is not a hang; what takes longer counts as this.
const LONGEST: u64 = 60_000_000_000;
/// The percentiles of the table.
pub const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 100.0];
/// Points of a curve for each halving of what is left to the hundredth percentile.
const POINTS_PER_HALVING: u32 = 4;

/// Nanoseconds, to three digits.
pub struct Latency(Histogram<u64>);

impl Latency {
    pub fn new() -> Latency {
        Latency(Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order"))
    }

    pub fn record(&mut self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanoseconds.clamp(1, LONGEST));
    }

    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Nanoseconds that `percentile` in a hundred operations took at most.
    pub fn at(&self, percentile: f64) -> u64 {
        self.0.value_at_percentile(percentile)
    }

    /// Percentile and nanoseconds, closer together towards the slowest, whose share a chart stretches.
    pub fn curve(&self) -> Vec<(f64, u64)> {
        let percentiles = self.0.iter_quantiles(POINTS_PER_HALVING);
        percentiles.map(|point| (point.quantile_iterated_to() * 100.0, point.value_iterated_to())).collect()
    }
}
