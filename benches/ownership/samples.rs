//! The timed samples of one case.

use std::collections::VecDeque;
use std::time::Duration;

/// So many operations took so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub operations: u64,
    pub elapsed: Duration,
}

impl Sample {
    fn nanoseconds(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.operations as f64
    }
}

/// Keeps the newest samples, as many as criterion measures: what came before them was its warm-up.
#[derive(Debug)]
pub struct Samples {
    kept: VecDeque<Sample>,
    limit: usize,
}

/// Nanoseconds per operation, over the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub greatest: f64,
}

impl Samples {
    pub fn new(limit: usize) -> Samples {
        assert!(limit > 0, "there is something to keep");
        Samples { kept: VecDeque::with_capacity(limit), limit }
    }

    pub fn push(&mut self, sample: Sample) {
        assert!(sample.operations > 0, "a sample of nothing");
        if self.kept.len() == self.limit {
            self.kept.pop_front();
        }
        self.kept.push_back(sample);
    }

    /// None if nothing was measured.
    pub fn spread(&self) -> Option<Spread> {
        let mut times: Vec<f64> = self.kept.iter().map(Sample::nanoseconds).collect();
        times.sort_by(f64::total_cmp);
        let middle = times.len() / 2;
        let median = match times.len() {
            0 => return None,
            length if length % 2 == 1 => times[middle],
            _ => f64::midpoint(times[middle - 1], times[middle]),
        };
        Some(Spread { median, least: times[0], greatest: times[times.len() - 1] })
    }
}
