//! Push queues: a frame is pushed and taken out again, or refused because there is no room.
//!
//! The subject's queues belong to their core. The reference's are shared behind a mutex.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use corelet::service::push::{Priority, PushBuilder, PushError, PushHandle, PushQueues, Rate};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use super::counts::{Counter, Counts, Mark};

/// Places in each queue.
pub const CAPACITY: usize = 64;

/// A rate that nobody meets, for what keeping one costs: frames in a second, and as many at once.
const RATE: NonZeroU32 = NonZeroU32::new(1_000_000_000).expect("a thousand million is not zero");

/// Both ends of the push queues of one connection, for frames that are numbers.
pub trait Subject: Sized + 'static {
    const NAME: &'static str;
    /// Whether it is what came before.
    const REFERENCE: bool;

    /// With a rate limit on both queues, or without.
    fn new(limited: bool) -> Self;

    /// Gives the frame back when there is no room.
    fn push(&self, priority: Priority, frame: u64) -> Result<(), u64>;

    fn next(&mut self) -> Option<(Priority, u64)>;
}

/// corelet's own.
pub struct CoreOwned {
    handle: PushHandle<u64>,
    queues: PushQueues<u64>,
}

impl Subject for CoreOwned {
    const NAME: &'static str = "core_owned";
    const REFERENCE: bool = false;

    fn new(limited: bool) -> CoreOwned {
        let mut builder = PushBuilder::new().high_capacity(CAPACITY).low_capacity(CAPACITY);
        if limited {
            let rate = Rate::new(RATE.get(), Duration::from_secs(1));
            builder = builder.high_rate(rate).low_rate(rate);
        }
        let (handle, queues) = builder.build().expect("the settings are good");
        CoreOwned { handle, queues }
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
    closed: bool,
    reader: Option<Waker>,
}

/// One lock for both queues, shared by all handles and the receiving end.
pub struct MutexShared {
    state: Arc<Mutex<State>>,
    limiter: Option<Arc<DefaultDirectRateLimiter>>,
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

    fn new(limited: bool) -> MutexShared {
        let limiter = || Arc::new(RateLimiter::direct(Quota::per_second(RATE)));
        MutexShared { state: Arc::default(), limiter: limited.then(limiter) }
    }

    #[inline]
    fn push(&self, priority: Priority, frame: u64) -> Result<(), u64> {
        if self.limiter.as_ref().is_some_and(|limiter| limiter.check().is_err()) {
            return Err(frame);
        }
        let mut state = self.lock();
        if state.closed {
            return Err(frame);
        }
        let queue = match priority {
            Priority::High => &mut state.high,
            Priority::Low => &mut state.low,
        };
        if queue.len() == CAPACITY {
            return Err(frame);
        }
        queue.push_back(frame);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
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
