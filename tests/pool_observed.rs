//! What a pool says of itself: waits, slow acquires, leaks, events; and that watching costs an idle pool nothing.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corelet::pool::{AcquireError, CloseReason, EventKind, Pool, PoolBuilder};
use corelet::runtime::{core_stats, sleep, spawn};
use support::{Memory, on_cores, poll_once, poll_until, set, shard, soon};

type Heard = Arc<Mutex<Vec<EventKind>>>;

fn listen(builder: PoolBuilder<Memory>) -> (PoolBuilder<Memory>, Heard) {
    let heard = Heard::default();
    let ear = heard.clone();
    (builder.on_event(move |event| ear.lock().unwrap().push(event.kind.clone())), heard)
}

fn short(events: &Heard) -> Vec<String> {
    let name = |kind: &EventKind| match kind {
        EventKind::Opened => "opened".into(),
        EventKind::ConnectFailed { error } => format!("failed: {error}"),
        EventKind::Closed { reason } => format!("closed: {}", reason.name()),
        EventKind::Refused { error } => format!("refused: {error}"),
        other => format!("{other:?}"),
    };
    events.lock().unwrap().iter().map(name).collect()
}

#[test]
fn a_slow_acquire_is_told_of_with_its_place_in_the_program() {
    on_cores(2, async move |runtime, cores| {
        for (index, home) in cores.into_iter().enumerate() {
            let builder = Pool::builder(Memory::default()).slots_per_core(1);
            let (builder, heard) = listen(builder.warn_slow_acquires(Duration::from_millis(2)));
            let pool = builder.build(&runtime).unwrap();
            let handle = pool.handle_on(home).unwrap();
            let lease = soon(handle.acquire()).await.unwrap();
            let line = line!() + 1;
            let mut slow = handle.acquire();
            assert!(poll_once(&mut slow).await.is_pending());
            poll_until(async || shard(&pool, index).await.waiting == 1).await;
            sleep(Duration::from_millis(4)).await;
            drop(lease);
            drop(soon(slow).await.unwrap());
            poll_until(async || shard(&pool, index).await.slow_acquires == 1).await;
            let stats = shard(&pool, index).await;
            assert!(stats.waits.max() >= Duration::from_millis(2) && stats.waits.count() == 2, "{stats:?}");
            assert_eq!(stats.waits.count(), stats.granted_after_wait);
            let events = std::mem::take(&mut *heard.lock().unwrap());
            let slow = events.iter().find_map(|event| match event {
                EventKind::SlowAcquire { handle, site, waited, position, .. } => {
                    Some((*handle, site.file(), site.line(), *waited, *position))
                }
                _ => None,
            });
            let (id, file, at, waited, position) = slow.unwrap();
            assert_eq!((id, file, at, position), (handle.id(), file!(), line, 0));
            assert!(waited >= Duration::from_millis(2));
            soon(pool.close()).await;
        }
    });
}

#[test]
fn a_lease_that_is_never_given_back_is_told_of_once() {
    on_cores(2, async move |runtime, cores| {
        for (index, home) in cores.into_iter().enumerate() {
            let builder = Pool::builder(Memory::default()).slots_per_core(2);
            let (builder, heard) = listen(builder.detect_leaks(Duration::from_millis(4)));
            let pool = builder.build(&runtime).unwrap();
            let handle = pool.handle_on(home).unwrap();
            // From an open, and from an idle connection.
            for told in 1..=2 {
                let line = line!() + 1;
                let lease = soon(handle.acquire()).await.unwrap();
                poll_until(async || shard(&pool, index).await.leaks == told).await;
                let out = soon(pool.leases()).await;
                assert_eq!(out.len(), 1);
                assert_eq!((out[0].core, out[0].handle, out[0].site.line()), (home, handle.id(), line));
                sleep(Duration::from_millis(20)).await;
                assert_eq!(shard(&pool, index).await.leaks, told);
                drop(lease);
                poll_until(async || pool.leases().await.is_empty()).await;
                let leaks: Vec<_> = std::mem::take(&mut *heard.lock().unwrap())
                    .into_iter()
                    .filter_map(|event| match event {
                        EventKind::Leak { handle, site, age, .. } => Some((handle, site.line(), age)),
                        _ => None,
                    })
                    .collect();
                assert_eq!(leaks.len(), 1);
                assert_eq!((leaks[0].0, leaks[0].1), (handle.id(), line));
                assert!(leaks[0].2 >= Duration::from_millis(4));
            }
            soon(pool.close()).await;
        }
    });
}

