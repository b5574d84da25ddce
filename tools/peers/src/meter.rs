//! The stop-watch every subject runs under: a warm-up, then one slice of time, then stop.
//!
//! It never asks the subject for more than a counter increment per operation, so that it weighs the
//! same on all of them and almost nothing on the fastest.

use crate::{alloc, cores};
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Operations between two looks at the clock: enough to hide a clock read behind the fastest subject
/// (256 operations of 10 ns), few enough to stop the slowest in time.
const OPERATIONS_PER_LOOK: u64 = 256;

/// The longest latency the histogram tells apart.
const LONGEST: Duration = Duration::from_secs(10);

/// What one subject did in one slice.
#[derive(Clone, Copy, Debug)]
pub struct Throughput {
    pub operations: u64,
    pub elapsed: Duration,
    pub allocations: u64,
}

impl Throughput {
    pub fn ns_per_op(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.operations as f64
    }

    pub fn allocs_per_op(&self) -> f64 {
        self.allocations as f64 / self.operations as f64
    }
}

/// What one subject did in one slice, with the latency of each operation.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    pub operations: u64,
    pub elapsed: Duration,
    /// User and system time of the measured thread.
    pub cpu: Duration,
    /// Per operation; `xcore` adds those of the answering thread.
    pub allocs_per_op: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

impl Latency {
    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }

    pub fn cpu_us_per_op(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.operations as f64
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Warming,
    Measuring,
    Over,
}

/// Counts operations of any number of tasks on one thread.
pub struct Meter {
    slice: Duration,
    phase: Cell<Phase>,
    operations: Cell<u64>,
    next_look: Cell<u64>,
    started: Cell<Instant>,
    allocations: Cell<u64>,
    outcome: Cell<Option<Throughput>>,
}

impl Meter {
    /// Starts the warm-up. Make it when all the set-up is done.
    pub fn new(slice: Duration) -> Self {
        Self {
            slice,
            phase: Cell::new(Phase::Warming),
            operations: Cell::new(0),
            next_look: Cell::new(0),
            started: Cell::new(Instant::now()),
            allocations: Cell::new(0),
            outcome: Cell::new(None),
        }
    }

    /// Counts `operations` just done; false once the slice is over.
    #[inline]
    pub fn add(&self, operations: u64) -> bool {
        let total = self.operations.get() + operations;
        self.operations.set(total);
        if total < self.next_look.get() { true } else { self.look() }
    }

    /// What was measured; `None` while the slice is not over.
    pub fn outcome(&self) -> Option<Throughput> {
        self.outcome.get()
    }

    #[cold]
    fn look(&self) -> bool {
        let now = Instant::now();
        let elapsed = now - self.started.get();
        match self.phase.get() {
            Phase::Warming if elapsed >= warm_up(self.slice) => {
                self.phase.set(Phase::Measuring);
                self.operations.set(0);
                self.allocations.set(alloc::on_this_thread());
                self.started.set(now);
            }
            Phase::Measuring if elapsed >= self.slice => {
                self.phase.set(Phase::Over);
                self.outcome.set(Some(Throughput {
                    operations: self.operations.get(),
                    elapsed,
                    allocations: alloc::on_this_thread() - self.allocations.get(),
                }));
            }
            _ => {}
        }
        if self.phase.get() == Phase::Over {
            // Every later call stops its task too.
            self.next_look.set(0);
            return false;
        }
        self.next_look.set(self.operations.get() + OPERATIONS_PER_LOOK);
        true
    }
}

/// Counts operations of any number of tasks on one thread, each with its latency.
pub struct LatencyMeter {
    slice: Duration,
    phase: Cell<Phase>,
    started: Cell<Instant>,
    allocations: Cell<u64>,
    cpu: Cell<Duration>,
    latencies: RefCell<Histogram<u64>>,
    outcome: Cell<Option<Latency>>,
}

