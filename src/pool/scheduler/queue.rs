//! The waiters of one shard: queued until their fate is known, then kept until their owner has collected it.
//!
//! It decides nobody's fate. It knows each waiter's place, deadline and reply address, and forgets a waiter
//! in constant time wherever it stands.
//!
//! A queued waiter is on a line of the rotation, or held back with its handle's account; one that is settled and whose
//! notice was not polled on `fresh`; one whose notice was polled is on no list, and is found by its owner's key.

#[cfg(test)]
mod invariants;
mod places;
mod rules;

use std::time::{Duration, Instant};

use super::accounts::Accounts;
use super::asker::Asker;
use super::links::{Linked, Links, List, NONE};
use super::pace::Pace;
use super::rotation::Rotation;
use super::{Notice, Refusal, SlotId, Ticket, WaiterKey};
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
    /// Waiters in line. A connection that becomes free goes to one of them.
    queued: usize,
    /// Waiters in no line, because their handle has as many leases as it may.
    held_back: usize,
    pub(super) accounts: Accounts,
    pub(super) pace: Pace,
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
    asker: Asker,
    /// How many waited when it came.
    entered_at: u32,
    /// That of its handle, while it is queued; [`NONE`] if the handle is held to nothing.
    account: u32,
    /// Its line in the rotation, while it stands in one; [`NONE`] while it is held back.
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
            held_back: 0,
            accounts: Accounts::default(),
            pace: Pace::default(),
        }
    }

    /// Queues a waiter behind those of its line.
    #[inline(always)]
    pub(super) fn enqueue(&mut self, asker: &Asker, ticket: Ticket<W>) -> WaiterKey {
        let Ticket { reply, timeout } = ticket;
        let index = match self.free.pop_front(&mut self.entries) {
            Some(index) => index,
            None => self.add_entry(asker),
        };
        let key = self.key(index);
        self.unclocked.push(key);
        let entered_at = self.waiting() as u32;
        let entry = &mut self.entries[index as usize];
        entry.fate = Fate::Queued;
        let nothing = entry.reply.replace(reply);
        debug_assert!(nothing.is_none(), "a free entry has nobody to tell");
        // Nothing to drop, and the path of every wait should not have to find that out.
        std::mem::forget(nothing);
        entry.timeout = timeout;
        entry.since = None;
        entry.asker = *asker;
        entry.entered_at = entered_at;
        entry.account = NONE;
        if asker.rules.is_empty() {
            self.join_line(index);
        } else {
            self.join_under_rules(index);
        }
        key
    }

    /// A free entry, where there was none.
    #[cold]
    fn add_entry(&mut self, asker: &Asker) -> u32 {
        assert!(self.entries.len() < NONE as usize, "a shard has fewer than 2^32 - 1 waiters");
        self.entries.push(Entry {
            fate: Fate::Free,
            reply: None,
            timeout: None,
            deadline: None,
            since: None,
            asker: *asker,
            entered_at: 0,
            account: NONE,
            line: NONE,
            links: Links::new(),
            generation: 0,
        });
        (self.entries.len() - 1) as u32
    }

    /// Queues a waiter that has been served before and to no avail: in front of its line, or of those that are held back.
    pub(super) fn requeue(&mut self, asker: &Asker, ticket: Ticket<W>) -> WaiterKey {
        let key = self.enqueue(asker, ticket);
        let Entry { line, account, .. } = self.entries[key.index as usize];
        if line == NONE {
            let held_back = &mut self.accounts.get_mut(account).held_back;
            held_back.remove(&mut self.entries, key.index);
            held_back.push_front(&mut self.entries, key.index);
        } else {
            self.rotation.advance(line, &mut self.entries, key.index);
        }
        key
    }

    #[inline(always)]
    fn join_line(&mut self, index: u32) {
        let handle = self.entries[index as usize].asker.handle;
        let line = self.rotation.join(handle, &mut self.entries, index);
        self.entries[index as usize].line = line;
        self.queued += 1;
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

    /// A turn has ended: the rate of serving is measured.
    pub(super) fn end_turn(&mut self, now: Instant) {
        self.pace.end_turn(now, self.queued);
    }

    /// Gives `slot` to the waiter whose turn it is.
    pub(super) fn grant_next(&mut self, slot: SlotId) -> Option<WaiterKey> {
        let index = self.serve(slot)?;
        self.settle(index, Fate::Granted(slot));
        Some(self.key(index))
    }

    /// As [`grant_next`](Waiters::grant_next), and gives the notice at once.
    #[inline(always)]
    pub(super) fn serve_next(&mut self, slot: SlotId) -> Option<Notice<W>> {
        let index = self.serve(slot)?;
        self.cancel_deadline(index);
        let waiter = self.key(index);
        let entry = &mut self.entries[index as usize];
        entry.fate = Fate::Granted(slot);
        let Some(reply) = entry.reply.take() else {
            unreachable!("a queued waiter can be told");
        };
        Some(Notice { waiter, reply })
    }

    /// Takes the waiter out whose turn it is.
    #[inline(always)]
    fn serve(&mut self, slot: SlotId) -> Option<u32> {
        let index = self.rotation.serve(&mut self.entries)?;
        self.queued -= 1;
        self.pace.grant();
        self.pace.shrink(self.queued);
        let account = self.entries[index as usize].account;
        if account != NONE {
            self.serve_under_rules(account, slot);
        }
        Some(index)
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

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    #[inline]
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// How many wait, in line or held back.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.queued + self.held_back
    }

    pub(super) fn held_back(&self) -> usize {
        self.held_back
    }

    #[inline]
    pub(super) fn has_notices(&self) -> bool {
        !self.fresh.is_empty()
    }

    fn key(&self, index: u32) -> WaiterKey {
        WaiterKey { index, generation: self.entries[index as usize].generation }
    }

    /// Takes a queued waiter out of its line, or from among those held back.
    fn leave_line(&mut self, index: u32) {
        let Entry { line, account, .. } = self.entries[index as usize];
        if line == NONE {
            self.accounts.get_mut(account).held_back.remove(&mut self.entries, index);
            self.held_back -= 1;
            return;
        }
        self.rotation.leave(line, &mut self.entries, index);
        self.queued -= 1;
        self.pace.shrink(self.queued);
        if account != NONE {
            self.accounts.get_mut(account).step_out();
            self.promote(account);
        }
    }

    fn cancel_deadline(&mut self, index: u32) {
        if let Some(deadline) = self.entries[index as usize].deadline.take() {
            self.deadlines.cancel(deadline);
        }
    }

    fn settle(&mut self, index: u32, fate: Fate) {
        self.cancel_deadline(index);
        self.entries[index as usize].fate = fate;
        self.fresh.push_back(&mut self.entries, index);
    }
}
