//! More acquires than can be served: refused at once when they would be late, shed when their queue stands.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::time::Duration;

use corelet::pool::{AcquireError, Pool};
use corelet::runtime::{sleep, spawn, yield_now};
use support::{Memory, on_cores, poll_once, poll_until, settled, shard, soon};

const LONG: Duration = Duration::from_secs(600);

#[test]
fn what_would_miss_its_deadline_is_refused_at_once() {
    on_cores(2, async move |runtime, cores| {
        for (index, home) in cores.into_iter().enumerate() {
            let builder = Pool::builder(Memory::default()).slots_per_core(1).expected_service_time(LONG);
            let pool = builder.acquire_timeout(LONG * 10).build(&runtime).unwrap();
            let handle = pool.handle_on(home).unwrap();
            let lease = soon(handle.acquire()).await.unwrap();
            let mut first = handle.acquire_within(LONG / 2);
            assert!(poll_once(&mut first).await.is_pending(), "the lease may end at once");
            poll_until(async || shard(&pool, index).await.waiting == 1).await;
            let refused = soon(handle.acquire_within(LONG - Duration::from_secs(1))).await.unwrap_err();
            let AcquireError::WouldMissDeadline { position, predicted_wait, .. } = refused else {
                panic!("{refused}");
            };
            assert_eq!((position, predicted_wait), (1, LONG));
            assert!(refused.is_retryable() && refused.is_overload() && !refused.is_connection_fault());
            let mut second = handle.acquire_within(LONG);
            assert!(poll_once(&mut second).await.is_pending());
            poll_until(async || shard(&pool, index).await.waiting == 2).await;
            drop(lease);
            drop(soon(first).await.unwrap());
            drop(soon(second).await.unwrap());
            settled(&pool, index).await;
            assert_eq!(shard(&pool, index).await.would_miss, 1);
            soon(pool.close()).await;
        }
    });
}

#[test]
fn the_rate_of_a_busy_shard_is_measured() {
    on_cores(1, async move |runtime, _| {
        let builder = Pool::builder(Memory::default()).slots_per_core(1).exact_admission();
        let pool = builder.no_acquire_timeout().build(&runtime).unwrap();
        let handle = std::rc::Rc::new(pool.handle());
        let mut clients = Vec::new();
        for _ in 0..500 {
            let handle = handle.clone();
            clients.push(spawn(async move {
                let lease = handle.acquire().await.unwrap();
                sleep(Duration::from_millis(2)).await;
                drop(lease);
            }));
        }
        poll_until(async || shard(&pool, 0).await.granted_after_wait >= 12).await;
        // Most of them still wait, for two milliseconds each.
        let verdict = soon(handle.acquire_within(Duration::from_micros(10))).await;
        assert!(matches!(verdict, Err(AcquireError::WouldMissDeadline { .. })), "{verdict:?}");
        assert!(shard(&pool, 0).await.waiting > 2, "there was something to wait for");
        clients.truncate(40);
        for client in clients {
            soon(client).await.unwrap();
        }
    });
}

#[test]
fn a_queue_that_stands_is_shed_and_the_rest_is_served() {
    on_cores(2, async move |runtime, cores| {
        for (index, home) in cores.into_iter().enumerate() {
            let builder = Pool::builder(Memory::default()).slots_per_core(1).no_acquire_timeout();
            let pool = builder.build(&runtime).unwrap();
            let (target, interval) = (Duration::from_micros(500), Duration::from_millis(4));
            let tenant = std::rc::Rc::new(pool.handle_on(home).unwrap().shedding(target, interval));
            let other = pool.handle_on(home).unwrap();
            let mut clients = Vec::new();
            for _ in 0..200 {
                let tenant = tenant.clone();
                clients.push(spawn(async move {
                    let lease = tenant.acquire().await?;
                    sleep(Duration::from_micros(200)).await;
                    drop(lease);
                    Ok::<_, AcquireError>(())
                }));
            }
            yield_now().await;
            drop(soon(other.acquire()).await.unwrap());
            let mut shed = 0;
            for client in clients {
                match soon(client).await.unwrap() {
                    Ok(()) => {}
                    Err(error @ AcquireError::Shed { waited, .. }) => {
                        shed += 1;
                        assert!(waited >= target && error.is_retryable() && error.is_overload());
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            let stats = settled(&pool, index).await;
            assert!(shed > 0 && shed < 200, "{shed} of 200 shed");
            assert_eq!(stats.shed, shed);
            // The queue has drained: nobody is shed any more.
            drop(soon(tenant.acquire()).await.unwrap());
            soon(pool.close()).await;
        }
    });
}

#[test]
fn an_acquire_knows_its_place() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle();
        let lease = soon(handle.acquire()).await.unwrap();
        let mut waiters: Vec<_> = (0..4).map(|_| handle.acquire()).collect();
        assert_eq!(waiters[0].position(), None, "it has not been polled");
        for waiter in &mut waiters {
            assert!(poll_once(waiter).await.is_pending());
        }
        let places = |waiters: &[_]| -> Vec<Option<usize>> {
            waiters.iter().map(corelet::pool::Acquire::position).collect()
        };
        assert_eq!(places(&waiters), [Some(0), Some(1), Some(2), Some(3)]);
        drop(waiters.remove(1));
        assert_eq!(places(&waiters), [Some(0), Some(1), Some(2)]);
        let late = soon(handle.acquire_within(Duration::from_millis(2))).await.unwrap_err();
        let AcquireError::Timeout { position, queued, .. } = late else { panic!("{late}") };
        assert_eq!((position, queued), (3, 4));
        drop(lease);
        assert_eq!(waiters[0].position(), None, "it was granted");
        drop(soon(waiters.remove(0)).await.unwrap());
    });
}
