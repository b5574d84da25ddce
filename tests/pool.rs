//! The pool on real cores and real sockets.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::time::Duration;

use corelet::net::{StreamOptions, UnixListener};
use corelet::pool::{AcquireError, Pool, TcpConnector, UnixConnector};
use corelet::runtime::spawn;
use support::{Memory, Upstream, all_settled, echo, on_cores, poll_until, settled, shard, soon};

#[test]
fn a_lease_carries_an_exchange_and_its_connection_is_used_again() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let connector = TcpConnector::new(upstream.address).options(StreamOptions::default());
        let pool = Pool::builder(connector).slots_per_core(2).build(&runtime).unwrap();
        let session = pool.handle();
        for round in 0..100 {
            let text = format!("round {round}").into_bytes();
            let mut lease = session.acquire().await.unwrap();
            let reply = lease.exchange(async |stream| echo(stream, &text).await).await.unwrap();
            assert_eq!(reply, text);
        }
        let stats = pool.stats().await;
        assert_eq!((stats.shards[0].opens, stats.shards[0].acquires), (1, 100));
        pool.close().await;
        assert!(matches!(session.acquire().await, Err(AcquireError::Closed)));
        poll_until(async || upstream.live() == 0).await;
    });
}

#[test]
fn a_handle_on_another_core_leases_that_cores_connections() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::echo();
        let far = cores[1];
        let pool = Pool::builder(TcpConnector::new(upstream.address))
            .slots_per_core(2)
            .acquire_timeout(Duration::from_secs(5))
            .build(&runtime)
            .unwrap();
        let session = pool.handle_on(far).unwrap();
        for round in 0..100 {
            let text = format!("round {round}").into_bytes();
            let mut lease = session.acquire().await.unwrap();
            assert_eq!(lease.home(), far);
            let reply = lease.exchange(async |stream| echo(stream, &text).await).await.unwrap();
            assert_eq!(reply, text);
        }
        let stats = pool.stats().await;
        assert_eq!(stats.shards[0].forwards, 100);
        assert_eq!((stats.shards[1].opens, stats.shards[1].acquires, stats.shards[1].lends), (1, 100, 100));
        pool.close().await;
    });
}

#[test]
fn unix_connections_are_pooled_and_lent_like_tcp_ones() {
    on_cores(2, async move |runtime, cores| {
        let path = std::env::temp_dir().join(format!("corelet-pool-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut listener = UnixListener::bind(&path).unwrap();
        let server = spawn(async move {
            loop {
                let mut peer = listener.accept().await.unwrap();
                spawn(async move {
                    while let Ok(Some(received)) = peer.receive().await {
                        if peer.write_all(received.to_vec()).await.0.is_err() {
                            break;
                        }
                    }
                })
                .detach();
            }
        });
        let pool = Pool::builder(UnixConnector::new(&path)).slots_per_core(1).build(&runtime).unwrap();
        for home in cores {
            let handle = pool.handle_on(home).unwrap();
            for round in 0..50 {
                let text = format!("round {round}").into_bytes();
                let mut lease = soon(handle.acquire()).await.unwrap();
                let reply = lease.exchange(async |stream| echo(stream, &text).await).await.unwrap();
                assert_eq!(reply, text);
            }
        }
        let stats = pool.stats().await;
        assert_eq!(stats.sum(|shard| shard.opens), 2);
        soon(pool.close()).await;
        drop(server);
        std::fs::remove_file(&path).unwrap();
        let pool = Pool::builder(UnixConnector::new(&path)).build(&runtime).unwrap();
        let Err(AcquireError::Connect { source }) = soon(pool.acquire()).await.map(drop) else {
            panic!("nobody listens")
        };
        assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
        pool.close().await;
    });
}

#[test]
fn all_of_a_thousand_slots_are_leased_and_come_back() {
    on_cores(2, async move |runtime, cores| {
        const SLOTS: usize = 1024;
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory)
            .slots_per_core(SLOTS)
            .max_connecting(SLOTS)
            .max_waiters(2 * SLOTS)
            .build(&runtime)
            .unwrap();
        for (index, home) in cores.into_iter().enumerate() {
            for _ in 0..2 {
                let tasks: Vec<_> = (0..SLOTS + 500)
                    .map(|_| {
                        let pool = pool.clone();
                        spawn(async move {
                            let handle = pool.handle_on(home).unwrap();
                            let lease = handle.acquire().await.unwrap();
                            corelet::runtime::sleep(Duration::from_millis(1)).await;
                            drop(lease);
                        })
                    })
                    .collect();
                for task in tasks {
                    soon(task).await.unwrap();
                }
                let stats = settled(&pool, index).await;
                assert_eq!(stats.opens, stats.idle as u64, "nothing was closed");
                assert!(stats.idle <= SLOTS);
            }
            let handle = pool.handle_on(home).unwrap();
            let mut leases = Vec::new();
            for _ in 0..SLOTS {
                leases.push(soon(handle.acquire()).await.unwrap());
            }
            assert_eq!(shard(&pool, index).await.leased, SLOTS);
            leases.into_iter().rev().for_each(drop);
            poll_until(async || shard(&pool, index).await.idle == SLOTS).await;
        }
        soon(pool.close()).await;
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn hundreds_of_tcp_connections_are_leased_at_once_and_closed() {
    on_cores(2, async move |runtime, _| {
        const SLOTS: usize = 200;
        let upstream = Upstream::echo();
        let pool = Pool::builder(TcpConnector::new(upstream.address))
            .slots_per_core(SLOTS)
            .max_connecting(32)
            .acquire_timeout(support::PATIENCE)
            .build(&runtime)
            .unwrap();
        let tasks: Vec<_> = (0..3 * SLOTS)
            .map(|number| {
                let pool = pool.clone();
                spawn(async move {
                    let text = number.to_string().into_bytes();
                    let mut lease = pool.acquire().await.unwrap();
                    let reply = lease.exchange(async |stream| echo(stream, &text).await).await.unwrap();
                    assert_eq!(reply, text);
                })
            })
            .collect();
        for task in tasks {
            soon(task).await.unwrap();
        }
        let stats = settled(&pool, 0).await;
        assert!(stats.idle <= SLOTS);
        soon(pool.close()).await;
        poll_until(async || upstream.live() == 0).await;
    });
}

#[test]
fn ten_thousand_idle_handles_change_nothing() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).max_waiters(2).build(&runtime).unwrap();
        let handles: Vec<_> = (0..10_000).map(|number| pool.handle_on(cores[number % 2]).unwrap()).collect();
        let stats = pool.stats().await;
        assert_eq!(stats.sum(|shard| (shard.waiting + shard.connections()) as u64), 0);
        // Each has used the pool once, so each has been known.
        for handle in &handles {
            drop(soon(handle.acquire()).await.unwrap());
        }
        let lease = soon(handles[0].acquire()).await.unwrap();
        let mut waiting = handles[9_998].acquire();
        assert!(support::poll_once(&mut waiting).await.is_pending());
        assert_eq!(shard(&pool, 0).await.waiting, 1);
        drop(lease);
        drop(soon(waiting).await.unwrap());
        drop(handles);
        drop(soon(pool.acquire()).await.unwrap());
        let stats = all_settled(&pool).await;
        assert_eq!(stats.sum(|shard| shard.refused + shard.cancelled), 0);
        pool.close().await;
    });
}
