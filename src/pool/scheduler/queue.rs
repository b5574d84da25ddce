//! The waiters of one shard: queued until their fate is known, then kept until their owner has collected it.
//!
//! It decides nobody's fate. It knows each waiter's place, deadline and reply address, and forgets a waiter
//! in constant time wherever it stands.
//!
//! A queued waiter is on a line of the rotation, one that is settled and whose notice was not polled on `fresh`; one
//! whose notice was polled is on no list, and is found by its owner's key.

use std::time::{Duration, Instant};

use super::links::{Linked, Links, List, NONE};
use super::rotation::Rotation;
use super::{HandleId, Notice, Refusal, SlotId, Ticket, WaiterKey};
use crate::pool::Fairness;
use crate::runtime::timer::{DeadlineKey, DeadlineQueue};

/// All waiters of a shard.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Waiters<W> {
    entries: Vec<Entry<W>>,
    rotation: Rotation,
    deadlines: DeadlineQueue<WaiterKey>,
    /// Queued since the clocks were last started. Some may be gone by now.
    unclocked: Vec<WaiterKey>,
    free: List,
    fresh: List,
    queued: usize,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Entry<W> {
    fate: Fate,
    /// Present until the notice is polled.
    reply: Option<W>,
    timeout: Option<Duration>,
    deadline: Option<DeadlineKey>,
    /// When its clock was started.
    since: Option<Instant>,
    handle: HandleId,
    /// Its line in the rotation, while it is queued.
    line: u32,
    links: Links,
    /// Moves on when the entry falls free: from then on no key of the old waiter matches.
    generation: u32,
}

/// What is known of a waiter.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    /// There is no waiter in this entry.
    Free,
    /// Nothing yet.
    Queued,
    /// That slot is reserved for it.
    Granted(SlotId),
    /// It gets this instead of a slot.
    Refused(Box<Refusal>),
}

impl<W> Linked for Entry<W> {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl<W> Waiters<W> {
    pub(super) fn new(fairness: Fairness) -> Self {
        Self {
            entries: Vec::new(),
            rotation: Rotation::new(fairness),
            deadlines: DeadlineQueue::new(),
            unclocked: Vec::new(),
            free: List::new(),
            fresh: List::new(),
            queued: 0,
        }
    }

    /// Queues a waiter behind those of its line.
    pub(super) fn enqueue(&mut self, handle: HandleId, ticket: Ticket<W>) -> WaiterKey {
        let Ticket { reply, timeout } = ticket;
        let index = match self.free.pop_front(&mut self.entries) {
            Some(index) => index,
            None => {
                assert!(self.entries.len() < NONE as usize, "a shard has fewer than 2^32 - 1 waiters");
                self.entries.push(Entry {
                    fate: Fate::Free,
                    reply: None,
                    timeout: None,
                    deadline: None,
                    since: None,
                    handle,
                    line: NONE,
                    links: Links::new(),
                    generation: 0,
                });
                (self.entries.len() - 1) as u32
            }
        };
        let key = self.key(index);
        let line = self.rotation.join(handle, &mut self.entries, index);
        self.unclocked.push(key);
        let entry = &mut self.entries[index as usize];
        entry.fate = Fate::Queued;
        let nothing = entry.reply.replace(reply);
        debug_assert!(nothing.is_none(), "a free entry has nobody to tell");
        // Nothing to drop, and the path of every wait should not have to find that out.
        std::mem::forget(nothing);
        entry.timeout = timeout;
        entry.since = None;
        entry.handle = handle;
        entry.line = line;
        self.queued += 1;
        key
    }

    /// Queues a waiter that has been served before and to no avail: in front of its line.
    pub(super) fn requeue(&mut self, handle: HandleId, ticket: Ticket<W>) -> WaiterKey {
        let key = self.enqueue(handle, ticket);
        let line = self.entries[key.index as usize].line;
        self.rotation.advance(line, &mut self.entries, key.index);
        key
    }

    /// What was queued since the last call, and still is, counts its time from `now`. Most waiters are served sooner
    /// and cost neither a look at the clock nor a deadline.
    pub(super) fn start_clocks(&mut self, now: Instant) {
        let mut unclocked = std::mem::take(&mut self.unclocked);
        for waiter in unclocked.drain(..) {
            if !matches!(self.fate(waiter), Fate::Queued) {
                continue;
            }
            let entry = &mut self.entries[waiter.index as usize];
            entry.since = Some(now);
            let deadline = entry.timeout.and_then(|timeout| now.checked_add(timeout));
            entry.deadline = deadline.map(|at| self.deadlines.insert(at, waiter));
        }
        self.unclocked = unclocked;
    }

