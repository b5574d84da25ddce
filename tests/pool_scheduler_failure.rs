//! A panic in a scheduler ends its shard, tells everybody, and goes no further.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use corelet::pool::{AcquireError, Pool};
use corelet::runtime::spawn;
use support::{Memory, on_cores, poll_once, poll_until, set, shard, soon};

/// What makes the scheduler of shard 0 panic, given a pool with two slots, one idle and one leased.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// In a user's call that acquires.
    Acquire,
    /// In a user's call that gives a lease back.
    Release,
    /// In a user's call that arms what it gives back.
    Arm,
    /// In the scheduler's own task, for another core.
    Forwarded,
}

const BLOWS: [Blow; 4] = [Blow::Acquire, Blow::Release, Blow::Arm, Blow::Forwarded];

#[test]
fn a_scheduler_panic_is_published_contained_and_final() {
    on_cores(2, async move |runtime, cores| {
        for blow in BLOWS {
            let memory = Memory::default();
            let script = memory.0.clone();
            let pool = Pool::builder(memory).slots_per_core(2).no_acquire_timeout().build(&runtime).unwrap();
            let handle = pool.handle();
            let lease = handle.acquire().await.unwrap();
            let other = handle.acquire().await.unwrap();
            drop(other);
            let (near, far) = (cores[0], cores[1]);
            match blow {
                Blow::Arm => set(&script.panic_arm, true),
                _ => set(&script.panic_is_quiet, true),
            }
            let theirs = pool.clone();
            match blow {
                Blow::Acquire => {
                    let caller = spawn(async move { theirs.acquire().await.map(drop) });
                    assert!(soon(caller).await.unwrap_err().is_panic(), "{blow:?}");
                }
                Blow::Release | Blow::Arm => {
                    let caller = spawn(async move { drop(lease) });
                    assert!(soon(caller).await.unwrap_err().is_panic(), "{blow:?}");
                }
                Blow::Forwarded => {
                    let asked = runtime
                        .spawn_on(far, move || async move {
                            soon(theirs.handle_on(near).unwrap().acquire()).await.map(drop)
                        })
                        .unwrap();
                    assert!(matches!(asked.await.unwrap(), Err(AcquireError::SchedulerFailed)), "{blow:?}");
                }
            }
            set(&script.panic_arm, false);
            set(&script.panic_is_quiet, false);
            for _ in 0..3 {
                let refused = soon(handle.acquire()).await.unwrap_err();
                assert!(matches!(refused, AcquireError::SchedulerFailed), "{blow:?}: {refused}");
                assert!(!refused.is_retryable() && !refused.is_connection_fault());
                assert!(refused.to_string().contains("scheduler has failed"));
                let refused = soon(pool.handle().acquire()).await.unwrap_err();
                assert!(matches!(refused, AcquireError::SchedulerFailed), "{blow:?}: {refused}");
            }
            // The other shard goes on.
            let theirs = pool.clone();
            runtime
                .spawn_on(far, move || async move {
                    drop(soon(theirs.acquire()).await.unwrap());
                    let refused = soon(theirs.handle_on(near).unwrap().acquire()).await.map(drop);
                    assert!(matches!(refused, Err(AcquireError::SchedulerFailed)));
                })
                .unwrap()
                .await
                .unwrap();
            poll_until(async || shard(&pool, 0).await.scheduler_failures == 1).await;
            let stats = pool.stats().await;
            assert_eq!((stats.shards[0].scheduler_spawns, stats.shards[1].scheduler_failures), (1, 0));
            soon(pool.close()).await;
            let refused = soon(handle.acquire()).await.unwrap_err();
            assert!(matches!(refused, AcquireError::SchedulerFailed), "failed outranks closed");
            drop(handle);
            drop(pool);
        }
    });
}

#[test]
fn all_that_wait_at_a_failing_scheduler_are_told() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(1).no_acquire_timeout().build(&runtime).unwrap();
        let lease = pool.acquire().await.unwrap();
        let mut waiters = Vec::new();
        let mut far_waiters = Vec::new();
        for _ in 0..5 {
            let theirs = pool.clone();
            waiters.push(spawn(async move { theirs.acquire().await.map(drop) }));
            let (theirs, near) = (pool.clone(), cores[0]);
            far_waiters.push(
                runtime
                    .spawn_on(cores[1], move || async move {
                        theirs.handle_on(near).unwrap().acquire().await.map(drop)
                    })
                    .unwrap(),
            );
        }
        poll_until(async || shard(&pool, 0).await.waiting == 10).await;
        set(&script.panic_is_quiet, true);
        let culprit = spawn(async move { drop(lease) });
        assert!(soon(culprit).await.unwrap_err().is_panic());
        set(&script.panic_is_quiet, false);
        for waiter in waiters {
            assert!(matches!(soon(waiter).await.unwrap(), Err(AcquireError::SchedulerFailed)));
        }
        for waiter in far_waiters {
            assert!(matches!(soon(waiter).await.unwrap(), Err(AcquireError::SchedulerFailed)));
        }
        soon(pool.drain(support::PATIENCE)).await.unwrap();
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn leases_of_a_failed_shard_stay_usable() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(3).build(&runtime).unwrap();
        let handle = pool.handle();
        let (mut lease, victim) = (handle.acquire().await.unwrap(), handle.acquire().await.unwrap());
        let (theirs, near) = (pool.clone(), cores[0]);
        let (arrived, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (there, told) = (arrived.clone(), failed.clone());
        let far = runtime
            .spawn_on(cores[1], move || async move {
                let mut lease = theirs.handle_on(near).unwrap().acquire().await.unwrap();
                set(&there, true);
                poll_until(async || told.load(Ordering::SeqCst)).await;
                lease.exchange(async |_| Ok::<_, ()>(())).await.unwrap();
            })
            .unwrap();
        poll_until(async || arrived.load(Ordering::SeqCst)).await;
        set(&script.panic_is_quiet, true);
        assert!(spawn(async move { drop(victim) }).await.unwrap_err().is_panic());
        set(&script.panic_is_quiet, false);
        assert_eq!(shard(&pool, 0).await.scheduler_failures, 1);
        lease.exchange(async |_| Ok::<_, ()>(())).await.unwrap();
        set(&failed, true);
        far.await.unwrap();
        soon(pool.close()).await;
        lease.exchange(async |_| Ok::<_, ()>(())).await.unwrap();
        drop(lease);
        soon(pool.drain(support::PATIENCE)).await.unwrap();
        poll_until(async || script.live() == 0).await;
    });
}

