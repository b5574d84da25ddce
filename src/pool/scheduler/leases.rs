//! Which lease is out since when, to find those that are never given back.
//!
//! An acquire writes down who it was for and reads no clock. Whoever looks from time to time, with the time, stamps what
//! it sees for the first time, and knows the age of what it saw before. Giving back writes nothing: what counts is
//! whether the slot is leased when somebody looks.

use std::time::{Duration, Instant};

use super::asker::Site;
use super::slots::Slots;
use super::{HandleId, SlotId};

/// A lease that is out, as far as it has been seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outstanding {
    pub handle: HandleId,
    /// Where it was acquired.
    pub site: Site,
    /// How long it has been seen; it is older by the time to the look before at most.
    pub age: Duration,
}

/// The latest lease of each slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    records: Vec<Option<Record>>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    slot: SlotId,
    handle: HandleId,
    site: Site,
    seen: Option<Instant>,
    told: bool,
}

impl Record {
    fn outstanding(&self, now: Instant) -> Outstanding {
        let age = self.seen.map_or(Duration::ZERO, |seen| now.saturating_duration_since(seen));
        Outstanding { handle: self.handle, site: self.site, age }
    }
}

impl Leases {
    /// A lease begins.
    #[inline]
    pub(super) fn note(&mut self, slot: SlotId, handle: HandleId, site: Site) {
        let index = slot.index as usize;
        if index >= self.records.len() {
            self.records.resize(index + 1, None);
        }
        self.records[index] = Some(Record { slot, handle, site, seen: None, told: false });
    }

    /// Every lease that is out.
    pub(super) fn outstanding<C>(&self, slots: &Slots<C>, now: Instant) -> Vec<Outstanding> {
        let out = self.records.iter().flatten().filter(|record| slots.is_out(record.slot));
        out.map(|record| record.outstanding(now)).collect()
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
        for record in self.records.iter_mut().flatten().filter(|record| slots.is_out(record.slot)) {
            any = true;
            let age = now.saturating_duration_since(*record.seen.get_or_insert(now));
            if age >= limit && !record.told {
                record.told = true;
                out.push(record.outstanding(now));
            }
        }
        any
    }
}
