//! The slots of one shard: a fixed number of places, each with the life of one connection in it.
//!
//! It knows what a slot is doing and nothing of who wants it. All slots that are in the same phase and may be
//! looked for are on a list, so nothing here searches.

mod charges;
mod upkeep;

use super::leases::Holder;
use super::links::{Linked, Links, List, NONE};
use super::{CloseReason, Grant, SlotId};
use crate::runtime::timer::{DeadlineKey, DeadlineQueue};

/// What a slot is doing.
///
/// A slot goes round `Vacant`, `Opening`, `Idle`, `Leased`, `Doomed`, `Closing`. From `Idle` it may also be
/// `Reserved`, `Checking` or `Doomed` first; from `Leased` it goes back to `Idle` when the lease ends well, and to
/// `Vacant` when the connection is lost; an open that fails goes back to `Vacant`. A lease that is the connection's
/// last is in a phase of its own, so that the hot path, which ends ordinary leases, does not have to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not in use: the shard was made smaller. On the list `absent`.
    Absent,
    /// Nothing is here. On the list `vacant`.
    Vacant,
    /// A connection is being opened.
    Opening,
    /// A connection nobody uses. On the list `idle`.
    Idle,
    /// Granted to a waiter that has not collected it.
    Reserved,
    /// As `Reserved`, for a lease that is to be the connection's last.
    ReservedLast(CloseReason),
    /// The connection is with whoever leased it.
    Leased,
    /// As `Leased`, and the lease counts for a handle with a limit.
    Charged,
    /// As `Leased`, and when the lease ends the connection is closed for this reason. It may count for a handle too.
    LeasedLast(CloseReason),
    /// Idle, and away for a health check.
    Checking,
    /// To be closed and not yet fetched for it. On the list `doomed`.
    Doomed(CloseReason),
    /// Fetched; the peer may still see it, so the slot is not free yet.
    Closing,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Slot<C> {
    phase: Phase,
    /// Present in the phases `Idle`, `Reserved` and `Doomed`. Apart from the phase, so that a connection that is one
    /// word is moved as one word.
    connection: Option<C>,
    links: Links,
    /// Moves on when the slot falls vacant: from then on no id of the old connection matches.
    generation: u32,
    /// The tick in which the connection was last put among the idle ones.
    idle_since: u32,
    /// The tick of its last health check.
    checked: u32,
    /// When the connection has lived long enough.
    expiry: Option<DeadlineKey>,
    holder: Holder,
    /// Counts the leases, to tell one from the next.
    lease_number: u32,
}

/// All slots of a shard.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Slots<C> {
    slots: Vec<Slot<C>>,
    /// Most recently used first: a burst's surplus connections age at the far end, where they can expire.
    idle: List,
    vacant: List,
    doomed: List,
    absent: List,
    opening: usize,
    reserved: usize,
    closing: usize,
    checking: usize,
    /// Slots in the phases `ReservedLast` and `LeasedLast`.
    last: usize,
    /// How many slots there are to be. More may be present while connections are being got rid of.
    target: usize,
    /// Counts the beats of the maintenance timer: the clock of those who must not look at one.
    pub(super) tick: u32,
    /// Who has which lease is written down.
    pub(super) notes_holders: bool,
    pub(super) expiries: DeadlineQueue<SlotId>,
}

impl<C> Slot<C> {
    /// A lease begins.
    #[inline(always)]
    fn set_holder(&mut self, holder: Holder) {
        self.holder = holder;
        self.lease_number = self.lease_number.wrapping_add(1);
    }
}

impl<C> Linked for Slot<C> {
    #[inline]
    fn links(&self) -> &Links {
        &self.links
    }

