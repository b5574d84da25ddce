//! What a pool has done and holds, per shard and in sum.

use super::scheduler::{CloseReason, Counters, Gauges};
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
}
