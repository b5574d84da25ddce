//! Connections that are kept open, closed when idle for long, and replaced when old.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corelet::pool::{AcquireError, BuildError, CloseReason, Pool, TcpConnector};
use corelet::runtime::{core_stats, sleep, spawn, yield_now};
use support::{Memory, Upstream, assert_settled, echo, on_cores, poll_until, set, shard, soon};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_pool_opens_nothing_until_it_is_asked() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool = Pool::builder(TcpConnector::new(upstream.address)).build(&runtime).unwrap();
        soon(pool.prewarm()).await.unwrap();
        sleep(20 * MS).await;
        assert_eq!((upstream.accepted(), shard(&pool, 0).await.opens), (0, 0));
        pool.close().await;
    });
}

#[test]
fn every_core_is_warm_when_prewarming_is_done_and_stays_so_in_use() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::echo();
        let pool = Pool::builder(TcpConnector::new(upstream.address))
            .slots_per_core(4)
            .min_idle(2)
            .build(&runtime)
            .unwrap();
        soon(pool.prewarm()).await.unwrap();
        assert!(pool.stats().await.shards.iter().all(|shard| shard.idle == 2));
        for (index, core) in cores.into_iter().enumerate() {
            let handle = pool.handle_on(core).unwrap();
            let lease = soon(handle.acquire()).await.unwrap();
            poll_until(async || shard(&pool, index).await.idle == 2).await;
            let other = soon(handle.acquire()).await.unwrap();
            poll_until(async || shard(&pool, index).await.idle == 2).await;
            assert_eq!(shard(&pool, index).await.opens, 4);
            drop((lease, other));
        }
        poll_until(async || pool.stats().await.shards.iter().all(|shard| shard.idle == 4)).await;
        soon(pool.close()).await;
        poll_until(async || upstream.live() == 0).await;
    });
}

#[test]
fn a_leased_connection_is_made_up_for_with_nobody_looking() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(3).min_idle(1).build(&runtime).unwrap();
        soon(pool.prewarm()).await.unwrap();
        let mut leases = Vec::new();
        for connects in 2..=3 {
            // Long enough for the actor to have come to rest.
            sleep(5 * MS).await;
            leases.push(pool.acquire().await.unwrap());
            // The pool is not asked, for that would wake its actor.
            poll_until(async || script.connects() == connects).await;
            poll_until(async || script.live() == connects).await;
        }
        drop(leases);
        // A lease that ends in its turn is no reason to open anything.
        pool.resize(8).unwrap();
        for _ in 0..10 {
            drop(pool.acquire().await.unwrap());
            yield_now().await;
        }
        sleep(5 * MS).await;
        assert_eq!(script.connects(), 3);
        soon(pool.close()).await;
    });
}

#[test]
fn a_connection_that_is_lost_is_made_up_for_with_nobody_asking() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool = Pool::builder(TcpConnector::new(upstream.address)).min_idle(3).build(&runtime).unwrap();
        for round in 0..5 {
            let accepted = 3 * (round as usize + 1);
            poll_until(async || shard(&pool, 0).await.idle == 3 && upstream.accepted() == accepted).await;
            assert_eq!(shard(&pool, 0).await.closed_for(CloseReason::Broken), 3 * round);
            upstream.hang_up();
            poll_until(async || shard(&pool, 0).await.closed_for(CloseReason::Broken) == 3 * (round + 1))
                .await;
        }
        soon(pool.close()).await;
    });
}

#[test]
fn prewarming_tells_the_connect_error_and_the_pool_goes_on_trying() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        set(&script.fail_connects, true);
        let pool = Pool::builder(memory).min_idle(2).connect_backoff(MS, 4 * MS).build(&runtime).unwrap();
        let Err(AcquireError::Connect { source }) = soon(pool.prewarm()).await else {
            panic!("nothing can be opened")
        };
        assert_eq!(source.to_string(), "refused on purpose");
        // More often than trips the breaker.
        poll_until(async || shard(&pool, 0).await.connect_failures > 12).await;
        set(&script.fail_connects, false);
        poll_until(async || shard(&pool, 0).await.idle == 2).await;
        soon(pool.prewarm()).await.unwrap();
        soon(pool.close()).await;
        assert!(matches!(soon(pool.prewarm()).await, Err(AcquireError::Closed)));
    });
}

