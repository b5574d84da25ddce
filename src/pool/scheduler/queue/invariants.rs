//! What must hold among the waiters at all times.

use super::{Fate, Waiters};
use crate::pool::scheduler::SlotId;
use crate::pool::scheduler::links::NONE;

impl<W> Waiters<W> {
    /// Every waiter is on the list its fate says; only queued ones have deadlines. Gives the slots that are
    /// reserved for somebody, and those that count for a handle.
    pub(in crate::pool::scheduler) fn check_invariants(&self) -> (Vec<SlotId>, Vec<u32>) {
        let standing = self.rotation.check_invariants(&self.entries);
        assert_eq!(standing.len(), self.queued, "the count of queued waiters is that of the lines");
        let fresh: Vec<u32> = self.fresh.iter(&self.entries).collect();
        let free: Vec<u32> = self.free.iter(&self.entries).collect();
        assert_eq!(fresh.len(), self.fresh.len());
        let (mut reserved, mut silent, mut deadlines, mut held_back) = (Vec::new(), 0, 0, 0);
        for entry in &self.entries {
            deadlines += usize::from(entry.deadline.is_some());
            match &entry.fate {
                Fate::Free => assert!(entry.reply.is_none() && entry.deadline.is_none()),
                Fate::Queued => {
                    assert!(entry.reply.is_some(), "a queued waiter can be told");
                    held_back += usize::from(entry.line == NONE);
                }
                Fate::Granted(slot) => {
                    reserved.push(*slot);
                    silent += usize::from(entry.reply.is_none());
                }
                Fate::Refused(_) => silent += usize::from(entry.reply.is_none()),
            }
        }
        assert_eq!(deadlines, self.deadlines.len(), "every pending deadline is some waiter's");
        let entry = |index: &u32| &self.entries[*index as usize];
        assert!(standing.iter().all(|index| matches!(entry(index).fate, Fate::Queued)));
        assert!(free.iter().all(|index| matches!(entry(index).fate, Fate::Free)));
        assert!(fresh.iter().all(|index| entry(index).reply.is_some()));
        let accounts = standing.iter().map(|index| entry(index).account).filter(|account| *account != NONE);
        let charged = self.accounts.check_invariants(&accounts.collect::<Vec<_>>());
        assert_eq!(held_back, self.held_back, "those held back are counted");
        let listed = held_back + standing.len() + fresh.len() + free.len() + silent;
        assert_eq!(listed, self.entries.len(), "no waiter is lost");
        (reserved, charged)
    }
}
