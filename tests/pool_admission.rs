//! Who is admitted, who is refused, and in which order those who wait are served.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corelet::pool::{AcquireError, Fairness, Handle, Pool, Stage};
use corelet::runtime::{spawn, yield_now};
use support::{Memory, assert_settled, on_cores, poll_once, poll_until, settled, shard, soon};

#[test]
fn as_many_wait_as_may_and_the_next_is_refused() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).max_waiters(5).build(&runtime).unwrap();
        for (index, home) in cores.into_iter().enumerate() {
            let handle = pool.handle_on(home).unwrap();
            let lease = soon(handle.acquire()).await.unwrap();
            let mut waiters: Vec<_> = (0..5).map(|_| handle.acquire()).collect();
            for waiter in &mut waiters {
                assert!(poll_once(waiter).await.is_pending());
            }
            poll_until(async || shard(&pool, index).await.waiting == 5).await;
            for _ in 0..3 {
                assert!(matches!(soon(handle.acquire()).await, Err(AcquireError::Saturated { limit: 5 })));
            }
            // A cancelled one makes room for exactly one.
            waiters.truncate(4);
            poll_until(async || shard(&pool, index).await.waiting == 4).await;
            let mut newcomer = handle.acquire();
            assert!(poll_once(&mut newcomer).await.is_pending());
            poll_until(async || shard(&pool, index).await.waiting == 5).await;
            assert!(matches!(soon(handle.acquire()).await, Err(AcquireError::Saturated { limit: 5 })));
            drop(lease);
            for waiter in waiters {
                drop(soon(waiter).await.unwrap());
            }
            drop(soon(newcomer).await.unwrap());
            let stats = settled(&pool, index).await;
            assert_eq!((stats.saturated, stats.cancelled), (4, 1));
        }
        pool.close().await;
    });
}

#[test]
fn a_deadline_is_kept_and_the_error_says_what_was_waited_for() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        for (home, expected) in [(cores[0], Stage::Waiting), (cores[1], Stage::Forwarded)] {
            let handle = pool.handle_on(home).unwrap();
            let lease = soon(handle.acquire()).await.unwrap();
            for limit in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(20)] {
                let begun = Instant::now();
                let error = soon(handle.acquire_within(limit)).await.unwrap_err();
                let took = begun.elapsed();
                let AcquireError::Timeout { stage, waited, queued, last_connect_error, .. } = &error else {
                    panic!("{error}")
                };
                assert_eq!((*stage, *queued), (expected, 1));
                assert!(last_connect_error.is_none());
                assert!(*waited >= limit && *waited <= took, "{waited:?} of {limit:?}, seen as {took:?}");
                assert!(took < limit + support::PATIENCE / 10, "{took:?} instead of {limit:?}");
                assert!(error.is_retryable() && !error.is_connection_fault());
            }
            drop(lease);
            drop(soon(handle.acquire_within(Duration::from_secs(10))).await.unwrap());
        }
        let stats = pool.stats().await;
        assert_eq!((stats.shards[0].timed_out, stats.shards[1].cancelled), (3, 3));
        pool.close().await;
    });
}

#[test]
fn a_shorter_deadline_behind_a_longer_one_comes_first() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        for home in cores {
            let handle = pool.handle_on(home).unwrap();
            let lease = soon(handle.acquire()).await.unwrap();
            let mut long = handle.acquire_within(Duration::from_secs(3600));
            assert!(poll_once(&mut long).await.is_pending());
            yield_now().await;
            let short = soon(handle.acquire_within(Duration::from_millis(5))).await;
            assert!(matches!(short, Err(AcquireError::Timeout { .. })));
            assert!(poll_once(&mut long).await.is_pending());
            drop(lease);
            drop(soon(long).await.unwrap());
        }
        pool.close().await;
    });
}

#[test]
fn without_a_time_limit_an_acquire_waits_on() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Memory::default())
            .slots_per_core(1)
            .acquire_timeout(Duration::from_millis(1))
            .no_acquire_timeout()
            .build(&runtime)
            .unwrap();
        let handle = pool.handle();
        let lease = handle.acquire().await.unwrap();
        let mut waiting = handle.acquire();
        for _ in 0..10 {
            assert!(poll_once(&mut waiting).await.is_pending());
            corelet::runtime::sleep(Duration::from_millis(1)).await;
        }
        drop(lease);
        drop(soon(waiting).await.unwrap());
        pool.close().await;
    });
}