#[test]
fn a_pool_without_a_queue_needs_connections_that_are_kept() {
    on_cores(1, async move |runtime, _| {
        let refused = Pool::builder(Memory::default()).max_waiters(0).build(&runtime);
        assert!(matches!(refused, Err(BuildError::InvalidSetting { what: "max_waiters", got: 0, .. })));
        let pool = Pool::builder(Memory::default())
            .slots_per_core(2)
            .max_waiters(0)
            .min_idle(1)
            .build(&runtime)
            .unwrap();
        soon(pool.prewarm()).await.unwrap();
        let first = pool.acquire().await.unwrap();
        poll_until(async || shard(&pool, 0).await.idle == 1).await;
        let second = pool.acquire().await.unwrap();
        assert!(matches!(pool.acquire().await, Err(AcquireError::Saturated { limit: 0 })));
        drop((first, second));
        soon(pool.close()).await;
    });
}

#[test]
fn idle_connections_above_those_to_be_kept_are_closed_in_time_and_no_others() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let limit = 100 * MS;
        let pool = Pool::builder(TcpConnector::new(upstream.address))
            .slots_per_core(4)
            .min_idle(1)
            .idle_timeout(limit)
            .no_acquire_timeout()
            .build(&runtime)
            .unwrap();
        let handle = pool.handle();
        let mut leases = Vec::new();
        for _ in 0..4 {
            let mut lease = soon(handle.acquire()).await.unwrap();
            lease.exchange(async |stream| echo(stream, b"warm").await).await.unwrap();
            leases.push(lease);
        }
        // A lease is no idleness, however long.
        sleep(2 * limit).await;
        assert_eq!(shard(&pool, 0).await.closed_for(CloseReason::Idle), 0);
        let idle_since = Instant::now();
        drop(leases);
        poll_until(async || shard(&pool, 0).await.closed_for(CloseReason::Idle) > 0).await;
        assert!(idle_since.elapsed() >= limit, "{:?}", idle_since.elapsed());
        poll_until(async || upstream.live() == 1).await;
        sleep(2 * limit).await;
        let stats = shard(&pool, 0).await;
        assert_eq!((stats.idle, stats.opens, stats.closed_for(CloseReason::Idle)), (1, 4, 3), "no churn");
        assert_eq!(core_stats().unwrap().timers, 0, "nothing is left to close");
        assert_settled(&stats);
        soon(pool.close()).await;
    });
}

#[test]
fn an_empty_pool_runs_no_timer() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool = Pool::builder(TcpConnector::new(upstream.address))
            .idle_timeout(20 * MS)
            .max_lifetime(Duration::from_secs(3600))
            .health_check(50 * MS)
            .no_acquire_timeout()
            .build(&runtime)
            .unwrap();
        assert_eq!(core_stats().unwrap().timers, 0, "nothing was ever opened");
        for _ in 0..2 {
            drop(soon(pool.acquire()).await.unwrap());
            assert!(core_stats().unwrap().timers > 0, "what is measured here sees the timer");
            poll_until(async || shard(&pool, 0).await.connections() == 0).await;
            assert_eq!(core_stats().unwrap().timers, 0);
            let polls = core_stats().unwrap().executor.polls;
            sleep(200 * MS).await;
            // This task's own wake-up, and what the turn still had to do in which the polls were read: a turn counts its
            // polls when it ends. A timer for either limit would have made dozens.
            assert!(core_stats().unwrap().executor.polls - polls <= 5);
        }
        soon(pool.close()).await;
    });
}

#[test]
fn old_connections_are_replaced_before_they_are_retired() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool = Pool::builder(TcpConnector::new(upstream.address))
            .slots_per_core(3)
            .min_idle(2)
            .max_lifetime(40 * MS)
            .lifetime_jitter(0.5)
            .build(&runtime)
            .unwrap();
        soon(pool.prewarm()).await.unwrap();
        let mut looks = 0;
        poll_until(async || {
            let stats = shard(&pool, 0).await;
            assert!(stats.idle >= 2 || stats.idle + stats.opening + stats.closing >= 2, "{stats:?}");
            assert!(stats.idle >= 1, "one is used until its replacement is there: {stats:?}");
            looks += 1;
            stats.closed_for(CloseReason::Expired) >= 20
        })
        .await;
        assert!(looks > 10);
        soon(pool.close()).await;
        poll_until(async || upstream.live() == 0).await;
    });
}

