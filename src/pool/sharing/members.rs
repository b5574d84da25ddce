//! The sessions of one socket: how many there are, and how the idle ones learn that it has failed.

use std::cell::{Cell, RefCell};

use slab::Slab;

use crate::runtime::Watch;

pub(super) struct Members {
    limit: usize,
    /// Of each session the watch by which its pool hears that the socket has failed, while it is idle or was so before
    /// its present lease.
    sessions: RefCell<Slab<Option<Watch>>>,
    /// The socket has failed or is being given back.
    closed: Cell<bool>,
}

impl Members {
    pub(super) fn new(limit: usize) -> Members {
        Members { limit, sessions: RefCell::new(Slab::new()), closed: Cell::new(false) }
    }

    pub(super) fn has_room(&self) -> bool {
        !self.closed.get() && self.sessions.borrow().len() < self.limit
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    pub(super) fn join(&self) -> usize {
        self.sessions.borrow_mut().insert(None)
    }

    /// True when that was the last one.
    pub(super) fn leave(&self, session: usize) -> bool {
        let mut sessions = self.sessions.borrow_mut();
        let watch = sessions.remove(session);
        let last = sessions.is_empty();
        drop(sessions);
        drop(watch);
        last
    }

    pub(super) fn arm(&self, session: usize, watch: Watch) {
        if self.closed.get() {
            return watch.notify();
        }
        self.sessions.borrow_mut()[session] = Some(watch);
    }

    /// Has every idle session evicted, and none leased again. True the first time.
    pub(super) fn close(&self) -> bool {
        if self.closed.replace(true) {
            return false;
        }
        let mut next = 0;
        loop {
            // One at a time, so that nothing is borrowed while it is told.
            let mut sessions = self.sessions.borrow_mut();
            let Some((at, watch)) = sessions
                .iter_mut()
                .filter(|(at, _)| *at >= next)
                .find_map(|(at, watch)| Some((at, watch.take()?)))
            else {
                return true;
            };
            next = at + 1;
            drop(sessions);
            watch.notify();
        }
    }
}
