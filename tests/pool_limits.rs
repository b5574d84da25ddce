//! A handle with a limit never has more leases than it may, and costs others nothing.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::time::Duration;

use corelet::pool::{AcquireError, Fairness, Handle, Pool, Stage};
use corelet::runtime::{CoreId, RuntimeHandle, sleep, spawn};
use support::{Memory, Random, on_cores, poll_once, poll_until, settled, shard, soon};

/// A pool with four slots for each core, and a handle of the first core's shard or of the second's.
fn pools(runtime: &RuntimeHandle, cores: &[CoreId]) -> Vec<(Pool<Memory>, usize, Handle<Memory>)> {
    (0..2)
        .map(|home| {
            let pool = Pool::builder(Memory::default()).slots_per_core(4).build(runtime).unwrap();
            let handle = pool.handle_on(cores[home]).unwrap();
            (pool, home, handle)
        })
        .collect()
}

#[test]
fn a_handle_at_its_limit_waits_until_one_of_its_leases_ends() {
    on_cores(2, async move |runtime, cores| {
        for (pool, home, tenant) in pools(&runtime, &cores) {
            let (tenant, other) = (tenant.limited(2), pool.handle_on(cores[home]).unwrap());
            let (first, second) =
                (soon(tenant.acquire()).await.unwrap(), soon(tenant.acquire()).await.unwrap());
            let mut third = tenant.acquire();
            assert!(poll_once(&mut third).await.is_pending());
            poll_until(async || shard(&pool, home).await.held_back == 1).await;
            // Slots are there, for others.
            drop(soon(other.acquire()).await.unwrap());
            let late = soon(tenant.acquire_within(Duration::from_millis(5))).await;
            let expected = if home == 0 { Stage::Limited } else { Stage::Forwarded };
            assert!(
                matches!(late, Err(AcquireError::Timeout { stage, .. }) if stage == expected),
                "{late:?}"
            );
            assert!(poll_once(&mut third).await.is_pending());
            drop(first);
            let third = soon(third).await.unwrap();
            poll_until(async || shard(&pool, home).await.waiting == 0).await;
            // A dirty end counts as one too.
            let mut fourth = tenant.acquire();
            assert!(poll_once(&mut fourth).await.is_pending());
            let mut second = second;
            assert!(second.exchange(async |_| Err::<(), _>(())).await.is_err());
            drop(second);
            drop((third, soon(fourth).await.unwrap()));
            let stats = settled(&pool, home).await;
            assert_eq!(stats.limit_waits, 3, "{stats:?}");
            soon(pool.close()).await;
        }
    });
}

#[test]
fn what_is_held_back_can_be_cancelled_and_ends_with_its_handle_and_its_pool() {
    on_cores(2, async move |runtime, cores| {
        for (pool, home, tenant) in pools(&runtime, &cores) {
            let tenant = tenant.limited(1);
            let lease = soon(tenant.acquire()).await.unwrap();
            let held_back =
                async |count| poll_until(async || shard(&pool, home).await.held_back == count).await;
            let (mut cancelled, mut next) = (tenant.acquire(), tenant.acquire());
            assert!(poll_once(&mut cancelled).await.is_pending() && poll_once(&mut next).await.is_pending());
            held_back(2).await;
            drop(cancelled);
            held_back(1).await;
            drop(lease);
            let lease = soon(next).await.unwrap();
            let mut waiter = tenant.acquire();
            assert!(poll_once(&mut waiter).await.is_pending());
            held_back(1).await;
            tenant.deregister();
            assert!(matches!(soon(waiter).await, Err(AcquireError::Deregistered)));
            let mut waiter = tenant.acquire();
            assert!(poll_once(&mut waiter).await.is_pending());
            held_back(1).await;
            soon(pool.close()).await;
            assert!(matches!(soon(waiter).await, Err(AcquireError::Closed)));
            drop(lease);
        }
    });
}

#[test]
fn a_limit_of_nothing_is_one_lease() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Memory::default()).slots_per_core(2).build(&runtime).unwrap();
        let tenant = pool.handle().limited(0);
        let _lease = soon(tenant.acquire()).await.unwrap();
        assert!(poll_once(&mut tenant.acquire()).await.is_pending());
    });
}

/// Tenants of all limits, on both cores, with cancels: nobody ever has more than it may, everybody comes to an end.
#[test]
fn no_mix_of_tenants_breaks_a_limit() {
    on_cores(2, async move |runtime, cores| {
        for fairness in [Fairness::Fifo, Fairness::RoundRobin] {
            let builder = Pool::builder(Memory::default()).slots_per_core(3).fairness(fairness);
            let pool = builder.no_acquire_timeout().build(&runtime).unwrap();
            let mut random = Random::new();
            let mut tenants = Vec::new();
            for n in 0..6_usize {
                let (pool, home, limit) = (pool.clone(), cores[n % 2], 1 + n / 2);
                let mut random = Random::seeded(random.next());
                tenants.push(spawn(async move {
                    let tenant = std::rc::Rc::new(pool.handle_on(home).unwrap().limited(limit));
                    let out = std::rc::Rc::new(std::cell::Cell::new(0_usize));
                    let mut tasks = Vec::new();
                    for _ in 0..40 {
                        let (tenant, out) = (tenant.clone(), out.clone());
                        let (pause, gives_up) = (random.below(400), random.below(4) == 0);
                        tasks.push(spawn(async move {
                            let mut acquire = tenant.acquire();
                            if poll_once(&mut acquire).await.is_pending() && gives_up {
                                return;
                            }
                            drop(acquire);
                            let lease = tenant.acquire().await.unwrap();
                            out.set(out.get() + 1);
                            assert!(out.get() <= limit, "{} leases of {limit}", out.get());
                            sleep(Duration::from_micros(pause)).await;
                            out.set(out.get() - 1);
                            drop(lease);
                        }));
                    }
                    for task in tasks {
                        task.await.unwrap();
                    }
                }));
            }
            for tenant in tenants {
                soon(tenant).await.unwrap();
            }
            for index in 0..2 {
                settled(&pool, index).await;
            }
            soon(pool.close()).await;
        }
    });
}
