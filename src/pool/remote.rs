//! Acquires for another core's shard: the commands between shards, and the asking side's record of what it waits for.
//!
//! A forwarded acquire is a token here and a waiter there. The asking core keeps the deadline and the caller; the home
//! core keeps the order and the bound. Whatever crosses on the way, a connection that arrives for a token nobody waits
//! for any more goes home again.

use std::io;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use slab::Slab;

use super::connection::Connection;
use super::connector::Connector;
use super::scheduler::{Asker, CloseReason, HandleId, Refusal, SlotId, Stage};
use super::shared::{Credit, LeaseEnd, Loan};
use super::stats::{OutstandingLease, ShardStats};
use crate::runtime::timer::{DeadlineKey, DeadlineQueue};

/// A connection between two cores.
pub(crate) type Detached<C> = <<C as Connector>::Connection as Connection>::Detached;

/// A connection that was lent, on its way to the asking core.
pub(crate) struct Lent<C: Connector> {
    pub(crate) connection: Detached<C>,
    // Dropped second: the slot is free when the connection has gone.
    pub(crate) loan: Loan<C>,
}

/// Whom to tell that a shard is warm, or why it cannot be. Dropped when the shard has stopped.
pub(crate) type Warmup = oneshot::Sender<Result<(), Arc<io::Error>>>;

/// What shards say to each other. Each core's shard of a pool reads one queue of these, and reads it the sooner the
/// fewer cache lines one takes.
pub(crate) enum Command<C: Connector> {
    /// To the home shard: a task of shard `from` asks.
    Acquire { asker: Asker, from: usize, token: Token },
    /// To any shard: a task of shard `from` asks, and is to be served at once or not at all.
    Spill { asker: Asker, from: usize, token: Token },
    /// To the asked shard: it has given up.
    Cancel { from: usize, token: Token },
    /// To the home shard: the handle is gone.
    Deregister { handle: HandleId },
    /// To the home shard: a lease on another core has ended well.
    Return { slot: SlotId, connection: Detached<C>, end: LeaseEnd<C> },
    /// To the home shard: a lease on another core has ended, and the connection with it.
    Gone { slot: SlotId, reason: CloseReason, end: LeaseEnd<C> },
    /// To the asking shard: its connection.
    Grant { token: Token, lent: Lent<C> },
    /// To the asking shard: nothing is idle for what it has spilled.
    Decline { token: Token },
    /// To the asking shard.
    Refuse { token: Token, refusal: Box<Refusal> },
    /// To a shard that goes without: it may open one connection more.
    Credit(Credit<C>),
    /// From anywhere: answered when as many connections are open as are to be kept.
    Prewarm { reply: Warmup },
    /// From anywhere.
    Leases { reply: oneshot::Sender<Vec<OutstandingLease>> },
    /// From anywhere.
    Stats { reply: oneshot::Sender<ShardStats> },
}

/// Names a forwarded acquire on its asking core. Stale once it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    index: u32,
    generation: u32,
}

/// A connection that another shard has granted.
#[derive(Debug)]
pub(crate) struct RemoteGrant<D> {
    pub(crate) home: usize,
    pub(crate) slot: SlotId,
    pub(crate) connection: D,
}

/// What became of an acquire that was sent to another shard.
#[derive(Debug)]
pub(crate) enum Answer<D> {
    Granted(RemoteGrant<D>),
    Refused(Refusal),
    /// A spilled one is to be queued at home. With the time when its clock was started, and what it had then.
    Declined {
        since: Option<Instant>,
        timeout: Option<Duration>,
    },
}

#[derive(Debug)]
enum Stand<D> {
    Waiting(Waker),
    Answered(Answer<D>),
}

#[derive(Debug)]
struct Forward<D> {
    generation: u32,
    /// The shard that was asked.
    home: usize,
    /// Whose it is, if it was spilled.
    spilled: Option<HandleId>,
    timeout: Option<Duration>,
    /// When its clock was started.
    since: Option<Instant>,
    deadline: Option<DeadlineKey>,
    stand: Stand<D>,
}