    #[inline]
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl<C> Slots<C> {
    /// `count` vacant slots. All the memory there will be, unless they are made more.
    pub(super) fn new(count: usize) -> Self {
        let mut slots = Self {
            slots: Vec::with_capacity(count),
            idle: List::new(),
            vacant: List::new(),
            doomed: List::new(),
            absent: List::new(),
            opening: 0,
            reserved: 0,
            closing: 0,
            checking: 0,
            last: 0,
            target: 0,
            tick: 0,
            notes_holders: false,
            expiries: DeadlineQueue::new(),
        };
        slots.set_target(count);
        slots
    }

    /// Adds a vacant slot behind the others.
    fn add(&mut self) {
        let index = self.slots.len();
        assert!(index < NONE as usize, "a shard has at most 2^32 - 2 slots");
        self.slots.push(Slot {
            phase: Phase::Vacant,
            connection: None,
            links: Links::new(),
            generation: 0,
            idle_since: 0,
            checked: 0,
            expiry: None,
            holder: Holder::nobody(),
            lease_number: 0,
        });
        self.vacant.push_back(&mut self.slots, index as u32);
    }

    /// Leases the most recently used idle connection if it is `usable`, and says so if it is not.
    #[inline(always)]
    pub(super) fn lease_newest(
        &mut self,
        holder: impl FnOnce() -> Holder,
        usable: impl FnOnce(&mut C) -> bool,
    ) -> Newest<C> {
        let Some(index) = self.idle.front() else {
            return Newest::None;
        };
        let slot = &mut self.slots[index as usize];
        let id = SlotId { index, generation: slot.generation };
        let Some(connection) = slot.connection.take_if(|connection| usable(connection)) else {
            return Newest::Unusable(id);
        };
        slot.phase = Phase::Leased;
        if self.notes_holders {
            slot.set_holder(holder());
        }
        self.idle.pop_front(&mut self.slots);
        Newest::Leased(Grant { slot: id, connection })
    }

    /// Puts a connection that was leased or has just been opened in front of the idle ones.
    #[inline(always)]
    pub(super) fn shelve(&mut self, id: SlotId, connection: C) {
        let slot = &mut self.slots[id.index as usize];
        slot.phase = Phase::Idle;
        slot.idle_since = self.tick;
        let nothing = slot.connection.replace(connection);
        debug_assert!(nothing.is_none(), "a slot holds one connection");
        // Nothing to drop, and the hot path should not have to find that out.
        std::mem::forget(nothing);
        self.idle.push_front(&mut self.slots, id.index);
    }

    /// Sets a connection that was leased or has just been opened aside for a waiter.
    pub(super) fn set_aside(&mut self, id: SlotId, connection: C) {
        let slot = &mut self.slots[id.index as usize];
        slot.phase = Phase::Reserved;
        let nothing = slot.connection.replace(connection);
        debug_assert!(nothing.is_none(), "a slot holds one connection");
        std::mem::forget(nothing);
        self.reserved += 1;
    }

    /// Sets the most recently used idle connection aside for a waiter.
    pub(super) fn reserve_newest(&mut self) -> Option<SlotId> {
        let index = self.idle.pop_front(&mut self.slots)?;
        let slot = &mut self.slots[index as usize];
        debug_assert_eq!(slot.phase, Phase::Idle, "a slot on the idle list is idle");
        slot.phase = Phase::Reserved;
        self.reserved += 1;
        Some(SlotId { index, generation: slot.generation })
    }

    /// Hands a reserved connection to the waiter it was set aside for; its slot is leased from here on.
    #[inline]
    pub(super) fn collect(&mut self, id: SlotId) -> C {
        let slot = &mut self.slots[id.index as usize];
        slot.phase = match slot.phase {
            Phase::Reserved => Phase::Leased,
            Phase::ReservedLast(reason) => Phase::LeasedLast(reason),
            _ => unreachable!("a granted waiter's slot is reserved until the grant is collected"),
        };
        self.reserved -= 1;
        match slot.connection.take() {
            Some(connection) => connection,
            None => unreachable!("a reserved slot has its connection"),
        }
    }

    /// Marks one vacant slot as being opened.
    pub(super) fn begin_open(&mut self) -> Option<SlotId> {
        let index = self.vacant.pop_front(&mut self.slots)?;
        self.opening += 1;
        let slot = &mut self.slots[index as usize];
        slot.phase = Phase::Opening;
        Some(SlotId { index, generation: slot.generation })
    }

    /// Ends the opening of a slot; whoever calls this says at once what the slot does next.
    pub(super) fn end_open(&mut self, id: SlotId) -> bool {
        let opening = self.is(id, Phase::Opening);
        self.opening -= usize::from(opening);
        opening
    }

    /// Dooms a connection that comes back from a lease or from opening.
    pub(super) fn condemn(&mut self, id: SlotId, connection: C, reason: CloseReason) {
        self.cancel_expiry(id);
        let slot = &mut self.slots[id.index as usize];
        self.last -= usize::from(matches!(slot.phase, Phase::LeasedLast(_)));
        slot.phase = Phase::Doomed(reason);
        slot.connection = Some(connection);
        self.doomed.push_back(&mut self.slots, id.index);
        self.closing += 1;
    }

    /// Dooms an idle connection. Not one that has been leased or replaced since `id` was noted down.
    pub(super) fn condemn_idle(&mut self, id: SlotId, reason: CloseReason) -> bool {
        if !self.is(id, Phase::Idle) {
            return false;
        }
        self.idle.remove(&mut self.slots, id.index);
        match self.slots[id.index as usize].connection.take() {
            Some(connection) => self.condemn(id, connection, reason),
            None => unreachable!("an idle slot has its connection"),
        }
        true
    }

    /// The next connection to close.
    pub(super) fn poll_close(&mut self) -> Option<(SlotId, C, CloseReason)> {
        let index = self.doomed.pop_front(&mut self.slots)?;
        let slot = &mut self.slots[index as usize];
        let id = SlotId { index, generation: slot.generation };
        match (slot.phase, slot.connection.take()) {
            (Phase::Doomed(reason), Some(connection)) => {
                slot.phase = Phase::Closing;
                Some((id, connection, reason))
            }
            _ => unreachable!("a slot on the list of doomed ones is doomed"),
        }
    }

    /// A close is finished. Not one whose connection nobody has fetched yet.
    pub(super) fn end_close(&mut self, id: SlotId) {
        if self.is(id, Phase::Closing) {
            self.closing -= 1;
            self.vacate(id);
        }
    }

    /// The slot holds nothing any more.
    pub(super) fn vacate(&mut self, id: SlotId) {
        self.cancel_expiry(id);
        let surplus = self.present() > self.target;
        let slot = &mut self.slots[id.index as usize];
        self.last -= usize::from(matches!(slot.phase, Phase::LeasedLast(_)));
        slot.generation = slot.generation.wrapping_add(1);
        if surplus {
            slot.phase = Phase::Absent;
            self.absent.push_front(&mut self.slots, id.index);
        } else {
            slot.phase = Phase::Vacant;
            self.vacant.push_front(&mut self.slots, id.index);
        }
    }

    /// The most recently used idle connection's slot.
    pub(super) fn newest_idle(&self) -> Option<SlotId> {
        let index = self.idle.front()?;
        Some(SlotId { index, generation: self.slots[index as usize].generation })
    }

    /// Shows the most recently used idle connection.
    pub(super) fn newest_idle_mut(&mut self) -> Option<&mut C> {
        let id = self.newest_idle()?;
        self.slots[id.index as usize].connection.as_mut()
    }

    /// The slot of the idle connection that has not been used for the longest time.
    pub(super) fn oldest_idle(&self) -> Option<SlotId> {
        let index = self.idle.back()?;
        Some(SlotId { index, generation: self.slots[index as usize].generation })
    }

    /// Shows the idle connection that has not been used for the longest time.
    pub(super) fn oldest_idle_mut(&mut self) -> Option<&mut C> {
        let id = self.oldest_idle()?;
        self.slots[id.index as usize].connection.as_mut()
    }

    /// Shows every idle connection.
    pub(super) fn for_each_idle(&mut self, mut show: impl FnMut(&mut C)) {
        for slot in &mut self.slots {
            if slot.phase == Phase::Idle
                && let Some(connection) = &mut slot.connection
            {
                show(connection);
            }
        }
    }

    /// Whether that very connection is out on a lease like any other: not its last, and not charged.
    #[inline(always)]
    pub(super) fn is_leased(&self, id: SlotId) -> bool {
        self.is(id, Phase::Leased)
    }

    /// Whether that very connection is set aside for a waiter.
    #[cfg(test)]
    pub(super) fn is_reserved(&self, id: SlotId) -> bool {
        matches!(self.phase(id), Some(Phase::Reserved | Phase::ReservedLast(_)))
    }

    #[inline]
    pub(super) fn has_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }

