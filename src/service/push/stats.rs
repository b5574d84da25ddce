//! What has become of the frames that were pushed.

use std::sync::atomic::{AtomicU64, Ordering};

use super::handle::Priority;

/// What has become of the frames pushed to one pair of queues.
///
/// Exact when nobody pushes; while others do, a frame may be counted in one figure and not yet in another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushStats {
    /// Of high priority.
    pub high: QueueStats,
    /// Of low priority.
    pub low: QueueStats,
}

impl PushStats {
    /// Those of one queue.
    pub fn of(&self, priority: Priority) -> &QueueStats {
        match priority {
            Priority::High => &self.high,
            Priority::Low => &self.low,
        }
    }
}

/// What has become of the frames pushed to one queue. Refused pushes, whose frame the caller has again, count only in
/// `limited`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Came into the queue. What was pushed on another core counts once it has arrived.
    pub pushed: u64,
    /// Dropped because the queue was full, as its [policy](super::WhenFull) has it.
    pub dropped: u64,
    /// Refused because of the [rate](super::Rate).
    pub limited: u64,
    /// Of those pushed, how many nobody had taken when the queues closed, or arrived after.
    pub undelivered: u64,
    /// Of those dropped or undelivered, how many went to the dead-letter queue.
    pub dead_lettered: u64,
}

impl QueueStats {
    /// How many are gone without a trace: dropped or undelivered, and in no dead-letter queue.
    pub fn lost(&self) -> u64 {
        (self.dropped + self.undelivered).saturating_sub(self.dead_lettered)
    }
}

/// Counts on the queues' own core, where it costs no read-modify-write, and elsewhere.
#[derive(Debug, Default)]
pub(super) struct Tally {
    here: AtomicU64,
    elsewhere: AtomicU64,
}

impl Tally {
    /// On the queues' own core only: nobody else writes it.
    #[inline]
    pub(super) fn count_here(&self, frames: u64) {
        self.here.store(self.here.load(Ordering::Relaxed).wrapping_add(frames), Ordering::Relaxed);
    }

    pub(super) fn count(&self, frames: u64) {
        self.elsewhere.fetch_add(frames, Ordering::Relaxed);
    }

    fn sum(&self) -> u64 {
        self.here.load(Ordering::Relaxed).wrapping_add(self.elsewhere.load(Ordering::Relaxed))
    }
}

/// The counts of one queue.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    pub(super) pushed: Tally,
    pub(super) dropped: Tally,
    pub(super) limited: Tally,
    pub(super) undelivered: Tally,
    pub(super) dead_lettered: Tally,
}

impl Tallies {
    pub(super) fn read(&self) -> QueueStats {
        QueueStats {
            pushed: self.pushed.sum(),
            dropped: self.dropped.sum(),
            limited: self.limited.sum(),
            undelivered: self.undelivered.sum(),
            dead_lettered: self.dead_lettered.sum(),
        }
    }
}
