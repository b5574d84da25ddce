//! What a pool may be told when it is built.

use std::time::Duration;

use super::connector::Connector;
use super::error::BuildError;
use super::ledger::UNLIMITED;
use super::pools::Pool;
use super::scheduler::{Backoff, Limits};
use crate::runtime::RuntimeHandle;

/// In which order the waiters of one shard are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fairness {
    /// By arrival: the oldest live waiter first.
    #[default]
    Fifo,
    /// Handles take turns; inside one handle the oldest waiter first.
    RoundRobin,
}

/// Where an acquire may be served. It can be set for a pool and for each [`Handle`](super::Handle).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Affinity {
    /// By its own shard only.
    #[default]
    Local,
    /// By its own shard, unless that is exhausted: nothing is idle there, and nothing can be opened at once. Then it is
    /// offered to another shard, once: to the better of two that are drawn, if that seems to have an idle connection.
    /// If it has, the connection comes over for the length of the lease; otherwise the acquire is queued at home, with
    /// what is left of its time. Only handles of their own core's shard spill.
    ///
    /// The order in which a shard serves its waiters holds for those that wait there. An acquire that is served
    /// elsewhere may be served before them.
    Spill,
}

/// Settings of a pool, without its connector.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) slots: usize,
    pub(crate) max_connections: usize,
    pub(crate) max_waiters: usize,
    pub(crate) max_connecting: usize,
    pub(crate) fairness: Fairness,
    pub(crate) affinity: Affinity,
    pub(crate) acquire_timeout: Option<Duration>,
    pub(crate) connect_timeout: Duration,
    pub(crate) backoff: Backoff,
}

impl Settings {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            slots: self.slots,
            max_waiters: self.max_waiters,
            max_connecting: self.max_connecting,
            fairness: self.fairness,
            backoff: self.backoff,
        }
    }
}

/// Settings of a pool. Made by [`Pool::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct PoolBuilder<C> {
    connector: C,
    settings: Settings,
}

impl<C: Connector> PoolBuilder<C> {
    pub(crate) fn new(connector: C) -> PoolBuilder<C> {
        PoolBuilder {
            connector,
            settings: Settings {
                slots: 4,
                max_connections: UNLIMITED,
                max_waiters: 1024,
                max_connecting: 4,
                fairness: Fairness::Fifo,
                affinity: Affinity::Local,
                acquire_timeout: Some(Duration::from_secs(5)),
                connect_timeout: Duration::from_secs(5),
                backoff: Backoff { initial: Duration::from_millis(10), max: Duration::from_secs(1) },
            },
        }
    }

    /// Connections each core may have at most, those being opened or closed included (1 to 65,536; 4 by default).
    pub fn slots_per_core(mut self, slots: usize) -> Self {
        self.settings.slots = slots;
        self
    }

    /// Connections all cores together may have at most, those being opened or closed included (1 to 1,073,741,824; only
    /// [`slots_per_core`](PoolBuilder::slots_per_core) counts by default).
    ///
    /// The limit is strict: at no instant are there more, whichever cores they are on. What it leaves goes to where it
    /// is asked for. A core that waits for a connection while the limit is reached gets one from a core that has one to
    /// spare, which closes it: after a moment of disuse, or at once if that core has more than a fair share (the limit
    /// divided by the cores) and the other has less. No core keeps another from having any for ever, even if there are
    /// fewer connections than cores.
    pub fn max_connections(mut self, limit: usize) -> Self {
        self.settings.max_connections = limit;
        self
    }

    /// Acquires that may wait at one shard at the same time (1 to 16,777,216; 1,024 by default); more are refused with
    /// [`AcquireError::Saturated`](super::AcquireError::Saturated).
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.settings.max_waiters = max_waiters;
        self
    }

    /// Connections one shard opens at the same time (at least 1; 4 by default).
    pub fn max_connecting(mut self, max_connecting: usize) -> Self {
        self.settings.max_connecting = max_connecting;
        self
    }

    /// In which order waiters are served; FIFO by default.
    pub fn fairness(mut self, fairness: Fairness) -> Self {
        self.settings.fairness = fairness;
        self
    }

    /// Where acquires may be served; by their own shard only, by default. A handle may have an affinity of its own: see
    /// [`Handle::with_affinity`](super::Handle::with_affinity).
    pub fn affinity(mut self, affinity: Affinity) -> Self {
        self.settings.affinity = affinity;
        self
    }

    /// How long an acquire may take in all, waiting and connecting included; 5 s by default.
    pub fn acquire_timeout(mut self, limit: Duration) -> Self {
        self.settings.acquire_timeout = Some(limit);
        self
    }

    /// Lets acquires wait for as long as it takes.
    pub fn no_acquire_timeout(mut self) -> Self {
        self.settings.acquire_timeout = None;
        self
    }

    /// How long one attempt to connect may take, its handshake included; 5 s by default. The attempt belongs to the
    /// pool: it goes on when the acquire that caused it has been given up.
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.settings.connect_timeout = limit;
        self
    }

    /// How long a shard waits after a failed attempt to connect before the next: from `initial`, doubling with each
    /// failure, up to `max`; 10 ms to 1 s by default.
    pub fn connect_backoff(mut self, initial: Duration, max: Duration) -> Self {
        self.settings.backoff = Backoff { initial, max: max.max(initial) };
        self
    }

    /// Makes a shard, with its scheduler actor, on every core of `runtime`.
    ///
    /// # Errors
    /// [`BuildError`] for a setting out of range, or a runtime that has ended.
    pub fn build(self, runtime: &RuntimeHandle) -> Result<Pool<C>, BuildError> {
        let ranges = [
            ("slots_per_core", self.settings.slots, 1 << 16, "1 to 65,536"),
            ("max_connections", self.settings.max_connections, UNLIMITED, "1 to 1,073,741,824"),
            ("max_waiters", self.settings.max_waiters, 1 << 24, "1 to 16,777,216"),
            ("max_connecting", self.settings.max_connecting, usize::MAX, "at least 1"),
        ];
        for (what, got, most, expected) in ranges {
            if !(1..=most).contains(&got) {
                return Err(BuildError::InvalidSetting { what, expected, got });
            }
        }
        Pool::start(self.connector, self.settings, runtime)
    }
}