#[test]
fn a_core_whose_own_scheduler_has_failed_is_told_so_when_it_forwards() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(1).no_acquire_timeout().build(&runtime).unwrap();
        let far = pool.handle_on(cores[1]).unwrap();
        let held = soon(far.acquire()).await.unwrap();
        let mut waiting = far.acquire();
        assert!(poll_once(&mut waiting).await.is_pending());
        poll_until(async || shard(&pool, 1).await.waiting == 1).await;
        let victim = pool.acquire().await.unwrap();
        set(&script.panic_is_quiet, true);
        assert!(spawn(async move { drop(victim) }).await.unwrap_err().is_panic());
        set(&script.panic_is_quiet, false);
        // Never a hang, and never the word that the pool was closed.
        assert!(matches!(soon(waiting).await, Err(AcquireError::SchedulerFailed)));
        assert!(matches!(soon(far.acquire()).await, Err(AcquireError::SchedulerFailed)));
        assert!(!pool.is_closed());
        drop(held);
        poll_until(async || shard(&pool, 1).await.leased == 0).await;
        poll_until(async || shard(&pool, 1).await.waiting == 0).await;
        soon(pool.drain(support::PATIENCE)).await.unwrap();
        poll_until(async || script.live() == 0).await;
    });
}

#[test]
fn a_panic_while_a_handle_is_dropped_fails_the_shard_and_nothing_else() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(2).build(&runtime).unwrap();
        let handle = pool.handle();
        let lease = handle.acquire().await.unwrap();
        drop(handle.acquire().await.unwrap());
        set(&script.panic_arm, true);
        let theirs = pool.clone();
        let task = spawn(async move {
            let mut lease = theirs.acquire().await.unwrap();
            lease.exchange(async |_| Ok::<_, ()>(())).await.unwrap();
            drop(lease);
        });
        assert!(soon(task).await.unwrap_err().is_panic());
        set(&script.panic_arm, false);
        drop(lease);
        drop(handle);
        soon(pool.drain(support::PATIENCE)).await.unwrap();
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn a_panic_in_the_schedulers_own_task_is_told_before_anybody_waits_in_vain() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(1).no_acquire_timeout().build(&runtime).unwrap();
        // A connection that panics when it comes home is handled by the scheduler's task.
        let lease = soon(pool.handle_on(cores[1]).unwrap().acquire()).await.unwrap();
        let mut waiters = Vec::new();
        for home in [cores[1], cores[1]] {
            let theirs = pool.clone();
            waiters.push(
                runtime.spawn_on(home, move || async move { theirs.acquire().await.map(drop) }).unwrap(),
            );
        }
        poll_until(async || shard(&pool, 1).await.waiting == 2).await;
        set(&script.panic_attach, true);
        drop(lease);
        for waiter in waiters {
            assert!(matches!(soon(waiter).await.unwrap(), Err(AcquireError::SchedulerFailed)));
        }
        set(&script.panic_attach, false);
        assert!(matches!(
            soon(pool.handle_on(cores[1]).unwrap().acquire()).await,
            Err(AcquireError::SchedulerFailed)
        ));
        drop(soon(pool.acquire()).await.unwrap());
        assert_eq!(shard(&pool, 1).await.scheduler_failures, 1);
        soon(pool.drain(support::PATIENCE)).await.unwrap();
        poll_until(async || script.live() == 0).await;
    });
}

#[test]
fn a_panic_on_taking_in_a_new_connection_fails_the_shard_and_loses_nothing() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        set(&script.hold_connects, true);
        let pool = Pool::builder(memory).slots_per_core(2).build(&runtime).unwrap();
        let handle = pool.handle();
        let mut acquire = handle.acquire();
        assert!(poll_once(&mut acquire).await.is_pending());
        poll_until(async || shard(&pool, 0).await.opening == 1).await;
        drop(acquire);
        set(&script.panic_arm, true);
        set(&script.hold_connects, false);
        poll_until(async || shard(&pool, 0).await.scheduler_failures == 1).await;
        set(&script.panic_arm, false);
        assert!(matches!(soon(handle.acquire()).await, Err(AcquireError::SchedulerFailed)));
        soon(pool.drain(support::PATIENCE)).await.unwrap();
        assert_eq!((script.live(), shard(&pool, 0).await.connections()), (0, 0));
    });
}
