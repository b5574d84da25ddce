//! What the ends of push queues tell each other across threads: that something is on its way, and that nothing is taken any
//! more.
//!
//! Frames from elsewhere travel in a channel of the queues' own, and only the first of several has the core told, by a letter.
//! A sender raises two flags behind its frame: that there is something, which the core lowers whenever it looks; and that the
//! core is told, which is lowered by the letter alone. A core that looks again and again is so told once in each turn, and
//! not of each frame. Whoever lowers a flag takes everything out of the channel next. All of it is read-modify-writes of one
//! word, so of a frame put in before flags that were up already it is certain that whoever lowers them sees it.
//!
//! Closing is a bit of the same word for the same reason. A sender that raises the flag after it knows that nobody will look
//! any more, and sees to the channel itself; what was put in before it, whoever closes finds.
//!
//! The file knows nothing of queues or mailboxes, so that the model checker can run it as it is.

use crate::sync::{AtomicUsize, Ordering};

/// Something is in the channel.
const RAISED: usize = 1;
/// The queues are closed.
const CLOSED: usize = 2;
/// A letter is on its way.
const TOLD: usize = 4;

#[derive(Debug)]
pub(super) struct Gate(AtomicUsize);

/// What there is to do after a frame has been put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Raised {
    /// The core is to be told.
    First,
    /// Somebody else has told it.
    Again,
    /// Nobody looks any more.
    Closed,
}

impl Gate {
    pub(super) fn new() -> Gate {
        Gate(AtomicUsize::new(0))
    }

    /// Nothing is on its way, and the queues are open.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.0.load(Ordering::Acquire) & (RAISED | CLOSED) == 0
    }

    #[inline]
    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire) & RAISED != 0
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Something has been put in.
    pub(super) fn raise(&self) -> Raised {
        let before = self.0.fetch_or(RAISED | TOLD, Ordering::AcqRel);
        if before & CLOSED != 0 {
            Raised::Closed
        } else if before & TOLD != 0 {
            Raised::Again
        } else {
            Raised::First
        }
    }

    /// Everything that is in is about to be taken out.
    pub(super) fn lower(&self) {
        self.0.fetch_and(!RAISED, Ordering::AcqRel);
    }

    /// The letter has come, and everything that is in is about to be taken out.
    pub(super) fn heard(&self) {
        self.0.fetch_and(!(RAISED | TOLD), Ordering::AcqRel);
    }

    /// Nothing more is taken. What is in is for the caller to take out.
    pub(super) fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }
}
