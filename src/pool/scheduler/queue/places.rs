//! Who stands where, and since when.

use std::time::{Duration, Instant};

use super::{Entry, Fate, Waiters};
use crate::pool::scheduler::links::NONE;
use crate::pool::scheduler::waits::Wait;
use crate::pool::scheduler::{HandleId, WaiterKey};

impl<W> Waiters<W> {
    /// Whoever would be served next.
    pub(in crate::pool::scheduler) fn first(&self) -> Option<WaiterKey> {
        self.rotation.first().map(|index| self.key(index))
    }

    /// The first waiter of the line in which this handle's waiters stand. Walk on with
    /// [`Waiters::next_beside`] and look at [`Waiters::handle`]: under FIFO others stand there too.
    pub(in crate::pool::scheduler) fn first_beside(&self, handle: HandleId) -> Option<WaiterKey> {
        self.rotation.first_beside(handle).map(|index| self.key(index))
    }

    /// The waiters of a handle that have a grant to collect. Looks at every entry: for the few handles that go while
    /// they have one.
    pub(in crate::pool::scheduler) fn granted_to(&self, handle: HandleId) -> Vec<WaiterKey> {
        let granted = |entry: &Entry<W>| entry.handle == handle && matches!(entry.fate, Fate::Granted(_));
        (0..self.entries.len() as u32)
            .filter(|index| granted(&self.entries[*index as usize]))
            .map(|index| self.key(index))
            .collect()
    }

    /// The waiter behind this one on the list both are on.
    pub(in crate::pool::scheduler) fn next_beside(&self, waiter: WaiterKey) -> Option<WaiterKey> {
        self.entries[waiter.index as usize].links.next().map(|index| self.key(index))
    }

    /// Whose waiter it is.
    pub(in crate::pool::scheduler) fn handle(&self, waiter: WaiterKey) -> HandleId {
        self.entries[waiter.index as usize].handle
    }

    /// What there is to tell about a waiter's wait, but for its length.
    pub(in crate::pool::scheduler) fn wait(&self, waiter: WaiterKey) -> Wait {
        let Entry { handle, site, entered_at, .. } = self.entries[waiter.index as usize];
        Wait { handle, site, position: entered_at, waited: Duration::ZERO }
    }

    /// When its clock was started; none while it has not been.
    pub(in crate::pool::scheduler) fn since(&self, waiter: WaiterKey) -> Option<Instant> {
        self.entries[waiter.index as usize].since
    }

    /// Whether a queued waiter is among the next `bound` to be served.
    pub(in crate::pool::scheduler) fn is_among_next(&self, bound: usize, waiter: WaiterKey) -> bool {
        self.position(waiter, bound).is_some_and(|position| position < bound)
    }

    /// How many are served before a queued waiter, if nobody comes or goes meanwhile, counted up to `bound`. Who is held
    /// back comes after all who stand in line. Takes at most in the order of `bound` steps. `None` for one that is not
    /// queued.
    pub(in crate::pool::scheduler) fn position(&self, waiter: WaiterKey, bound: usize) -> Option<usize> {
        if !matches!(self.fate(waiter), Fate::Queued) {
            return None;
        }
        let Entry { line, account, .. } = self.entries[waiter.index as usize];
        match line {
            NONE => {
                let held_back = &self.accounts.get(account).held_back;
                Some((self.queued + held_back.count_before(&self.entries, waiter.index, bound)).min(bound))
            }
            line => Some(self.rotation.ahead(bound, line, &self.entries, waiter.index)),
        }
    }

    /// How many would be served before a newcomer of this handle. Takes a step for each line under round robin.
    pub(in crate::pool::scheduler) fn position_of_newcomer(&self, handle: HandleId) -> usize {
        self.rotation.ahead_of_newcomer(handle)
    }
}