    /// Gives `slot` to the waiter whose turn it is.
    pub(super) fn grant_next(&mut self, slot: SlotId) -> Option<WaiterKey> {
        let index = self.rotation.serve(&mut self.entries)?;
        self.settle(index, Fate::Granted(slot));
        Some(self.key(index))
    }

    /// As [`grant_next`](Waiters::grant_next), and gives the notice at once.
    pub(super) fn serve_next(&mut self, slot: SlotId) -> Option<Notice<W>> {
        let index = self.rotation.serve(&mut self.entries)?;
        self.cancel_deadline(index);
        self.queued -= 1;
        let waiter = self.key(index);
        let entry = &mut self.entries[index as usize];
        entry.fate = Fate::Granted(slot);
        let Some(reply) = entry.reply.take() else {
            unreachable!("a queued waiter can be told");
        };
        Some(Notice { waiter, reply })
    }

    /// Ends a queued waiter, wherever it stands.
    pub(super) fn refuse(&mut self, waiter: WaiterKey, refusal: Refusal) {
        debug_assert!(matches!(self.fate(waiter), Fate::Queued), "only a queued waiter is refused");
        self.leave_line(waiter.index);
        self.settle(waiter.index, Fate::Refused(Box::new(refusal)));
    }

    /// Takes a grant back from a waiter that has not collected it. The notice may be out already: the refusal
    /// is what the owner then finds.
    pub(super) fn revoke(&mut self, waiter: WaiterKey, refusal: Refusal) {
        let entry = &mut self.entries[waiter.index as usize];
        debug_assert!(matches!(entry.fate, Fate::Granted(_)), "only a grant is revoked");
        entry.fate = Fate::Refused(Box::new(refusal));
    }

    /// Forgets a waiter that was granted a slot and told so.
    #[inline]
    pub(super) fn collect_told(&mut self, waiter: WaiterKey) -> Option<SlotId> {
        let entry = self.entries.get_mut(waiter.index as usize)?;
        let Fate::Granted(slot) = entry.fate else { return None };
        if entry.generation != waiter.generation || entry.reply.is_some() {
            return None;
        }
        entry.fate = Fate::Free;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push_front(&mut self.entries, waiter.index);
        Some(slot)
    }

    /// Forgets a waiter whose fate is known and gives it; leaves one that is queued where it is.
    pub(super) fn settle_up(&mut self, waiter: WaiterKey) -> Fate {
        let index = waiter.index;
        let Some(entry) =
            self.entries.get_mut(index as usize).filter(|entry| entry.generation == waiter.generation)
        else {
            return Fate::Free;
        };
        if matches!(entry.fate, Fate::Queued) {
            return Fate::Queued;
        }
        let fate = std::mem::replace(&mut entry.fate, Fate::Free);
        if matches!(fate, Fate::Free) {
            return fate;
        }
        entry.generation = entry.generation.wrapping_add(1);
        if entry.reply.take().is_some() {
            self.fresh.remove(&mut self.entries, index);
        }
        self.free.push_front(&mut self.entries, index);
        fate
    }

    /// Forgets a waiter. Gives back its fate and, if it was never notified, its reply address.
    pub(super) fn remove(&mut self, waiter: WaiterKey) -> (Fate, Option<W>) {
        if matches!(self.fate(waiter), Fate::Free) {
            return (Fate::Free, None);
        }
        let index = waiter.index;
        let entry = &mut self.entries[index as usize];
        let fate = std::mem::replace(&mut entry.fate, Fate::Free);
        let reply = entry.reply.take();
        entry.generation = entry.generation.wrapping_add(1);
        match &fate {
            Fate::Queued => {
                self.leave_line(index);
                self.cancel_deadline(index);
                self.queued -= 1;
            }
            Fate::Granted(_) | Fate::Refused(_) if reply.is_some() => {
                self.fresh.remove(&mut self.entries, index);
            }
            Fate::Granted(_) | Fate::Refused(_) | Fate::Free => {}
        }
        self.free.push_front(&mut self.entries, index);
        (fate, reply)
    }

    /// The next waiter whose fate has become known.
    pub(super) fn poll_notice(&mut self) -> Option<Notice<W>> {
        let index = self.fresh.pop_front(&mut self.entries)?;
        let waiter = self.key(index);
        let entry = &mut self.entries[index as usize];
        let Some(reply) = entry.reply.take() else {
            unreachable!("a waiter keeps its reply address until its notice is polled");
        };
        Some(Notice { waiter, reply })
    }

