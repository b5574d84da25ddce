//! Upstreams that close, chatter, stall, refuse, recover and panic.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use corelet::net::TcpStream;
use corelet::pool::{AcquireError, CloseReason, Connector, Pool, Stage, TcpConnector};
use corelet::runtime::{sleep, spawn};
use support::{
    Memory, Upstream, all_settled, assert_settled, echo, on_cores, poll_once, poll_until, set, settled,
    shard, soon,
};

#[test]
fn a_connection_that_the_peer_closed_while_idle_is_never_leased() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(3).build(&runtime).unwrap();
        for (index, home) in cores.into_iter().enumerate() {
            let handle = pool.handle_on(home).unwrap();
            for round in 1..=3 {
                let mut leases = Vec::new();
                for _ in 0..3 {
                    leases.push(soon(handle.acquire()).await.unwrap());
                }
                if round > 1 {
                    for lease in &mut leases {
                        lease.exchange(async |stream| echo(stream, b"alive").await).await.unwrap();
                    }
                }
                drop(leases);
                poll_until(async || shard(&pool, index).await.idle == 3 && upstream.live() == 3).await;
                upstream.hang_up();
                poll_until(async || shard(&pool, index).await.closed_for(CloseReason::Broken) == 3 * round)
                    .await;
                poll_until(async || shard(&pool, index).await.connections() == 0).await;
                settled(&pool, index).await;
            }
        }
        pool.close().await;
    });
}

#[test]
fn a_connection_on_which_stray_bytes_came_while_idle_is_never_leased() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(1).build(&runtime).unwrap();
        for round in 1..=5 {
            let mut lease = soon(pool.acquire()).await.unwrap();
            assert_eq!(lease.exchange(async |stream| echo(stream, b"own").await).await.unwrap(), b"own");
            drop(lease);
            upstream.say(b"unasked");
            poll_until(async || shard(&pool, 0).await.closed_for(CloseReason::Broken) == round).await;
        }
        pool.close().await;
        poll_until(async || upstream.live() == 0).await;
    });
}

#[test]
fn a_connection_whose_waiter_never_used_it_is_watched_all_the_same() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle();
        // Granted on connecting, then handed from lease to waiter: idle never, and never used.
        let first = handle.acquire().await.unwrap();
        let mut second = handle.acquire();
        assert!(poll_once(&mut second).await.is_pending());
        drop(first);
        drop(soon(second).await.unwrap());
        poll_until(async || upstream.live() == 1).await;
        upstream.hang_up();
        poll_until(async || shard(&pool, 0).await.closed_for(CloseReason::Broken) == 1).await;
        pool.close().await;
    });
}

/// Connects, and waits for the upstream's greeting.
struct Greeted(SocketAddr);

impl Connector for Greeted {
    type Connection = TcpStream;

    async fn connect(&self) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.0).await?;
        let (count, greeting) = stream.read(Vec::with_capacity(5)).await;
        count?;
        match &greeting[..] {
            b"hello" => Ok(stream),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "no greeting")),
        }
    }
}

#[test]
fn a_silent_handshake_ends_by_its_time_limit_and_frees_the_slot() {
    on_cores(1, async move |runtime, _| {
        let talks = Arc::new(AtomicBool::new(false));
        let when = talks.clone();
        let upstream = Upstream::start(move |mut socket, _| {
            if when.load(Ordering::SeqCst) {
                io::Write::write_all(&mut socket, b"hello").unwrap();
            }
            let mut buffer = [0; 64];
            while let Ok(count @ 1..) = io::Read::read(&mut socket, &mut buffer) {
                io::Write::write_all(&mut socket, &buffer[..count]).unwrap();
            }
        });
        let limit = Duration::from_millis(30);
        let pool = Pool::builder(Greeted(upstream.address))
            .slots_per_core(1)
            .connect_timeout(limit)
            .connect_backoff(Duration::from_millis(1), Duration::from_millis(2))
            .build(&runtime)
            .unwrap();
        let begun = Instant::now();
        let Err(AcquireError::Connect { source }) = soon(pool.acquire()).await.map(drop) else {
            panic!("the attempt is over")
        };
        assert_eq!(source.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= limit);
        let stats = shard(&pool, 0).await;
        assert_settled(&stats);
        assert_eq!((stats.connect_failures, stats.idle), (1, 0));
        poll_until(async || upstream.live() == 0).await;
        talks.store(true, Ordering::SeqCst);
        // On a busy machine even a ready greeting may come too late, once.
        let mut greeted = None;
        poll_until(async || {
            greeted = pool.acquire().await.ok();
            greeted.is_some()
        })
        .await;
        let mut lease = greeted.unwrap();
        lease.exchange(async |stream| echo(stream, b"shaken").await).await.unwrap();
        drop(lease);
        pool.close().await;
    });
}