#[test]
fn watching_for_leaks_wakes_no_core_that_has_no_lease_out() {
    on_cores(1, async move |runtime, _| {
        let builder = Pool::builder(Memory::default()).slots_per_core(2);
        let pool = builder.detect_leaks(Duration::from_millis(4)).build(&runtime).unwrap();
        drop(soon(pool.acquire()).await.unwrap());
        // The look that finds nothing is the last.
        sleep(Duration::from_millis(10)).await;
        let before = core_stats().unwrap();
        sleep(Duration::from_millis(100)).await;
        let parks = core_stats().unwrap().parks - before.parks;
        assert!(parks < 20, "{parks} wake-ups while nothing was out");
    });
}

#[test]
fn an_observer_hears_of_opens_failures_refusals_and_closes() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let (builder, heard) = listen(Pool::builder(memory).slots_per_core(1).max_waiters(1));
        let pool = builder.build(&runtime).unwrap();
        let far = pool.handle_on(cores[1]).unwrap();
        let mut lease = soon(pool.acquire()).await.unwrap();
        assert_eq!(short(&heard), ["opened"]);
        let late = pool.handle();
        let late = soon(late.acquire_within(Duration::from_millis(1))).await.unwrap_err();
        assert!(lease.exchange(async |_| Err::<(), _>(())).await.is_err());
        drop(lease);
        set(&script.fail_connects, true);
        poll_until(async || shard(&pool, 0).await.closing == 0).await;
        let failed = soon(pool.acquire()).await.unwrap_err();
        let far_failed = soon(far.acquire()).await.unwrap_err();
        assert_eq!(
            short(&heard),
            [
                "opened".to_string(),
                format!("refused: {late}"),
                format!("closed: {}", CloseReason::Dirty.name()),
                "failed: refused on purpose".into(),
                format!("refused: {failed}"),
                "failed: refused on purpose".into(),
                format!("refused: {far_failed}"),
            ]
        );
        soon(pool.close()).await;
        assert!(matches!(soon(pool.acquire()).await, Err(AcquireError::Closed)));
        assert_eq!(short(&heard).last().unwrap(), "refused: the pool is closed");
    });
}

#[test]
fn events_agree_with_the_counts() {
    on_cores(2, async move |runtime, cores| {
        let (builder, heard) = listen(Pool::builder(Memory::default()).slots_per_core(2));
        let pool = builder.build(&runtime).unwrap();
        for home in cores {
            for dirty in [true, false, true] {
                let mut lease = soon(pool.handle_on(home).unwrap().acquire()).await.unwrap();
                if dirty {
                    assert!(lease.exchange(async |_| Err::<(), _>(())).await.is_err());
                }
            }
        }
        for index in 0..2 {
            poll_until(async || shard(&pool, index).await.leased == 0).await;
        }
        soon(pool.close()).await;
        let stats = pool.stats().await;
        let count = |kind: &str| short(&heard).iter().filter(|event| event.starts_with(kind)).count() as u64;
        assert_eq!(count("opened"), stats.sum(|shard| shard.opens - shard.connect_failures));
        for reason in CloseReason::ALL {
            let closed = stats.sum(|shard| shard.closed_for(reason));
            assert_eq!(count(&format!("closed: {}", reason.name())), closed, "{reason:?}");
        }
        assert_eq!(stats.sum(|shard| shard.closed_for(CloseReason::Dirty)), 4);
    });
}

