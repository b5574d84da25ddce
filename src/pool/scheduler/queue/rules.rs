//! Waiters of handles that are held to something: held back, promoted, shed.

use std::time::{Duration, Instant};

use super::{Entry, Waiters};
use crate::pool::scheduler::asker::{Asker, Rules};
use crate::pool::scheduler::links::NONE;
use crate::pool::scheduler::{HandleId, SlotId, WaiterKey};

impl<W> Waiters<W> {
    /// In line if its handle may have another lease, held back if not.
    pub(super) fn join_under_rules(&mut self, asker: &Asker, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.account = self.accounts.open(asker);
        let account = self.accounts.get_mut(entry.account);
        if account.has_room() {
            account.standing += 1;
            self.join_line(index);
        } else {
            entry.line = NONE;
            account.held_back.push_back(&mut self.entries, index);
            self.held_back += 1;
        }
    }

    /// A waiter of this account is granted a slot.
    pub(super) fn serve_under_rules(&mut self, account: u32, slot: SlotId) {
        self.accounts.get_mut(account).step_out();
        self.accounts.charge(account, slot);
        self.promote(account);
    }

    /// Waiters of this account that were held back join their line, as many as may.
    pub(super) fn promote(&mut self, account: u32) {
        loop {
            let of = self.accounts.get_mut(account);
            if !of.has_room() {
                return;
            }
            let Some(index) = of.held_back.pop_front(&mut self.entries) else { break };
            of.standing += 1;
            self.held_back -= 1;
            self.join_line(index);
        }
        self.accounts.close_if_idle(account);
    }

    /// A lease that counted for a handle, or a grant that was not collected, is over.
    pub(in crate::pool::scheduler) fn discharge(&mut self, slot: SlotId) {
        if let Some(account) = self.accounts.discharge(slot) {
            self.promote(account);
        }
    }

    /// Whether a handle with these rules may be given a connection at once.
    pub(in crate::pool::scheduler) fn may_lease(&self, handle: HandleId, rules: Rules) -> bool {
        rules.limit.is_none()
            || self.accounts.of(handle).is_none_or(|account| self.accounts.get(account).has_room())
    }

    /// The handle has gone, and none of its waiters is queued.
    pub(in crate::pool::scheduler) fn forget_handle(&mut self, handle: HandleId) {
        if let Some(account) = self.accounts.of(handle) {
            self.accounts.leave(account);
        }
    }

    /// Whether a queued waiter is held back.
    pub(in crate::pool::scheduler) fn is_held_back(&self, waiter: WaiterKey) -> bool {
        self.entries[waiter.index as usize].line == NONE
    }

    /// Whether that waiter, about to be served, is to be shed instead, and how long it has waited.
    pub(in crate::pool::scheduler) fn is_shed(
        &mut self,
        waiter: WaiterKey,
        now: Instant,
    ) -> Option<Duration> {
        let Entry { account, since, .. } = self.entries[waiter.index as usize];
        if account == NONE {
            return None;
        }
        let account = self.accounts.get_mut(account);
        let (law, waited) = (account.shedding()?, now.saturating_duration_since(since?));
        let alone = account.waiters() == 1;
        account.codel.sheds(law, now, waited, alone).then_some(waited)
    }

    /// Any waiter that is held back.
    pub(in crate::pool::scheduler) fn first_held_back(&self) -> Option<WaiterKey> {
        self.accounts.first_held_back().map(|index| self.key(index))
    }

    /// The first of this handle's waiters that are held back.
    pub(in crate::pool::scheduler) fn first_held_back_of(&self, handle: HandleId) -> Option<WaiterKey> {
        let account = self.accounts.get(self.accounts.of(handle)?);
        account.held_back.front().map(|index| self.key(index))
    }
}
