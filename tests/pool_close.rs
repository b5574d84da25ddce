//! Closing and draining: everybody who waits is told, what is leased stays usable, and nothing is left.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use corelet::net::TcpStream;
use corelet::pool::{AcquireError, CloseReason, Lease, Pool, TcpConnector};
use corelet::runtime::{Cores, Runtime, core_stats, sleep, spawn};
use support::{Memory, Upstream, echo, on_cores, poll_once, poll_until, set, settled, shard, soon, watched};

#[test]
fn a_close_ends_every_waiter_and_every_later_acquire() {
    on_cores(2, async move |runtime, cores| {
        let pool =
            Pool::builder(Memory::default()).slots_per_core(1).no_acquire_timeout().build(&runtime).unwrap();
        let (near, far) = (pool.handle(), pool.handle_on(cores[1]).unwrap());
        let lease = near.acquire().await.unwrap();
        let mut tasks = Vec::new();
        for _ in 0..20 {
            let pool = pool.clone();
            tasks.push(spawn(async move { pool.acquire().await.map(drop) }));
        }
        poll_until(async || shard(&pool, 0).await.waiting == 20).await;
        assert!(!pool.is_closed());
        soon(pool.close()).await;
        assert!(pool.is_closed());
        for task in tasks {
            assert!(matches!(soon(task).await.unwrap(), Err(AcquireError::Closed)));
        }
        for handle in [&near, &far, &pool.handle(), &pool.handle_on(cores[1]).unwrap()] {
            assert!(matches!(soon(handle.acquire()).await, Err(AcquireError::Closed)));
            handle.deregister();
        }
        assert!(matches!(soon(pool.acquire()).await, Err(AcquireError::Closed)));
        drop(lease);
        soon(pool.close()).await;
    });
}

#[test]
fn a_lease_stays_usable_after_the_close_and_its_connection_ends_with_it() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(3).build(&runtime).unwrap();
        let handle = pool.handle();
        let (mut first, second, idle) = (
            handle.acquire().await.unwrap(),
            handle.acquire().await.unwrap(),
            handle.acquire().await.unwrap(),
        );
        drop(idle);
        soon(pool.close()).await;
        poll_until(async || upstream.live() == 2).await;
        for _ in 0..3 {
            assert_eq!(first.exchange(async |stream| echo(stream, b"on").await).await.unwrap(), b"on");
        }
        let stats = shard(&pool, 0).await;
        assert_eq!((stats.leased, stats.idle, stats.closed_for(CloseReason::Shutdown)), (2, 0, 1));
        drop(pool);
        drop(handle);
        assert_eq!(first.exchange(async |stream| echo(stream, b"alone").await).await.unwrap(), b"alone");
        drop((first, second));
        poll_until(async || upstream.live() == 0).await;
    });
}

#[test]
fn closing_twice_and_from_both_cores_at_once_ends_for_everybody() {
    on_cores(2, async move |runtime, cores| {
        for _ in 0..50 {
            let memory = Memory::default();
            let script = memory.0.clone();
            let pool = Pool::builder(memory).build(&runtime).unwrap();
            drop(pool.acquire().await.unwrap());
            let theirs = pool.clone();
            let far = runtime.spawn_on(cores[1], move || async move { soon(theirs.close()).await }).unwrap();
            let (mine, again) = (pool.clone(), pool.clone());
            let second = spawn(async move { soon(again.close()).await });
            soon(mine.close()).await;
            far.await.unwrap();
            second.await.unwrap();
            assert_eq!(script.live(), 0);
        }
    });
}

#[test]
fn a_close_that_is_dropped_closes_all_the_same() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Memory::default()).build(&runtime).unwrap();
        {
            let mut close = std::pin::pin!(pool.close());
            assert!(poll_once(&mut close).await.is_pending());
        }
        assert!(matches!(soon(pool.acquire()).await, Err(AcquireError::Closed)));
        soon(pool.close()).await;
    });
}

