//! What the world knows of itself, beside the pool's own counts: who holds what, what was promised, what went wrong.
//!
//! Nothing in here panics: a panic in a connector would be taken for a failed attempt, and one in a drop for worse.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Instant;

use super::order::Step;
use super::plan::Plan;
use super::random::Random;

/// How often things happened, to see that a run was about something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub matched: u64,
    pub broken_exchanges: u64,
    pub cut_exchanges: u64,
    pub leases: u64,
    pub far_leases: u64,
    /// Of another shard than asked for.
    pub spilled_leases: u64,
    pub given_up: u64,
    pub closed: u64,
    pub saturated: u64,
    pub timed_out: u64,
    pub refused_connects: u64,
    pub deregistered: u64,
    /// Held back by the limit of their handle until their time was up.
    pub limited: u64,
    pub would_miss: u64,
    pub waited: u64,
    pub kills: u64,
    /// Connections that one core gave up for another.
    pub rebalanced: u64,
    pub hungry_waits: u64,
    /// Connections that were idle for too long, that were too old, of no use any more, or too many.
    pub idled: u64,
    pub expired: u64,
    pub superseded: u64,
    pub resized: u64,
    /// Opens of a shard beyond its acquires.
    pub prepared: u64,
    pub checks: u64,
    /// The most that an acquire took beyond its limit, in nanoseconds.
    pub overrun: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.matched += other.matched;
        self.broken_exchanges += other.broken_exchanges;
        self.cut_exchanges += other.cut_exchanges;
        self.leases += other.leases;
        self.far_leases += other.far_leases;
        self.spilled_leases += other.spilled_leases;
        self.given_up += other.given_up;
        self.closed += other.closed;
        self.saturated += other.saturated;
        self.timed_out += other.timed_out;
        self.refused_connects += other.refused_connects;
        self.deregistered += other.deregistered;
        self.limited += other.limited;
        self.would_miss += other.would_miss;
        self.waited += other.waited;
        self.kills += other.kills;
        self.rebalanced += other.rebalanced;
        self.hungry_waits += other.hungry_waits;
        self.idled += other.idled;
        self.expired += other.expired;
        self.superseded += other.superseded;
        self.resized += other.resized;
        self.prepared += other.prepared;
        self.checks += other.checks;
        self.overrun = self.overrun.max(other.overrun);
    }
}

#[derive(Debug)]
pub struct Book {
    pub random: Random,
    /// Nothing goes wrong any more from here on.
    pub friendly: bool,
    /// Since when the pool is being closed.
    pub closing: Option<Instant>,
    /// Since when a core is gone.
    pub killed: Vec<Option<Instant>>,
    /// Connections of each shard: being opened, there, or not yet closed.
    pub live: Vec<usize>,
    /// The most connections that all shards together may have, and may still have had since the limit was lowered.
    pub max_connections: (usize, usize),
    /// The same of the slots of each shard.
    pub slots: (usize, usize),
    /// Connections of an earlier number are of no use any more.
    pub moved: u64,
    pub attempts: Vec<u64>,
    pub failed_attempts: Vec<u64>,
    pub held: usize,
    /// Whose connection comes from which address.
    pub shard_of: BTreeMap<SocketAddr, usize>,
    /// The upstream's open connections.
    pub upstream: BTreeMap<u64, SocketAddr>,
    /// An exchange has begun on them and has not ended well.
    pub dirty: BTreeSet<u64>,
    /// What befell the local acquires of each shard, in order.
    pub steps: Vec<Vec<Step>>,
    pub tally: Tally,
    pub faults: Vec<String>,
    numbers: u64,
}

/// Shared by everything in one world. The one thread of the simulation takes it for moments only.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub plan: Arc<Plan>,
    book: Arc<Mutex<Book>>,
}

impl Ledger {
    pub fn new(plan: Plan) -> Ledger {
        let limit = plan.max_connections.unwrap_or(usize::MAX);
        let book = Book {
            random: Random::new(plan.seed ^ 0x626f_6f6b),
            friendly: false,
            closing: None,
            killed: vec![None; plan.cores],
            live: vec![0; plan.cores],
            max_connections: (limit, limit),
            slots: (plan.slots, plan.slots),
            moved: 0,
            attempts: vec![0; plan.cores],
            failed_attempts: vec![0; plan.cores],
            held: 0,
            shard_of: BTreeMap::new(),
            upstream: BTreeMap::new(),
            dirty: BTreeSet::new(),
            steps: vec![Vec::new(); plan.cores],
            tally: Tally::default(),
            faults: Vec::new(),
            numbers: 0,
        };
        Ledger { plan: Arc::new(plan), book: Arc::new(Mutex::new(book)) }
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        match self.book.try_lock() {
            Ok(book) => book,
            Err(TryLockError::Poisoned(book)) => book.into_inner(),
            Err(TryLockError::WouldBlock) => panic!("the book is open already, further up this very thread"),
        }
    }

    pub fn fault(&self, what: impl Into<String>) {
        self.book().faults.push(what.into());
    }

    /// A number nobody else gets: for requests, connections, acquires and handles.
    pub fn number(&self) -> u64 {
        let mut book = self.book();
        book.numbers += 1;
        book.numbers
    }

    /// Whether something that happens one in `chances` times happens now.
    pub fn strikes(&self, chances: usize) -> bool {
        let mut book = self.book();
        !book.friendly && chances != usize::MAX && book.random.one_in(chances)
    }

    /// Connections that the upstream has open, by shard, and how many it cannot attribute.
    pub fn upstream_counts(&self) -> (Vec<usize>, usize) {
        let book = self.book();
        let (mut counts, mut strangers) = (vec![0; self.plan.cores], 0);
        for address in book.upstream.values() {
            match book.shard_of.get(address) {
                Some(shard) => counts[*shard] += 1,
                None => strangers += 1,
            }
        }
        (counts, strangers)
    }
}

/// One connection, or the attempt at one, for as long as it occupies its slot.
#[derive(Debug)]
pub struct Mark {
    ledger: Ledger,
    shard: usize,
    pub id: u64,
}

impl Mark {
    pub fn new(ledger: &Ledger, shard: usize) -> Mark {
        let id = ledger.number();
        let (live, slots, all, most) = {
            let mut book = ledger.book();
            book.attempts[shard] += 1;
            book.live[shard] += 1;
            (book.live[shard], book.slots.1, book.live.iter().sum::<usize>(), book.max_connections.1)
        };
        if all > most {
            ledger.fault(format!("there are {all} connections, and {most} may be"));
        }
        if live > slots {
            ledger.fault(format!("shard {shard} has {live} connections, and {slots} slots"));
        }
        Mark { ledger: ledger.clone(), shard, id }
    }

    pub fn shard(&self) -> usize {
        self.shard
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.ledger.book().live[self.shard] -= 1;
    }
}

/// A lease that is out.
#[derive(Debug)]
pub struct Held(Ledger);

impl Held {
    pub fn new(ledger: &Ledger) -> Held {
        ledger.book().held += 1;
        Held(ledger.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.book().held -= 1;
    }
}
