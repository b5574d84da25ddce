//! What a pool may be told when it is built.

use std::sync::Arc;
use std::time::Duration;

use super::connector::Connector;
use super::error::BuildError;
use super::event::{Event, Observer};
use super::ledger::UNLIMITED;
use super::pools::Pool;
use super::scheduler::{Backoff, Keep, Limits, Overload, Shedding};
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
    pub(crate) exact_admission: bool,
    pub(crate) service_time: Option<Duration>,
    pub(crate) shedding: Option<Shedding>,
    pub(crate) warn_slow_acquires: Option<Duration>,
    pub(crate) detect_leaks: Option<Duration>,
    pub(crate) observer: Option<Observer>,
    pub(crate) keep: Keep,
    pub(crate) close_timeout: Duration,
}

impl Settings {
    /// What a shard is limited to; `seed` is what its draws come from.
    pub(crate) fn limits(&self, seed: u64) -> Limits {
        Limits {
            slots: self.slots,
            max_waiters: self.max_waiters,
            max_connecting: self.max_connecting,
            fairness: self.fairness,
            backoff: self.backoff,
            overload: Overload {
                exact: self.exact_admission,
                service_time: self.service_time,
                detailed_waits: super::metrics::ENABLED || self.warn_slow_acquires.is_some(),
                leak_after: self.detect_leaks,
            },
            keep: Keep { seed, ..self.keep },
        }
    }
}

/// Whether a core may have so many slots.
pub(crate) fn check_slots(slots: usize) -> Result<(), BuildError> {
    match slots {
        1..=65_536 => Ok(()),
        got => Err(BuildError::InvalidSetting { what: "slots_per_core", expected: "1 to 65,536", got }),
    }
}

