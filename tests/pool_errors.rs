//! Errors say what happened and what to do; the types keep a core's state on its core.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use corelet::pool::{
    Acquire, AcquireError, BuildError, CloseReason, ExchangeError, Fairness, Handle, Lease, Pool,
    PoolBuilder, TcpConnector, UnixConnector,
};
use corelet::runtime::{Cores, Runtime};
use support::{Memory, on_cores, poll_once, poll_until, set, shard, soon, watched};

/// Compiles only while the type does not implement the trait: if it did, both impls would fit and the call would be
/// ambiguous.
macro_rules! assert_not {
    ($type:ty: $($bound:tt)+) => {
        const _: fn() = || {
            trait Ambiguous<Which> {
                fn pick() {}
            }
            impl<T: ?Sized> Ambiguous<()> for T {}
            struct Implements;
            impl<T: ?Sized + $($bound)+> Ambiguous<Implements> for T {}
            let _ = <$type as Ambiguous<_>>::pick;
        };
    };
}

assert_not!(Handle<TcpConnector>: Clone);
assert_not!(Handle<TcpConnector>: Send);
assert_not!(Handle<TcpConnector>: Sync);
assert_not!(Lease<TcpConnector>: Clone);
assert_not!(Lease<TcpConnector>: Send);
assert_not!(Lease<TcpConnector>: Sync);
assert_not!(Acquire<'static, TcpConnector>: Send);
assert_not!(Acquire<'static, TcpConnector>: Clone);

const _: fn() = || {
    fn shared<T: Send + Sync + Clone + 'static>() {}
    fn error<T: Error + Send + Sync + 'static>() {}
    shared::<Pool<TcpConnector>>();
    shared::<Pool<UnixConnector>>();
    shared::<PoolBuilder<TcpConnector>>();
    error::<AcquireError>();
    error::<BuildError>();
    error::<ExchangeError<io::Error>>();
};

#[test]
fn every_refusal_says_why_and_whether_to_try_again() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(1).max_waiters(1).build(&runtime).unwrap();
        let handle = pool.handle();
        let check = |error: &AcquireError, text: &str, retry: bool, fault: bool| {
            assert!(error.to_string().contains(text), "{error}");
            assert_eq!((error.is_retryable(), error.is_connection_fault()), (retry, fault), "{error}");
            assert!(!error.to_string().contains("disconnected"));
        };
        set(&script.fail_connects, true);
        let refused = soon(handle.acquire()).await.unwrap_err();
        check(&refused, "no connection could be opened: refused on purpose", true, true);
        assert!(refused.source().is_some());
        set(&script.fail_connects, false);
        let lease = soon(handle.acquire()).await.unwrap();
        let mut waiting = handle.acquire();
        assert!(poll_once(&mut waiting).await.is_pending());
        check(&handle.acquire().await.unwrap_err(), "1 acquires already wait", true, false);
        handle.deregister();
        check(&soon(waiting).await.unwrap_err(), "the handle was deregistered", false, false);
        let late = soon(handle.acquire_within(Duration::from_millis(1))).await.unwrap_err();
        check(&late, "every slot was leased, 1 waiting", true, false);
        assert!(late.source().is_none());
        drop(lease);
        pool.close().await;
        check(&handle.acquire().await.unwrap_err(), "the pool is closed", false, false);
    });
}

#[test]
fn the_stage_of_a_time_out_is_that_of_the_acquire() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        set(&script.hold_connects, true);
        let pool = Pool::builder(memory).slots_per_core(1).build(&runtime).unwrap();
        let near = soon(pool.handle().acquire_within(Duration::from_millis(2))).await.unwrap_err();
        assert!(near.to_string().contains("a connection was still being opened"), "{near}");
        let far = pool.handle_on(cores[1]).unwrap();
        let far = soon(far.acquire_within(Duration::from_millis(2))).await.unwrap_err();
        assert!(far.to_string().contains("the acquire was with another core"), "{far}");
        // The second of two waiters for one slot waits for a lease, not for the connect.
        let handle = pool.handle();
        let mut first = handle.acquire();
        assert!(poll_once(&mut first).await.is_pending());
        let second = soon(handle.acquire_within(Duration::from_millis(2))).await.unwrap_err();
        assert!(second.to_string().contains("every slot was leased, 2 waiting"), "{second}");
        set(&script.hold_connects, false);
        drop(soon(first).await.unwrap());
        pool.close().await;
    });
}

#[test]
fn exchange_errors_keep_the_cause() {
    let failed = ExchangeError::Failed(io::Error::other("the cause"));
    assert!(failed.to_string().contains("the cause"));
    assert_eq!(failed.source().unwrap().to_string(), "the cause");
    assert_eq!(failed.into_inner().unwrap().to_string(), "the cause");
    let dirty = ExchangeError::<io::Error>::Dirty;
    assert!(dirty.to_string().contains("acquire another lease"));
    assert!(dirty.source().is_none() && dirty.into_inner().is_none());
}

