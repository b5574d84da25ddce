//! The sending end of push queues.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use super::stats::PushStats;
use crate::runtime::{CoreId, context};

/// Which queue a frame goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Before everything but a shutdown.
    High,
    /// Behind those of high priority, but never for ever.
    Low,
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Priority::High => "high",
            Priority::Low => "low",
        })
    }
}

/// A push that was refused, with its frame.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError<F> {
    /// The queue has no room.
    #[error("the push queue is full")]
    Full(F),
    /// The connection has ended, or is ending.
    #[error("the connection takes no pushes any more")]
    Closed(F),
    /// So many frames may not be pushed in so short a time.
    #[error("the rate of pushes is used up for {retry_after:?}")]
    Limited {
        /// The frame.
        frame: F,
        /// How long it is until one may be pushed again, if nobody else is faster.
        retry_after: Duration,
    },
}

impl<F> PushError<F> {
    /// The frame.
    pub fn into_inner(self) -> F {
        match self {
            PushError::Full(frame) | PushError::Closed(frame) | PushError::Limited { frame, .. } => frame,
        }
    }

    /// The queue has no room.
    pub fn is_full(&self) -> bool {
        matches!(self, PushError::Full(_))
    }

    /// No push will ever succeed again.
    pub fn is_closed(&self) -> bool {
        matches!(self, PushError::Closed(_))
    }

    /// How long it is until one may be pushed again, when it is for the rate that this one may not.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            PushError::Limited { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

impl<F> fmt::Debug for PushError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PushError::Full(_) => f.write_str("Full(..)"),
            PushError::Closed(_) => f.write_str("Closed(..)"),
            PushError::Limited { retry_after, .. } => {
                f.debug_struct("Limited").field("retry_after", retry_after).finish_non_exhaustive()
            }
        }
    }
}

/// Pushes frames to one connection, from any core and any thread. Cheap to clone.
///
/// A push never waits. On the connection's own core it is a move into the queue: no atomic read-modify-write, no
/// allocation but the queue's growth. From elsewhere it is a move into a lock-free channel, and the core is told once for all
/// that comes before it looks.
///
/// # Order
/// Of two frames with one priority, the one whose push had returned before the other's began goes first, whichever
/// handles and threads they come from.
///
/// # Drop
/// Nothing happens: the queues do not end with their handles.
pub struct PushHandle<F: 'static> {
    shared: Arc<Shared<F>>,
}

impl<F: 'static> PushHandle<F> {
    pub(super) fn new(shared: Arc<Shared<F>>) -> PushHandle<F> {
        PushHandle { shared }
    }

    /// Whether pushes are refused for good. False is only true for the moment.
    pub fn is_closed(&self) -> bool {
        self.shared.gate().is_closed()
    }

    /// How many frames a queue holds at most. What is on its way from another core counts.
    pub fn capacity(&self, priority: Priority) -> usize {
        self.shared.places(priority).capacity()
    }

    /// What has become of the frames so far, whichever handle pushed them.
    pub fn stats(&self) -> PushStats {
        self.shared.stats()
    }

    /// The connection's core.
    pub fn core(&self) -> CoreId {
        self.shared.core()
    }
}

impl<F: Send + 'static> PushHandle<F> {
    /// Pushes with high priority.
    ///
    /// # Errors
    /// As [`push`](PushHandle::push).
    #[inline]
    pub fn high(&self, frame: F) -> Result<(), PushError<F>> {
        self.push(Priority::High, frame)
    }

    /// Pushes with low priority.
    ///
    /// # Errors
    /// As [`push`](PushHandle::push).
    #[inline]
    pub fn low(&self, frame: F) -> Result<(), PushError<F>> {
        self.push(Priority::Low, frame)
    }

    /// Pushes without waiting.
    ///
    /// Success means that the frame is in the queue, or, if that is full and the [policy](super::WhenFull) says so, that it
    /// was dropped. A frame that is in the queue is not sent if the connection ends before its turn; it is then a
    /// [dead letter](super::DeadLetter), and counts as [undelivered](super::QueueStats::undelivered).
    ///
    /// # Errors
    /// Each gives the frame back. [`PushError::Full`] when the queue is full, and [`PushError::Limited`] when the rate is
    /// used up, which a full queue uses nothing of; [`PushError::Closed`] when the connection takes no pushes any more.
    #[inline]
    pub fn push(&self, priority: Priority, frame: F) -> Result<(), PushError<F>> {
        match context::with(|local| self.shared.queues(local)).flatten() {
            Some(queues) => self.shared.push_here(queues, priority, frame),
            None => self.shared.push_from_elsewhere(priority, frame),
        }
    }
}

impl<F: 'static> Clone for PushHandle<F> {
    fn clone(&self) -> PushHandle<F> {
        PushHandle { shared: Arc::clone(&self.shared) }
    }
}

impl<F: 'static> fmt::Debug for PushHandle<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushHandle")
            .field("core", &self.core())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