#[test]
fn a_failed_scheduler_is_an_event() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let (builder, heard) = listen(Pool::builder(memory).slots_per_core(1));
        let pool = builder.build(&runtime).unwrap();
        let victim = soon(pool.acquire()).await.unwrap();
        set(&script.panic_is_quiet, true);
        assert!(spawn(async move { drop(victim) }).await.unwrap_err().is_panic());
        set(&script.panic_is_quiet, false);
        assert!(short(&heard).contains(&"SchedulerFailed".into()), "{:?}", short(&heard));
    });
}

#[test]
fn an_observer_may_use_the_pool_and_its_panics_go_no_further() {
    on_cores(1, async move |runtime, _| {
        let place: Arc<Mutex<Option<Pool<Memory>>>> = Arc::default();
        let inside = place.clone();
        let memory = Memory::default();
        let script = memory.0.clone();
        let builder = Pool::builder(memory).slots_per_core(1).warn_slow_acquires(Duration::ZERO);
        let builder = builder.detect_leaks(Duration::from_millis(1)).on_event(move |event| {
            if let Some(pool) = &*inside.lock().unwrap() {
                let waker = std::task::Waker::noop();
                let mut again = std::pin::pin!(pool.acquire());
                let polled = again.as_mut().poll(&mut std::task::Context::from_waker(waker));
                drop(polled);
            }
            panic!("the observer panics on purpose: {event:?}");
        });
        let pool = builder.build(&runtime).unwrap();
        *place.lock().unwrap() = Some(pool.clone());
        let handle = pool.handle();
        let lease = soon(handle.acquire()).await.unwrap();
        poll_until(async || shard(&pool, 0).await.leaks > 0).await;
        let mut waiter = handle.acquire();
        assert!(poll_once(&mut waiter).await.is_pending());
        let late = soon(handle.acquire_within(Duration::from_millis(1))).await;
        assert!(matches!(late, Err(AcquireError::Timeout { .. })));
        drop(lease);
        drop(soon(waiter).await.unwrap());
        poll_until(async || shard(&pool, 0).await.leased == 0).await;
        assert_eq!(shard(&pool, 0).await.scheduler_failures, 0);
        *place.lock().unwrap() = None;
        soon(pool.close()).await;
        poll_until(async || script.live.load(Ordering::SeqCst) == 0).await;
    });
}

/// At the end of a turn too, when the core is about to look after its pools.
#[test]
fn an_observer_may_build_another_pool_and_use_it() {
    on_cores(1, async move |runtime, _| {
        let place: Arc<Mutex<Option<Pool<Memory>>>> = Arc::default();
        let inside = place.clone();
        let theirs = runtime.clone();
        let builder = Pool::builder(Memory::default()).slots_per_core(1).warn_slow_acquires(Duration::ZERO);
        let builder = builder.on_event(move |event| {
            if let EventKind::SlowAcquire { .. } = event.kind {
                let other = Pool::builder(Memory::default()).build(&theirs).unwrap();
                *inside.lock().unwrap() = Some(other.clone());
                let mut acquire = std::pin::pin!(other.acquire());
                let polled =
                    acquire.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
                assert!(polled.is_pending());
            }
        });
        let pool = builder.build(&runtime).unwrap();
        let handle = pool.handle();
        let lease = soon(handle.acquire()).await.unwrap();
        let mut waiter = handle.acquire();
        assert!(poll_once(&mut waiter).await.is_pending());
        sleep(Duration::from_millis(1)).await;
        drop(lease);
        drop(soon(waiter).await.unwrap());
        poll_until(async || place.lock().unwrap().is_some()).await;
        let other = place.lock().unwrap().take().unwrap();
        drop(soon(other.acquire()).await.unwrap());
        soon(other.close()).await;
        soon(pool.close()).await;
    });
}