#[test]
fn a_close_before_the_shards_have_begun_ends_too() {
    on_cores(2, async move |runtime, _| {
        for early in [false, true] {
            let pool = Pool::builder(Memory::default()).build(&runtime).unwrap();
            let handle = early.then(|| pool.handle());
            soon(pool.close()).await;
            drop(handle);
        }
    });
}

#[test]
fn a_close_while_a_connect_is_under_way_does_not_wait_for_it() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        set(&script.hold_connects, true);
        let pool = Pool::builder(memory).no_acquire_timeout().build(&runtime).unwrap();
        let theirs = pool.clone();
        let waiter = spawn(async move { theirs.acquire().await.map(drop) });
        poll_until(async || shard(&pool, 0).await.opening == 1).await;
        soon(pool.close()).await;
        assert!(matches!(soon(waiter).await.unwrap(), Err(AcquireError::Closed)));
        assert_eq!(shard(&pool, 0).await.connections(), 0, "nothing is being opened any more");
        set(&script.hold_connects, false);
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn a_close_waits_for_connections_that_are_being_closed() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).build(&runtime).unwrap();
        drop(pool.acquire().await.unwrap());
        set(&script.hold_closes, true);
        let mut close = std::pin::pin!(pool.close());
        for _ in 0..20 {
            assert!(poll_once(&mut close).await.is_pending());
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(script.live(), 1);
        set(&script.hold_closes, false);
        soon(close).await;
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn a_drain_waits_for_leases_on_every_core_and_says_when_it_was_too_long() {
    on_cores(2, async move |runtime, cores| {
        for round in 0..20 {
            let pool = Pool::builder(Memory::default()).slots_per_core(2).build(&runtime).unwrap();
            let near = pool.acquire().await.unwrap();
            let lent = pool.handle_on(cores[1]).unwrap().acquire().await.unwrap();
            let begun = Instant::now();
            let elapsed = pool.drain(Duration::from_millis(5)).await.unwrap_err();
            assert!(begun.elapsed() >= Duration::from_millis(5));
            assert_eq!(elapsed.after, Duration::from_millis(5));
            let (first, last) = if round % 2 == 0 { (near, lent) } else { (lent, near) };
            drop(first);
            assert!(pool.drain(Duration::from_millis(5)).await.is_err(), "one is still out");
            drop(last);
            soon(pool.drain(support::PATIENCE)).await.unwrap();
        }
    });
}

#[test]
fn a_drain_waits_for_a_lease_whose_home_hears_of_the_close_last() {
    on_cores(2, async move |runtime, cores| {
        let (pool, far) =
            (Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap(), cores[1]);
        drop(pool.acquire().await.unwrap());
        let lease = soon(pool.handle_on(far).unwrap().acquire()).await.unwrap();
        // The home core is busy until the shard here has ended.
        let release = Arc::new(AtomicBool::new(false));
        let busy = Arc::new(AtomicBool::new(false));
        let (until, told) = (release.clone(), busy.clone());
        let occupied = runtime
            .spawn_on(far, move || async move {
                told.store(true, Ordering::SeqCst);
                while !until.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
            })
            .unwrap();
        poll_until(async || busy.load(Ordering::SeqCst)).await;
        let live = core_stats().unwrap().executor.live;
        {
            let mut close = std::pin::pin!(pool.close());
            assert!(poll_once(&mut close).await.is_pending());
        }
        poll_until(async || core_stats().unwrap().executor.live < live).await;
        release.store(true, Ordering::SeqCst);
        occupied.await.unwrap();
        soon(pool.close()).await;
        let stats = shard(&pool, 1).await;
        assert_eq!((stats.leased, stats.closed_for(CloseReason::Lost)), (1, 0), "the lease is out, not lost");
        assert!(pool.drain(Duration::from_millis(20)).await.is_err(), "the lease is out");
        drop(lease);
        soon(pool.drain(support::PATIENCE)).await.unwrap();
    });
}

#[test]
fn the_stats_of_a_closed_pool_say_which_leases_are_out() {
    on_cores(2, async move |runtime, cores| {
        for (home, core) in cores.into_iter().enumerate() {
            let pool = Pool::builder(Memory::default()).slots_per_core(2).build(&runtime).unwrap();
            let handle = pool.handle_on(core).unwrap();
            let mut leases =
                vec![soon(handle.acquire()).await.unwrap(), soon(handle.acquire()).await.unwrap()];
            soon(pool.close()).await;
            while let Some(lease) = leases.pop() {
                let stats = shard(&pool, home).await;
                assert_eq!((stats.leased, stats.credits), (leases.len() + 1, leases.len() + 1));
                drop(lease);
                poll_until(async || shard(&pool, home).await.leased == leases.len()).await;
            }
            assert_eq!(settled(&pool, home).await.closed_for(CloseReason::Shutdown), 2);
        }
    });
}

#[test]
fn a_drain_ends_when_a_forwarded_grant_meets_the_close_half_way() {
    on_cores(2, async move |runtime, cores| {
        for delay in 0..60 {
            let memory = Memory::default();
            let script = memory.0.clone();
            let pool = Pool::builder(memory).slots_per_core(2).build(&runtime).unwrap();
            let handle = pool.handle_on(cores[1]).unwrap();
            drop(handle.acquire().await.unwrap());
            let mut acquire = handle.acquire();
            assert!(poll_once(&mut acquire).await.is_pending());
            for _ in 0..delay * 20 {
                std::hint::spin_loop();
            }
            soon(pool.close()).await;
            drop(soon(acquire).await);
            soon(pool.drain(support::PATIENCE)).await.unwrap();
            poll_until(async || script.live() == 0).await;
        }
    });
}

#[test]
fn the_last_handle_keeps_the_pool_and_its_drop_ends_every_actor() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::echo();
        let live_there = || {
            let task = runtime.spawn_on(cores[1], || async { core_stats().unwrap().executor.live }).unwrap();
            async move { task.await.unwrap() }
        };
        let base = (core_stats().unwrap().executor.live, live_there().await);
        let pool = Pool::builder(TcpConnector::new(upstream.address)).build(&runtime).unwrap();
        let (handle, far) = (pool.handle(), pool.handle_on(cores[1]).unwrap());
        drop((handle.acquire().await.unwrap(), far.acquire().await.unwrap()));
        assert_eq!(core_stats().unwrap().executor.live, base.0 + 1, "one actor here");
        assert_eq!(live_there().await, base.1 + 1, "and one there");
        drop((pool, handle));
        drop(far.acquire().await.unwrap());
        poll_until(async || upstream.live() == 2).await;
        drop(far);
        poll_until(async || core_stats().unwrap().executor.live == base.0).await;
        poll_until(async || live_there().await == base.1).await;
        poll_until(async || upstream.live() == 0).await;
    });
}