#[test]
fn a_black_hole_does_not_hold_an_acquire_beyond_its_deadline() {
    on_cores(1, async move |runtime, _| {
        // A listener that accepts nobody, its backlog full: further connects get no answer.
        let hole = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        hole.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        hole.listen(0).unwrap();
        let address = hole.local_addr().unwrap().as_socket().unwrap();
        let mut fillers = Vec::new();
        for _ in 0..16 {
            match std::net::TcpStream::connect_timeout(&address, Duration::from_millis(50)) {
                Ok(filler) => fillers.push(filler),
                Err(_) => break,
            }
        }
        assert!(fillers.len() < 16, "the backlog does not fill");
        let (limit, attempt) = (Duration::from_millis(50), Duration::from_secs(2));
        let pool = Pool::builder(TcpConnector::new(address))
            .slots_per_core(1)
            .acquire_timeout(limit)
            .connect_timeout(attempt)
            .build(&runtime)
            .unwrap();
        for _ in 0..2 {
            let begun = Instant::now();
            let error = soon(pool.acquire()).await.unwrap_err();
            let took = begun.elapsed();
            assert!(took >= limit && took < attempt, "{took:?}");
            let AcquireError::Timeout { stage, waited, queued, .. } = error else { panic!("{error}") };
            assert_eq!((stage, queued), (Stage::Connecting, 1));
            assert!(waited >= limit && waited <= took);
        }
        settled(&pool, 0).await;
        soon(pool.close()).await;
        drop(fillers);
    });
}

/// An address at which nobody listens.
fn nowhere() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_permanent_refusal_reaches_more_waiters_than_slots_at_once() {
    on_cores(2, async move |runtime, cores| {
        for home in cores {
            let pool = Pool::builder(TcpConnector::new(nowhere()))
                .slots_per_core(2)
                .acquire_timeout(Duration::from_secs(3600))
                .build(&runtime)
                .unwrap();
            let tasks: Vec<_> = (0..20)
                .map(|_| {
                    let pool = pool.clone();
                    spawn(async move { pool.handle_on(home).unwrap().acquire().await.map(drop) })
                })
                .collect();
            for task in tasks {
                let error = soon(task).await.unwrap().unwrap_err();
                let AcquireError::Connect { source } = &error else { panic!("{error}") };
                assert_eq!(source.kind(), io::ErrorKind::ConnectionRefused);
                assert!(error.is_connection_fault() && error.is_retryable());
                let cause = std::error::Error::source(&error).expect("the cause is kept");
                assert_eq!(cause.to_string(), source.to_string());
            }
            all_settled(&pool).await;
            soon(pool.close()).await;
        }
    });
}

#[test]
fn an_upstream_that_recovers_is_found_after_the_back_off() {
    on_cores(1, async move |runtime, _| {
        let address = nowhere();
        let pause = Duration::from_millis(40);
        let pool = Pool::builder(TcpConnector::new(address))
            .slots_per_core(2)
            .connect_backoff(pause, 2 * pause)
            .build(&runtime)
            .unwrap();
        let failed = soon(pool.acquire()).await;
        let after = Instant::now();
        assert!(matches!(failed, Err(AcquireError::Connect { .. })));
        let opens = shard(&pool, 0).await.opens;
        let again = soon(pool.acquire()).await;
        assert!(after.elapsed() + Duration::from_millis(5) >= pause / 2, "half of the pause is certain");
        assert!(matches!(again, Err(AcquireError::Connect { .. })));
        assert_eq!(shard(&pool, 0).await.opens, opens + 1);
        let upstream = Upstream::start_at(address, |mut socket, _| {
            let mut buffer = [0; 64];
            while let Ok(count @ 1..) = io::Read::read(&mut socket, &mut buffer) {
                io::Write::write_all(&mut socket, &buffer[..count]).unwrap();
            }
        });
        let mut lease = soon(pool.acquire()).await.unwrap();
        lease.exchange(async |stream| echo(stream, b"back").await).await.unwrap();
        drop(lease);
        soon(pool.close()).await;
        drop(upstream);
    });
}

#[test]
fn an_acquire_that_outlasts_a_short_outage_is_served() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory)
            .slots_per_core(2)
            .connect_backoff(Duration::from_millis(1), Duration::from_millis(5))
            .build(&runtime)
            .unwrap();
        // While one lease is out, a failure is no reason to give the waiters up.
        let lease = pool.acquire().await.unwrap();
        set(&script.fail_connects, true);
        let theirs = pool.clone();
        let waiter = spawn(async move { theirs.acquire().await.map(drop) });
        poll_until(async || shard(&pool, 0).await.connect_failures >= 5).await;
        assert_eq!(shard(&pool, 0).await.waiting, 1);
        set(&script.fail_connects, false);
        soon(waiter).await.unwrap().unwrap();
        drop(lease);
        pool.close().await;
    });
}

