//! The pool's figures for the `metrics` facade.
//!
//! The names are here whether the feature is on or not, so that they can be checked against the documents. Everything
//! else does nothing without the feature, and under the model checker.

pub use crate::metric::{Metric, MetricKind};

macro_rules! metrics {
    ($($id:ident = $kind:ident $name:literal $description:literal;)*) => {
        /// Indices into [`METRICS`].
        #[derive(Clone, Copy)]
        #[allow(dead_code)]
        pub(super) enum Id { $($id),* }

        /// Every metric that pools publish with the feature `metrics`, labelled with `pool`, the pool's id, and `core`.
        pub const METRICS: &[Metric] =
            &[$(Metric { name: $name, kind: MetricKind::$kind, description: $description }),*];
    };
}

metrics! {
    Acquires = Counter "corelet_pool_acquires_total" "Acquires, whatever became of them";
    Immediate = Counter "corelet_pool_immediate_grants_total" "Acquires served from an idle connection at once";
    AfterWait = Counter "corelet_pool_waited_grants_total" "Acquires served after a wait";
    CapacityWaits = Counter "corelet_pool_capacity_waits_total" "Acquires that were admitted and not served at once";
    LimitWaits = Counter "corelet_pool_limit_waits_total" "Acquires held back by the limit of their handle";
    Cancelled = Counter "corelet_pool_cancelled_total" "Acquires given up by their caller";
    TimedOut = Counter "corelet_pool_timeouts_total" "Acquires refused because their deadline had come";
    Saturated = Counter "corelet_pool_saturated_total" "Acquires refused because too many waited";
    WouldMiss = Counter "corelet_pool_would_miss_total" "Acquires refused because they could not be served in time";
    Shed = Counter "corelet_pool_shed_total" "Acquires shed from a queue that did not drain";
    Forwards = Counter "corelet_pool_forwards_total" "Acquires of this core that were sent to another core";
    Spills = Counter "corelet_pool_spills_total" "Acquires of this core that were offered to another core";
    SpillsGranted = Counter "corelet_pool_spills_granted_total" "Offered acquires that the other core served";
    Lends = Counter "corelet_pool_lends_total" "Connections lent to other cores";
    Opens = Counter "corelet_pool_opens_total" "Attempts to connect";
    ConnectFailures = Counter "corelet_pool_connect_failures_total" "Attempts to connect that failed";
    Closes = Counter "corelet_pool_closes_total" "Connections closed, labelled with the reason";
    HungryWaits = Counter "corelet_pool_hungry_waits_total" "Times that an open had to wait for the limit on all connections";
    SlowAcquires = Counter "corelet_pool_slow_acquires_total" "Acquires served after a wait that is warned of";
    Leaks = Counter "corelet_pool_leaks_total" "Leases that were out for longer than leases should be";
    Failures = Counter "corelet_pool_scheduler_failures_total" "Scheduler panics";
    Waiting = Gauge "corelet_pool_waiting" "Acquires that wait";
    HeldBack = Gauge "corelet_pool_held_back" "Waiting acquires that are held back by the limit of their handle";
    Idle = Gauge "corelet_pool_idle" "Idle connections";
    Leased = Gauge "corelet_pool_leased" "Leased connections";
    Opening = Gauge "corelet_pool_opening" "Connections being opened";
    Checking = Gauge "corelet_pool_checking" "Idle connections that are being checked";
    Closing = Gauge "corelet_pool_closing" "Connections being closed";
    Wait = Histogram "corelet_pool_wait_seconds" "How long acquires waited that did not end in the turn they began in";
}

#[cfg(all(feature = "metrics", not(loom)))]
pub(super) use published::ShardMetrics;
#[cfg(not(all(feature = "metrics", not(loom))))]
pub(super) use unpublished::ShardMetrics;

/// Whether anything is published.
pub(super) const ENABLED: bool = cfg!(all(feature = "metrics", not(loom)));

#[cfg(all(feature = "metrics", not(loom)))]
mod published {
    use std::cell::RefCell;
    use std::time::Duration;

    use metrics::{Counter, Gauge, Histogram, Label, Unit};

    use super::{Id, METRICS, MetricKind};
    use crate::pool::scheduler::CloseReason;
    use crate::pool::stats::ShardStats;
    use crate::runtime::CoreId;
    use crate::runtime::executor::contain;