/// What giving up a forwarded acquire leaves to be done.
#[derive(Debug)]
#[must_use]
pub(crate) enum Cancelled<D> {
    /// Tell the home shard.
    Tell {
        home: usize,
    },
    /// The connection had come: send it home.
    SendHome(RemoteGrant<D>),
    Nothing,
}

/// The forwarded acquires of one core.
#[derive(Debug)]
pub(crate) struct Forwards<D> {
    forwards: Slab<Forward<D>>,
    generation: u32,
    deadlines: DeadlineQueue<Token>,
    /// Begun since the clocks were last started.
    unclocked: Vec<Token>,
    /// Spilled acquires that have no answer yet, by the shard that was asked.
    spilled: Vec<usize>,
    pub(crate) total: u64,
}

impl<D> Forwards<D> {
    pub(crate) fn new(shards: usize) -> Forwards<D> {
        Forwards {
            forwards: Slab::new(),
            generation: 0,
            deadlines: DeadlineQueue::new(),
            unclocked: Vec::new(),
            spilled: vec![0; shards],
            total: 0,
        }
    }

    /// Records an acquire that is about to be sent to `home`, which is its home, or to which it is `spilled`.
    pub(crate) fn begin(
        &mut self,
        home: usize,
        waker: Waker,
        timeout: Option<Duration>,
        spilled: Option<HandleId>,
    ) -> Token {
        let generation = self.generation;
        self.generation = generation.wrapping_add(1);
        match spilled {
            Some(_) => self.spilled[home] += 1,
            None => self.total += 1,
        }
        let stand = Stand::Waiting(waker);
        let forward = Forward { generation, home, spilled, timeout, since: None, deadline: None, stand };
        let token = Token { index: self.forwards.insert(forward) as u32, generation };
        self.unclocked.push(token);
        token
    }

    /// What was begun since the last call, and still waits, counts its time from `now`.
    pub(crate) fn start_clocks(&mut self, now: Instant) {
        let mut unclocked = std::mem::take(&mut self.unclocked);
        for token in unclocked.drain(..) {
            let Some(forward) = self.get_mut(token) else { continue };
            if !matches!(forward.stand, Stand::Waiting(_)) {
                continue;
            }
            forward.since = Some(now);
            if let Some(at) = forward.timeout.and_then(|timeout| now.checked_add(timeout)) {
                let key = self.deadlines.insert(at, token);
                if let Some(forward) = self.get_mut(token) {
                    forward.deadline = Some(key);
                }
            }
        }
        self.unclocked = unclocked;
    }

    fn get_mut(&mut self, token: Token) -> Option<&mut Forward<D>> {
        self.forwards.get_mut(token.index as usize).filter(|forward| forward.generation == token.generation)
    }

    /// The outcome, once; the record is then gone.
    pub(crate) fn poll(&mut self, token: Token, waker: &Waker) -> Poll<Answer<D>> {
        let Some(forward) = self.get_mut(token) else {
            unreachable!("a forwarded acquire is polled by its one owner, and not after its end")
        };
        if let Stand::Waiting(kept) = &mut forward.stand {
            if !kept.will_wake(waker) {
                kept.clone_from(waker);
            }
            return Poll::Pending;
        }
        match self.forwards.remove(token.index as usize).stand {
            Stand::Answered(answer) => Poll::Ready(answer),
            Stand::Waiting(_) => unreachable!("looked at above"),
        }
    }

    /// The caller has given up.
    pub(crate) fn cancel(&mut self, token: Token) -> Cancelled<D> {
        if self.get_mut(token).is_none() {
            return Cancelled::Nothing;
        }
        let forward = self.forwards.remove(token.index as usize);
        if let Some(key) = forward.deadline {
            self.deadlines.cancel(key);
        }
        match forward.stand {
            Stand::Waiting(_) => {
                self.spilled[forward.home] -= usize::from(forward.spilled.is_some());
                Cancelled::Tell { home: forward.home }
            }
            Stand::Answered(Answer::Granted(grant)) => Cancelled::SendHome(grant),
            Stand::Answered(_) => Cancelled::Nothing,
        }
    }

