//! Pools that are made larger and smaller while they are used.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::time::Duration;

use corelet::pool::{BuildError, CloseReason, Pool, TcpConnector};
use corelet::runtime::{sleep, spawn};
use support::{
    Memory, Random, Upstream, all_settled, echo, on_cores, poll_once, poll_until, settled, shard, soon,
};

#[test]
fn a_larger_pool_serves_its_waiters_at_once() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::echo();
        let pool = Pool::builder(TcpConnector::new(upstream.address))
            .slots_per_core(1)
            .no_acquire_timeout()
            .build(&runtime)
            .unwrap();
        for (index, home) in cores.into_iter().enumerate() {
            pool.resize(1).unwrap();
            let handle = pool.handle_on(home).unwrap();
            let first = soon(handle.acquire()).await.unwrap();
            let mut waiting = handle.acquire();
            assert!(poll_once(&mut waiting).await.is_pending());
            poll_until(async || shard(&pool, index).await.waiting == 1).await;
            pool.resize(2).unwrap();
            drop((soon(waiting).await.unwrap(), first));
        }
        soon(pool.close()).await;
        pool.resize(7).unwrap();
    });
}

#[test]
fn a_smaller_pool_breaks_no_lease() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(4).build(&runtime).unwrap();
        let handle = pool.handle();
        let mut leases = Vec::new();
        for _ in 0..4 {
            leases.push(soon(handle.acquire()).await.unwrap());
        }
        drop(leases.pop());
        poll_until(async || shard(&pool, 0).await.idle == 1).await;
        pool.resize(1).unwrap();
        poll_until(async || shard(&pool, 0).await.closed_for(CloseReason::Resized) == 1).await;
        for lease in &mut leases {
            lease.exchange(async |stream| echo(stream, b"still").await).await.unwrap();
        }
        drop(leases);
        poll_until(async || upstream.live() == 1).await;
        let stats = settled(&pool, 0).await;
        assert_eq!((stats.idle, stats.closed_for(CloseReason::Resized)), (1, 3));
        soon(pool.close()).await;
    });
}

#[test]
fn a_pool_of_no_slots_or_too_many_is_refused() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Memory::default()).build(&runtime).unwrap();
        for wrong in [0, 65_537] {
            assert!(matches!(
                pool.resize(wrong),
                Err(BuildError::InvalidSetting { what: "slots_per_core", got, .. }) if got == wrong
            ));
        }
        soon(pool.close()).await;
    });
}

#[test]
fn random_resizes_under_load_lose_no_slot_and_break_no_lease() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let mut random = Random::new();
        let pool = Pool::builder(memory).slots_per_core(3).min_idle(1).build(&runtime).unwrap();
        let tasks: Vec<_> = (0..8_u64)
            .map(|lane| {
                let (pool, home, seed) = (pool.clone(), cores[lane as usize % 2], random.next());
                spawn(async move {
                    let (mut random, handle) = (Random::seeded(seed), pool.handle_on(home).unwrap());
                    for _ in 0..200 {
                        let mut lease = soon(handle.acquire()).await.unwrap();
                        assert!(lease.exchange(async |_| Ok::<_, ()>(())).await.is_ok());
                        if random.below(3) == 0 {
                            sleep(Duration::from_micros(random.below(300))).await;
                        }
                    }
                })
            })
            .collect();
        for _ in 0..100 {
            pool.resize(1 + random.below(6) as usize).unwrap();
            sleep(Duration::from_micros(random.below(1000))).await;
        }
        pool.resize(2).unwrap();
        for task in tasks {
            soon(task).await.unwrap();
        }
        poll_until(async || pool.stats().await.shards.iter().all(|shard| shard.connections() <= 2)).await;
        all_settled(&pool).await;
        for home in pool.stats().await.shards.iter().map(|shard| shard.core) {
            let handle = pool.handle_on(home).unwrap();
            let both = (soon(handle.acquire()).await.unwrap(), soon(handle.acquire()).await.unwrap());
            let mut third = handle.acquire();
            assert!(poll_once(&mut third).await.is_pending());
            drop(both);
            drop(soon(third).await.unwrap());
        }
        soon(pool.close()).await;
        poll_until(async || script.live() == 0).await;
    });
}
