//! Settings of push queues.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;

use super::dead::{DeadLetter, Sink};
use super::handle::{Priority, PushHandle};
use super::queues::PushQueues;
use super::rate::Rate;
use crate::actor::channel::Sender;

/// What becomes of a frame that is pushed to a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// The pusher gets it back, in [`PushError::Full`](super::PushError::Full).
    #[default]
    Error,
    /// It is dropped and counted, and the push succeeds. A dead-letter queue gets it, if there is one.
    Drop,
    /// As [`Drop`](WhenFull::Drop), and a warning is logged, though at most once a second for each pair of queues.
    WarnAndDrop,
}

/// Settings that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushConfigError {
    /// A queue without a place.
    #[error("a push queue has room for at least one frame; the {priority} one has none")]
    NoPlaces {
        /// Which queue.
        priority: Priority,
    },
    /// No frame of high priority may go before one of low priority.
    #[error("at least one frame of high priority goes before one of low priority")]
    NoRun,
    /// A slice without a length.
    #[error("the time that frames of high priority may go on for is longer than nothing")]
    NoSlice,
    /// A rate that lets nothing through, or is finer or longer than its limiter can count: below a nanosecond a frame, or
    /// above a hundred years a burst.
    #[error("the rate of {priority} priority cannot be kept: {rate:?}")]
    Rate {
        /// Of which queue.
        priority: Priority,
        /// The rate.
        rate: Rate,
    },
}

/// Settings of the push queues of a connection.
///
/// ```
/// use std::time::Duration;
/// use corelet::service::push::{PushBuilder, PushConfigError, Rate, WhenFull};
///
/// let settings = PushBuilder::<String>::new()
///     .high_capacity(16)
///     .low_capacity(1024)
///     .high_before_low(4)
///     .high_slice(Duration::from_millis(5))
///     .low_rate(Rate::new(1000, Duration::from_secs(1)).burst(50))
///     .when_full(WhenFull::WarnAndDrop)
///     .validate()?;
/// # drop(settings);
/// let refused = PushBuilder::<String>::new().high_before_low(0).validate();
/// assert!(matches!(refused, Err(PushConfigError::NoRun)));
/// # Ok::<(), PushConfigError>(())
/// ```
pub struct PushBuilder<F> {
    high: usize,
    low: usize,
    high_before_low: u32,
    slice: Option<Duration>,
    high_rate: Option<Rate>,
    low_rate: Option<Rate>,
    when_full: WhenFull,
    dead_letters: Option<Sink<F>>,
}

impl<F> Default for PushBuilder<F> {
    fn default() -> PushBuilder<F> {
        PushBuilder {
            high: 64,
            low: 256,
            high_before_low: 8,
            slice: None,
            high_rate: None,
            low_rate: None,
            when_full: WhenFull::Error,
            dead_letters: None,
        }
    }
}

impl<F> PushBuilder<F> {
    /// The defaults.
    pub fn new() -> PushBuilder<F> {
        PushBuilder::default()
    }

    /// Places for frames of high priority; 64 by default.
    pub fn high_capacity(mut self, places: usize) -> PushBuilder<F> {
        self.high = places;
        self
    }

    /// Places for frames of low priority; 256 by default.
    pub fn low_capacity(mut self, places: usize) -> PushBuilder<F> {
        self.low = places;
        self
    }

    /// How many frames of high priority go out in a row while one of low priority waits; 8 by default. With `u32::MAX`
    /// there is no bound but the [slice](PushBuilder::high_slice).
    pub fn high_before_low(mut self, frames: u32) -> PushBuilder<F> {
        self.high_before_low = frames;
        self
    }

    /// For how long frames of high priority go out in a row while one of low priority waits; none by default, and then no
    /// clock is read. It is looked at with each frame, so it is no bound on how long sending one takes.
    pub fn high_slice(mut self, slice: Duration) -> PushBuilder<F> {
        self.slice = Some(slice);
        self
    }

    /// How many frames of high priority may be pushed in a while, by all handles together; no limit by default, and then
    /// no clock is read.
    pub fn high_rate(mut self, rate: Rate) -> PushBuilder<F> {
        self.high_rate = Some(rate);
        self
    }

    /// How many frames of low priority may be pushed in a while, by all handles together; no limit by default.
    pub fn low_rate(mut self, rate: Rate) -> PushBuilder<F> {
        self.low_rate = Some(rate);
        self
    }

