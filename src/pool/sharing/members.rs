//! The sessions of one socket: how many there are, and how the idle ones learn that it has failed.

use std::cell::{Cell, RefCell};

use slab::Slab;

use crate::runtime::Watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    /// Present leases may go on; no session is leased again.
    Leaving,
    /// The socket has failed or is being given back.
    Closed,
}

pub(super) struct Members {
    limit: usize,
    /// Of each session the watch by which its pool hears that the socket is not to be leased again, while the session is
    /// idle or was so before its present lease.
    sessions: RefCell<Slab<Option<Watch>>>,
    stage: Cell<Stage>,
}

impl Members {
    pub(super) fn new(limit: usize) -> Members {
        Members { limit, sessions: RefCell::new(Slab::new()), stage: Cell::new(Stage::Open) }
    }

    pub(super) fn has_room(&self) -> bool {
        self.is_leasable() && self.sessions.borrow().len() < self.limit
    }

    /// Whether its sessions may be leased.
    #[inline]
    pub(super) fn is_leasable(&self) -> bool {
        self.stage.get() == Stage::Open
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.stage.get() == Stage::Closed
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
        if !self.is_leasable() {
            return watch.notify();
        }
        self.sessions.borrow_mut()[session] = Some(watch);
    }

    /// The socket is to go back as soon as its present leases have ended.
    pub(super) fn wind_up(&self) {
        self.advance(Stage::Leaving);
    }

    /// The socket has failed or is being given back: no session goes on.
    pub(super) fn close(&self) {
        self.advance(Stage::Closed);
    }

    /// Has every idle session evicted.
    fn advance(&self, stage: Stage) {
        self.stage.set(stage.max(self.stage.get()));
        let mut next = 0;
        loop {
            // One at a time, so that nothing is borrowed while it is told.
            let mut sessions = self.sessions.borrow_mut();
            let told = sessions
                .iter_mut()
                .filter(|(at, _)| *at >= next)
                .find_map(|(at, watch)| Some((at, watch.take()?)));
            drop(sessions);
            let Some((at, watch)) = told else { return };
            next = at + 1;
            watch.notify();
        }
    }
}
