//! Which lease is out since when, to find those that are never given back.
//!
//! An acquire writes down in the slot who it was for, and reads no clock. Whoever looks from time to time, with the time,
//! stamps what it sees for the first time, and knows the age of what it saw before. Giving back writes nothing: what
//! counts is whether the slot is leased when somebody looks.

use std::panic::Location;
use std::time::{Duration, Instant};

use super::asker::Site;
use super::slots::Slots;
use super::{HandleId, SlotId};

/// Who has a slot's connection, or had it last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub handle: HandleId,
    /// Where it was acquired.
    pub site: Site,
}

impl Holder {
    /// Nobody yet.
    #[track_caller]
    pub(super) fn nobody() -> Holder {
        Holder { handle: HandleId(0), site: Location::caller() }
    }

    fn since(self, age: Duration) -> Outstanding {
        Outstanding { handle: self.handle, site: self.site, age }
    }
}

/// A lease that is out, as far as it has been seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outstanding {
    pub handle: HandleId,
    /// Where it was acquired.
    pub site: Site,
    /// How long it has been seen; it is older by the time to the look before at most.
    pub age: Duration,
}

/// The leases that were seen, by slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    seen: Vec<Option<Seen>>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    slot: SlotId,
    /// Which of the slot's leases it was.
    number: u32,
    at: Instant,
    told: bool,
}

impl Leases {
    /// What was seen of the slot's present lease.
    fn of<C>(&self, slots: &Slots<C>, slot: SlotId) -> Option<Seen> {
        let seen = *self.seen.get(slot.index as usize)?;
        seen.filter(|seen| seen.slot == slot && seen.number == slots.lease_number(slot))
    }

    /// Every lease that is out.
    pub(super) fn outstanding<C>(&self, slots: &Slots<C>, now: Instant) -> Vec<Outstanding> {
        let age =
            |slot| self.of(slots, slot).map_or(Duration::ZERO, |seen| now.saturating_duration_since(seen.at));
        let out = slots.ids().filter(|slot| slots.is_out(*slot));
        out.map(|slot| slots.holder(slot).since(age(slot))).collect()
    }

    /// Looks at every lease that is out: `out` gets those that have been for `limit` and were not told of before. Gives
    /// whether any is out.
    pub(super) fn look<C>(
        &mut self,
        slots: &Slots<C>,
        now: Instant,
        limit: Duration,
        out: &mut Vec<Outstanding>,
    ) -> bool {
        let mut any = false;
        for slot in slots.ids().filter(|slot| slots.is_out(*slot)) {
            any = true;
            let first = Seen { slot, number: slots.lease_number(slot), at: now, told: false };
            let mut seen = self.of(slots, slot).unwrap_or(first);
            let age = now.saturating_duration_since(seen.at);
            if age >= limit && !seen.told {
                seen.told = true;
                out.push(slots.holder(slot).since(age));
            }
            let index = slot.index as usize;
            if index >= self.seen.len() {
                self.seen.resize(index + 1, None);
            }
            self.seen[index] = Some(seen);
        }
        any
    }
}