    /// The asked shard has answered. Gives the waker to call, or the answer back when nobody waits for it.
    pub(crate) fn resolve(&mut self, token: Token, answer: Answer<D>) -> Result<Waker, Answer<D>> {
        let Some(forward) = self.get_mut(token) else { return Err(answer) };
        if !matches!(forward.stand, Stand::Waiting(_)) {
            return Err(answer);
        }
        let deadline = forward.deadline.take();
        let Stand::Waiting(waker) = std::mem::replace(&mut forward.stand, Stand::Answered(answer)) else {
            unreachable!("looked at above")
        };
        let (home, spilled) = (forward.home, forward.spilled.is_some());
        self.spilled[home] -= usize::from(spilled);
        if let Some(key) = deadline {
            self.deadlines.cancel(key);
        }
        Ok(waker)
    }

    /// The next forwarded acquire whose time is up: whom to tell, and whom to wake.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(usize, Token, Waker)> {
        let token = self.deadlines.pop_due(now)?;
        let queued = self.forwards.len();
        let Some(forward) = self.get_mut(token) else {
            unreachable!("a deadline is cancelled together with its acquire")
        };
        forward.deadline = None;
        let refusal = Refusal::TimedOut {
            stage: Stage::Forwarded,
            waited: forward.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
            queued,
            position: 0,
            last_connect_error: None,
        };
        match std::mem::replace(&mut forward.stand, Stand::Answered(Answer::Refused(refusal))) {
            Stand::Waiting(waker) => {
                let (home, spilled) = (forward.home, forward.spilled.is_some());
                self.spilled[home] -= usize::from(spilled);
                Some((home, token, waker))
            }
            _ => unreachable!("the deadline of an answered acquire is cancelled"),
        }
    }

    /// Nothing is idle there for a spilled acquire. Gives the waker to call.
    pub(crate) fn decline(&mut self, token: Token) -> Option<Waker> {
        let Forward { since, timeout, .. } = *self.get_mut(token)?;
        self.resolve(token, Answer::Declined { since, timeout }).ok()
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// Spilled acquires that `shard` has not answered.
    pub(crate) fn spilled_to(&self, shard: usize) -> usize {
        self.spilled[shard]
    }

    /// Refuses the next unanswered spilled acquire of `handle`, which has gone: whom to tell, and whom to wake.
    pub(crate) fn deregister(&mut self, handle: HandleId) -> Option<(usize, Token, Waker)> {
        if self.spilled.iter().all(|count| *count == 0) {
            return None;
        }
        let of_handle = |forward: &Forward<D>| {
            forward.spilled == Some(handle) && matches!(forward.stand, Stand::Waiting(_))
        };
        let (index, forward) = self.forwards.iter().find(|(_, forward)| of_handle(forward))?;
        let (home, token) = (forward.home, Token { index: index as u32, generation: forward.generation });
        let waker = self.resolve(token, Answer::Refused(Refusal::Deregistered)).ok()?;
        Some((home, token, waker))
    }

    /// A shard has ended: what was forwarded to it ends, what was spilled to it is declined. Gives the wakers to call.
    pub(crate) fn fail_home(&mut self, home: usize, refusal: &Refusal) -> Vec<Waker> {
        let waiting: Vec<(Token, Answer<D>)> = self
            .forwards
            .iter()
            .filter(|(_, forward)| forward.home == home && matches!(forward.stand, Stand::Waiting(_)))
            .map(|(index, forward)| {
                let answer = match forward.spilled {
                    Some(_) => Answer::Declined { since: forward.since, timeout: forward.timeout },
                    None => Answer::Refused(refusal.clone()),
                };
                (Token { index: index as u32, generation: forward.generation }, answer)
            })
            .collect();
        waiting.into_iter().filter_map(|(token, answer)| self.resolve(token, answer).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::TcpConnector;

    #[test]
    fn a_command_and_the_queues_mark_on_it_take_one_cache_line() {
        assert!(size_of::<Command<TcpConnector>>() + size_of::<usize>() <= 64);
    }
}