#[test]
fn a_lease_outlives_pool_and_handle() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::echo();
        for home in cores {
            let pool = Pool::builder(TcpConnector::new(upstream.address)).build(&runtime).unwrap();
            let mut lease = soon(pool.handle_on(home).unwrap().acquire()).await.unwrap();
            drop(pool);
            poll_until(async || upstream.live() == 1).await;
            assert_eq!(lease.exchange(async |stream| echo(stream, b"alone").await).await.unwrap(), b"alone");
            drop(lease);
            poll_until(async || upstream.live() == 0).await;
        }
    });
}

/// A core that the test turns itself, and a pool of one slot on it.
fn guest(upstream: &Upstream) -> (corelet::runtime::Core, Pool<TcpConnector>) {
    let (handle, mut guests) =
        Runtime::builder().cores(Cores::Count(1)).pinned(false).build_guests().unwrap();
    let mut core = guests.pop().unwrap().start().unwrap();
    let connector = TcpConnector::new(upstream.address);
    let pool = core
        .block_on(async move { Pool::builder(connector).slots_per_core(1).build(&handle).unwrap() })
        .unwrap();
    (core, pool)
}

/// Turns the core whenever its descriptor says so, as a host's loop does, until `done`.
fn turn_when_told(core: &mut corelet::runtime::Core, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < support::PATIENCE, "the core is not turned");
        let wait =
            core.next_deadline().map_or(5, |at| at.duration_since(Instant::now()).as_millis().min(5) as i32);
        let fd = std::os::fd::AsRawFd::as_raw_fd(&core.event_fd().unwrap());
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one live structure, and its number.
        #[allow(unsafe_code)]
        let told = unsafe { libc::poll(&mut poll, 1, wait) };
        let due = core.next_deadline().is_some_and(|at| at <= Instant::now());
        if told > 0 || due {
            while core.turn().unwrap() {}
        }
    }
}

