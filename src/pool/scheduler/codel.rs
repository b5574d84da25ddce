//! Whom to shed when a queue does not drain: the control law of CoDel ("Controlled Delay", Nichols and Jacobson,
//! RFC 8289), with waiters for packets.
//!
//! A queue that is long for a moment is doing its work. One whose waits have not once been below `target` for a whole
//! `interval` is standing: everybody in it waits longer and nobody is served sooner. Then one waiter is shed, and the
//! next the sooner the more it takes: the time between them shrinks with the square root of their number, by which the
//! arrivals that give up or slow down grow linearly.

use std::time::{Duration, Instant};

use super::asker::Shedding;

/// The state of one handle's queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Codel {
    /// If waits stay above the target until then, shedding begins.
    above_since: Option<Instant>,
    /// Present while shedding, and kept afterwards: when the next one goes.
    next: Option<Instant>,
    /// Shed since shedding began.
    count: u32,
    /// What `count` was when shedding last began.
    last_count: u32,
    shedding: bool,
}

/// A new stretch of shedding goes on where the last one ended if it begins within so many intervals.
const MEMORY: u32 = 16;

impl Codel {
    /// Whether the waiter that is about to be served is shed instead. `waited` is its time in the queue; `alone` says
    /// that the handle has no other waiter, for whoever is alone stands in nobody's way.
    pub(super) fn sheds(&mut self, law: Shedding, now: Instant, waited: Duration, alone: bool) -> bool {
        if !self.is_standing(law, now, waited, alone) {
            self.shedding = false;
            return false;
        }
        if !self.shedding {
            self.shedding = true;
            let before = self.count.saturating_sub(self.last_count);
            let recently = self.next.is_some_and(|next| {
                now.saturating_duration_since(next) < law.interval().saturating_mul(MEMORY)
            });
            self.count = if recently && before > 1 { before } else { 1 };
            self.last_count = self.count;
            self.next = after(now, law, self.count);
            return true;
        }
        let Some(next) = self.next.filter(|next| *next <= now) else { return false };
        self.count = self.count.saturating_add(1);
        self.next = after(next, law, self.count);
        true
    }

    /// The queue is empty.
    pub(super) fn drain(&mut self) {
        self.above_since = None;
        self.shedding = false;
    }

    /// Whether waits have been above the target for an interval.
    fn is_standing(&mut self, law: Shedding, now: Instant, waited: Duration, alone: bool) -> bool {
        if waited < law.target() || alone {
            self.above_since = None;
            return false;
        }
        match self.above_since {
            Some(until) => until <= now,
            None => {
                self.above_since = now.checked_add(law.interval());
                false
            }
        }
    }
}

fn after(time: Instant, law: Shedding, count: u32) -> Option<Instant> {
    time.checked_add(law.interval().div_f64(f64::from(count).sqrt()))
}
