//! A runtime whose pools hold open connections uses no CPU while nobody asks anything of it.
//!
//! The CPU time is that of a whole process, so each test runs in a process of its own.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;
mod support;

use std::time::Duration;

use common::{alone, cpu_time, wait_for};
use corelet::pool::{Pool, TcpConnector};
use corelet::runtime::{CoreStats, Cores, Runtime, core_stats, interval};
use support::{Upstream, block_until, runtime};

const CORES: usize = 2;
const SLOTS: usize = 4;
/// More than the pool's acquire and connect time-outs, so that a timer which outlives its acquire shows.
const WATCHED: Duration = Duration::from_secs(6);
/// The CPU time of an idle process in all of it. The threads that measure are in there.
const IDLE_CPU: Duration = Duration::from_millis(5);
/// Asking a core for its counts wakes it, once.
const PARKS_OF_A_LOOK: u64 = 1;
/// Kernel entries that one look may cost beside the one that is its park.
const ENTRIES_OF_A_LOOK: u64 = 2;

fn counts(runtime: &Runtime) -> Vec<CoreStats> {
    let look = async || core_stats().unwrap();
    runtime.cores().into_iter().map(|core| wait_for(runtime.spawn_on(core, look).unwrap()).unwrap()).collect()
}

/// What the process used, and what each core did, while nobody asked anything.
struct Usage {
    cpu: Duration,
    parks: Vec<u64>,
    entries: Vec<u64>,
}

fn watch(runtime: &Runtime, length: Duration) -> Usage {
    let before = counts(runtime);
    // The look itself may still settle.
    std::thread::sleep(Duration::from_millis(100));
    let cpu = cpu_time();
    std::thread::sleep(length);
    let cpu = cpu_time() - cpu;
    let after = counts(runtime);
    let each = |count: fn(&CoreStats) -> u64| {
        before.iter().zip(&after).map(|(before, after)| count(after) - count(before)).collect()
    };
    Usage { cpu, parks: each(|core| core.parks), entries: each(|core| core.driver.enters) }
}

/// A pool with every connection of every core open, used, and idle.
fn warm_pool(runtime: &Runtime, upstream: &Upstream) -> Pool<TcpConnector> {
    let connector = TcpConnector::new(upstream.address);
    let pool = Pool::builder(connector).slots_per_core(SLOTS).build(&runtime.handle()).unwrap();
    for core in runtime.cores() {
        let pool = pool.clone();
        let exchanges = async move || {
            let handle = pool.handle();
            let mut leases = Vec::new();
            for _ in 0..SLOTS {
                leases.push(handle.acquire().await.unwrap());
            }
            for lease in &mut leases {
                let exchanged = lease.exchange(async |stream| support::echo(stream, b"a request").await);
                assert_eq!(exchanged.await.unwrap(), b"a request");
            }
        };
        wait_for(runtime.spawn_on(core, exchanges).unwrap()).unwrap();
    }
    assert_eq!(idle(&pool), vec![SLOTS; CORES]);
    pool
}

/// The idle connections of each shard.
fn idle(pool: &Pool<TcpConnector>) -> Vec<usize> {
    wait_for(pool.stats()).shards.iter().map(|shard| shard.idle).collect()
}

#[test]
fn an_idle_runtime_with_warm_connections_uses_no_cpu() {
    alone("an_idle_runtime_with_warm_connections_uses_no_cpu", || {
        let upstream = Upstream::echo();
        let runtime = runtime(CORES);
        let pool = warm_pool(&runtime, &upstream);
        let usage = watch(&runtime, WATCHED);
        println!(
            "{:?} of CPU in {WATCHED:?}; parks {:?}, entries {:?}",
            usage.cpu, usage.parks, usage.entries
        );
        assert!(usage.cpu < IDLE_CPU, "used {:?} in {WATCHED:?}", usage.cpu);
        assert!(usage.parks.iter().all(|parks| *parks <= PARKS_OF_A_LOOK), "parks: {:?}", usage.parks);
        let most = PARKS_OF_A_LOOK + ENTRIES_OF_A_LOOK;
        assert!(usage.entries.iter().all(|entries| *entries <= most), "kernel entries: {:?}", usage.entries);

        // They were all watched meanwhile: what the peer does is noticed with nobody asking.
        assert_eq!(idle(&pool), vec![SLOTS; CORES]);
        upstream.hang_up();
        block_until(|| idle(&pool) == vec![0; CORES]);
    });
}

#[test]
fn what_is_measured_here_sees_a_runtime_that_is_not_idle() {
    alone("what_is_measured_here_sees_a_runtime_that_is_not_idle", || {
        const SHORT: Duration = Duration::from_millis(500);
        let upstream = Upstream::echo();
        let spinning = Runtime::builder()
            .cores(Cores::Count(CORES))
            .pinned(false)
            .busy_poll(Duration::from_secs(3600))
            .build()
            .unwrap();
        let _pool = warm_pool(&spinning, &upstream);
        let usage = watch(&spinning, SHORT);
        assert!(usage.cpu > 10 * IDLE_CPU, "two spinning cores used {:?} in {SHORT:?}", usage.cpu);
        drop(spinning);

        let ticking = runtime(CORES);
        for core in ticking.cores() {
            let ticks = async || {
                let mut ticks = interval(Duration::from_millis(10));
                loop {
                    ticks.tick().await;
                }
            };
            ticking.spawn_on(core, ticks).unwrap().detach();
        }
        let usage = watch(&ticking, SHORT);
        let fewest = PARKS_OF_A_LOOK + ENTRIES_OF_A_LOOK;
        assert!(usage.parks.iter().all(|parks| *parks > fewest), "parks: {:?}", usage.parks);
        assert!(usage.entries.iter().all(|entries| *entries > fewest), "kernel entries: {:?}", usage.entries);
    });
}
