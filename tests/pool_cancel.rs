//! An acquire or an exchange may be dropped anywhere: no slot, waiter or byte is lost.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::time::Duration;

use corelet::pool::{AcquireError, CloseReason, Connector, Handle, Pool, TcpConnector};
use corelet::runtime::{spawn, yield_now};
use support::{
    Cut, Memory, PATIENCE, Upstream, all_settled, assert_settled, cut_off, echo, on_cores, poll_once,
    poll_until, set, settled, shard, soon,
};

const CUTS: [Cut; 2] = [Cut::AtOnce, Cut::WhenWoken];

/// All slots of a shard can be leased at the same time.
async fn has_full_capacity<C: Connector>(handle: &Handle<C>, slots: usize) {
    let mut leases = Vec::new();
    for _ in 0..slots {
        leases.push(soon(handle.acquire()).await.unwrap());
    }
    let mut more = handle.acquire();
    assert!(poll_once(&mut more).await.is_pending(), "one slot too many");
}

/// Cuts acquires off after every number of polls until one is quick enough to finish. `arrange` comes before each.
async fn cut_everywhere<C: Connector>(
    pool: &Pool<C>,
    handle: &Handle<C>,
    home: usize,
    slots: usize,
    mut arrange: impl AsyncFnMut(),
) {
    for cut in CUTS {
        for polls in 0.. {
            assert!(polls < 50, "an acquire that is polled so often has finished");
            arrange().await;
            let outcome = cut_off(polls, cut, handle.acquire()).await;
            let finished = outcome.map(|lease| drop(lease.unwrap())).is_some();
            settled(pool, home).await;
            has_full_capacity(handle, slots).await;
            poll_until(async || shard(pool, home).await.leased == 0).await;
            if finished {
                break;
            }
        }
    }
}

#[test]
fn an_acquire_that_waits_for_a_lease_may_be_dropped_at_every_poll() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle();
        let other = pool.handle();
        cut_everywhere(&pool, &handle, 0, 1, async || {
            let lease = other.acquire().await.unwrap();
            // Runs when the acquire under test waits.
            spawn(async move {
                yield_now().await;
                drop(lease);
            })
            .detach();
        })
        .await;
        pool.close().await;
    });
}

#[test]
fn an_acquire_that_waits_for_a_connect_may_be_dropped_at_every_poll() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        for cut in CUTS {
            for polls in 0.. {
                let pool = Pool::builder(TcpConnector::new(upstream.address))
                    .slots_per_core(2)
                    .build(&runtime)
                    .unwrap();
                let handle = pool.handle();
                let outcome = cut_off(polls, cut, handle.acquire()).await;
                let finished = outcome.map(|lease| drop(lease.unwrap())).is_some();
                poll_until(async || shard(&pool, 0).await.opening == 0).await;
                let stats = shard(&pool, 0).await;
                assert_settled(&stats);
                // The attempt belongs to the pool: it went on, if it had begun.
                assert_eq!(stats.idle as u64, stats.opens);
                assert!(stats.opens == 1 || polls == 0 || (polls, cut) == (1, Cut::AtOnce));
                has_full_capacity(&handle, 2).await;
                pool.close().await;
                if finished {
                    break;
                }
            }
        }
        poll_until(async || upstream.live() == 0).await;
    });
}

#[test]
fn a_forwarded_acquire_may_be_dropped_at_every_poll() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).slots_per_core(2).build(&runtime).unwrap();
        let handle = pool.handle_on(cores[1]).unwrap();
        cut_everywhere(&pool, &handle, 1, 2, async || {}).await;
        pool.close().await;
    });
}

#[test]
fn a_forwarded_acquire_of_a_tcp_connection_may_be_dropped_at_every_poll() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(2).build(&runtime).unwrap();
        let handle = pool.handle_on(cores[1]).unwrap();
        cut_everywhere(&pool, &handle, 1, 2, async || {}).await;
        let mut lease = handle.acquire().await.unwrap();
        assert_eq!(lease.exchange(async |stream| echo(stream, b"still").await).await.unwrap(), b"still");
        drop(lease);
        pool.close().await;
        poll_until(async || upstream.live() == 0).await;
    });
}

#[test]
fn a_forwarded_acquire_that_waits_for_a_lease_may_be_dropped_at_every_poll() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle_on(cores[1]).unwrap();
        let other = pool.handle_on(cores[1]).unwrap();
        cut_everywhere(&pool, &handle, 1, 1, async || {
            let lease = other.acquire().await.unwrap();
            spawn(async move {
                yield_now().await;
                drop(lease);
            })
            .detach();
        })
        .await;
        pool.close().await;
    });
}

#[test]
fn a_grant_that_is_not_collected_goes_to_the_next_waiter() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle();
        let lease = handle.acquire().await.unwrap();
        let (mut first, mut second) = (handle.acquire(), handle.acquire());
        assert!(poll_once(&mut first).await.is_pending());
        assert!(poll_once(&mut second).await.is_pending());
        drop(lease);
        assert!(poll_once(&mut second).await.is_pending(), "the grant is the first one's");
        drop(first);
        let lease = soon(second).await.unwrap();
        drop(lease);
        let stats = shard(&pool, 0).await;
        assert_settled(&stats);
        assert_eq!((stats.cancelled, stats.opens), (1, 1));
        pool.close().await;
    });
}

#[test]
fn a_cancelled_waiter_in_the_middle_of_the_queue_is_passed_over() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle();
        let lease = handle.acquire().await.unwrap();
        let mut waiters: Vec<_> = (0..5).map(|_| handle.acquire()).collect();
        for waiter in &mut waiters {
            assert!(poll_once(waiter).await.is_pending());
        }
        drop(waiters.remove(2));
        assert_eq!(shard(&pool, 0).await.waiting, 4, "the queue is shorter at once");
        drop(lease);
        for waiter in waiters {
            drop(soon(waiter).await.unwrap());
        }
        assert_settled(&shard(&pool, 0).await);
        pool.close().await;
    });
}