/// Starts a task that waits, and notes `label` in `order` when it is served. The lease goes on at once.
fn wait(
    handle: &Rc<Handle<Memory>>,
    label: usize,
    order: &Rc<RefCell<Vec<usize>>>,
) -> corelet::runtime::JoinHandle<()> {
    let (handle, order) = (Rc::clone(handle), Rc::clone(order));
    spawn(async move {
        let lease = handle.acquire().await.unwrap();
        order.borrow_mut().push(label);
        yield_now().await;
        drop(lease);
    })
}

#[test]
fn waiters_are_served_in_the_order_of_their_arrival() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        let handles: Vec<_> = (0..3).map(|_| Rc::new(pool.handle())).collect();
        let lease = handles[0].acquire().await.unwrap();
        let order = Rc::default();
        let mut tasks = Vec::new();
        for label in 0..30 {
            tasks.push(wait(&handles[label % 3], label, &order));
            poll_until(async || shard(&pool, 0).await.waiting == label + 1).await;
        }
        drop(lease);
        for task in tasks {
            soon(task).await.unwrap();
        }
        assert_eq!(*order.borrow(), (0..30).collect::<Vec<_>>());
        pool.close().await;
    });
}

#[test]
fn under_round_robin_handles_take_turns() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Memory::default())
            .slots_per_core(1)
            .fairness(Fairness::RoundRobin)
            .build(&runtime)
            .unwrap();
        let handles: Vec<_> = (0..3).map(|_| Rc::new(pool.handle())).collect();
        let lease = pool.acquire().await.unwrap();
        let order = Rc::default();
        let mut tasks = Vec::new();
        // The first handle asks for all of its four before the others ask at all.
        for (count, label) in (0..12).enumerate() {
            tasks.push(wait(&handles[label / 4], label, &order));
            poll_until(async || shard(&pool, 0).await.waiting == count + 1).await;
        }
        drop(lease);
        for task in tasks {
            soon(task).await.unwrap();
        }
        assert_eq!(*order.borrow(), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
        pool.close().await;
    });
}

#[test]
fn under_round_robin_handles_of_two_cores_take_turns() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default())
            .slots_per_core(1)
            .fairness(Fairness::RoundRobin)
            .build(&runtime)
            .unwrap();
        let handles: Vec<_> = (0..3).map(|_| Rc::new(pool.handle_on(cores[1]).unwrap())).collect();
        let lease = handles[0].acquire().await.unwrap();
        let order = Rc::default();
        let mut tasks = Vec::new();
        for (count, label) in (0..12).enumerate() {
            tasks.push(wait(&handles[label / 4], label, &order));
            poll_until(async || shard(&pool, 1).await.waiting == count + 1).await;
        }
        drop(lease);
        for task in tasks {
            soon(task).await.unwrap();
        }
        assert_eq!(*order.borrow(), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
        pool.close().await;
    });
}

#[test]
fn two_acquires_of_one_handle_are_granted_in_order() {
    on_cores(2, async move |runtime, cores| {
        for fairness in [Fairness::Fifo, Fairness::RoundRobin] {
            let pool = Pool::builder(Memory::default())
                .slots_per_core(1)
                .fairness(fairness)
                .build(&runtime)
                .unwrap();
            for (index, home) in cores.iter().enumerate() {
                let handle = pool.handle_on(*home).unwrap();
                let lease = soon(handle.acquire()).await.unwrap();
                let (mut first, mut second) = (handle.acquire(), handle.acquire());
                assert!(poll_once(&mut first).await.is_pending());
                assert!(poll_once(&mut second).await.is_pending());
                poll_until(async || shard(&pool, index).await.waiting == 2).await;
                drop(lease);
                let lease = soon(&mut first).await.unwrap();
                assert!(poll_once(&mut second).await.is_pending());
                drop(lease);
                drop(soon(second).await.unwrap());
            }
            pool.close().await;
        }
    });
}

#[test]
fn a_newcomer_never_overtakes() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle();
        // Somebody who takes the connection again in the very poll in which it gave it back.
        let mut lease = handle.acquire().await.unwrap();
        let waiting = Rc::new(RefCell::new(0));
        let served = Rc::clone(&waiting);
        let theirs = pool.clone();
        let waiter = spawn(async move {
            drop(theirs.acquire().await.unwrap());
            *served.borrow_mut() += 1;
        });
        poll_until(async || shard(&pool, 0).await.waiting == 1).await;
        for _ in 0..10 {
            drop(lease);
            let mut again = handle.acquire();
            let polled = poll_once(&mut again).await;
            lease = match polled {
                std::task::Poll::Ready(lease) => {
                    assert_eq!(*waiting.borrow(), 1, "the waiter came first");
                    lease.unwrap()
                }
                std::task::Poll::Pending => soon(again).await.unwrap(),
            };
        }
        soon(waiter).await.unwrap();
        drop(lease);
        pool.close().await;
    });
}

