//! Acquires that find their own shard exhausted and are offered to another: once, to the better of two that are drawn.
//!
//! The power of two choices (Mitzenmacher): of two shards drawn at random, the one with more to spare. It needs no
//! order over all of them, and keeps loads close together where one random choice piles them up. What is compared are
//! hints, published at the ends of turns and perhaps outdated; so the other shard decides, at once, and never queues
//! what it cannot serve.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::time::Duration;

use super::observe::Waiting;
use super::{Applicant, Granted, Shard};
use crate::pool::connector::Connector;
use crate::pool::event::EventKind;
use crate::pool::remote::{Command, Token};
use crate::pool::scheduler::{Asker, Elsewhere, HandleId};

/// The hint of a shard that has given none yet.
pub(crate) const UNKNOWN: u64 = u64::MAX;

pub(super) struct Spills {
    /// Somebody in the pool spills, and wants this shard's hints.
    hinting: Cell<bool>,
    published: Cell<u64>,
    drawn: Cell<u64>,
    pub(super) asked: Cell<u64>,
    pub(super) granted: Cell<u64>,
}

impl Spills {
    pub(super) fn new() -> Spills {
        let (hinting, published, drawn) = (Cell::new(false), Cell::new(UNKNOWN), Cell::new(0));
        Spills { hinting, published, drawn, asked: Cell::new(0), granted: Cell::new(0) }
    }
}

/// What a shard has to spare, as it last said: the more the better, and fewer waiters if that is equal. One that has not
/// said is asked if there is no better.
fn worth(hint: u64, asked: usize) -> Option<(u32, u32)> {
    if hint == UNKNOWN {
        return Some((0, 0));
    }
    let idle = ((hint >> 32) as u32).saturating_sub(asked as u32);
    (idle > 0).then_some((idle, !(hint as u32)))
}

impl<C: Connector> Shard<C> {
    /// Starts to publish hints, if anybody wants them.
    pub(crate) fn start_hinting(&self) {
        self.spills.hinting.set(self.shared.wants_hints());
        self.publish_hint();
    }

    /// At the end of a turn: tells the other cores what this one has to spare, if that has changed.
    #[inline]
    pub(crate) fn publish_hint(&self) {
        if self.spills.hinting.get() {
            let hint = self.state.borrow().hint();
            if self.spills.published.replace(hint) != hint {
                self.shared.links[self.index].hint.store(hint, Ordering::Relaxed);
            }
        }
    }

    /// Offers an acquire to another shard, if this one has nothing for it and the other seems to.
    pub(crate) fn spill(
        &self,
        asker: &Asker,
        timeout: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Option<Token> {
        let can_open = self.shared.ledger.has_free() || self.spare_credits() > 0;
        if self.ended.get() || !self.state.borrow().is_exhausted(can_open) {
            return None;
        }
        let to = self.better_of_two()?;
        let token = self.forwards.borrow_mut().begin(to, cx.waker().clone(), timeout, Some(asker.handle));
        self.spills.asked.set(self.spills.asked.get() + 1);
        self.unclocked.set(true);
        self.begin_span(Waiting::Elsewhere(token), asker);
        self.shared.send(to, Command::Spill { asker: *asker, from: self.index, token });
        self.observe(|| EventKind::Spilled { to: self.shared.links[to].core });
        Some(token)
    }

    /// Draws two other shards and takes the one with more to spare, less what it has been asked for already.
    fn better_of_two(&self) -> Option<usize> {
        let others = self.shared.links.len() - 1;
        let other = |drawn: usize| (self.index + 1 + drawn) % (others + 1);
        let first = self.draw(others);
        // Another one, where there is another.
        let second = (first + 1 + self.draw(others.saturating_sub(1))) % others;
        let worth = |shard: usize| {
            let hint = self.shared.links[shard].hint.load(Ordering::Relaxed);
            worth(hint, self.forwards.borrow().spilled_to(shard)).map(|worth| (worth, shard))
        };
        match (worth(other(first)), worth(other(second))) {
            (Some(first), Some(second)) if second.0 > first.0 => Some(second.1),
            (first, second) => first.or(second).map(|(_, shard)| shard),
        }
    }

    /// A number below `bound`, by Marsaglia's xorshift. Seeded by the shard's place alone, so that simulations repeat.
    fn draw(&self, bound: usize) -> usize {
        let mut drawn = self.spills.drawn.get();
        if drawn == 0 {
            drawn = (self.index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
        drawn ^= drawn << 13;
        drawn ^= drawn >> 7;
        drawn ^= drawn << 17;
        self.spills.drawn.set(drawn);
        (drawn >> 32) as usize % bound.max(1)
    }

    /// An acquire that another shard has nothing for.
    pub(super) fn answer_spill(&self, asker: Asker, shard: usize, token: Token) {
        if self.shared.has_ended(shard) {
            return;
        }
        match self.with_state(|state| state.lend_idle(&asker, |carrier| self.may_lease(carrier))) {
            Some(grant) => {
                self.watch_lease();
                let applicant = Applicant { shard, token, handle: asker.handle };
                self.lend(applicant, Granted::Spilled, grant.connection);
            }
            None => {
                self.shared.send(shard, Command::Decline { token });
                // What was found broken is to be closed.
                self.flush();
            }
        }
    }

    /// A spilled acquire has ended, without coming back to the queue here.
    pub(crate) fn count_spill(&self, fate: Elsewhere<'_>) {
        if matches!(fate, Elsewhere::Served) {
            self.spills.granted.set(self.spills.granted.get() + 1);
        }
        self.with_state(|state| state.count_elsewhere(fate));
    }

    /// The handle has gone: so have its acquires that are with another shard.
    pub(super) fn deregister_spilled(&self, handle: HandleId) {
        loop {
            let Some((to, token, waker)) = self.forwards.borrow_mut().deregister(handle) else { return };
            self.shared.send(to, Command::Cancel { from: self.index, token });
            waker.wake();
        }
    }
}
