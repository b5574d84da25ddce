//! A connection goes to its next user only when nothing of the last one is left on it.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::Duration;

use corelet::net::TcpStream;
use corelet::pool::{CloseReason, ExchangeError, Pool, TcpConnector};
use corelet::runtime::{core_stats, sleep, spawn};
use support::{
    Cut, Random, Upstream, all_settled, cut_off, echo, on_cores, poll_once, poll_until, settled, shard, soon,
};

#[test]
fn a_failed_exchange_costs_its_connection_and_the_lease_refuses_another() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(1).build(&runtime).unwrap();
        let mut lease = pool.acquire().await.unwrap();
        assert!(lease.is_clean());
        let failed = lease.exchange(async |_: &mut TcpStream| Err::<(), _>("on purpose")).await;
        assert_eq!(failed.unwrap_err().into_inner(), Some("on purpose"));
        assert!(!lease.is_clean());
        let mut ran = false;
        let refused = lease
            .exchange(async |_: &mut TcpStream| {
                ran = true;
                Ok::<_, ()>(())
            })
            .await;
        assert!(matches!(refused, Err(ExchangeError::Dirty)) && !ran);
        drop(lease);
        poll_until(async || upstream.live() == 0).await;
        let stats = settled(&pool, 0).await;
        assert_eq!(stats.closed_for(CloseReason::Dirty), 1);
        let mut lease = soon(pool.acquire()).await.unwrap();
        assert_eq!(lease.exchange(async |stream| echo(stream, b"new").await).await.unwrap(), b"new");
        assert_eq!(upstream.accepted(), 2);
        drop(lease);
        pool.close().await;
    });
}

#[test]
fn a_panicked_exchange_costs_its_connection_and_poisons_nothing() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(1).build(&runtime).unwrap();
        for round in 1..=3 {
            let theirs = pool.clone();
            let task = spawn(async move {
                let mut lease = theirs.acquire().await.unwrap();
                let _ = lease
                    .exchange(async |stream: &mut TcpStream| -> Result<(), ()> {
                        echo(stream, b"half").await.unwrap();
                        panic!("on purpose")
                    })
                    .await;
            });
            assert!(soon(task).await.unwrap_err().is_panic());
            let mut lease = soon(pool.acquire()).await.unwrap();
            assert_eq!(lease.exchange(async |stream| echo(stream, b"works").await).await.unwrap(), b"works");
            // Left clean, so the next round has this connection.
            drop(lease);
            let stats = shard(&pool, 0).await;
            assert_eq!((stats.closed_for(CloseReason::Dirty), stats.scheduler_failures), (round, 0));
        }
        pool.close().await;
    });
}

#[test]
fn bytes_left_unread_cost_the_connection() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(1).build(&runtime).unwrap();
        // Seen inside the exchange: the reply is in a buffer, and only a part of it is read.
        let mut lease = pool.acquire().await.unwrap();
        drop(lease);
        poll_until(async || shard(&pool, 0).await.idle == 1).await;
        lease = pool.acquire().await.unwrap();
        let read = lease
            .exchange(async |stream| {
                stream.write_all(b"abcdef".to_vec()).await.0?;
                let (count, buffer) = stream.read(Vec::with_capacity(3)).await;
                count.map(|_| buffer)
            })
            .await
            .unwrap();
        assert_eq!(read, b"abc");
        assert!(!lease.is_clean());
        let refused = lease.exchange(async |stream| echo(stream, b"x").await).await;
        assert!(matches!(refused, Err(ExchangeError::Dirty)));
        drop(lease);
        poll_until(async || shard(&pool, 0).await.closed_for(CloseReason::Dirty) == 1).await;
        // Arriving when the connection is idle already.
        let mut lease = soon(pool.acquire()).await.unwrap();
        lease.exchange(async |stream| stream.write_all(b"late".to_vec()).await.0).await.unwrap();
        drop(lease);
        poll_until(async || shard(&pool, 0).await.closed_for(CloseReason::Broken) == 1).await;
        let mut lease = soon(pool.acquire()).await.unwrap();
        assert_eq!(lease.exchange(async |stream| echo(stream, b"clean").await).await.unwrap(), b"clean");
        drop(lease);
        assert_eq!(upstream.accepted(), 3);
        pool.close().await;
    });
}