#[test]
fn errors_are_cheap_to_hand_on() {
    let error = AcquireError::Connect { source: Arc::new(io::Error::other("shared")) };
    assert_eq!(error.clone().to_string(), error.to_string());
}

#[test]
fn a_setting_out_of_range_names_the_range() {
    watched(|| {
        let runtime = support::runtime(1);
        let handle = runtime.handle();
        let refuse = |builder: PoolBuilder<Memory>, what: &str, expected: &str, got: usize| {
            let error = builder.build(&handle).unwrap_err();
            let BuildError::InvalidSetting { what: named, expected: range, got: given } = error else {
                panic!("{error}")
            };
            assert_eq!((named, range, given), (what, expected, got));
            assert_eq!(error.to_string(), format!("{what} must be {expected}, but was {got}"));
        };
        let new = || Pool::builder(Memory::default());
        refuse(new().slots_per_core(0), "slots_per_core", "1 to 65,536", 0);
        refuse(new().slots_per_core(65_537), "slots_per_core", "1 to 65,536", 65_537);
        refuse(new().max_waiters(0), "max_waiters", "1 to 16,777,216", 0);
        refuse(new().max_waiters((1 << 24) + 1), "max_waiters", "1 to 16,777,216", (1 << 24) + 1);
        refuse(new().max_connecting(0), "max_connecting", "at least 1", 0);
        for builder in [
            new().slots_per_core(1).max_waiters(1).max_connecting(1),
            new().slots_per_core(65_536).max_waiters(1 << 24).max_connecting(usize::MAX),
            new().acquire_timeout(Duration::MAX).connect_timeout(Duration::MAX),
            new().connect_backoff(Duration::MAX, Duration::ZERO).fairness(Fairness::RoundRobin),
        ] {
            let pool = builder.build(&handle).unwrap();
            runtime
                .block_on(move || async move {
                    drop(soon(pool.acquire()).await.unwrap());
                    soon(pool.close()).await;
                })
                .unwrap();
        }
    });
}

#[test]
fn a_core_of_another_runtime_is_refused_by_name() {
    watched(|| {
        let other = Runtime::builder().cores(Cores::Count(1)).pinned(false).build().unwrap();
        let foreign = other.cores()[0];
        on_cores(1, async move |runtime, _| {
            let pool = Pool::builder(Memory::default()).build(&runtime).unwrap();
            let error = pool.handle_on(foreign).unwrap_err();
            assert_eq!(error.core, foreign);
            assert!(error.to_string().contains("not a core of this runtime"), "{error}");
            pool.close().await;
        });
    });
}

#[test]
fn a_pool_used_on_a_core_of_another_runtime_says_so() {
    watched(|| {
        let (mine, other) = (support::runtime(1), support::runtime(1));
        let pool = Pool::builder(Memory::default()).build(&mine.handle()).unwrap();
        let theirs = pool.clone();
        let error = other.block_on(move || async move { drop(theirs.handle()) }).unwrap_err();
        assert!(error.to_string().contains("is not of the runtime that this pool was built for"), "{error}");
        mine.block_on(move || async move { soon(pool.close()).await }).unwrap();
    });
}

#[test]
fn a_runtime_that_has_ended_takes_no_pool() {
    watched(|| {
        let runtime = support::runtime(2);
        let (handle, first) = (runtime.handle(), runtime.cores()[0]);
        drop(runtime);
        let error = Pool::builder(Memory::default()).build(&handle).unwrap_err();
        assert_eq!(error, BuildError::CoreEnded { core: first });
        assert!(error.to_string().contains("has ended"));
    });
}

#[test]
fn pools_have_ids_of_their_own() {
    on_cores(1, async move |runtime, _| {
        let first = Pool::builder(Memory::default()).build(&runtime).unwrap();
        let second = Pool::builder(Memory::default()).build(&runtime).unwrap();
        assert_ne!(first.id(), second.id());
        assert_eq!(first.id(), first.clone().id());
        assert_eq!(first.stats().await.pool, first.id());
        // One pool's load is not the other's.
        let lease = first.acquire().await.unwrap();
        drop(second.acquire().await.unwrap());
        assert_eq!(shard(&second, 0).await.leased, 0);
        drop(lease);
        first.close().await;
        drop(soon(second.acquire()).await.unwrap());
        second.close().await;
    });
}

#[test]
fn debug_texts_name_the_essentials() {
    on_cores(1, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).build(&runtime).unwrap();
        let handle = pool.handle();
        let lease = handle.acquire().await.unwrap();
        assert!(format!("{pool:?}").contains("closed: false"));
        assert!(format!("{handle:?}").contains(&format!("{:?}", cores[0])));
        assert!(format!("{lease:?}").contains("clean: true"));
        drop(lease);
        pool.close().await;
        assert!(format!("{pool:?}").contains("closed: true"));
        poll_until(async || shard(&pool, 0).await.idle == 0).await;
        let names: Vec<_> = CloseReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names[..4], ["broken", "dirty", "shutdown", "lost"]);
        assert_eq!(names[4..], ["rebalanced", "idle", "expired", "superseded", "unhealthy", "resized"]);
    });
}
