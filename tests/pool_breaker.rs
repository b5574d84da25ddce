//! Upstreams that cannot be reached, and acquires that are told so at once.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use corelet::pool::{AcquireError, Pool, TcpConnector};
use corelet::runtime::{sleep, spawn};
use support::{Memory, Upstream, all_settled, on_cores, poll_until, set, settled, shard, soon};

const PAUSE: Duration = Duration::from_secs(3600);

async fn refused<C: corelet::pool::Connector>(pool: &Pool<C>) -> String {
    match soon(pool.acquire()).await.map(drop) {
        Err(AcquireError::Connect { source }) => source.to_string(),
        other => panic!("the connect error is told, not {other:?}"),
    }
}

#[test]
fn a_permanent_connect_error_reaches_every_acquire_at_once() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        set(&script.fail_connects, true);
        let pool = Pool::builder(memory).breaker(1).connect_backoff(PAUSE, PAUSE).build(&runtime).unwrap();
        for home in cores {
            // The first one has tried; those after it need not wait an hour.
            for _ in 0..20 {
                let error = soon(pool.handle_on(home).unwrap().acquire()).await.map(drop).unwrap_err();
                let AcquireError::Connect { source } = &error else { panic!("{error}") };
                assert_eq!(source.to_string(), "refused on purpose");
                assert!(error.is_connection_fault() && error.is_retryable());
            }
        }
        let stats = all_settled(&pool).await;
        assert!(
            stats.shards.iter().all(|shard| (shard.connect_failures, shard.refused) == (1, 20)),
            "{stats:?}"
        );
        soon(pool.close()).await;
    });
}

#[test]
fn without_a_breaker_an_acquire_waits_for_the_end_of_the_pause() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        set(&script.fail_connects, true);
        let pool = Pool::builder(memory).no_breaker().connect_backoff(PAUSE, PAUSE).build(&runtime).unwrap();
        refused(&pool).await;
        let late = pool.handle().acquire_within(Duration::from_millis(20)).await.map(drop);
        let Err(AcquireError::Timeout { last_connect_error: Some(cause), .. }) = late else {
            panic!("it waited")
        };
        assert_eq!(cause.to_string(), "refused on purpose");
        soon(pool.close()).await;
    });
}

#[test]
fn an_upstream_that_is_back_is_found_by_a_single_attempt_after_the_pause() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pause = Duration::from_millis(20);
        set(&script.fail_connects, true);
        let pool = Pool::builder(memory)
            .slots_per_core(4)
            .breaker(1)
            .connect_backoff(pause, pause)
            .build(&runtime)
            .unwrap();
        // The pause begins later than this.
        let begun = Instant::now();
        refused(&pool).await;
        let before = script.connects();
        // Each acquire in the pause is refused, and none of them tries.
        while begun.elapsed() < pause / 4 {
            refused(&pool).await;
        }
        assert!(script.connects() == before || begun.elapsed() >= pause / 2);
        set(&script.fail_connects, false);
        set(&script.hold_connects, true);
        sleep(pause).await;
        let before = script.connects();
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let pool = pool.clone();
                spawn(async move { pool.acquire().await })
            })
            .collect();
        poll_until(async || shard(&pool, 0).await.waiting == 4).await;
        sleep(Duration::from_millis(5)).await;
        assert_eq!(script.connects() - before, 1, "half open");
        set(&script.hold_connects, false);
        let mut leases = Vec::new();
        for waiter in waiters {
            leases.push(soon(waiter).await.unwrap().unwrap());
        }
        drop(leases);
        settled(&pool, 0).await;
        soon(pool.close()).await;
    });
}

#[test]
fn an_upstream_that_is_back_is_found_for_connections_that_are_to_be_kept() {
    on_cores(1, async move |runtime, _| {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let pool = Pool::builder(TcpConnector::new(address))
            .min_idle(2)
            .breaker(1)
            .connect_backoff(Duration::from_millis(1), Duration::from_millis(10))
            .build(&runtime)
            .unwrap();
        poll_until(async || shard(&pool, 0).await.connect_failures > 5).await;
        refused(&pool).await;
        let upstream = Upstream::start_at(address, |mut socket, _| {
            let _ = std::io::Read::read(&mut socket, &mut [0; 8]);
        });
        poll_until(async || shard(&pool, 0).await.idle == 2).await;
        drop(pool.acquire().await.unwrap());
        soon(pool.close()).await;
        drop(upstream);
    });
}

#[test]
fn a_pool_that_is_closed_while_it_connects_closes_promptly() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        set(&script.hold_connects, true);
        let pool = Pool::builder(memory).min_idle(1).build(&runtime).unwrap();
        let theirs = pool.clone();
        let waiter = spawn(async move { theirs.acquire().await.map(drop) });
        poll_until(async || shard(&pool, 0).await.waiting == 1).await;
        let begun = Instant::now();
        soon(pool.close()).await;
        assert!(begun.elapsed() < Duration::from_secs(4), "it does not wait for the connect time-out");
        assert!(matches!(soon(waiter).await.unwrap(), Err(AcquireError::Closed)));
    });
}