#[test]
fn a_connect_that_nobody_waits_for_any_more_still_fills_its_slot() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        set(&script.hold_connects, true);
        let pool = Pool::builder(memory).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle();
        let mut acquire = handle.acquire();
        assert!(poll_once(&mut acquire).await.is_pending());
        poll_until(async || shard(&pool, 0).await.opening == 1).await;
        drop(acquire);
        let stats = shard(&pool, 0).await;
        assert_eq!((stats.opening, stats.waiting, stats.cancelled), (1, 0, 1));
        set(&script.hold_connects, false);
        poll_until(async || shard(&pool, 0).await.idle == 1).await;
        drop(soon(handle.acquire()).await.unwrap());
        assert_eq!(script.connects(), 1);
        pool.close().await;
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn an_exchange_dropped_at_any_await_costs_its_connection_and_not_its_slot() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle();
        let mut dropped = 0;
        for cut in CUTS {
            for polls in 0.. {
                assert!(polls < 50, "an exchange that is polled so often has finished");
                let mut lease = soon(handle.acquire()).await.unwrap();
                let exchange = lease.exchange(async |stream| {
                    echo(stream, b"one").await?;
                    yield_now().await;
                    echo(stream, b"two").await
                });
                let outcome = cut_off(polls, cut, exchange).await;
                let finished = outcome.is_some();
                if let Some(result) = outcome {
                    assert_eq!(result.unwrap(), b"two");
                }
                // An exchange that was never polled has not touched the connection.
                let broken = polls > 0 && !finished;
                assert_eq!(lease.is_clean(), !broken, "after {polls} polls");
                dropped += u64::from(broken);
                drop(lease);
                poll_until(async || shard(&pool, 0).await.closed_for(CloseReason::Dirty) == dropped).await;
                poll_until(async || upstream.live() == usize::from(!broken)).await;
                poll_until(async || shard(&pool, 0).await.connections() == usize::from(!broken)).await;
                assert_settled(&shard(&pool, 0).await);
                if finished {
                    break;
                }
            }
        }
        assert!(dropped >= 4, "{dropped} exchanges were dropped half-way");
        pool.close().await;
    });
}

#[test]
fn a_forwarded_exchange_dropped_at_any_await_costs_its_connection_and_not_its_slot() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle_on(cores[1]).unwrap();
        let mut dropped = 0;
        for cut in CUTS {
            for polls in 0.. {
                assert!(polls < 50, "an exchange that is polled so often has finished");
                let mut lease = soon(handle.acquire()).await.unwrap();
                let exchange = lease.exchange(async |stream| echo(stream, b"one").await);
                let finished = cut_off(polls, cut, exchange).await.is_some();
                dropped += u64::from(polls > 0 && !finished);
                drop(lease);
                let stats = settled(&pool, 1).await;
                assert_eq!(stats.closed_for(CloseReason::Dirty), dropped);
                poll_until(async || upstream.live() == stats.idle).await;
                if finished {
                    break;
                }
            }
        }
        assert!(dropped >= 2);
        pool.close().await;
    });
}

#[test]
fn an_acquire_dropped_by_an_outer_time_limit_leaves_no_waiter() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).max_waiters(3).build(&runtime).unwrap();
        let handle = pool.handle();
        let lease = handle.acquire().await.unwrap();
        for _ in 0..10 {
            let limited = corelet::runtime::timeout(Duration::from_millis(1), handle.acquire()).await;
            assert!(limited.is_err());
            assert_eq!(shard(&pool, 0).await.waiting, 0);
        }
        drop(lease);
        drop(soon(handle.acquire()).await.unwrap());
        assert_settled(&shard(&pool, 0).await);
        pool.close().await;
        assert!(matches!(handle.acquire().await, Err(AcquireError::Closed)));
    });
}

#[test]
fn acquires_that_were_cancelled_hold_up_no_close() {
    on_cores(2, async move |runtime, cores| {
        for drains in [false, true] {
            let memory = Memory::default();
            let script = memory.0.clone();
            let pool = Pool::builder(memory).slots_per_core(2).no_acquire_timeout().build(&runtime).unwrap();
            let handles = [pool.handle(), pool.handle_on(cores[1]).unwrap()];
            // On each shard a lease, then one that waits for a connect, and one that waits for either.
            let mut leases = Vec::new();
            for handle in &handles {
                leases.push(soon(handle.acquire()).await.unwrap());
            }
            set(&script.hold_connects, true);
            let mut acquires: Vec<_> = handles
                .iter()
                .flat_map(|handle| [handle.acquire(), handle.acquire(), handle.acquire()])
                .collect();
            for acquire in &mut acquires {
                assert!(poll_once(acquire).await.is_pending());
            }
            for index in 0..2 {
                poll_until(async || shard(&pool, index).await.waiting == 3).await;
                poll_until(async || shard(&pool, index).await.opening == 1).await;
            }
            // The first of each has a grant that it does not collect.
            drop(leases);
            poll_until(async || pool.stats().await.shards.iter().all(|shard| shard.waiting == 2)).await;
            drop(acquires);
            match drains {
                true => soon(pool.drain(PATIENCE)).await.unwrap(),
                false => soon(pool.close()).await,
            }
            poll_until(async || script.live() == 0).await;
            let stats = all_settled(&pool).await;
            // Those of the other core may have met the close before their cancel was read, and be refused.
            assert_eq!((stats.shards[0].cancelled, stats.shards[0].refused), (3, 0), "{stats:?}");
            set(&script.hold_connects, false);
        }
    });
}
