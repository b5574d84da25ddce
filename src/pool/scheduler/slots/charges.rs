//! Leases that count for a handle with a limit. They are in a phase of their own, or in that of a connection's last lease,
//! so that the hot path, which ends ordinary leases, does not have to ask. For whom they count is not known here.

use super::super::SlotId;
use super::{Phase, Slots};

impl<C> Slots<C> {
    /// A lease that has just begun counts for a handle. One that is its connection's last stays in its phase.
    pub(in crate::pool::scheduler) fn charge(&mut self, id: SlotId) {
        if self.is_leased(id) {
            self.slots[id.index as usize].phase = Phase::Charged;
        }
    }

    /// Whether that very connection is out on a lease that counts for a handle and is not its last.
    #[inline]
    pub(in crate::pool::scheduler) fn is_charged(&self, id: SlotId) -> bool {
        self.is(id, Phase::Charged)
    }

    /// Makes a charged lease an ordinary one.
    pub(in crate::pool::scheduler) fn discharge(&mut self, id: SlotId) {
        if self.is_charged(id) {
            self.slots[id.index as usize].phase = Phase::Leased;
        }
    }

    /// Whether that slot may count for a handle: as a lease that is not an ordinary one, or as a grant.
    #[cfg(test)]
    pub(in crate::pool::scheduler) fn may_be_charged(&self, index: u32) -> bool {
        matches!(
            self.slots[index as usize].phase,
            Phase::Charged | Phase::LeasedLast(_) | Phase::Reserved | Phase::ReservedLast(_)
        )
    }

    /// The slots in the phase of charged leases.
    #[cfg(test)]
    pub(in crate::pool::scheduler) fn charged(&self) -> impl Iterator<Item = u32> {
        (0..self.slots.len() as u32).filter(|index| self.slots[*index as usize].phase == Phase::Charged)
    }
}