#[test]
fn bytes_that_come_between_the_last_exchange_and_the_release_reach_no_waiter() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle();
        let mut lease = handle.acquire().await.unwrap();
        let received = lease
            .exchange(async |stream| {
                stream.write_all(b"mine".to_vec()).await.0?;
                // Leaves a receive armed.
                io::Result::Ok(stream.receive().await?.unwrap().to_vec())
            })
            .await
            .unwrap();
        assert_eq!(received, b"mine");
        assert!(lease.is_clean());
        let mut waiting = handle.acquire();
        assert!(poll_once(&mut waiting).await.is_pending());
        let completions = core_stats().unwrap().driver.completions;
        upstream.say(b"stray");
        poll_until(async || core_stats().unwrap().driver.completions > completions).await;
        drop(lease);
        let mut lease = soon(waiting).await.unwrap();
        assert_eq!(lease.exchange(async |stream| echo(stream, b"next").await).await.unwrap(), b"next");
        drop(lease);
        assert_eq!(shard(&pool, 0).await.closed_for(CloseReason::Dirty), 1);
        pool.close().await;
    });
}

#[test]
fn a_reply_read_in_part_makes_the_connection_dirty_also_when_the_rest_is_in_the_kernel() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(1).build(&runtime).unwrap();
        // The lease comes from a connect, so no receive is armed and the read goes to the kernel directly. A second
        // exchange on any lease is no different.
        let mut lease = pool.acquire().await.unwrap();
        let part = lease
            .exchange(async |stream| {
                stream.write_all(b"abcdef".to_vec()).await.0?;
                let (count, buffer) = stream.read(Vec::with_capacity(3)).await;
                count.map(|_| buffer)
            })
            .await
            .unwrap();
        assert_eq!(part, b"abc");
        let next = lease.exchange(async |stream| echo(stream, b"xyz").await).await;
        assert!(matches!(next, Err(ExchangeError::Dirty)), "the next exchange read {next:?}");
    });
}

#[test]
fn a_connection_that_its_user_ended_is_not_used_again() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(1).build(&runtime).unwrap();
        let mut lease = pool.acquire().await.unwrap();
        lease
            .exchange(async |stream| {
                stream.shutdown(std::net::Shutdown::Write).await?;
                let (count, _) = stream.read(Vec::with_capacity(1)).await;
                assert_eq!(count?, 0);
                io::Result::Ok(())
            })
            .await
            .unwrap();
        assert!(!lease.is_clean(), "its end was seen");
        drop(lease);
        let mut lease = soon(pool.acquire()).await.unwrap();
        assert_eq!(lease.exchange(async |stream| echo(stream, b"new").await).await.unwrap(), b"new");
        drop(lease);
        pool.close().await;
    });
}

/// Answers each request, 8 bytes of tag and 1 of delay in milliseconds, with its tag.
fn tagging() -> Upstream {
    Upstream::start(|mut socket, _| {
        let mut request = [0; 9];
        while socket.read_exact(&mut request).is_ok() {
            std::thread::sleep(Duration::from_millis(request[8].into()));
            if socket.write_all(&request[..8]).is_err() {
                break;
            }
        }
    })
}

