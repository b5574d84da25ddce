//! What a shard has done so far, and what it holds now.

use super::{CloseReason, Refusal};

/// Events since the shard began. Every acquire is counted once in [`acquires`](Counters::acquires) and, when its fate
/// is final, once in exactly one of the fields from `granted_immediately` to `refused_connect`. What is missing in
/// between is queued, or granted and not yet collected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Served from an idle connection without waiting.
    pub granted_immediately: u64,
    /// Acquires asked of this shard that were not served so, whatever became of them.
    pub not_at_once: u64,
    /// Waited, and collected a connection.
    pub granted_after_wait: u64,
    /// Given up by the caller while queued, or before the grant was collected.
    pub cancelled: u64,
    /// Refused because the deadline had come.
    pub timed_out: u64,
    /// Refused because the queue was full.
    pub saturated: u64,
    /// Refused because the handle had gone.
    pub deregistered: u64,
    /// Refused because the pool was closed.
    pub refused_closed: u64,
    /// Refused because the scheduler had failed.
    pub refused_failed: u64,
    /// Refused because no connection could be opened.
    pub refused_connect: u64,
    /// Acquires that were admitted and not granted at once.
    pub capacity_waits: u64,
    /// Opens begun.
    pub opens: u64,
    /// Opens that failed.
    pub connect_failures: u64,
    /// Connections that ended, indexed by [`CloseReason`].
    pub closes: [u64; CloseReason::COUNT],
}

/// What the shard holds at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gauges {
    /// Acquires in the queue.
    pub waiting: usize,
    /// Connections nobody uses.
    pub idle: usize,
    /// Connections in use, those in `reserved` included.
    pub leased: usize,
    /// Connections granted to a waiter that has not collected its grant yet.
    pub reserved: usize,
    /// Opens under way.
    pub opening: usize,
    /// Idle connections that are away for a health check.
    pub checking: usize,
    /// Connections whose close is not finished. They still occupy their slot.
    pub closing: usize,
}

impl Counters {
    /// Acquires asked of this shard, whatever became of them.
    pub(crate) fn acquires(&self) -> u64 {
        self.granted_immediately + self.not_at_once
    }

    /// Connections that ended for `reason`.
    #[cfg(test)]
    pub(crate) fn closed_for(&self, reason: CloseReason) -> u64 {
        self.closes[reason as usize]
    }

    /// Acquires whose fate is final.
    pub(crate) fn settled(&self) -> u64 {
        self.granted_immediately
            + self.granted_after_wait
            + self.cancelled
            + self.timed_out
            + self.saturated
            + self.deregistered
            + self.refused_closed
            + self.refused_failed
            + self.refused_connect
    }

    pub(super) fn count_close(&mut self, reason: CloseReason) {
        self.closes[reason as usize] += 1;
    }

    pub(super) fn count_refusal(&mut self, refusal: &Refusal) {
        let field = match refusal {
            Refusal::Closed => &mut self.refused_closed,
            Refusal::Failed => &mut self.refused_failed,
            Refusal::Saturated { .. } => &mut self.saturated,
            Refusal::Deregistered => &mut self.deregistered,
            Refusal::TimedOut { .. } => &mut self.timed_out,
            Refusal::Connect(_) => &mut self.refused_connect,
        };
        *field += 1;
    }
}
