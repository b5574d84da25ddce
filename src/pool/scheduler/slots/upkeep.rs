//! Slots beyond the round of leases: how many there are to be, connections whose time has come, and those away for a
//! health check.

use std::time::Instant;

use super::super::leases::Holder;
#[cfg(test)]
use super::super::links::List;
use super::super::{CloseReason, SlotId};
use super::{Phase, Slot, Slots};

impl<C> Slots<C> {
    /// How many slots there are to be from now on. More appear at once, as vacant ones; of those that are too many, the
    /// vacant ones go at once and the others when they fall vacant.
    pub(in crate::pool::scheduler) fn set_target(&mut self, target: usize) {
        self.target = target;
        while self.present() < target {
            match self.absent.pop_front(&mut self.slots) {
                Some(index) => {
                    self.slots[index as usize].phase = Phase::Vacant;
                    self.vacant.push_back(&mut self.slots, index);
                }
                None => self.add(),
            }
        }
        while self.present() > target
            && let Some(index) = self.vacant.pop_front(&mut self.slots)
        {
            self.slots[index as usize].phase = Phase::Absent;
            self.absent.push_front(&mut self.slots, index);
        }
    }

    /// Slots that are in use, those that are to go when they fall vacant included.
    pub(in crate::pool::scheduler) fn present(&self) -> usize {
        self.slots.len() - self.absent.len()
    }

    pub(in crate::pool::scheduler) fn target(&self) -> usize {
        self.target
    }

    /// Connections that are there or being opened, and are not yet to be closed, beyond the slots there are to be.
    pub(in crate::pool::scheduler) fn surplus(&self) -> usize {
        (self.alive() - self.last).saturating_sub(self.target)
    }

    pub(in crate::pool::scheduler) fn phase(&self, id: SlotId) -> Option<Phase> {
        let slot = self.slots.get(id.index as usize)?;
        (slot.generation == id.generation).then_some(slot.phase)
    }

    /// Whether that very connection is out on lease, its last one or not.
    pub(in crate::pool::scheduler) fn is_out(&self, id: SlotId) -> bool {
        matches!(self.phase(id), Some(Phase::Leased | Phase::Charged | Phase::LeasedLast(_)))
    }

    /// A lease has begun after a wait.
    pub(in crate::pool::scheduler) fn set_holder(&mut self, id: SlotId, holder: Holder) {
        self.slots[id.index as usize].set_holder(holder);
    }

    /// Who has the connection, or had it last.
    pub(in crate::pool::scheduler) fn holder(&self, id: SlotId) -> Holder {
        self.slots[id.index as usize].holder
    }

    /// How many leases the slot has seen.
    pub(in crate::pool::scheduler) fn lease_number(&self, id: SlotId) -> u32 {
        self.slots[id.index as usize].lease_number
    }

    /// Why the present lease of the connection is its last, if it is.
    pub(in crate::pool::scheduler) fn last_reason(&self, id: SlotId) -> Option<CloseReason> {
        match self.phase(id) {
            Some(Phase::LeasedLast(reason)) => Some(reason),
            _ => None,
        }
    }

    /// Makes the present lease of a leased or reserved connection its last. A connection whose lease was its last
    /// already gets a new reason.
    pub(in crate::pool::scheduler) fn mark_last(&mut self, id: SlotId, reason: CloseReason) {
        let slot = &mut self.slots[id.index as usize];
        let (marked, newly) = match slot.phase {
            Phase::Leased | Phase::Charged => (Phase::LeasedLast(reason), true),
            Phase::Reserved => (Phase::ReservedLast(reason), true),
            Phase::LeasedLast(_) => (Phase::LeasedLast(reason), false),
            Phase::ReservedLast(_) => (Phase::ReservedLast(reason), false),
            other => (other, false),
        };
        slot.phase = marked;
        self.last += usize::from(newly);
    }

    /// Takes it back that the lease is the connection's last.
    pub(in crate::pool::scheduler) fn pardon(&mut self, id: SlotId) {
        if self.last_reason(id).is_some() {
            self.slots[id.index as usize].phase = Phase::Leased;
            self.last -= 1;
        }
    }

