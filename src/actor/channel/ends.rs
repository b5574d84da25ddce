//! What the ends of one channel know of each other across threads: places that are taken, and how many senders there are.
//!
//! Two promises hang on it. A bounded channel never holds more than it may, with what is on its way counted in; and the
//! receiver hears of the end of its senders behind everything they sent. Messages travel in the mailbox of the receiver's
//! core, which keeps their order; so the news of the end goes the same way as soon as any message did, and it says which
//! *life* has ended: a channel whose last sender has gone may get a new one, whose messages are then behind that news.
//!
//! The file knows nothing of queues or mailboxes, so that the model checker can run it as it is.

use crate::sync::{AtomicBool, AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct Ends {
    /// `usize::MAX` is none.
    capacity: usize,
    /// Messages in a bounded queue and on their way to it.
    taken: AtomicUsize,
    senders: AtomicUsize,
    /// How often there was a first sender. Written on the receiver's core, and only while there is no sender.
    life: AtomicUsize,
    /// The receiver is gone.
    closed: AtomicBool,
    /// Something has been sent from elsewhere.
    abroad: AtomicBool,
}

/// The last sender has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Farewell {
    /// The life that this ends.
    pub(crate) life: usize,
    /// Nothing is on its way from elsewhere, so the news need not travel behind it.
    pub(crate) direct: bool,
}

impl Ends {
    /// Of a channel without senders that holds `taken` messages.
    pub(crate) fn new(capacity: usize, taken: usize, closed: bool) -> Ends {
        Ends {
            capacity,
            taken: AtomicUsize::new(taken),
            senders: AtomicUsize::new(0),
            life: AtomicUsize::new(0),
            closed: AtomicBool::new(closed),
            abroad: AtomicBool::new(false),
        }
    }

    pub(crate) fn capacity(&self) -> Option<usize> {
        (self.capacity != usize::MAX).then_some(self.capacity)
    }

    /// Takes a place for one message; false when there is none.
    pub(crate) fn take_place(&self) -> bool {
        if self.capacity == usize::MAX {
            return true;
        }
        // Whoever would exceed the bound takes nothing, so the count is never above it.
        let take = |taken: usize| (taken < self.capacity).then_some(taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).is_ok()
    }

    pub(crate) fn free_place(&self) {
        if self.capacity != usize::MAX {
            self.taken.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// A message is about to be sent from elsewhere.
    pub(crate) fn goes_abroad(&self) {
        // The sender's own end, which comes after this, publishes it to the last one.
        self.abroad.store(true, Ordering::Relaxed);
    }

    /// A sender is made from the receiving end. On the receiver's core only.
    pub(crate) fn enter(&self) {
        if self.senders.fetch_add(1, Ordering::Relaxed) == 0 {
            // Nobody else writes it, and nobody reads it before the new sender is handed on.
            let life = self.life.load(Ordering::Relaxed).wrapping_add(1);
            self.life.store(life, Ordering::Relaxed);
        }
    }

    /// A sender is made from another one.
    pub(crate) fn join(&self) {
        self.senders.fetch_add(1, Ordering::Relaxed);
    }

    /// A sender goes. The last one has to tell the receiver.
    pub(crate) fn leave(&self) -> Option<Farewell> {
        // Read while this sender still counts: it cannot change before.
        let life = self.life.load(Ordering::Relaxed);
        if self.senders.fetch_sub(1, Ordering::AcqRel) > 1 || self.is_closed() {
            return None;
        }
        Some(Farewell { life, direct: !self.abroad.load(Ordering::Relaxed) })
    }

    /// Whether a farewell that has arrived is still true: there has been no sender since. On the receiver's core only.
    pub(crate) fn is_over(&self, life: usize) -> bool {
        self.life.load(Ordering::Relaxed) == life
    }
}