fn settle(core: &mut corelet::runtime::Core) {
    for _ in 0..10 {
        while core.turn().unwrap() {}
    }
}

#[test]
fn a_lease_dropped_outside_a_turn_serves_the_next_waiter() {
    watched(|| {
        let upstream = Upstream::echo();
        let (mut core, pool) = guest(&upstream);
        let theirs = pool.clone();
        let lease = core.block_on(async move { theirs.acquire().await.unwrap() }).unwrap();
        let served = std::rc::Rc::new(std::cell::Cell::new(false));
        let (theirs, tell) = (pool.clone(), served.clone());
        core.spawn(async move {
            drop(theirs.acquire().await.unwrap());
            tell.set(true);
        })
        .detach();
        core.event_fd().unwrap();
        settle(&mut core);
        support::block_until(|| upstream.accepted() == 1);
        assert!(!served.get());
        drop(lease);
        turn_when_told(&mut core, || served.get());
        assert_eq!(upstream.accepted(), 1, "the connection was still good");
        core.block_on(async move { soon(pool.close()).await }).unwrap();
    });
}

#[test]
fn a_dirty_lease_dropped_outside_a_turn_is_closed_without_further_ado() {
    watched(|| {
        let upstream = Upstream::echo();
        let (mut core, pool) = guest(&upstream);
        let theirs = pool.clone();
        let lease = core
            .block_on(async move {
                let mut lease = theirs.acquire().await.unwrap();
                let failed = lease.exchange(async |_: &mut TcpStream| Err::<(), _>("on purpose")).await;
                assert!(failed.is_err());
                lease
            })
            .unwrap();
        core.event_fd().unwrap();
        settle(&mut core);
        support::block_until(|| upstream.live() == 1);
        drop(lease);
        turn_when_told(&mut core, || upstream.live() == 0);
        core.block_on(async move { soon(pool.close()).await }).unwrap();
    });
}

#[test]
fn a_lease_dropped_after_its_core_has_ended_closes_its_connection() {
    watched(|| {
        let upstream = Upstream::echo();
        for dirty in [false, true] {
            let (mut core, pool) = guest(&upstream);
            let theirs = pool.clone();
            let lease: Lease<TcpConnector> = core
                .block_on(async move {
                    let mut lease = theirs.acquire().await.unwrap();
                    if dirty {
                        let _ = lease.exchange(async |_: &mut TcpStream| Err::<(), _>("on purpose")).await;
                    }
                    lease
                })
                .unwrap();
            let handle = {
                let theirs = pool.clone();
                core.block_on(async move { theirs.handle() }).unwrap()
            };
            support::block_until(|| upstream.live() == 1);
            drop(core);
            assert_eq!(upstream.live(), 1, "a lease is out");
            let mut late = handle.acquire();
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            let polled = std::future::Future::poll(std::pin::Pin::new(&mut late), &mut cx);
            assert!(matches!(polled, std::task::Poll::Ready(Err(AcquireError::Closed))));
            drop(lease);
            support::block_until(|| upstream.live() == 0);
        }
    });
}