async fn tagged(stream: &mut TcpStream, tag: u64, delay: u8) -> io::Result<u64> {
    let mut request = tag.to_le_bytes().to_vec();
    request.push(delay);
    stream.write_all(request).await.0?;
    let mut reply = Vec::with_capacity(8);
    while reply.len() < 8 {
        let count;
        (count, reply) = stream.read(reply).await;
        if count? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(u64::from_le_bytes(reply.try_into().unwrap()))
}

#[derive(Default)]
struct Tally {
    matched: u64,
    mismatched: u64,
    cancelled: u64,
}

/// Requests, many of them dropped half-way, on connections of both shards; what comes back must be one's own.
async fn request_and_cancel(
    pool: Pool<TcpConnector>,
    homes: Vec<corelet::runtime::CoreId>,
    seed: u64,
) -> (u64, u64, u64) {
    let tally = Rc::new(RefCell::new(Tally::default()));
    let mut tasks = Vec::new();
    for lane in 0..6_u64 {
        let (pool, homes, tally) = (pool.clone(), homes.clone(), tally.clone());
        tasks.push(spawn(async move {
            let mut random = Random::seeded(seed.wrapping_add(lane));
            for _ in 0..60 {
                let handle = pool.handle_on(homes[random.below(2) as usize]).unwrap();
                let mut lease = handle.acquire().await.unwrap();
                for _ in 0..1 + random.below(3) {
                    let (tag, delay) = (random.next(), random.below(4) as u8);
                    let exchange = lease.exchange(async |stream| tagged(stream, tag, delay).await);
                    let outcome = match random.below(4) {
                        0 => cut_off(1, Cut::AtOnce, exchange).await,
                        1 => cut_off(1, Cut::WhenWoken, exchange).await,
                        2 => {
                            let limit = Duration::from_micros(random.below(4000));
                            corelet::runtime::timeout(limit, exchange).await.ok()
                        }
                        _ => Some(exchange.await),
                    };
                    let mut tally = tally.borrow_mut();
                    match outcome.map(Result::unwrap) {
                        Some(reply) if reply == tag => tally.matched += 1,
                        Some(_) => tally.mismatched += 1,
                        None => {
                            tally.cancelled += 1;
                            break;
                        }
                    }
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let Tally { matched, mismatched, cancelled } = *tally.borrow();
    (matched, mismatched, cancelled)
}

#[test]
fn nobody_reads_a_reply_to_somebody_elses_request() {
    on_cores(2, async move |runtime, cores| {
        let mut random = Random::new();
        let upstream = tagging();
        let pool = Pool::builder(TcpConnector::new(upstream.address))
            .slots_per_core(3)
            .acquire_timeout(support::PATIENCE)
            .build(&runtime)
            .unwrap();
        let (theirs, homes, seed) = (pool.clone(), cores.clone(), random.next());
        let far = runtime.spawn_on(cores[1], move || request_and_cancel(theirs, homes, seed)).unwrap();
        let here = request_and_cancel(pool.clone(), cores, random.next()).await;
        let there = far.await.unwrap();
        println!("matched, mismatched, cancelled: {here:?} {there:?}");
        assert_eq!(here.1 + there.1, 0, "replies to somebody else's request");
        assert!(here.0 + there.0 > 100 && here.2 + there.2 > 100);
        let stats = all_settled(&pool).await;
        assert_eq!(stats.sum(|shard| shard.closed_for(CloseReason::Dirty)), here.2 + there.2);
        poll_until(async || upstream.live() as u64 == stats.sum(|shard| shard.idle as u64)).await;
        pool.close().await;
        poll_until(async || upstream.live() == 0).await;
    });
}

#[test]
fn several_exchanges_on_one_lease_use_one_connection() {
    on_cores(1, async move |runtime, _| {
        let upstream = tagging();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(4).build(&runtime).unwrap();
        let mut lease = pool.acquire().await.unwrap();
        for tag in 0..100 {
            assert_eq!(lease.exchange(async |stream| tagged(stream, tag, 0).await).await.unwrap(), tag);
        }
        drop(lease);
        sleep(Duration::ZERO).await;
        assert_eq!((upstream.accepted(), shard(&pool, 0).await.idle), (1, 1));
        pool.close().await;
    });
}
