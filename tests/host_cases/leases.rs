//! The pool works on every core, for the core's tasks and for the host's futures.

use std::rc::Rc;
use std::time::Duration;

use corelet::pool::{AcquireError, Pool, TcpConnector};
use corelet::runtime::host::{Host, here};
use corelet::runtime::{current_core, spawn};

use super::{on_host, on_hosts};
use crate::support::{Memory, Upstream, assert_settled, echo, poll_once, poll_until, settled, shard, soon};

pub fn a_lease_of_every_core_is_had_there(host: Host) {
    on_hosts(host, 2, |runtime| async move {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(2).build(&runtime).unwrap();
        for (position, core) in runtime.cores().into_iter().enumerate() {
            let theirs = pool.clone();
            let session = move || async move {
                let handle = theirs.handle();
                for round in 0..50 {
                    let mut lease = handle.acquire().await.unwrap();
                    assert_eq!((Some(lease.home()), current_core()), (Some(core), Some(core)));
                    let text = format!("round {round}");
                    let reply = lease.exchange(async |stream| echo(stream, text.as_bytes()).await).await;
                    assert_eq!(reply.unwrap(), text.as_bytes());
                    // The host's timers in between.
                    tokio::time::sleep(Duration::from_micros(100)).await;
                }
            };
            runtime.spawn_on(core, session).unwrap().await.unwrap();
            let stats = settled(&pool, position).await;
            assert_eq!((stats.acquires, stats.opens, stats.forwards), (50, 1, 0));
        }
        soon(pool.close()).await;
    });
}

pub fn a_host_future_and_a_task_lease_from_the_same_shard(host: Host) {
    on_host(host, || async {
        let core = here();
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(core.runtime()).unwrap();
        let mut rounds = Vec::new();
        for _ in 0..4 {
            let (theirs, ours) = (pool.clone(), pool.clone());
            let round = async |pool: Pool<Memory>| {
                let handle = pool.handle();
                for _ in 0..50 {
                    let lease = soon(handle.acquire()).await.unwrap();
                    tokio::task::yield_now().await;
                    drop(lease);
                }
            };
            rounds.push((
                core.spawn(async move { round(theirs).await }),
                tokio::task::spawn_local(core.on_core(async move { round(ours).await })),
            ));
        }
        for (task, future) in rounds {
            task.await.unwrap();
            future.await.unwrap().unwrap();
        }
        let stats = shard(&pool, 0).await;
        assert_settled(&stats);
        assert_eq!((stats.acquires, stats.opens), (400, 1));
        assert!(stats.granted_after_wait > 0, "they never met");
    });
}

pub fn acquires_are_forwarded_both_ways_and_to_a_parked_core(host: Host) {
    on_hosts(host, 2, |runtime| async move {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(1).build(&runtime).unwrap();
        let cores = runtime.cores();
        let session = |far, rest: Duration| {
            let theirs = pool.clone();
            move || async move {
                let handle = theirs.handle_on(far).unwrap();
                for round in 0..50 {
                    let mut lease = soon(handle.acquire()).await.unwrap();
                    assert_eq!(lease.home(), far);
                    let text = format!("round {round}");
                    let reply = lease.exchange(async |stream| echo(stream, text.as_bytes()).await).await;
                    assert_eq!(reply.unwrap(), text.as_bytes());
                    drop(lease);
                    // With a rest, both cores sleep in their hosts' waits before the next.
                    if !rest.is_zero() {
                        tokio::time::sleep(rest).await;
                    }
                }
            }
        };
        for rest in [Duration::ZERO, Duration::from_millis(2)] {
            let there = runtime.spawn_on(cores[0], session(cores[1], rest)).unwrap();
            let back = runtime.spawn_on(cores[1], session(cores[0], rest)).unwrap();
            there.await.unwrap();
            back.await.unwrap();
        }
        for position in [0, 1] {
            let stats = settled(&pool, position).await;
            assert_eq!((stats.forwards, stats.lends, stats.opens), (100, 100, 1));
        }
        soon(pool.close()).await;
    });
}

