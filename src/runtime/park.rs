//! The sleep protocol of a core: how a sender and a core that is about to sleep never miss each other.
//!
//! The core publishes that it sleeps, passes a full barrier, looks at every queue once more, and only then sleeps.
//! A sender enqueues first, passes a full barrier, and then looks whether the core sleeps. Of two threads that do
//! this at the same time at least one sees the other (the store-buffering pattern), so mail is never left behind
//! with its reader asleep. The doorbell itself is only a hint: data never travels in it, and rings that find the
//! core awake are not sent at all.
//!
//! This file knows nothing of queues or of how a core is woken, so that the model checker can run it as it is.

use crate::sync::{AtomicBool, Ordering, fence};

/// Whether one core sleeps, as its senders see it.
#[derive(Debug)]
pub(crate) struct SleepFlag {
    sleeping: AtomicBool,
}

impl SleepFlag {
    pub(crate) fn new() -> SleepFlag {
        SleepFlag { sleeping: AtomicBool::new(false) }
    }

    /// Owner only. Announces sleep, then asks `has_mail` for a last look; true means the caller may sleep, and that
    /// every later sender rings. On false the announcement is withdrawn.
    #[must_use = "sleeping after a refusal loses mail"]
    pub(crate) fn announce(&self, has_mail: impl FnOnce() -> bool) -> bool {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if has_mail() {
            self.sleeping.store(false, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Owner only, after waking: senders need not ring any more.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Any thread, after its mail is in the queue; true means the caller must ring the doorbell. Of many senders
    /// that find the core asleep one is chosen to ring.
    #[must_use = "a sleeping core wakes only when it is rung"]
    pub(crate) fn must_ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed)
    }
}
