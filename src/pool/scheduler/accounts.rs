//! What handles with rules hold, and those of their waiters that are held back.
//!
//! A handle with a limit may have so many leases and eligible waiters together; its further waiters are *held back*
//! here, in order of arrival, and stand in no line. So whoever stands in a line may be served, and selection never
//! skips anybody.

use rustc_hash::FxHashMap;
use slab::Slab;

use super::asker::{Asker, Rules, Shedding};
use super::codel::Codel;
use super::links::List;
use super::{HandleId, SlotId};

/// The accounts of one shard's handles. Those without rules have none.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Accounts {
    accounts: Slab<Account>,
    by_handle: FxHashMap<HandleId, u32>,
    /// Whose lease, or grant, a slot counts for.
    by_slot: FxHashMap<u32, u32>,
    /// Accounts that may shed.
    shedding: usize,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Account {
    handle: HandleId,
    rules: Rules,
    /// Leases and uncollected grants; counted only under a limit.
    held: u32,
    /// Waiters in line.
    pub(super) standing: u32,
    pub(super) held_back: List,
    pub(super) codel: Codel,
    /// The handle has gone: the account goes with its last lease.
    gone: bool,
}

impl Account {
    /// Whether another of its waiters may stand in line.
    pub(super) fn has_room(&self) -> bool {
        self.rules.limit.is_none_or(|limit| self.held + self.standing < limit.get())
    }

    /// When its waiters are shed, if they are.
    pub(super) fn shedding(&self) -> Option<Shedding> {
        self.rules.shedding
    }

    pub(super) fn waiters(&self) -> usize {
        self.standing as usize + self.held_back.len()
    }

    /// One of its waiters has left its line.
    pub(super) fn step_out(&mut self) {
        self.standing -= 1;
        if self.waiters() == 0 {
            self.codel.drain();
        }
    }
}

impl Accounts {
    /// The account of a handle with rules, opened if need be.
    pub(super) fn open(&mut self, asker: &Asker) -> u32 {
        let Asker { handle, rules, .. } = *asker;
        let index = match self.by_handle.get(&handle) {
            Some(index) => *index,
            None => {
                let account = Account {
                    handle,
                    rules: Rules::default(),
                    held: 0,
                    standing: 0,
                    held_back: List::new(),
                    codel: Codel::default(),
                    gone: false,
                };
                let index = self.accounts.insert(account) as u32;
                self.by_handle.insert(handle, index);
                index
            }
        };
        let account = &mut self.accounts[index as usize];
        self.shedding -= usize::from(account.rules.shedding.is_some());
        self.shedding += usize::from(rules.shedding.is_some());
        account.rules = rules;
        account.gone = false;
        index
    }

    #[inline]
    pub(super) fn get_mut(&mut self, account: u32) -> &mut Account {
        &mut self.accounts[account as usize]
    }

    pub(super) fn get(&self, account: u32) -> &Account {
        &self.accounts[account as usize]
    }

    pub(super) fn of(&self, handle: HandleId) -> Option<u32> {
        self.by_handle.get(&handle).copied()
    }

    /// Counts a slot that is granted to one of the handle's waiters, if the handle has a limit.
    pub(super) fn charge(&mut self, account: u32, slot: SlotId) {
        let held = &mut self.accounts[account as usize];
        if held.rules.limit.is_some() {
            held.held += 1;
            let other = self.by_slot.insert(slot.index, account);
            debug_assert!(other.is_none(), "a slot counts for one handle");
        }
    }

    /// The slot's lease, or uncollected grant, is over. Gives the account that it counted for.
    pub(super) fn discharge(&mut self, slot: SlotId) -> Option<u32> {
        let account = self.by_slot.remove(&slot.index)?;
        self.accounts[account as usize].held -= 1;
        Some(account)
    }

    /// Whether the slot counts for a handle with a limit.
    #[inline]
    pub(super) fn is_charged(&self, slot: SlotId) -> bool {
        !self.by_slot.is_empty() && self.by_slot.contains_key(&slot.index)
    }

    /// Whether the end of the slot's lease lets one in that is held back.
    pub(super) fn is_awaited(&self, slot: SlotId) -> bool {
        self.by_slot.get(&slot.index).is_some_and(|account| {
            let Account { rules, held, standing, held_back, .. } = &self.accounts[*account as usize];
            !held_back.is_empty() && rules.limit.is_none_or(|limit| held + standing <= limit.get())
        })
    }

    /// What the handle is held to that the slot counts for.
    pub(super) fn charged_to(&self, slot: SlotId) -> Option<Rules> {
        let account = *self.by_slot.get(&slot.index)?;
        Some(self.accounts[account as usize].rules)
    }

    /// Whether any handle's waiters may be shed.
    #[inline]
    pub(super) fn shed(&self) -> bool {
        self.shedding > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// Any account that holds a waiter back.
    pub(super) fn first_held_back(&self) -> Option<u32> {
        self.accounts.iter().find_map(|(_, account)| account.held_back.front())
    }

    /// The handle has gone. Nothing is lost if it asks again.
    pub(super) fn leave(&mut self, account: u32) {
        self.accounts[account as usize].gone = true;
        self.close_if_idle(account);
    }

    /// Forgets an account that has nothing to say. One that sheds remembers until its handle goes.
    pub(super) fn close_if_idle(&mut self, account: u32) {
        let Account { handle, rules, held, standing, ref held_back, gone, .. } =
            self.accounts[account as usize];
        if held == 0 && standing == 0 && held_back.is_empty() && (gone || rules.shedding.is_none()) {
            self.shedding -= usize::from(rules.shedding.is_some());
            self.by_handle.remove(&handle);
            self.accounts.remove(account as usize);
        }
    }

    /// Every count is that of what is there. `standing` has the account of each waiter in line that has one. Gives the
    /// slots that are charged.
    #[cfg(test)]
    pub(super) fn check_invariants(&self, standing: &[u32]) -> Vec<u32> {
        assert_eq!(self.by_handle.len(), self.accounts.len());
        assert_eq!(self.shedding, self.accounts.iter().filter(|a| a.1.rules.shedding.is_some()).count());
        for (index, account) in &self.accounts {
            let index = index as u32;
            assert_eq!(self.of(account.handle), Some(index));
            let held = self.by_slot.values().filter(|charged| **charged == index).count();
            assert_eq!(account.held as usize, held, "leases of one handle");
            let in_line = standing.iter().filter(|whose| **whose == index).count();
            assert_eq!(account.standing as usize, in_line, "waiters of one handle in line");
            let limit = account.rules.limit.map_or(u32::MAX, std::num::NonZeroU32::get);
            assert!(account.held + account.standing <= limit, "no more than the limit");
            assert!(account.held_back.is_empty() || !account.has_room(), "nobody is held back without need");
        }
        self.by_slot.keys().copied().collect()
    }
}