pub fn a_dropped_acquire_gives_up_its_place(host: Host) {
    on_hosts(host, 2, |runtime| async move {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        let cores = runtime.cores();
        for home in cores {
            let handle = Rc::new(pool.handle_on(home).unwrap());
            let lease = soon(handle.acquire()).await.unwrap();
            let (dropped, waits) = (Rc::clone(&handle), Rc::clone(&handle));
            // By a future of the host, which the host drops.
            let core = here();
            let first = tokio::task::spawn_local(core.on_core(async move {
                let lease = dropped.acquire().await;
                panic!("granted to one who should be gone: {lease:?}");
            }));
            let position = usize::from(home != core.id());
            poll_until(async || shard(&pool, position).await.waiting == 1).await;
            let second = spawn(async move { waits.acquire().await.unwrap().home() });
            poll_until(async || shard(&pool, position).await.waiting == 2).await;
            first.abort();
            assert!(first.await.unwrap_err().is_cancelled());
            poll_until(async || shard(&pool, position).await.waiting == 1).await;
            drop(lease);
            assert_eq!(soon(second).await.unwrap(), home);
            let stats = settled(&pool, position).await;
            assert_eq!(stats.cancelled, 1);
        }
        soon(pool.close()).await;
    });
}

pub fn a_dropped_exchange_costs_its_connection(host: Host) {
    on_host(host, || async {
        // Answers late, when nobody reads any more.
        let upstream = Upstream::echo();
        let core = here();
        let pool = Pool::builder(TcpConnector::new(upstream.address))
            .slots_per_core(1)
            .build(core.runtime())
            .unwrap();
        let handle = Rc::new(pool.handle());
        for _ in 0..20 {
            let theirs = Rc::clone(&handle);
            let future = core.on_core(async move {
                let mut lease = theirs.acquire().await.unwrap();
                let _ = lease.exchange(async |stream| echo(stream, b"stale").await).await;
                std::future::pending::<()>().await;
            });
            // By the host's timer, wherever it is.
            let _ = tokio::time::timeout(Duration::from_micros(50), future).await;
            let mut lease = soon(handle.acquire()).await.unwrap();
            let reply = lease.exchange(async |stream| echo(stream, b"fresh").await).await;
            assert_eq!(reply.unwrap(), b"fresh");
        }
        let mut lease = soon(handle.acquire()).await.unwrap();
        {
            // Dropped after its request has gone.
            let mut exchange = Box::pin(lease.exchange(async |stream| echo(stream, b"stale").await));
            assert!(poll_once(&mut exchange).await.is_pending());
        }
        assert!(!lease.is_clean());
        drop(lease);
        let mut lease = soon(handle.acquire()).await.unwrap();
        let reply = lease.exchange(async |stream| echo(stream, b"fresh").await).await;
        assert_eq!(reply.unwrap(), b"fresh");
        drop(lease);
        soon(pool.close()).await;
    });
}

pub fn an_acquire_of_a_host_future_ends_by_its_deadline(host: Host) {
    on_host(host, || async {
        let core = here();
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(core.runtime()).unwrap();
        let handle = Rc::new(pool.handle());
        let lease = handle.acquire().await.unwrap();
        let theirs = Rc::clone(&handle);
        // Alone in its poll: nothing but the acquire itself asks for the turn that starts its clock.
        let late = tokio::task::spawn_local(
            core.on_core(async move { theirs.acquire_within(Duration::from_millis(20)).await }),
        );
        let outcome = late.await.unwrap().unwrap();
        assert!(matches!(outcome, Err(AcquireError::Timeout { .. })), "{outcome:?}");
        drop(lease);
        assert!(soon(handle.acquire()).await.is_ok());
    });
}

pub fn closing_the_pool_ends_the_acquires_that_wait(host: Host) {
    on_hosts(host, 2, |runtime| async move {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        let cores = runtime.cores();
        let near = Rc::new(pool.handle());
        let far = pool.handle_on(cores[1]).unwrap();
        let leases = (near.acquire().await.unwrap(), far.acquire().await.unwrap());
        let theirs = Rc::clone(&near);
        let waits = tokio::task::spawn_local(here().on_core(async move { theirs.acquire().await }));
        let waits_abroad = spawn(async move { far.acquire().await });
        poll_until(async || pool.stats().await.sum(|shard| shard.waiting as u64) == 2).await;
        soon(pool.close()).await;
        assert!(matches!(waits.await.unwrap().unwrap(), Err(AcquireError::Closed)));
        assert!(matches!(soon(waits_abroad).await.unwrap(), Err(AcquireError::Closed)));
        drop(leases);
        pool.drain(Duration::from_secs(5)).await.unwrap();
    });
}
