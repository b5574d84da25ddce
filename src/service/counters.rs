//! What a core's share of a service counts: plain cells, written and read on its own thread.
//!
//! Never: shared between cores. A snapshot travels, and snapshots of several cores add up.

use std::cell::Cell;
use std::ops::AddAssign;

use super::connection::EndReason;

/// How often each thing has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections that have begun.
    pub opened: u64,
    /// Connections that have ended, by the reason: in the order of [`EndReason::ALL`].
    pub closed: [u64; EndReason::ALL.len()],
    /// Requests received, each one frame.
    pub requests: u64,
    /// Requests that had no route.
    pub unrouted: u64,
    /// Requests that an extractor refused.
    pub rejected: u64,
    /// Requests whose handler, or whose stream of frames, gave an error.
    pub failed: u64,
    /// Requests whose handler, or whose stream of frames, panicked.
    pub panicked: u64,
    /// Requests whose handler took longer than it may.
    pub timed_out: u64,
    /// Requests that were given up because their connection ended.
    pub cancelled: u64,
    /// Frames encoded: responses and pushes.
    pub frames_out: u64,
    /// Pushed frames encoded; they are among `frames_out`.
    pub pushes: u64,
    /// Pushed frames that were queued when their connection ended.
    pub pushes_dropped: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
}

impl Counts {
    /// Connections open now.
    pub fn open(&self) -> u64 {
        self.opened - self.closed.iter().sum::<u64>()
    }

    /// Connections that have ended for `reason`.
    pub fn closed_for(&self, reason: EndReason) -> u64 {
        self.closed[reason as usize]
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        for (sum, count) in self.closed.iter_mut().zip(other.closed) {
            *sum += count;
        }
        self.opened += other.opened;
        self.requests += other.requests;
        self.unrouted += other.unrouted;
        self.rejected += other.rejected;
        self.failed += other.failed;
        self.panicked += other.panicked;
        self.timed_out += other.timed_out;
        self.cancelled += other.cancelled;
        self.frames_out += other.frames_out;
        self.pushes += other.pushes;
        self.pushes_dropped += other.pushes_dropped;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

/// The cells behind [`Counts`].
#[derive(Default)]
pub(crate) struct Counters {
    pub(super) opened: Counter,
    pub(super) closed: [Counter; EndReason::ALL.len()],
    pub(super) requests: Counter,
    pub(super) unrouted: Counter,
    pub(super) rejected: Counter,
    pub(super) failed: Counter,
    pub(super) panicked: Counter,
    pub(super) timed_out: Counter,
    pub(super) cancelled: Counter,
    pub(super) frames_out: Counter,
    pub(super) pushes: Counter,
    pub(super) pushes_dropped: Counter,
    pub(super) bytes_in: Counter,
    pub(super) bytes_out: Counter,
}

impl Counters {
    pub(super) fn counts(&self) -> Counts {
        Counts {
            opened: self.opened.get(),
            closed: std::array::from_fn(|reason| self.closed[reason].get()),
            requests: self.requests.get(),
            unrouted: self.unrouted.get(),
            rejected: self.rejected.get(),
            failed: self.failed.get(),
            panicked: self.panicked.get(),
            timed_out: self.timed_out.get(),
            cancelled: self.cancelled.get(),
            frames_out: self.frames_out.get(),
            pushes: self.pushes.get(),
            pushes_dropped: self.pushes_dropped.get(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
        }
    }
}

/// One count.
#[derive(Default)]
pub(super) struct Counter(Cell<u64>);

impl Counter {
    #[inline]
    pub(super) fn add(&self, count: u64) {
        self.0.set(self.0.get() + count);
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_cores_add_up() {
        let counters = Counters::default();
        counters.opened.add(3);
        counters.closed[EndReason::Closed as usize].add(2);
        let one = counters.counts();
        let mut sum = one;
        sum += one;
        assert_eq!((one.open(), sum.open()), (1, 2));
        assert_eq!((sum.closed_for(EndReason::Closed), sum.closed_for(EndReason::Io)), (4, 0));
    }
}
