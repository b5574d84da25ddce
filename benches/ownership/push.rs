//! Push queues: a frame is pushed and taken out again, or refused because there is no room.
//!
//! The subject's queues belong to their core. The reference's are shared behind a mutex.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corelet::service::push::{Priority, PushBuilder, PushError, PushHandle, PushQueues, PushSettings};

use super::counts::{Counter, Counts, Mark};

/// Places in each queue.
pub const CAPACITY: usize = 64;

/// Both ends of the push queues of one connection, for frames that are numbers.
pub trait Subject: Sized + 'static {
    const NAME: &'static str;
    /// Whether it is what came before.
    const REFERENCE: bool;

    fn new(capacity: usize) -> Self;

    /// Gives the frame back when there is no room.
    fn push(&self, priority: Priority, frame: u64) -> Result<(), u64>;

    fn next(&mut self) -> Option<(Priority, u64)>;
}

/// corelet's own.
pub struct CoreOwned {
    handle: PushHandle<u64>,
    queues: PushQueues<u64>,
}

impl CoreOwned {
    pub fn with(settings: &PushSettings<u64>) -> CoreOwned {
        let (handle, queues) = settings.build();
        CoreOwned { handle, queues }
    }
}

impl Subject for CoreOwned {
    const NAME: &'static str = "core_owned";
    const REFERENCE: bool = false;

    fn new(capacity: usize) -> CoreOwned {
        let settings = PushBuilder::default().high_capacity(capacity).low_capacity(capacity);
        CoreOwned::with(&settings.validate().unwrap())
    }

    #[inline]
    fn push(&self, priority: Priority, frame: u64) -> Result<(), u64> {
        let pushed = match priority {
            Priority::High => self.handle.high(frame),
            Priority::Low => self.handle.low(frame),
        };
        pushed.map_err(PushError::into_inner)
    }

    #[inline]
    fn next(&mut self) -> Option<(Priority, u64)> {
        self.queues.try_next()
    }
}

#[derive(Default)]
struct State {
    high: VecDeque<u64>,
    low: VecDeque<u64>,
}

/// One lock for both queues, shared by all handles and the receiving end.
pub struct MutexShared {
    capacity: usize,
    state: Arc<Mutex<State>>,
}

impl MutexShared {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subject for MutexShared {
    const NAME: &'static str = "mutex_shared";
    const REFERENCE: bool = true;

    fn new(capacity: usize) -> MutexShared {
        MutexShared { capacity, state: Arc::default() }
    }

    #[inline]
    fn push(&self, priority: Priority, frame: u64) -> Result<(), u64> {
        let mut state = self.lock();
        let queue = match priority {
            Priority::High => &mut state.high,
            Priority::Low => &mut state.low,
        };
        if queue.len() == self.capacity {
            return Err(frame);
        }
        queue.push_back(frame);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Option<(Priority, u64)> {
        let mut state = self.lock();
        let high = state.high.pop_front().map(|frame| (Priority::High, frame));
        high.or_else(|| state.low.pop_front().map(|frame| (Priority::Low, frame)))
    }
}

/// Pushes into a queue that is drained as fast as it fills.
#[inline]
pub fn draining<S: Subject>(subject: &mut S, priority: Priority, operations: u64) {
    for frame in 0..operations {
        assert_eq!(subject.push(priority, frame), Ok(()));
        assert_eq!(subject.next(), Some((priority, frame)));
    }
}

/// Fills one queue.
pub fn fill<S: Subject>(subject: &S, priority: Priority) {
    for frame in 0..CAPACITY as u64 {
        assert_eq!(subject.push(priority, frame), Ok(()));
    }
}

/// Pushes into a queue that is full and stays so. How many were refused, with their frames.
#[inline]
pub fn refused<S: Subject>(subject: &S, priority: Priority, operations: u64) -> u64 {
    let mut refused = 0;
    for frame in 0..operations {
        refused += u64::from(subject.push(priority, frame) == Err(frame));
    }
    refused
}

pub fn count_draining<S: Subject>(subject: &mut S, priority: Priority, operations: u64) -> Counts {
    draining(subject, priority, CAPACITY as u64);
    let mark = Mark::now();
    draining(subject, priority, operations);
    mark.counts(operations).with(Counter::FramesQueued, operations)
}

pub fn count_refused<S: Subject>(subject: &S, priority: Priority, operations: u64) -> Counts {
    fill(subject, priority);
    let mark = Mark::now();
    let refused = refused(subject, priority, operations);
    mark.counts(operations).with(Counter::PushesRefused, refused)
}

pub fn time_draining<S: Subject>(subject: &mut S, priority: Priority, operations: u64) -> Duration {
    let begun = Instant::now();
    draining(subject, priority, operations);
    begun.elapsed()
}

/// The queue has been filled.
pub fn time_refused<S: Subject>(subject: &S, priority: Priority, operations: u64) -> Duration {
    let begun = Instant::now();
    let refused = refused(subject, priority, operations);
    let elapsed = begun.elapsed();
    assert_eq!(refused, operations, "pushes refused by a full queue");
    elapsed
}
