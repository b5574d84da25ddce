//! A queue for turns, first come first served, that may be left at any time. A value without I/O: it hands wakers out.

use std::task::{Poll, Waker};

use super::order::Order;

#[derive(Debug)]
enum Place {
    Waiting(Waker),
    /// It is this one's turn.
    Granted,
    /// There will be no turn.
    Refused,
}

/// Those who wait for their turn, and those who have been told and have not looked yet.
#[derive(Debug)]
pub(super) struct Line {
    places: Order<Place>,
    granted: usize,
}

impl Line {
    pub(super) fn new() -> Line {
        Line { places: Order::new(), granted: 0 }
    }

    /// Takes the last place.
    pub(super) fn enter(&mut self, waker: Waker) -> u32 {
        self.places.push_back(Place::Waiting(waker))
    }

    /// What has become of a place; it is given up with the answer: whether its turn has come.
    pub(super) fn poll(&mut self, key: u32, waker: &Waker) -> Poll<bool> {
        if let Place::Waiting(kept) = self.places.get_mut(key) {
            if !kept.will_wake(waker) {
                kept.clone_from(waker);
            }
            return Poll::Pending;
        }
        Poll::Ready(self.leave(key))
    }

    /// Gives a place up; true when its turn had come.
    pub(super) fn leave(&mut self, key: u32) -> bool {
        let granted = matches!(self.places.remove(key), Place::Granted);
        self.granted -= usize::from(granted);
        granted
    }

    /// It is the first one's turn: gives its waker.
    pub(super) fn grant_next(&mut self) -> Option<Waker> {
        let waker = self.answer_next(Place::Granted)?;
        self.granted += 1;
        Some(waker)
    }

    /// The first one's turn will never come: gives its waker.
    pub(super) fn refuse_next(&mut self) -> Option<Waker> {
        self.answer_next(Place::Refused)
    }

    fn answer_next(&mut self, answer: Place) -> Option<Waker> {
        let key = self.places.front()?;
        self.places.step_out(key);
        match std::mem::replace(self.places.get_mut(key), answer) {
            Place::Waiting(waker) => Some(waker),
            _ => unreachable!("whoever is told leaves the line"),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.in_line() == 0
    }

    /// Turns granted and not yet taken.
    pub(super) fn granted(&self) -> usize {
        self.granted
    }
}