#[test]
fn a_deadline_in_an_outage_names_the_latest_connect_error() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory)
            .slots_per_core(2)
            .connect_backoff(Duration::from_millis(1), Duration::from_millis(5))
            .build(&runtime)
            .unwrap();
        let lease = pool.acquire().await.unwrap();
        set(&script.fail_connects, true);
        let handle = pool.handle();
        let mut first = handle.acquire();
        assert!(poll_once(&mut first).await.is_pending());
        poll_until(async || shard(&pool, 0).await.connect_failures > 0).await;
        let error = soon(handle.acquire_within(Duration::from_millis(30))).await.unwrap_err();
        let AcquireError::Timeout { last_connect_error: Some(cause), .. } = &error else { panic!("{error}") };
        assert_eq!(cause.to_string(), "refused on purpose");
        assert!(error.to_string().contains("refused on purpose"), "{error}");
        assert!(error.is_connection_fault());
        drop(lease);
        pool.close().await;
    });
}

#[test]
fn the_pause_between_attempts_grows_and_no_attempt_is_made_for_nobody() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory)
            .slots_per_core(2)
            .connect_backoff(Duration::from_millis(4), Duration::from_millis(64))
            .build(&runtime)
            .unwrap();
        let lease = pool.acquire().await.unwrap();
        set(&script.fail_connects, true);
        let handle = pool.handle();
        let begun = Instant::now();
        let waited = soon(handle.acquire_within(Duration::from_millis(200))).await;
        assert!(matches!(waited, Err(AcquireError::Timeout { .. })));
        let (failures, took) = (shard(&pool, 0).await.connect_failures, begun.elapsed());
        // Half of each pause is certain: after 2, 4, 8, 16 and then every 32 milliseconds at the earliest.
        let most = 5 + took.as_millis() as u64 / 32;
        assert!((1..=most).contains(&failures), "{failures} attempts in {took:?}");
        sleep(Duration::from_millis(100)).await;
        assert_eq!(shard(&pool, 0).await.connect_failures, failures, "nobody waits");
        drop(lease);
        pool.close().await;
    });
}

#[test]
fn a_connector_that_panics_costs_an_attempt_and_no_slot() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory)
            .slots_per_core(1)
            .connect_backoff(Duration::from_millis(1), Duration::from_millis(1))
            .build(&runtime)
            .unwrap();
        set(&script.panic_connects, true);
        for _ in 0..3 {
            let error = soon(pool.acquire()).await.unwrap_err();
            assert!(error.to_string().contains("connect panics on purpose"), "{error}");
        }
        set(&script.panic_connects, false);
        drop(soon(pool.acquire()).await.unwrap());
        let stats = shard(&pool, 0).await;
        assert_settled(&stats);
        assert_eq!((stats.connect_failures, stats.scheduler_failures), (3, 0));
        pool.close().await;
    });
}

/// Panics before it has made a future.
struct Abrupt(AtomicUsize);

impl Connector for Abrupt {
    type Connection = support::MemoryConnection;

    fn connect(&self) -> impl Future<Output = io::Result<Self::Connection>> {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "the first connect panics on purpose");
        async { Memory::default().connect().await }
    }
}

#[test]
fn a_connector_that_panics_before_it_makes_a_future_costs_an_attempt_and_no_slot() {
    on_cores(1, async move |runtime, _| {
        let pool = Pool::builder(Abrupt(AtomicUsize::new(0)))
            .slots_per_core(1)
            .connect_backoff(Duration::from_millis(1), Duration::from_millis(1))
            .build(&runtime)
            .unwrap();
        assert!(matches!(soon(pool.acquire()).await, Err(AcquireError::Connect { .. })));
        drop(soon(pool.acquire()).await.unwrap());
        assert_eq!(shard(&pool, 0).await.scheduler_failures, 0);
        pool.close().await;
    });
}

#[test]
fn a_connector_that_hangs_ends_by_its_time_limit() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        set(&script.hold_connects, true);
        let pool = Pool::builder(memory)
            .slots_per_core(1)
            .connect_timeout(Duration::from_millis(10))
            .connect_backoff(Duration::from_millis(1), Duration::from_millis(1))
            .build(&runtime)
            .unwrap();
        assert!(matches!(soon(pool.acquire()).await, Err(AcquireError::Connect { .. })));
        set(&script.hold_connects, false);
        drop(soon(pool.acquire()).await.unwrap());
        assert_settled(&shard(&pool, 0).await);
        pool.close().await;
    });
}