    /// What becomes of a frame that is pushed to a full queue; [`WhenFull::Error`] by default.
    pub fn when_full(mut self, policy: WhenFull) -> PushBuilder<F> {
        self.when_full = policy;
        self
    }

    /// A dead-letter queue: it gets what [`WhenFull`] drops, and what nobody has taken when the queues close. Several
    /// connections may have the same, on any core. A letter that it does not take, for it is full or its receiver is
    /// gone, is dropped, counted, and warned of at most once a second.
    pub fn dead_letters(mut self, queue: Sender<DeadLetter<F>>) -> PushBuilder<F>
    where
        F: Send + 'static,
    {
        self.dead_letters = Some(Sink::new(queue));
        self
    }

    /// Settings for the queues of any number of connections.
    ///
    /// # Errors
    /// [`PushConfigError`]
    pub fn validate(self) -> Result<PushSettings<F>, PushConfigError> {
        for (priority, places) in [(Priority::High, self.high), (Priority::Low, self.low)] {
            if places == 0 {
                return Err(PushConfigError::NoPlaces { priority });
            }
        }
        if self.slice.is_some_and(|slice| slice.is_zero()) {
            return Err(PushConfigError::NoSlice);
        }
        let quota = |priority, rate: Option<Rate>| match rate {
            Some(rate) => rate.quota().map(Some).ok_or(PushConfigError::Rate { priority, rate }),
            None => Ok(None),
        };
        Ok(PushSettings {
            high: Lane { places: self.high, quota: quota(Priority::High, self.high_rate)? },
            low: Lane { places: self.low, quota: quota(Priority::Low, self.low_rate)? },
            high_before_low: NonZeroU32::new(self.high_before_low).ok_or(PushConfigError::NoRun)?,
            slice: self.slice,
            when_full: self.when_full,
            dead_letters: self.dead_letters,
        })
    }

    /// Queues of their own, without a connection.
    ///
    /// # Errors
    /// [`PushConfigError`]
    ///
    /// # Panics
    /// When not called on a core.
    #[track_caller]
    pub fn build(self) -> Result<(PushHandle<F>, PushQueues<F>), PushConfigError>
    where
        F: 'static,
    {
        Ok(self.validate()?.build())
    }
}

impl<F> Clone for PushBuilder<F> {
    fn clone(&self) -> PushBuilder<F> {
        PushBuilder { dead_letters: self.dead_letters.clone(), ..*self }
    }
}

impl<F> fmt::Debug for PushBuilder<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushBuilder")
            .field("high", &self.high)
            .field("low", &self.low)
            .field("high_before_low", &self.high_before_low)
            .field("slice", &self.slice)
            .field("high_rate", &self.high_rate)
            .field("low_rate", &self.low_rate)
            .field("when_full", &self.when_full)
            .field("dead_letters", &self.dead_letters.is_some())
            .finish()
    }
}

/// Settings of push queues that have been looked over; made by [`PushBuilder::validate`]. Cheap to clone, and good for any
/// number of connections on any core.
pub struct PushSettings<F> {
    pub(super) high: Lane,
    pub(super) low: Lane,
    pub(super) high_before_low: NonZeroU32,
    pub(super) slice: Option<Duration>,
    pub(super) when_full: WhenFull,
    pub(super) dead_letters: Option<Sink<F>>,
}

/// Settings of one queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    pub(super) places: usize,
    pub(super) quota: Option<Quota>,
}

impl<F: 'static> PushSettings<F> {
    /// Queues of their own, without a connection.
    ///
    /// # Panics
    /// When not called on a core.
    #[track_caller]
    pub fn build(&self) -> (PushHandle<F>, PushQueues<F>) {
        let queues = PushQueues::new(self);
        (queues.handle(), queues)
    }
}

impl<F> Default for PushSettings<F> {
    fn default() -> PushSettings<F> {
        match PushBuilder::default().validate() {
            Ok(settings) => settings,
            Err(error) => unreachable!("the defaults are good: {error}"),
        }
    }
}

impl<F> Clone for PushSettings<F> {
    fn clone(&self) -> PushSettings<F> {
        PushSettings { dead_letters: self.dead_letters.clone(), ..*self }
    }
}

impl<F> fmt::Debug for PushSettings<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushSettings")
            .field("high", &self.high)
            .field("low", &self.low)
            .field("high_before_low", &self.high_before_low)
            .field("slice", &self.slice)
            .field("when_full", &self.when_full)
            .field("dead_letters", &self.dead_letters.is_some())
            .finish()
    }
}