#[test]
fn the_end_of_a_run_closes_idle_connections_and_drops_leases() {
    watched(|| {
        let upstream = Upstream::echo();
        let address = upstream.address;
        let runtime = support::runtime(2);
        let handle = runtime.handle();
        let results = runtime
            .run(move || {
                let handle = handle.clone();
                async move {
                    let pool =
                        Pool::builder(TcpConnector::new(address)).slots_per_core(2).build(&handle).unwrap();
                    let far = handle
                        .cores()
                        .into_iter()
                        .find(|core| Some(*core) != corelet::runtime::current_core());
                    let session = pool.handle_on(far.unwrap()).unwrap();
                    let lease = pool.acquire().await.unwrap();
                    drop(session.acquire().await.unwrap());
                    // Parked with a lease, and waiting for ever: stopped by the end of the run.
                    spawn(async move {
                        let _lease = lease;
                        let _pool = pool;
                        std::future::pending::<()>().await;
                    })
                    .detach();
                    session.acquire().await.map(drop)
                }
            })
            .unwrap();
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        support::block_until(|| upstream.live() == 0);
    });
}

#[test]
fn nothing_of_a_pool_outlives_its_last_user() {
    on_cores(2, async move |runtime, cores| {
        for ending in 0..5 {
            let memory = Memory::default();
            let script = memory.0.clone();
            let pool = Pool::builder(memory).slots_per_core(2).build(&runtime).unwrap();
            let (near, far) = (pool.handle(), pool.handle_on(cores[1]).unwrap());
            drop((soon(near.acquire()).await.unwrap(), soon(far.acquire()).await.unwrap()));
            match ending {
                0 => soon(pool.close()).await,
                1 => {
                    let lease = soon(far.acquire()).await.unwrap();
                    soon(pool.close()).await;
                    drop(lease);
                }
                2 => {
                    let lease = soon(near.acquire()).await.unwrap();
                    let mut waiting = far.acquire();
                    assert!(poll_once(&mut waiting).await.is_pending());
                    drop(lease);
                }
                3 => {
                    let lease = soon(near.acquire()).await.unwrap();
                    set(&script.panic_is_quiet, true);
                    assert!(soon(spawn(async move { drop(lease) })).await.unwrap_err().is_panic());
                    set(&script.panic_is_quiet, false);
                }
                _ => {}
            }
            drop((pool, near, far));
            // The connector lives in what all shards and handles share.
            poll_until(async || Arc::strong_count(&script) == 1).await;
            assert_eq!(script.live(), 0);
        }
    });
}

#[test]
fn a_grant_that_meets_the_close_uncollected_is_still_a_lease() {
    on_cores(2, async move |runtime, cores| {
        for (home, collect) in [(0, true), (0, false), (1, true), (1, false)] {
            let memory = Memory::default();
            let script = memory.0.clone();
            let pool = Pool::builder(memory).slots_per_core(1).build(&runtime).unwrap();
            let handle = pool.handle_on(cores[home]).unwrap();
            let lease = soon(handle.acquire()).await.unwrap();
            let mut waiting = handle.acquire();
            assert!(poll_once(&mut waiting).await.is_pending());
            poll_until(async || shard(&pool, home).await.waiting == 1).await;
            drop(lease);
            // From another core it takes a while until the grant is here.
            poll_until(async || shard(&pool, home).await.lends == 2 * home as u64).await;
            for _ in 0..20 {
                sleep(Duration::from_micros(100)).await;
            }
            soon(pool.close()).await;
            assert!(pool.drain(Duration::from_millis(2)).await.is_err(), "the grant counts as a lease");
            if collect {
                let mut lease = soon(waiting).await.unwrap();
                lease.exchange(async |_| Ok::<_, ()>(())).await.unwrap();
                drop(lease);
            } else {
                drop(waiting);
            }
            soon(pool.drain(support::PATIENCE)).await.unwrap();
            poll_until(async || script.live() == 0).await;
        }
    });
}