    /// Makes the present lease the last for `count` of the connections that are leased or reserved.
    pub(in crate::pool::scheduler) fn mark_some_last(&mut self, count: usize, reason: CloseReason) {
        let out = |phase| matches!(phase, Phase::Leased | Phase::Charged | Phase::Reserved);
        let some: Vec<SlotId> =
            self.ids().filter(|id| self.phase(*id).is_some_and(out)).take(count).collect();
        some.into_iter().for_each(|id| self.mark_last(id, reason));
    }

    /// Every slot by its present id.
    pub(in crate::pool::scheduler) fn ids(&self) -> impl Iterator<Item = SlotId> + '_ {
        let id =
            |(index, slot): (usize, &Slot<C>)| SlotId { index: index as u32, generation: slot.generation };
        self.slots.iter().enumerate().map(id)
    }

    #[cfg(test)]
    pub(in crate::pool::scheduler) fn is_reserved_last(&self, id: SlotId) -> bool {
        matches!(self.phase(id), Some(Phase::ReservedLast(_)))
    }

    /// The idle connections, most recently used first.
    #[cfg(test)]
    pub(in crate::pool::scheduler) fn idle_ids(&self) -> Vec<SlotId> {
        let id = |index| SlotId { index, generation: self.slots[index as usize].generation };
        self.idle.iter(&self.slots).map(id).collect()
    }

    /// The connection in a slot that is idle or reserved.
    pub(in crate::pool::scheduler) fn connection_mut(&mut self, id: SlotId) -> Option<&mut C> {
        self.slots[id.index as usize].connection.as_mut()
    }

    /// The connection in this slot has lived long enough at that instant.
    pub(in crate::pool::scheduler) fn set_expiry(&mut self, id: SlotId, at: Instant) {
        self.slots[id.index as usize].expiry = Some(self.expiries.insert(at, id));
    }

    /// The next connection that has lived long enough.
    pub(in crate::pool::scheduler) fn pop_expired(&mut self, now: Instant) -> Option<SlotId> {
        let id = self.expiries.pop_due(now)?;
        self.slots[id.index as usize].expiry = None;
        Some(id)
    }

    /// Its age does not matter any more.
    pub(in crate::pool::scheduler) fn cancel_expiry(&mut self, id: SlotId) {
        if let Some(expiry) = self.slots[id.index as usize].expiry.take() {
            self.expiries.cancel(expiry);
        }
    }

    /// No connection is ever too old from now on.
    pub(in crate::pool::scheduler) fn forget_expiries(&mut self) {
        self.expiries.clear();
        self.slots.iter_mut().for_each(|slot| slot.expiry = None);
    }

    /// As [`oldest_idle`](Slots::oldest_idle), if it has been idle for that many ticks.
    pub(in crate::pool::scheduler) fn idle_for(&self, ticks: u32) -> Option<SlotId> {
        self.oldest_idle().filter(|id| self.age(*id) >= ticks)
    }

    fn age(&self, id: SlotId) -> u32 {
        self.tick.wrapping_sub(self.slots[id.index as usize].idle_since)
    }

    /// Takes an idle connection away for a check, the longest idle one first of those that were neither used nor
    /// checked for that many ticks.
    pub(in crate::pool::scheduler) fn begin_check(&mut self, ticks: u32) -> Option<(SlotId, C)> {
        let index = self.idle.iter_back(&self.slots).find(|&index| {
            let slot = &self.slots[index as usize];
            let used = self.tick.wrapping_sub(slot.idle_since);
            used.min(self.tick.wrapping_sub(slot.checked)) >= ticks
        })?;
        self.idle.remove(&mut self.slots, index);
        let slot = &mut self.slots[index as usize];
        slot.phase = Phase::Checking;
        self.checking += 1;
        match slot.connection.take() {
            Some(connection) => Some((SlotId { index, generation: slot.generation }, connection)),
            None => unreachable!("an idle slot has its connection"),
        }
    }

    /// Ends the check of a slot; whoever calls this says at once what the slot does next.
    pub(in crate::pool::scheduler) fn end_check(&mut self, id: SlotId) -> bool {
        let checking = self.is(id, Phase::Checking);
        self.checking -= usize::from(checking);
        checking
    }

    /// Puts a connection that was checked back to the idle ones, to where it was: in front of
    /// those that have been idle for as long.
    pub(in crate::pool::scheduler) fn unshelve(&mut self, id: SlotId, connection: C) {
        let tick = self.tick;
        let age = self.age(id);
        let younger = self
            .idle
            .iter_back(&self.slots)
            .find(|&index| tick.wrapping_sub(self.slots[index as usize].idle_since) < age);
        let slot = &mut self.slots[id.index as usize];
        slot.phase = Phase::Idle;
        slot.checked = tick;
        slot.connection = Some(connection);
        match younger {
            Some(younger) => self.idle.insert_behind(&mut self.slots, younger, id.index),
            None => self.idle.push_front(&mut self.slots, id.index),
        }
    }

    /// Counts every slot by what it is doing and compares with the lists and gauges.
    #[cfg(test)]
    pub(in crate::pool::scheduler) fn check_invariants(&self) {
        let (mut idle, mut vacant, mut doomed, mut opening, mut reserved, mut closing, mut leased) =
            (0, 0, 0, 0, 0, 0, 0);
        let (mut absent, mut checking, mut last) = (0, 0, 0);
        for slot in &self.slots {
            let count = match slot.phase {
                Phase::Absent => &mut absent,
                Phase::Vacant => &mut vacant,
                Phase::Opening => &mut opening,
                Phase::Idle => &mut idle,
                Phase::Reserved | Phase::ReservedLast(_) => &mut reserved,
                Phase::Leased | Phase::Charged | Phase::LeasedLast(_) => &mut leased,
                Phase::Checking => &mut checking,
                Phase::Doomed(..) => &mut doomed,
                Phase::Closing => &mut closing,
            };
            *count += 1;
            last += usize::from(matches!(slot.phase, Phase::ReservedLast(_) | Phase::LeasedLast(_)));
            let holds = matches!(
                slot.phase,
                Phase::Idle | Phase::Reserved | Phase::ReservedLast(_) | Phase::Doomed(_)
            );
            assert_eq!(slot.connection.is_some(), holds, "a connection is where its phase says");
        }
        assert_eq!(self.opening, opening, "opening slots");
        assert_eq!(self.reserved, reserved, "reserved slots");
        assert_eq!(self.closing, closing + doomed, "closing slots, doomed ones included");
        assert_eq!((self.checking, self.last), (checking, last), "checks, and leases that are the last");
        assert_eq!(self.leased(), leased + reserved, "leased slots, reserved ones included");
        let on = |list: &List, phase: fn(Phase) -> bool, count: usize| {
            assert_eq!(list.len(), count, "every slot of a listed phase is on its list");
            assert_eq!(list.iter(&self.slots).count(), count, "the list's length is that of its chain");
            assert!(list.iter(&self.slots).all(|index| phase(self.slots[index as usize].phase)));
        };
        on(&self.idle, |phase| phase == Phase::Idle, idle);
        on(&self.vacant, |phase| phase == Phase::Vacant, vacant);
        on(&self.absent, |phase| phase == Phase::Absent, absent);
        on(&self.doomed, |phase| matches!(phase, Phase::Doomed(..)), doomed);
        assert!(self.present() >= self.target, "there are as many slots as there are to be");
        assert!(self.present() == self.target || vacant == 0, "a slot too many is not vacant");
        assert_eq!(
            self.expiries.len(),
            self.slots.iter().filter(|slot| slot.expiry.is_some()).count(),
            "every pending expiry is some slot's"
        );
        let ages: Vec<u32> = self
            .idle
            .iter(&self.slots)
            .map(|i| self.tick.wrapping_sub(self.slots[i as usize].idle_since))
            .collect();
        assert!(ages.is_sorted(), "the longest idle are at the back: {ages:?}");
    }
}