    /// A queued waiter whose deadline has come. Its deadline is spent: it must be refused now.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<WaiterKey> {
        self.deadlines.pop_due(now)
    }

    /// The reply address of a queued waiter.
    pub(super) fn reply_mut(&mut self, waiter: WaiterKey) -> Option<&mut W> {
        match self.fate(waiter) {
            Fate::Queued => self.entries[waiter.index as usize].reply.as_mut(),
            _ => None,
        }
    }

    /// What is known of a waiter; `Free` for a stale key.
    pub(super) fn fate(&self, waiter: WaiterKey) -> &Fate {
        match self.entries.get(waiter.index as usize) {
            Some(entry) if entry.generation == waiter.generation => &entry.fate,
            _ => &Fate::Free,
        }
    }

    /// Whoever would be served next.
    pub(super) fn first(&self) -> Option<WaiterKey> {
        self.rotation.first().map(|index| self.key(index))
    }

    /// The first waiter of the line in which this handle's waiters stand. Walk on with
    /// [`Waiters::next_beside`] and look at [`Waiters::handle`]: under FIFO others stand there too.
    pub(super) fn first_beside(&self, handle: HandleId) -> Option<WaiterKey> {
        self.rotation.first_beside(handle).map(|index| self.key(index))
    }

    /// The waiters of a handle that have a grant to collect. Looks at every entry: for the few handles that go while
    /// they have one.
    pub(super) fn granted_to(&self, handle: HandleId) -> Vec<WaiterKey> {
        let granted = |entry: &Entry<W>| entry.handle == handle && matches!(entry.fate, Fate::Granted(_));
        (0..self.entries.len() as u32)
            .filter(|index| granted(&self.entries[*index as usize]))
            .map(|index| self.key(index))
            .collect()
    }

    /// The waiter behind this one on the list both are on.
    pub(super) fn next_beside(&self, waiter: WaiterKey) -> Option<WaiterKey> {
        self.entries[waiter.index as usize].links.next().map(|index| self.key(index))
    }

    /// Whose waiter it is.
    pub(super) fn handle(&self, waiter: WaiterKey) -> HandleId {
        self.entries[waiter.index as usize].handle
    }

    /// When its clock was started; none while it has not been.
    pub(super) fn since(&self, waiter: WaiterKey) -> Option<Instant> {
        self.entries[waiter.index as usize].since
    }

    /// Whether a queued waiter is among the next `bound` to be served.
    pub(super) fn is_among_next(&self, bound: usize, waiter: WaiterKey) -> bool {
        let line = self.entries[waiter.index as usize].line;
        self.rotation.is_among_next(bound, line, &self.entries, waiter.index)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    #[inline]
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    #[inline]
    pub(super) fn has_notices(&self) -> bool {
        !self.fresh.is_empty()
    }

    fn key(&self, index: u32) -> WaiterKey {
        WaiterKey { index, generation: self.entries[index as usize].generation }
    }

    fn leave_line(&mut self, index: u32) {
        let line = self.entries[index as usize].line;
        self.rotation.leave(line, &mut self.entries, index);
    }

    fn cancel_deadline(&mut self, index: u32) {
        if let Some(deadline) = self.entries[index as usize].deadline.take() {
            self.deadlines.cancel(deadline);
        }
    }

    fn settle(&mut self, index: u32, fate: Fate) {
        self.cancel_deadline(index);
        self.queued -= 1;
        self.entries[index as usize].fate = fate;
        self.fresh.push_back(&mut self.entries, index);
    }

    /// Every waiter is on the list its fate says; only queued ones have deadlines. Gives the slots that are
    /// reserved for somebody.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) -> Vec<SlotId> {
        let standing = self.rotation.check_invariants(&self.entries);
        assert_eq!(standing.len(), self.queued, "the count of queued waiters is that of the lines");
        let fresh: Vec<u32> = self.fresh.iter(&self.entries).collect();
        let free: Vec<u32> = self.free.iter(&self.entries).collect();
        assert_eq!(fresh.len(), self.fresh.len());
        let (mut reserved, mut silent, mut deadlines) = (Vec::new(), 0, 0);
        for entry in &self.entries {
            deadlines += usize::from(entry.deadline.is_some());
            match &entry.fate {
                Fate::Free => assert!(entry.reply.is_none() && entry.deadline.is_none()),
                Fate::Queued => assert!(entry.reply.is_some(), "a queued waiter can be told"),
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
        let listed = standing.len() + fresh.len() + free.len() + silent;
        assert_eq!(listed, self.entries.len(), "no waiter is lost");
        reserved
    }
}
