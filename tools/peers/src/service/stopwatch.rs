//! A stop-watch that only runs in parts of a slice: what is done between the parts is not counted.

use crate::alloc;
use crate::meter::{Throughput, warm_up};
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

pub struct Stopwatch {
    slice: Duration,
    warm: bool,
    operations: u64,
    elapsed: Duration,
    allocations: u64,
    /// When the running part began, and the allocations at that time.
    part: Option<(Instant, u64)>,
}

impl Stopwatch {
    pub fn new(slice: Duration) -> Self {
        Self { slice, warm: false, operations: 0, elapsed: Duration::ZERO, allocations: 0, part: None }
    }

    #[inline]
    pub fn start(&mut self) {
        self.part = Some((Instant::now(), alloc::on_this_thread()));
    }

    /// Ends a part, in which there were so many operations; false once the parts make a slice.
    #[inline]
    pub fn stop(&mut self, operations: u64) -> bool {
        let Some((began, allocations)) = self.part.take() else { return true };
        self.elapsed += began.elapsed();
        self.allocations += alloc::on_this_thread() - allocations;
        self.operations += operations;
        if !self.warm && self.elapsed >= warm_up(self.slice) {
            *self = Self { warm: true, ..Self::new(self.slice) };
        }
        !self.warm || self.elapsed < self.slice
    }

    pub fn outcome(&self) -> Result<Throughput> {
        let over = self.warm && self.operations > 0;
        let Self { operations, elapsed, allocations, .. } = *self;
        over.then_some(Throughput { operations, elapsed, allocations }).context("the slice is not over")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_parts_are_counted_and_make_the_slice() {
        let mut watch = Stopwatch::new(Duration::from_millis(4));
        let began = Instant::now();
        loop {
            std::hint::black_box(Box::new(1));
            std::thread::sleep(Duration::from_millis(1));
            watch.start();
            std::thread::sleep(Duration::from_millis(1));
            if !watch.stop(10) {
                break;
            }
        }
        let outcome = watch.outcome().unwrap();
        assert!(outcome.elapsed >= Duration::from_millis(4));
        assert!(outcome.elapsed + Duration::from_millis(4) <= began.elapsed());
        assert_eq!((outcome.operations % 10, outcome.allocations), (0, 0));
    }
}
