//! Events that were put off, in the order in which they arrived.
//!
//! Never: let an event overtake one that arrived before it and is as ready.

use std::collections::VecDeque;

/// What was postponed. It has no bound but that of the mailbox which it came from: to drop an event would fail a call, and
/// to take in no more would keep out the event that ends the wait.
pub(super) struct Backlog<E> {
    /// Looked at in the present state, and put off.
    kept: VecDeque<E>,
    /// To be looked at before anything else is taken in. They arrived after those that are kept.
    due: VecDeque<E>,
}

impl<E> Backlog<E> {
    pub(super) fn new() -> Backlog<E> {
        Backlog { kept: VecDeque::new(), due: VecDeque::new() }
    }

    /// Puts an event off until the state changes. It was the next that was due, or is new while nothing is due.
    pub(super) fn keep(&mut self, event: E) {
        self.kept.push_back(event);
    }

    /// The state has changed: everything is due again.
    pub(super) fn restart(&mut self) {
        while let Some(event) = self.kept.pop_back() {
            self.due.push_front(event);
        }
    }

    /// The event to look at next, the oldest first.
    pub(super) fn take_due(&mut self) -> Option<E> {
        self.due.pop_front()
    }

    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.kept.len() + self.due.len()
    }
}