#[test]
fn a_slow_close_keeps_its_slot_and_holds_nobody_else_up() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(2).build(&runtime).unwrap();
        let handle = pool.handle();
        let (mut dirty, clean) = (handle.acquire().await.unwrap(), handle.acquire().await.unwrap());
        set(&script.hold_closes, true);
        let _ = dirty.exchange(async |_| Err::<(), ()>(())).await;
        drop(dirty);
        poll_until(async || shard(&pool, 0).await.closing == 1).await;
        drop(clean);
        let clean = soon(handle.acquire()).await.unwrap();
        let mut waiting = handle.acquire();
        for _ in 0..20 {
            assert!(poll_once(&mut waiting).await.is_pending());
            sleep(Duration::from_micros(100)).await;
        }
        assert_eq!((script.live(), script.peak()), (2, 2), "the slot is not free before the close is over");
        set(&script.hold_closes, false);
        drop(soon(waiting).await.unwrap());
        drop(clean);
        assert_eq!(script.peak(), 2);
        pool.close().await;
    });
}

#[test]
fn a_close_that_panics_costs_no_slot() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(1).build(&runtime).unwrap();
        set(&script.panic_close, true);
        for _ in 0..3 {
            let mut lease = soon(pool.acquire()).await.unwrap();
            let _ = lease.exchange(async |_| Err::<(), ()>(())).await;
            drop(lease);
        }
        poll_until(async || shard(&pool, 0).await.closing == 0).await;
        let stats = shard(&pool, 0).await;
        assert_settled(&stats);
        assert_eq!((stats.scheduler_failures, script.live()), (0, 0));
        pool.close().await;
    });
}

#[test]
fn opens_never_exceed_the_waiters_nor_their_own_bound() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let script = memory.0.clone();
        set(&script.hold_connects, true);
        let pool = Pool::builder(memory).slots_per_core(10).max_connecting(3).build(&runtime).unwrap();
        let handle = pool.handle();
        let mut waiters: Vec<_> = (0..2).map(|_| Box::pin(handle.acquire())).collect();
        for waiter in &mut waiters {
            assert!(poll_once(waiter).await.is_pending());
        }
        poll_until(async || shard(&pool, 0).await.opening == 2).await;
        for _ in 0..6 {
            waiters.push(Box::pin(handle.acquire()));
            assert!(poll_once(waiters.last_mut().unwrap()).await.is_pending());
        }
        poll_until(async || shard(&pool, 0).await.opening == 3).await;
        sleep(Duration::from_millis(2)).await;
        assert_eq!(script.connects(), 3);
        set(&script.hold_connects, false);
        let mut leases = Vec::new();
        for waiter in waiters {
            leases.push(soon(waiter).await.unwrap());
        }
        assert_eq!(script.connects(), 8, "one for each");
        drop(leases);
        pool.close().await;
    });
}

#[test]
fn an_upstream_that_hangs_up_at_random_costs_no_slot_and_hangs_nobody() {
    on_cores(2, async move |runtime, cores| {
        let mut random = support::Random::new();
        // Each connection serves a few requests and ends, sometimes in the middle of a reply.
        let patience = random.next();
        let upstream = Upstream::start(move |mut socket, number| {
            let mut random = support::Random::seeded(patience.wrapping_add(number as u64));
            let mut left = random.below(8);
            let mut buffer = [0; 16];
            while let Ok(count @ 1..) = io::Read::read(&mut socket, &mut buffer) {
                let reply = if left == 0 { &buffer[..count / 2] } else { &buffer[..count] };
                if io::Write::write_all(&mut socket, reply).is_err() || left == 0 {
                    break;
                }
                left -= 1;
            }
        });
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(3).build(&runtime).unwrap();
        let mut tasks = Vec::new();
        for lane in 0..8_usize {
            let (pool, home) = (pool.clone(), cores[lane % 2]);
            tasks.push(spawn(async move {
                let handle = pool.handle_on(home).unwrap();
                let (mut good, mut bad) = (0, 0);
                for round in 0..50_u64 {
                    let text = (lane as u64 * 1000 + round).to_le_bytes();
                    let mut lease = handle.acquire().await.unwrap();
                    match lease.exchange(async |stream| echo(stream, &text).await).await {
                        Ok(reply) => {
                            assert_eq!(reply, text);
                            good += 1;
                        }
                        Err(_) => bad += 1,
                    }
                }
                (good, bad)
            }));
        }
        let mut total = (0, 0);
        for task in tasks {
            let (good, bad) = soon(task).await.unwrap();
            total = (total.0 + good, total.1 + bad);
        }
        assert!(total.0 > 100 && total.1 > 0, "{total:?}");
        // Again and again, for one that was opened and never used may not be accepted yet.
        poll_until(async || {
            upstream.hang_up();
            pool.stats().await.shards.iter().all(|shard| shard.connections() == 0)
        })
        .await;
        all_settled(&pool).await;
        soon(pool.close()).await;
    });
}
