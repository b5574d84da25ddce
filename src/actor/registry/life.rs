//! Whether an actor lives, for other cores to see.

use crate::sync::{AtomicBool, Ordering};

/// Shared by an actor's record and the tables that name it; made when the actor first gets a name or joins a group.
#[derive(Debug, Default)]
pub(crate) struct Life {
    ended: AtomicBool,
}

impl Life {
    /// The actor has ended. Before it is taken out of the tables, so that nobody finds it in there any more.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn is_live(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }
}
