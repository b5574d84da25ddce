//! How many frames a queue may still take, on its own core and elsewhere.
//!
//! A place is in one of three states: open, which every thread may take; in use, by a frame in the queue or on its way to
//! it; or in hand, which is open to the queue's own core alone. The core takes open places a few at a time and keeps some of
//! those that come free, so that most pushes and receives there touch no atomic. It gives its hand back whenever its reader
//! has nothing left to read. No place is ever in two states, so the bound is exact for what is in use; only a push from
//! elsewhere may be refused while the last places are in hand, an eighth of all at most.
//!
//! The file knows nothing of queues, so that the model checker can run it as it is.

use std::cell::Cell;

use crate::sync::{AtomicUsize, Ordering};

/// Places that a core takes at once, and keeps in hand, at most.
const MOST_IN_HAND: usize = 16;

/// The places of one queue.
#[derive(Debug)]
pub(super) struct Places {
    capacity: usize,
    open: AtomicUsize,
}

/// Those in hand; the queue's own core has it.
#[derive(Debug, Default)]
pub(super) struct Hand(Cell<usize>);

impl Places {
    pub(super) fn new(capacity: usize) -> Places {
        Places { capacity, open: AtomicUsize::new(capacity) }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Takes a place, on the queue's own core; false when none is left.
    #[inline]
    pub(super) fn take_here(&self, hand: &Hand) -> bool {
        match hand.0.get().checked_sub(1) {
            Some(rest) => {
                hand.0.set(rest);
                true
            }
            None => self.refill(hand),
        }
    }

    /// Takes a place, and a share of what is open besides.
    #[inline(never)]
    fn refill(&self, hand: &Hand) -> bool {
        let share = |open: usize| (open / 8).clamp(1, MOST_IN_HAND);
        let take = |open: usize| (open > 0).then(|| open - share(open));
        let Ok(open) = self.open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take) else {
            return false;
        };
        hand.0.set(share(open) - 1);
        true
    }

    /// A place has come free, on the queue's own core.
    #[inline]
    pub(super) fn free_here(&self, hand: &Hand) {
        hand.0.set(hand.0.get() + 1);
        if hand.0.get() > (self.capacity / 8).min(MOST_IN_HAND) {
            self.put_down(hand);
        }
    }

    /// Opens what is in hand to everybody.
    pub(super) fn put_down(&self, hand: &Hand) {
        let spare = hand.0.take();
        if spare > 0 {
            self.open.fetch_add(spare, Ordering::AcqRel);
        }
    }

    /// Takes a place, anywhere; false when none is open.
    pub(super) fn take(&self) -> bool {
        let take = |open: usize| open.checked_sub(1);
        self.open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).is_ok()
    }

    /// Gives back a place that was taken in vain, anywhere.
    pub(super) fn free(&self) {
        self.open.fetch_add(1, Ordering::AcqRel);
    }
}
