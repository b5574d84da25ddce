//! Where frames go that nobody will send: the dead-letter queue, and the warnings about them.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::handle::Priority;
use crate::actor::channel::Sender;

/// A frame that was accepted and will not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadLetter<F> {
    /// The frame.
    pub frame: F,
    /// Which queue it was for.
    pub priority: Priority,
    /// Why nobody will send it.
    pub reason: DeadLetterReason,
}

/// Why a frame is in the dead-letter queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadLetterReason {
    /// Its queue was full, and the [policy](super::WhenFull) was to drop it.
    Full,
    /// Its queue was closed before anybody took it.
    Undelivered,
}

impl fmt::Display for DeadLetterReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeadLetterReason::Full => "the push queue was full",
            DeadLetterReason::Undelivered => "the push queue was closed before the frame was taken",
        })
    }
}

type Deliver<F> = fn(&Sender<DeadLetter<F>>, DeadLetter<F>) -> Result<(), F>;

/// Sends dead letters. What sending takes of `F` is known where the settings are made, and not where they are used.
pub(super) struct Sink<F> {
    sender: Sender<DeadLetter<F>>,
    send: Deliver<F>,
}

impl<F: 'static> Sink<F> {
    pub(super) fn new(sender: Sender<DeadLetter<F>>) -> Sink<F>
    where
        F: Send,
    {
        let send: Deliver<F> =
            |sender, letter| sender.send(letter).map_err(|refused| refused.into_inner().frame);
        Sink { sender, send }
    }

    /// Gives the frame back when the dead-letter queue does not take it.
    pub(super) fn send(&self, letter: DeadLetter<F>) -> Result<(), F> {
        (self.send)(&self.sender, letter)
    }
}

impl<F> Clone for Sink<F> {
    fn clone(&self) -> Sink<F> {
        Sink { sender: self.sender.clone(), send: self.send }
    }
}

/// Lets one warning through in each second, so that a flood of frames is none of warnings.
#[derive(Debug, Default)]
pub(super) struct Nag {
    first: OnceLock<Instant>,
    /// When the next may come, in milliseconds after the first.
    next: AtomicU64,
}

impl Nag {
    const PAUSE: Duration = Duration::from_secs(1);

    /// Whether to warn now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let first = *self.first.get_or_init(|| now);
        let passed = now.saturating_duration_since(first).as_millis() as u64;
        let next = self.next.load(Ordering::Relaxed);
        let later = passed + Nag::PAUSE.as_millis() as u64;
        // Of several at once, one.
        passed >= next
            && self.next.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_warns_once_a_second() {
        let (nag, begun) = (Nag::default(), Instant::now());
        let due: Vec<_> = (0..3500).filter(|ms| nag.is_due(begun + Duration::from_millis(*ms))).collect();
        assert_eq!(due, [0, 1000, 2000, 3000]);
    }

    #[test]
    fn after_a_pause_the_first_warns_at_once() {
        let (nag, begun) = (Nag::default(), Instant::now());
        let due = |seconds: u64| nag.is_due(begun + Duration::from_secs(seconds));
        assert_eq!([due(0), due(0), due(3600), due(3600)], [true, false, true, false]);
    }
}