#[test]
fn connections_under_constant_load_expire_and_as_far_apart_as_the_jitter_says() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let limit = 1000 * MS;
        let pool = Pool::builder(memory)
            .slots_per_core(8)
            .max_connecting(8)
            .max_lifetime(limit)
            .lifetime_jitter(0.75)
            .build(&runtime)
            .unwrap();
        let begun = Instant::now();
        let over = Rc::new(Cell::new(false));
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (pool, over) = (pool.clone(), Rc::clone(&over));
                spawn(async move {
                    let handle = pool.handle();
                    while !over.get() {
                        let lease = handle.acquire().await.unwrap();
                        sleep(MS).await;
                        drop(lease);
                    }
                })
            })
            .collect();
        let mut ends: Vec<Duration> = Vec::new();
        poll_until(async || {
            let expired = shard(&pool, 0).await.closed_for(CloseReason::Expired) as usize;
            while ends.len() < expired.min(8) {
                ends.push(begun.elapsed());
            }
            ends.len() == 8
        })
        .await;
        // Eight draws over three quarters of the limit: within a quarter of it once in ten thousand runs.
        assert!(ends[7] - ends[0] > limit / 8, "{ends:?}");
        assert!(ends[0] >= limit / 4, "{ends:?}");
        over.set(true);
        for task in tasks {
            soon(task).await.unwrap();
        }
        assert!(shard(&pool, 0).await.closed_for(CloseReason::Expired) >= 8);
        assert_eq!(script.peak(), 8);
        soon(pool.close()).await;
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn an_expired_lease_stays_usable_until_it_ends_here_and_on_other_cores() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::echo();
        for home in cores {
            let pool = Pool::builder(TcpConnector::new(upstream.address))
                .slots_per_core(1)
                .max_lifetime(20 * MS)
                .build(&runtime)
                .unwrap();
            let handle = pool.handle_on(home).unwrap();
            let mut lease = soon(handle.acquire()).await.unwrap();
            sleep(60 * MS).await;
            assert_eq!(lease.exchange(async |stream| echo(stream, b"old").await).await.unwrap(), b"old");
            assert_eq!(pool.stats().await.sum(|shard| shard.closed_for(CloseReason::Expired)), 0);
            drop(lease);
            poll_until(async || pool.stats().await.sum(|shard| shard.closed_for(CloseReason::Expired)) == 1)
                .await;
            drop(handle);
            soon(pool.close()).await;
        }
        poll_until(async || upstream.live() == 0).await;
    });
}

#[test]
fn the_reaper_works_again_after_the_upstream_was_gone() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory)
            .slots_per_core(3)
            .min_idle(1)
            .idle_timeout(20 * MS)
            .connect_backoff(MS, 2 * MS)
            .build(&runtime)
            .unwrap();
        for round in 1..=3 {
            let handle = pool.handle();
            let mut leases = Vec::new();
            for _ in 0..3 {
                leases.push(soon(handle.acquire()).await.unwrap());
            }
            set(&script.fail_connects, true);
            for mut lease in leases.drain(..) {
                let _ = lease.exchange(async |_| Err::<(), ()>(())).await;
            }
            poll_until(async || script.live() == 0).await;
            poll_until(async || shard(&pool, 0).await.connect_failures > 7 * round).await;
            set(&script.fail_connects, false);
            poll_until(async || shard(&pool, 0).await.idle == 1).await;
            for _ in 0..3 {
                leases.push(soon(handle.acquire()).await.unwrap());
            }
            drop(leases);
            let before = shard(&pool, 0).await.closed_for(CloseReason::Idle);
            poll_until(async || shard(&pool, 0).await.closed_for(CloseReason::Idle) >= before + 2).await;
            poll_until(async || shard(&pool, 0).await.connections() == 1).await;
        }
        soon(pool.close()).await;
    });
}