/// Settings of a pool. Made by [`Pool::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct PoolBuilder<C> {
    pub(super) connector: C,
    pub(super) settings: Settings,
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
                backoff: Backoff {
                    initial: Duration::from_millis(10),
                    max: Duration::from_secs(1),
                    breaker: Some(5),
                },
                keep: Keep { lifetime_jitter: 0.1, ..Keep::default() },
                close_timeout: Duration::from_secs(5),
                exact_admission: false,
                service_time: None,
                shedding: None,
                warn_slow_acquires: None,
                detect_leaks: None,
                observer: None,
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
    /// [`AcquireError::Saturated`](super::AcquireError::Saturated). Zero, for a pool whose acquires never wait, is
    /// possible together with [`min_idle`](PoolBuilder::min_idle): nothing else would ever open a connection.
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.settings.max_waiters = max_waiters;
        self
    }

    /// Connections that each core keeps idle or is opening, beyond those for waiters, within its slots (0 by default:
    /// nothing is opened until it is asked for). They are missing as soon as they are leased, and are opened again at
    /// the end of that turn; neither [`idle_timeout`](PoolBuilder::idle_timeout) nor
    /// [`max_lifetime`](PoolBuilder::max_lifetime) makes them fewer. More than there are slots means all slots.
    /// Where [`max_connections`](PoolBuilder::max_connections) leaves none for them, they are done without, and tried for
    /// again ten times a second; where another core's acquires wait, they are given up. See [`Pool::prewarm`].
    pub fn min_idle(mut self, connections: usize) -> Self {
        self.settings.keep.min_idle = connections;
        self
    }

    /// Closes connections that were idle for `limit`, the longest idle first, and never so many that fewer than
    /// [`min_idle`](PoolBuilder::min_idle) are left; none by default. Each is closed when between `limit` and 1.25
    /// times that has passed; limits below 8 ms are kept less exactly.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.settings.keep.idle_timeout = Some(limit);
        self
    }

    /// Closes connections that were opened `limit` ago; none by default. How long each one lives is drawn when it is
    /// opened, see [`lifetime_jitter`](PoolBuilder::lifetime_jitter). A leased one is closed when its lease ends. An
    /// idle one that [`min_idle`](PoolBuilder::min_idle) keeps is replaced first, and used until then, if a slot is left
    /// for that.
    pub fn max_lifetime(mut self, limit: Duration) -> Self {
        self.settings.keep.max_lifetime = Some(limit);
        self
    }

    /// The part of [`max_lifetime`](PoolBuilder::max_lifetime) that chance may take from a connection, so that those
    /// opened together do not all end together: from 0 to 1, 0.1 by default.
    pub fn lifetime_jitter(mut self, fraction: f64) -> Self {
        self.settings.keep.lifetime_jitter = fraction;
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
    /// failure, up to `max`; 10 ms to 1 s by default. Each pause is drawn between half of that and all of it, so that
    /// shards and processes do not come back all at once.
    pub fn connect_backoff(mut self, initial: Duration, max: Duration) -> Self {
        self.settings.backoff = Backoff { initial, max: max.max(initial), ..self.settings.backoff };
        self
    }

    /// After so many failed attempts in a row (5 by default; those that fail together count once) a shard stops letting
    /// acquires wait for one that succeeds: while it has no connection at all, and until the pause is over, they get
    /// [`AcquireError::Connect`](super::AcquireError::Connect) with the last attempt's error at once. After the pause
    /// the next acquire, or a connection that [`min_idle`](PoolBuilder::min_idle) misses, makes a single attempt, and
    /// its success ends all that. Zero counts as one.
    pub fn breaker(mut self, failures: u32) -> Self {
        self.settings.backoff.breaker = Some(failures.max(1));
        self
    }

    /// Lets acquires wait for the end of every pause.
    pub fn no_breaker(mut self) -> Self {
        self.settings.backoff.breaker = None;
        self
    }

    /// Checks connections that have been idle for `interval`, and again whenever they have been idle for as long since,
    /// by [`Connector::check`]; off by default. A check may take as long as an attempt to connect. Connections under
    /// check cannot be leased; those that fail are closed. `max_connecting` of them are checked at the same time.
    pub fn health_check(mut self, interval: Duration) -> Self {
        self.settings.keep.check_interval = Some(interval);
        self
    }

    /// How long closing a connection may take, with the connector's [`before_close`](Connector::before_close), and how
    /// long one may take to become fit to leave its core; 5 s by default. The connection is dropped then. Until then it
    /// occupies its slot, and [`Pool::close`] waits for it.
    pub fn close_timeout(mut self, limit: Duration) -> Self {
        self.settings.close_timeout = limit;
        self
    }

    /// Refuses an acquire at once, with [`AcquireError::WouldMissDeadline`](super::AcquireError::WouldMissDeadline),
    /// when its turn would come after its deadline; off by default. It costs the caller no wait, and those behind it no
    /// place in the queue.
    ///
    /// What counts is how many would be served before it, and the rate at which the shard serves while acquires wait,
    /// which it measures; or the [expected service time](PoolBuilder::expected_service_time). Nobody is refused who
    /// would be served in time at that rate, nor while a connection is idle or being opened or could be opened, nor
    /// before a rate is known. Deadlines count in microseconds, and one of more than an hour as none.
    pub fn exact_admission(mut self) -> Self {
        self.settings.exact_admission = true;
        self
    }

    /// As [`exact_admission`](PoolBuilder::exact_admission), and instead of measuring assumes that a lease lasts so
    /// long.
    pub fn expected_service_time(mut self, time: Duration) -> Self {
        self.settings.service_time = Some(time);
        self.exact_admission()
    }

    /// Sheds acquires of a handle whose queue does not drain, with [`AcquireError::Shed`](super::AcquireError::Shed);
    /// off by default. This is CoDel (Nichols and Jacobson, RFC 8289) with a state for each handle: when its acquires
    /// have waited for more than `target` each, for an `interval` on end, one is shed when its turn comes, and the next
    /// ones sooner and sooner until waits are short again. A handle's only waiter is never shed, and so no connection
    /// becomes idle for it.
    ///
    /// A wait of up to `target` is good for throughput; 5% to 10% of the `interval`, which is to be about the time in
    /// which clients notice and slow down. Both count in microseconds, up to 71 minutes. Handles can have settings of
    /// their own: [`Handle::shedding`](super::Handle::shedding).
    pub fn shed(mut self, target: Duration, interval: Duration) -> Self {
        self.settings.shedding = Some(Shedding::new(target, interval));
        self
    }

    /// Logs a warning for every acquire that is served after a wait of `limit` or longer, with the place in the program
    /// where it was made, counts it and tells the [observer](PoolBuilder::on_event); off by default.
    pub fn warn_slow_acquires(mut self, limit: Duration) -> Self {
        self.settings.warn_slow_acquires = Some(limit);
        self
    }

    /// Logs a warning, once, for every lease that has been out for `limit`, with the place in the program where it was
    /// acquired, counts it and tells the [observer](PoolBuilder::on_event); off by default. It is told of after `limit`
    /// and half as long again at most. The shard looks at its leases from time to time while some are out.
    pub fn detect_leaks(mut self, limit: Duration) -> Self {
        self.settings.detect_leaks = Some(limit.max(Duration::from_millis(1)));
        self
    }

    /// Has `observer` told of what happens in the pool, on the core on which it happens. It runs between the steps of
    /// the pool's work and holds them up: it should hand on what it hears, and return. It may use the pool, and its
    /// panics are caught and logged.
    ///
    /// # Examples
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicUsize, Ordering}};
    /// use corelet::pool::{EventKind, Pool, TcpConnector};
    ///
    /// # use corelet::runtime::{Cores, Runtime, handle};
    /// # let server = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    /// # let address = server.local_addr()?;
    /// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
    /// # runtime.block_on(move || async move {
    /// let opened = Arc::new(AtomicUsize::new(0));
    /// let count = Arc::clone(&opened);
    /// let pool = Pool::builder(TcpConnector::new(address))
    ///     .on_event(move |event| {
    ///         if let EventKind::Opened = event.kind {
    ///             count.fetch_add(1, Ordering::Relaxed);
    ///         }
    ///     })
    ///     .build(&handle())?;
    /// drop(pool.acquire().await?);
    /// assert_eq!(opened.load(Ordering::Relaxed), 1);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # })?.unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_event(mut self, observer: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.settings.observer = Some(Observer(Arc::new(observer)));
        self
    }

    /// Makes a shard, with its scheduler actor, on every core of `runtime`.
    ///
    /// # Errors
    /// [`BuildError`] for a setting out of range, or a runtime that has ended.
    pub fn build(self, runtime: &RuntimeHandle) -> Result<Pool<C>, BuildError> {
        check_slots(self.settings.slots)?;
        // Without a waiter, something else must call for opens.
        let fewest_waiters = usize::from(self.settings.keep.min_idle == 0);
        let ranges = [
            ("max_connections", self.settings.max_connections, 1..=UNLIMITED, "1 to 1,073,741,824"),
            ("max_waiters", self.settings.max_waiters, fewest_waiters..=1 << 24, "1 to 16,777,216"),
            ("max_connecting", self.settings.max_connecting, 1..=usize::MAX, "at least 1"),
        ];
        for (what, got, range, expected) in ranges {
            if !range.contains(&got) {
                return Err(BuildError::InvalidSetting { what, expected, got });
            }
        }
        Pool::start(self.connector, self.settings, runtime)
    }
}
