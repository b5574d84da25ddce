//! What a pool has done and holds, per shard and in sum.
//!
//! Figures of one shard agree with each other: they are taken between two transitions. Those of two shards are taken at
//! slightly different times.

use std::panic::Location;
use std::time::Duration;

use super::histogram::WaitHistogram;
use super::scheduler::{CloseReason, Counters, Gauges, Outstanding};
use crate::runtime::CoreId;

/// One shard's counts since it began, and what it holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardStats {
    /// The shard's core.
    pub core: CoreId,
    /// Acquires asked of this shard, by its own core's tasks and by others.
    pub acquires: u64,
    /// Served from an idle connection at once.
    pub granted_immediately: u64,
    /// Served after a wait.
    pub granted_after_wait: u64,
    /// Admitted, but not served at once.
    pub capacity_waits: u64,
    /// Given up by the caller.
    pub cancelled: u64,
    /// Refused because the deadline had come.
    pub timed_out: u64,
    /// Refused because too many waited.
    pub saturated: u64,
    /// Refused because they could not have been served before their deadline.
    pub would_miss: u64,
    /// Shed from the queue of a handle that did not drain.
    pub shed: u64,
    /// Held back, at first, because their handle had as many leases as it may; part of `capacity_waits`.
    pub limit_waits: u64,
    /// Served after a wait that the pool was told to warn of.
    pub slow_acquires: u64,
    /// How long those waited that were served after a wait (`granted_after_wait`), from the end of the turn in which
    /// they came. A wait is added at the end of the turn in which the connection is collected. Those that
    /// another core served instead are missing; one that is decided anew, because its connection turned out unfit on
    /// the way to another core, may be missing or be there twice.
    pub waits: WaitHistogram,
    /// Leases that were out for longer than the pool was told that leases should be.
    pub leaks: u64,
    /// Refused for another reason: closed, failed, deregistered or no connection could be opened.
    pub refused: u64,
    /// Acquires of this core's tasks that were sent to another core's shard.
    pub forwards: u64,
    /// Acquires of this core's tasks that were offered to another shard, this one being exhausted: see
    /// [`Affinity::Spill`](super::Affinity::Spill).
    pub spills: u64,
    /// Those of them that were served there. They are among this shard's acquires, not among the other's.
    pub spills_granted: u64,
    /// Connections lent to other cores.
    pub lends: u64,
    /// Attempts to connect.
    pub opens: u64,
    /// Attempts that failed.
    pub connect_failures: u64,
    /// Connections closed, by [`CloseReason`] in the order of [`CloseReason::ALL`].
    pub closes: [u64; CloseReason::ALL.len()],
    /// Times this shard would have opened a connection, and all that the pool may have were there: see
    /// [`max_connections`](super::PoolBuilder::max_connections).
    pub hungry_waits: u64,
    /// Scheduler tasks ever started: one per shard, for its whole life.
    pub scheduler_spawns: u64,
    /// Scheduler panics.
    pub scheduler_failures: u64,
    /// Acquires waiting now.
    pub waiting: usize,
    /// Of those, how many are held back by the limit of their handle.
    pub held_back: usize,
    /// Connections idle now.
    pub idle: usize,
    /// Connections leased now, or granted and not yet collected.
    pub leased: usize,
    /// Connections being opened now.
    pub opening: usize,
    /// Idle connections that are away for a health check now.
    pub checking: usize,
    /// Connections being closed now.
    pub closing: usize,
    /// Of the connections that the pool may have, those that this shard has, or may open now.
    pub credits: usize,
}

impl ShardStats {
    pub(crate) fn new(core: CoreId) -> ShardStats {
        ShardStats::collect(core, &Counters::default(), Gauges::default())
    }

    pub(crate) fn collect(core: CoreId, counters: &Counters, gauges: Gauges) -> ShardStats {
        ShardStats {
            core,
            acquires: counters.acquires(),
            granted_immediately: counters.granted_immediately,
            granted_after_wait: counters.granted_after_wait,
            capacity_waits: counters.capacity_waits,
            cancelled: counters.cancelled,
            timed_out: counters.timed_out,
            saturated: counters.saturated,
            would_miss: counters.would_miss,
            shed: counters.shed,
            limit_waits: counters.limit_waits,
            slow_acquires: 0,
            waits: WaitHistogram::default(),
            leaks: 0,
            refused: counters.deregistered
                + counters.refused_closed
                + counters.refused_failed
                + counters.refused_connect,
            forwards: 0,
            spills: 0,
            spills_granted: 0,
            lends: 0,
            opens: counters.opens,
            connect_failures: counters.connect_failures,
            closes: counters.closes,
            hungry_waits: 0,
            scheduler_spawns: 0,
            scheduler_failures: 0,
            waiting: gauges.waiting,
            held_back: gauges.held_back,
            idle: gauges.idle,
            leased: gauges.leased,
            opening: gauges.opening,
            checking: gauges.checking,
            closing: gauges.closing,
            credits: 0,
        }
    }

    /// Connections closed for `reason`.
    pub fn closed_for(&self, reason: CloseReason) -> u64 {
        self.closes[reason as usize]
    }

    /// Connections that exist now: idle, leased, being opened, checked or closed.
    pub fn connections(&self) -> usize {
        self.idle + self.leased + self.opening + self.checking + self.closing
    }
}

/// A lease that is out, as a pool that [detects leaks](super::PoolBuilder::detect_leaks) knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutstandingLease {
    /// The core whose shard the connection belongs to.
    pub core: CoreId,
    /// The id of the handle that it was acquired by.
    pub handle: u64,
    /// Where in the program it was acquired.
    pub site: &'static Location<'static>,
    /// How long it has been seen to be out. It is older, by the time between two looks at most: a quarter of the time
    /// after which a lease counts as leaked.
    pub age: Duration,
}

impl OutstandingLease {
    pub(crate) fn new(core: CoreId, lease: Outstanding) -> OutstandingLease {
        OutstandingLease { core, handle: lease.handle.0, site: lease.site, age: lease.age }
    }
}

/// The counts of all shards of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// The pool's id, unique in the process.
    pub pool: u64,
    /// One entry per core, in the runtime's order.
    pub shards: Vec<ShardStats>,
}

impl PoolStats {
    /// The sum of one count over all shards.
    pub fn sum(&self, count: impl Fn(&ShardStats) -> u64) -> u64 {
        self.shards.iter().map(count).sum()
    }

    /// How long acquires waited, on all shards.
    pub fn waits(&self) -> WaitHistogram {
        let mut waits = WaitHistogram::default();
        self.shards.iter().for_each(|shard| waits.merge(&shard.waits));
        waits
    }
}