    /// The registered metrics of one shard, and what they were last told.
    pub(in crate::pool) struct ShardMetrics {
        counters: Vec<Counter>,
        closes: Vec<Counter>,
        gauges: Vec<Gauge>,
        waits: Histogram,
        published: RefCell<Published>,
    }

    /// In the order of [`METRICS`]: counters but for those by reason, gauges; and counters by reason.
    #[derive(Clone, Copy, Default, PartialEq)]
    struct Published {
        counters: [u64; 20],
        gauges: [usize; 7],
        closes: [u64; CloseReason::ALL.len()],
    }

    impl ShardMetrics {
        /// Registers with the recorder that is installed now.
        pub(in crate::pool) fn new(pool: u64, core: CoreId) -> ShardMetrics {
            let labels = vec![Label::new("pool", pool.to_string()), Label::new("core", core.to_string())];
            let (mut counters, mut gauges) = (Vec::new(), Vec::new());
            for metric in METRICS {
                let (name, description) = (metric.name, metric.description);
                match metric.kind {
                    MetricKind::Counter => {
                        metrics::describe_counter!(name, Unit::Count, description);
                        if name != METRICS[Id::Closes as usize].name {
                            counters.push(metrics::counter!(name, labels.clone()));
                        }
                    }
                    MetricKind::Gauge => {
                        metrics::describe_gauge!(name, Unit::Count, description);
                        gauges.push(metrics::gauge!(name, labels.clone()));
                    }
                    MetricKind::Histogram => metrics::describe_histogram!(name, Unit::Seconds, description),
                }
            }
            let closes = CloseReason::ALL.map(|reason| {
                let mut labels = labels.clone();
                labels.push(Label::new("reason", reason.name()));
                metrics::counter!(METRICS[Id::Closes as usize].name, labels)
            });
            ShardMetrics {
                counters,
                closes: closes.into(),
                gauges,
                waits: metrics::histogram!(METRICS[Id::Wait as usize].name, labels),
                published: RefCell::default(),
            }
        }

        /// An acquire was served after a wait.
        pub(in crate::pool) fn wait(&self, waited: Duration) {
            contain("a recorder's metrics", || self.waits.record(waited));
        }

        /// Tells what has changed since the last call.
        pub(in crate::pool) fn publish(&self, stats: impl FnOnce() -> ShardStats) {
            let now = Published::from(&stats());
            let before = self.published.replace(now);
            if now == before {
                return;
            }
            contain("a recorder's metrics", || {
                let counts = before.counters.iter().zip(now.counters).zip(&self.counters);
                let closes = before.closes.iter().zip(now.closes).zip(&self.closes);
                for ((_, count), counter) in counts.chain(closes).filter(|((before, now), _)| *before != now)
                {
                    counter.absolute(count);
                }
                let levels = before.gauges.iter().zip(now.gauges).zip(&self.gauges);
                for ((_, level), gauge) in levels.filter(|((before, now), _)| *before != now) {
                    gauge.set(level as f64);
                }
            });
        }
    }

    impl From<&ShardStats> for Published {
        fn from(stats: &ShardStats) -> Published {
            Published {
                counters: [
                    stats.acquires,
                    stats.granted_immediately,
                    stats.granted_after_wait,
                    stats.capacity_waits,
                    stats.limit_waits,
                    stats.cancelled,
                    stats.timed_out,
                    stats.saturated,
                    stats.would_miss,
                    stats.shed,
                    stats.forwards,
                    stats.spills,
                    stats.spills_granted,
                    stats.lends,
                    stats.opens,
                    stats.connect_failures,
                    stats.hungry_waits,
                    stats.slow_acquires,
                    stats.leaks,
                    stats.scheduler_failures,
                ],
                gauges: [
                    stats.waiting,
                    stats.held_back,
                    stats.idle,
                    stats.leased,
                    stats.opening,
                    stats.checking,
                    stats.closing,
                ],
                closes: stats.closes,
            }
        }
    }
}

#[cfg(not(all(feature = "metrics", not(loom))))]
mod unpublished {
    use std::time::Duration;

    use crate::pool::stats::ShardStats;
    use crate::runtime::CoreId;

    pub(in crate::pool) struct ShardMetrics;

    impl ShardMetrics {
        pub(in crate::pool) fn new(_: u64, _: CoreId) -> ShardMetrics {
            ShardMetrics
        }

        #[inline(always)]
        pub(in crate::pool) fn wait(&self, _: Duration) {}

        #[inline(always)]
        pub(in crate::pool) fn publish(&self, _: impl FnOnce() -> ShardStats) {}
    }
}