impl LatencyMeter {
    /// Starts the warm-up. Make it when all the set-up is done.
    pub fn new(slice: Duration) -> Self {
        let latencies = Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 3)
            .expect("constant bounds that hdrhistogram accepts");
        Self {
            slice,
            phase: Cell::new(Phase::Warming),
            started: Cell::new(Instant::now()),
            allocations: Cell::new(0),
            cpu: Cell::new(Duration::ZERO),
            latencies: RefCell::new(latencies),
            outcome: Cell::new(None),
        }
    }

    /// Counts one operation begun at `began` and just ended; the beginning of the next one (so that an
    /// operation costs one clock read, not two), or `None` once the slice is over.
    #[inline]
    pub fn lap(&self, began: Instant) -> Option<Instant> {
        let now = Instant::now();
        let elapsed = now - self.started.get();
        match self.phase.get() {
            Phase::Measuring if elapsed < self.slice => {
                self.latencies.borrow_mut().saturating_record((now - began).as_nanos() as u64);
                Some(now)
            }
            Phase::Warming if elapsed < warm_up(self.slice) => Some(now),
            Phase::Over => None,
            phase => self.next_phase(phase, began, now),
        }
    }

    /// What was measured; `None` while the slice is not over.
    pub fn outcome(&self) -> Option<Latency> {
        self.outcome.get()
    }

    #[cold]
    fn next_phase(&self, phase: Phase, began: Instant, now: Instant) -> Option<Instant> {
        if phase == Phase::Warming {
            self.phase.set(Phase::Measuring);
            self.allocations.set(alloc::on_this_thread());
            self.cpu.set(cores::thread_cpu_time());
            self.started.set(now);
            return Some(now);
        }
        let mut latencies = self.latencies.borrow_mut();
        if latencies.is_empty() {
            // It took longer than the slice, and is all that there is to tell of.
            latencies.saturating_record((now - began).as_nanos() as u64);
        }
        let operations = latencies.len();
        let us = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
        self.phase.set(Phase::Over);
        self.outcome.set(Some(Latency {
            operations,
            elapsed: now - self.started.get(),
            cpu: cores::thread_cpu_time() - self.cpu.get(),
            allocs_per_op: (alloc::on_this_thread() - self.allocations.get()) as f64 / operations as f64,
            p50_us: us(0.50),
            p99_us: us(0.99),
        }));
        None
    }
}

/// Long enough to fill caches and to let queues and buffers grow to their size.
pub fn warm_up(slice: Duration) -> Duration {
    slice / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_is_not_counted_and_the_slice_ends() {
        let meter = Meter::new(Duration::from_millis(8));
        let mut calls = 0_u64;
        while meter.add(1) {
            calls += 1;
        }
        let outcome = meter.outcome().expect("the slice is over");
        assert!(outcome.operations < calls, "the warm-up was counted");
        assert!(outcome.elapsed >= Duration::from_millis(8));
        assert_eq!(outcome.allocations, 0);
        assert!(!meter.add(1), "a second task is told to stop as well");
    }

    #[test]
    fn latencies_are_those_of_the_operations() {
        let meter = LatencyMeter::new(Duration::from_millis(20));
        let mut began = Instant::now();
        loop {
            while began.elapsed() < Duration::from_micros(200) {
                std::hint::spin_loop();
            }
            let Some(next) = meter.lap(began) else { break };
            began = next;
        }
        let outcome = meter.outcome().expect("the slice is over");
        assert!(outcome.operations > 0 && outcome.operations <= 100);
        assert!(outcome.p50_us >= 199.0, "{outcome:?}");
        assert!(outcome.p99_us >= outcome.p50_us);
        assert!(outcome.per_second() <= 5100.0);
        assert!(meter.lap(began).is_none());
    }

    #[test]
    fn an_operation_longer_than_the_slice_is_measured() {
        let meter = LatencyMeter::new(Duration::from_millis(1));
        let mut began = Instant::now();
        while let Some(next) = meter.lap(began) {
            began = next;
            std::thread::sleep(Duration::from_millis(2));
        }
        let outcome = meter.outcome().expect("the slice is over");
        assert_eq!(outcome.operations, 1);
        assert!(outcome.p50_us >= 1999.0, "{outcome:?}");
    }
}