#[test]
fn a_deregistered_handle_ends_its_waiters_and_no_others() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        for (index, home) in cores.into_iter().enumerate() {
            let (gone, other) = (pool.handle_on(home).unwrap(), pool.handle_on(home).unwrap());
            let lease = soon(gone.acquire()).await.unwrap();
            let (mut first, mut second, mut third) = (gone.acquire(), other.acquire(), gone.acquire());
            assert!(poll_once(&mut first).await.is_pending());
            assert!(poll_once(&mut second).await.is_pending());
            assert!(poll_once(&mut third).await.is_pending());
            poll_until(async || shard(&pool, index).await.waiting == 3).await;
            gone.deregister();
            gone.deregister();
            assert!(matches!(soon(first).await, Err(AcquireError::Deregistered)));
            assert!(matches!(soon(third).await, Err(AcquireError::Deregistered)));
            assert_eq!(shard(&pool, index).await.waiting, 1);
            drop(lease);
            drop(soon(second).await.unwrap());
            // It may go on asking.
            drop(soon(gone.acquire()).await.unwrap());
            let stats = settled(&pool, index).await;
            assert_eq!(stats.refused, 2);
        }
        pool.close().await;
    });
}

#[test]
fn a_deregistered_handle_loses_a_grant_it_has_not_collected() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        let (gone, other) = (pool.handle(), pool.handle());
        let lease = gone.acquire().await.unwrap();
        let (mut first, mut second) = (gone.acquire(), other.acquire());
        assert!(poll_once(&mut first).await.is_pending());
        assert!(poll_once(&mut second).await.is_pending());
        drop(lease);
        gone.deregister();
        assert!(matches!(soon(first).await, Err(AcquireError::Deregistered)));
        drop(soon(second).await.unwrap());
        assert_settled(&shard(&pool, 0).await);
        pool.close().await;
    });
}

#[test]
fn a_dropped_handle_is_deregistered_and_its_neighbours_wait_on() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        for (index, home) in cores.into_iter().enumerate() {
            let keeper = pool.handle_on(home).unwrap();
            let lease = soon(keeper.acquire()).await.unwrap();
            let mut patient = keeper.acquire();
            assert!(poll_once(&mut patient).await.is_pending());
            for _ in 0..20 {
                let theirs = pool.clone();
                let task = spawn(async move {
                    let handle = theirs.handle_on(home).unwrap();
                    drop(handle.acquire().await);
                });
                poll_until(async || shard(&pool, index).await.waiting == 2).await;
                drop(task);
                poll_until(async || shard(&pool, index).await.waiting == 1).await;
            }
            drop(lease);
            drop(soon(patient).await.unwrap());
        }
        pool.close().await;
    });
}

#[test]
fn the_newest_idle_connection_is_used_first() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Memory::default()).slots_per_core(3).build(&runtime).unwrap();
        let handle = pool.handle();
        let mut numbers = Vec::new();
        let mut leases = Vec::new();
        for _ in 0..3 {
            let mut lease = handle.acquire().await.unwrap();
            numbers.push(lease.exchange(async |connection| Ok::<_, ()>(connection.number)).await.unwrap());
            leases.push(lease);
        }
        leases.drain(..).for_each(drop);
        for _ in 0..5 {
            let mut lease = handle.acquire().await.unwrap();
            let number = lease.exchange(async |connection| Ok::<_, ()>(connection.number)).await.unwrap();
            assert_eq!(number, numbers[2]);
        }
        pool.close().await;
    });
}

#[test]
fn an_acquire_that_moves_to_another_task_is_woken_there() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        for home in cores {
            let handle: &'static Handle<Memory> = Box::leak(Box::new(pool.handle_on(home).unwrap()));
            let lease = soon(handle.acquire()).await.unwrap();
            let mut waiting = handle.acquire();
            assert!(poll_once(&mut waiting).await.is_pending());
            let task = spawn(async move { soon(waiting).await.map(drop) });
            yield_now().await;
            drop(lease);
            soon(task).await.unwrap().unwrap();
        }
        pool.close().await;
    });
}