    pub(super) fn idle(&self) -> usize {
        self.idle.len()
    }

    pub(super) fn vacant(&self) -> usize {
        self.vacant.len()
    }

    pub(super) fn occupied(&self) -> usize {
        self.present() - self.vacant()
    }

    pub(super) fn opening(&self) -> usize {
        self.opening
    }

    pub(super) fn reserved(&self) -> usize {
        self.reserved
    }

    pub(super) fn closing(&self) -> usize {
        self.closing
    }

    pub(super) fn checking(&self) -> usize {
        self.checking
    }

    /// Reserved ones included. What is left over when all the others are counted, so that the hot path keeps
    /// no counter of its own.
    pub(super) fn leased(&self) -> usize {
        self.present() - self.vacant() - self.opening - self.idle() - self.closing - self.checking
    }

    /// Connections that are there, or being opened.
    pub(super) fn alive(&self) -> usize {
        self.present() - self.vacant() - self.closing
    }

    #[inline(always)]
    pub(super) fn is(&self, id: SlotId, phase: Phase) -> bool {
        self.slots
            .get(id.index as usize)
            .is_some_and(|slot| slot.generation == id.generation && slot.phase == phase)
    }
}

/// What came of trying the most recently used connection.
pub(super) enum Newest<C> {
    /// It is leased now.
    Leased(Grant<C>),
    /// It was refused and is still idle.
    Unusable(SlotId),
    /// There is none.
    None,
}
