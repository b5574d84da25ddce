//! What a pool publishes by the `metrics` facade is what its stats say.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

use corelet::pool::{METRICS, MetricKind};

#[test]
fn every_metric_is_named_for_its_kind_and_once() {
    for metric in METRICS {
        assert_eq!(metric.name.ends_with("_total"), metric.kind == MetricKind::Counter, "{}", metric.name);
        assert_eq!(METRICS.iter().filter(|other| other.name == metric.name).count(), 1, "{}", metric.name);
    }
}

#[cfg(feature = "metrics")]
mod support;

#[cfg(feature = "metrics")]
mod published {
    use std::collections::HashMap;
    use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
    use std::time::Duration;

    use corelet::pool::{METRICS, Pool, ShardStats};
    use corelet::runtime::{sleep, spawn};
    use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

    use crate::support::{Memory, on_cores, poll_once, poll_until, set, shard, soon};

    /// Reading takes the counts of all pools out of the recorder, so tests take turns.
    fn alone() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        recorder();
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One recorder for the process.
    fn recorder() -> &'static Snapshotter {
        static SNAPSHOTTER: OnceLock<Snapshotter> = OnceLock::new();
        SNAPSHOTTER.get_or_init(|| {
            let recorder = DebuggingRecorder::new();
            let snapshotter = recorder.snapshotter();
            recorder.install().unwrap();
            snapshotter
        })
    }

    /// What is published of one shard: by name, and for closes by name and reason.
    struct Published(HashMap<String, DebugValue>);

    impl Published {
        /// Reading a counter or histogram empties it in this recorder, so each test reads once.
        fn read(pool: u64, core: &str) -> Published {
            let mut values = HashMap::new();
            for (key, unit, description, value) in recorder().snapshot().into_vec() {
                let label = |name| key.key().labels().find(|label| label.key() == name).map(|l| l.value());
                if label("pool") != Some(&pool.to_string()) || label("core") != Some(core) {
                    continue;
                }
                assert!(unit.is_some() && description.is_some(), "{key:?} has no unit or description");
                let reason = label("reason").map(|reason| format!("/{reason}")).unwrap_or_default();
                values.insert(format!("{}{reason}", key.key().name()), value);
            }
            Published(values)
        }

        fn count(&self, name: &str) -> u64 {
            match self.0.get(&format!("corelet_pool_{name}")) {
                Some(DebugValue::Counter(count)) => *count,
                other => panic!("{name}: {other:?}"),
            }
        }

        fn level(&self, name: &str) -> usize {
            match self.0.get(&format!("corelet_pool_{name}")) {
                Some(DebugValue::Gauge(level)) => level.0 as usize,
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    fn compare(published: &Published, stats: &ShardStats) {
        let counts = [
            ("acquires_total", stats.acquires),
            ("immediate_grants_total", stats.granted_immediately),
            ("waited_grants_total", stats.granted_after_wait),
            ("capacity_waits_total", stats.capacity_waits),
            ("limit_waits_total", stats.limit_waits),
            ("cancelled_total", stats.cancelled),
            ("timeouts_total", stats.timed_out),
            ("saturated_total", stats.saturated),
            ("would_miss_total", stats.would_miss),
            ("shed_total", stats.shed),
            ("forwards_total", stats.forwards),
            ("spills_total", stats.spills),
            ("spills_granted_total", stats.spills_granted),
            ("lends_total", stats.lends),
            ("hungry_waits_total", stats.hungry_waits),
            ("opens_total", stats.opens),
            ("connect_failures_total", stats.connect_failures),
            ("closes_total/dirty", stats.closed_for(corelet::pool::CloseReason::Dirty)),
            ("slow_acquires_total", stats.slow_acquires),
            ("leaks_total", stats.leaks),
            ("scheduler_failures_total", stats.scheduler_failures),
        ];
        for (name, count) in counts {
            assert_eq!(published.count(name), count, "{name}");
        }
        let levels = [
            ("waiting", stats.waiting),
            ("held_back", stats.held_back),
            ("idle", stats.idle),
            ("leased", stats.leased),
            ("opening", stats.opening),
            ("checking", stats.checking),
            ("closing", stats.closing),
        ];
        for (name, level) in levels {
            assert_eq!(published.level(name), level, "{name}");
        }
    }

    #[test]
    fn a_scheduler_panic_reads_as_one_failure() {
        let _alone = alone();
        on_cores(2, async move |runtime, cores| {
            let memory = Memory::default();
            let script = memory.0.clone();
            let pool = Pool::builder(memory).slots_per_core(1).build(&runtime).unwrap();
            let victim = soon(pool.acquire()).await.unwrap();
            set(&script.panic_is_quiet, true);
            assert!(spawn(async move { drop(victim) }).await.unwrap_err().is_panic());
            set(&script.panic_is_quiet, false);
            assert!(soon(pool.acquire()).await.is_err());
            // What was published at the end of a turn is there in the next.
            sleep(Duration::from_millis(1)).await;
            let published = Published::read(pool.id(), &cores[0].to_string());
            assert_eq!(published.count("scheduler_failures_total"), 1);
        });
    }

    #[test]
    fn what_is_published_is_what_the_stats_say() {
        let _alone = alone();
        on_cores(1, async move |runtime, cores| {
            let builder = Pool::builder(Memory::default()).slots_per_core(2).max_waiters(2);
            let pool = builder.warn_slow_acquires(Duration::ZERO).build(&runtime).unwrap();
            let tenant = pool.handle().limited(1);
            let lease = soon(tenant.acquire()).await.unwrap();
            let mut held_back = tenant.acquire();
            assert!(poll_once(&mut held_back).await.is_pending());
            assert!(soon(tenant.acquire_within(Duration::from_millis(1))).await.is_err());
            let mut dirty = soon(pool.acquire()).await.unwrap();
            assert!(dirty.exchange(async |_| Err::<(), _>(())).await.is_err());
            drop(dirty);
            let mut more = tenant.acquire();
            assert!(poll_once(&mut more).await.is_pending());
            assert!(soon(tenant.acquire()).await.is_err(), "saturated");
            drop(more);
            drop(lease);
            let _lease = soon(held_back).await.unwrap();
            poll_until(async || shard(&pool, 0).await.closing == 0).await;
            sleep(Duration::from_millis(1)).await;
            let stats = shard(&pool, 0).await;
            let published = Published::read(pool.id(), &cores[0].to_string());
            compare(&published, &stats);
            let waits = match &published.0["corelet_pool_wait_seconds"] {
                DebugValue::Histogram(waits) => waits.len(),
                other => panic!("{other:?}"),
            };
            assert!(waits >= 1 && waits as u64 <= stats.waits.count());
            for metric in METRICS {
                let known = published.0.keys().any(|key| key.split('/').next() == Some(metric.name));
                assert!(known, "{} is registered", metric.name);
            }
        });
    }
}
