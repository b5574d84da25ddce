//! Calls of many leases are on one socket at the same time: each gets its own reply, and none harms another.
#![cfg(feature = "framed")]
#![allow(missing_docs, clippy::unwrap_used)]

mod framed;
mod support;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::BytesMut;
use corelet::pool::{
    AcquireError, BuildError, ById, CloseReason, ExchangeError, FramedConnector, InOrder, Lease,
    PipelineError, Pipelined, PipelinedBuilder, Pool, SharedBuilder, SocketFailure, TcpConnector,
};
use corelet::runtime::{core_stats, spawn, timeout, yield_now};
use framed::{Frame, Frames, REFUSED, drip_frames, echo_frames, frame, read_frame, to_bytes, write_frame};
use support::{
    Cut, Random, Upstream, assert_settled, cut_off, on_cores, poll_once, poll_until, settled, shard, soon,
};
use tokio_util::codec::{Decoder, Encoder};

type Frameworks = FramedConnector<TcpConnector, fn() -> Frames>;
type OrderedPool = Pool<Pipelined<Frameworks, InOrder>>;
type OrderedLease = Lease<Pipelined<Frameworks, InOrder>>;
type Failed = PipelineError<io::Error>;

fn shared(upstream: &Upstream, slots: usize, leases: usize) -> SharedBuilder<Frameworks> {
    let connector = FramedConnector::new(TcpConnector::new(upstream.address), (|| Frames) as fn() -> Frames);
    Pool::builder(connector).slots_per_core(slots).leases_per_slot(leases)
}

fn ordered(upstream: &Upstream, slots: usize, leases: usize) -> PipelinedBuilder<Frameworks, InOrder> {
    shared(upstream, slots, leases).pipelined()
}

fn by_id(upstream: &Upstream, slots: usize, leases: usize) -> PipelinedBuilder<Frameworks, ById<u64>> {
    shared(upstream, slots, leases).pipelined_by_id()
}

fn failure<T: std::fmt::Debug>(result: Result<T, ExchangeError<Failed>>) -> Failed {
    result.unwrap_err().into_inner().unwrap()
}

fn cause(failed: &Failed) -> &SocketFailure<io::Error> {
    match failed {
        PipelineError::Lost { cause, .. } => cause,
        other => panic!("{other}"),
    }
}

async fn leases(pool: &OrderedPool, count: usize) -> Vec<OrderedLease> {
    let mut leases = Vec::new();
    for _ in 0..count {
        leases.push(soon(pool.acquire()).await.unwrap());
    }
    leases
}

/// Answers whatever has come, the last one first.
fn reversed_frames(mut socket: TcpStream, _: usize) {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        received.extend_from_slice(&buffer[..count]);
        let whole = received.len() / framed::FRAME_SIZE * framed::FRAME_SIZE;
        let replies: Vec<u8> = received[..whole].rchunks(framed::FRAME_SIZE).flatten().copied().collect();
        received.drain(..whole);
        if socket.write_all(&replies).is_err() {
            return;
        }
    }
}

/// Holds every frame back until it is told to answer so many.
fn held_frames() -> (Upstream, mpsc::Sender<usize>, Arc<AtomicUsize>) {
    let (answer, orders) = mpsc::channel::<usize>();
    let (orders, seen) = (std::sync::Mutex::new(orders), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&seen);
    let upstream = Upstream::start(move |mut socket, _| {
        let (frames, arrived) = mpsc::channel();
        let mut reading = socket.try_clone().unwrap();
        let counted = Arc::clone(&counted);
        let reader = std::thread::spawn(move || {
            while let Some(frame) = read_frame(&mut reading) {
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = frames.send(frame);
            }
        });
        let orders = orders.lock().unwrap();
        'serving: while !reader.is_finished() {
            let Ok(count) = orders.recv_timeout(Duration::from_millis(1)) else { continue };
            for _ in 0..count {
                let Ok(frame) = arrived.recv() else { break 'serving };
                write_frame(&mut socket, frame);
            }
        }
        reader.join().unwrap();
    });
    (upstream, answer, seen)
}

#[test]
fn calls_on_one_socket_get_their_own_replies() {
    on_cores(1, async move |runtime, _| {
        // Each byte that drips is a wake-up of its own, and takes its time on a machine that is busy.
        for (serve, calls) in [(echo_frames as fn(TcpStream, usize), 50), (drip_frames, 5)] {
            let upstream = Upstream::start(serve);
            let pool = ordered(&upstream, 1, 16).build(&runtime).unwrap();
            let mut tasks = Vec::new();
            for client in 0..16 {
                let pool = pool.clone();
                tasks.push(spawn(async move {
                    let session = pool.handle();
                    for number in 0..calls {
                        let mut lease = session.acquire().await.unwrap();
                        let asked = frame(client << 32 | number);
                        assert_eq!(lease.call(asked).await.unwrap(), asked);
                        assert!(lease.is_clean());
                    }
                }));
            }
            for task in tasks {
                soon(task).await.unwrap();
            }
            assert_eq!(upstream.accepted(), 1);
            assert_settled(&shard(&pool, 0).await);
            soon(pool.close()).await;
        }
    });
}

#[test]
fn replies_that_come_in_another_order_are_matched_by_their_ids() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(reversed_frames);
        let pool = by_id(&upstream, 1, 16).build(&runtime).unwrap();
        let mut tasks = Vec::new();
        for client in 0..16 {
            let mut lease = soon(pool.acquire()).await.unwrap();
            tasks.push(spawn(async move {
                for number in 0..50 {
                    let asked = frame(client << 32 | number);
                    assert_eq!(lease.call(asked).await.unwrap(), asked);
                }
            }));
        }
        for task in tasks {
            soon(task).await.unwrap();
        }
        assert_eq!(upstream.accepted(), 1);
        pool.close().await;
    });
}

#[test]
fn a_request_with_the_id_of_one_that_has_no_reply_is_refused() {
    on_cores(1, async move |runtime, _| {
        let (upstream, answer, seen) = held_frames();
        let pool = by_id(&upstream, 1, 2).build(&runtime).unwrap();
        let mut first = soon(pool.acquire()).await.unwrap();
        let mut second = soon(pool.acquire()).await.unwrap();
        let mut call = Box::pin(first.call(frame(1)));
        assert!(poll_once(&mut call).await.is_pending());
        let refused = failure(second.call(frame(1)).await);
        assert!(matches!(refused, PipelineError::DuplicateId) && refused.is_unsent());
        poll_until(async || seen.load(Ordering::SeqCst) == 1).await;
        answer.send(3).unwrap();
        assert_eq!(soon(call).await.unwrap(), frame(1));
        assert_eq!(soon(second.call(frame(1))).await.unwrap(), frame(1));
        assert_eq!(soon(first.call(frame(2))).await.unwrap(), frame(2));
        drop((first, second));
        pool.close().await;
    });
}

/// A reply that comes after its caller has timed out is swallowed.
#[test]
fn a_late_reply_harms_nobody_and_the_session_goes_on() {
    on_cores(1, async move |runtime, _| {
        let (upstream, answer, seen) = held_frames();
        let pool = ordered(&upstream, 1, 2).build(&runtime).unwrap();
        let mut leases = leases(&pool, 2).await;
        let (mut other, mut late) = (leases.pop().unwrap(), leases.pop().unwrap());
        timeout(Duration::from_millis(2), late.call(frame(1))).await.unwrap_err();
        assert!(late.is_clean());
        let mut call = Box::pin(other.call(frame(2)));
        assert!(poll_once(&mut call).await.is_pending());
        // The same lease again, behind its own late reply.
        let mut again = Box::pin(late.call(frame(3)));
        assert!(poll_once(&mut again).await.is_pending());
        poll_until(async || seen.load(Ordering::SeqCst) == 3).await;
        answer.send(3).unwrap();
        assert_eq!(soon(call).await.unwrap(), frame(2));
        assert_eq!(soon(again).await.unwrap(), frame(3));
        drop((other, late));
        let stats = shard(&pool, 0).await;
        assert_eq!((stats.idle, stats.opens, upstream.accepted()), (2, 2, 1));
        pool.close().await;
    });
}

#[test]
fn a_socket_that_fails_fails_the_requests_on_it_and_no_others() {
    on_cores(1, async move |runtime, _| {
        let (hang_up, order) = mpsc::channel::<()>();
        let order = std::sync::Mutex::new(order);
        let upstream = Upstream::start(move |mut socket, number| match number {
            // Answers half a frame and closes.
            0 => {
                let asked = read_frame(&mut socket).unwrap();
                order.lock().unwrap().recv().unwrap();
                socket.write_all(&to_bytes(asked)[..9]).unwrap();
            }
            _ => echo_frames(socket, number),
        });
        let pool = ordered(&upstream, 2, 2).max_outstanding(1).build(&runtime).unwrap();
        let mut leases = leases(&pool, 4).await;
        let (mut well, mut idle) = (leases.pop().unwrap(), leases.pop().unwrap());
        let (mut waiting, mut sent) = (leases.pop().unwrap(), leases.pop().unwrap());
        let mut on_it = Box::pin(sent.call(frame(1)));
        assert!(poll_once(&mut on_it).await.is_pending());
        let mut held_back = Box::pin(waiting.call(frame(2)));
        assert!(poll_once(&mut held_back).await.is_pending());
        poll_until(async || upstream.accepted() == 2).await;
        hang_up.send(()).unwrap();

        let failed = failure(soon(on_it).await);
        assert!(matches!(cause(&failed), SocketFailure::ClosedMidFrame), "{failed}");
        assert!(!failed.is_unsent() && !failed.is_retryable());
        let failed = failure(soon(held_back).await);
        assert!(matches!(cause(&failed), SocketFailure::ClosedMidFrame), "{failed}");
        assert!(failed.is_unsent() && failed.is_retryable());
        assert!(!sent.is_clean() && !waiting.is_clean());
        assert!(matches!(waiting.call(frame(3)).await, Err(ExchangeError::Dirty)));

        assert_eq!(soon(well.call(frame(4))).await.unwrap(), frame(4));
        assert_eq!(soon(idle.call(frame(5))).await.unwrap(), frame(5));
        drop((sent, waiting));
        poll_until(async || shard(&pool, 0).await.connections() == 2).await;
        let mut anew = soon(pool.acquire()).await.unwrap();
        assert_eq!(soon(anew.call(frame(6))).await.unwrap(), frame(6));
        drop((anew, well, idle));
        assert_eq!(upstream.accepted(), 3);
        pool.close().await;
    });
}

#[test]
fn a_socket_whose_oldest_reply_is_overdue_is_failed() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(|mut socket, number| match number {
            // Stalls with the second request.
            0 => {
                let first = read_frame(&mut socket).unwrap();
                write_frame(&mut socket, first);
                let _ = socket.read_to_end(&mut Vec::new());
            }
            _ => echo_frames(socket, number),
        });
        // Those that the upstream answers at once must not be overdue on a busy machine.
        let limit = Duration::from_millis(500);
        let pool = ordered(&upstream, 1, 2).reply_timeout(limit).build(&runtime).unwrap();
        let mut leases = leases(&pool, 2).await;
        assert_eq!(leases[0].call(frame(1)).await.unwrap(), frame(1));
        let mut second = leases.pop().unwrap();
        let begun = corelet::runtime::now();
        let stalled = spawn(async move { failure(second.call(frame(2)).await) });
        yield_now().await;
        let failed = failure(soon(leases[0].call(frame(3))).await);
        assert!(matches!(cause(&failed), SocketFailure::Overdue { after } if *after == limit), "{failed}");
        assert!(begun.elapsed() >= limit && !failed.is_unsent());
        assert!(matches!(cause(&soon(stalled).await.unwrap()), SocketFailure::Overdue { .. }));
        drop(leases);
        let mut anew = soon(pool.acquire()).await.unwrap();
        assert_eq!(anew.call(frame(4)).await.unwrap(), frame(4));
        drop(anew);
        // With nothing to come, nothing is overdue.
        corelet::runtime::sleep(2 * limit).await;
        assert_eq!(shard(&pool, 0).await.idle, 1);
        assert_eq!(shard(pool.sockets(), 0).await.closed_for(CloseReason::Broken), 1);
        pool.close().await;
    });
}

#[test]
fn a_frame_that_nobody_asked_for_fails_the_socket_and_evicts_its_sessions() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(echo_frames);
        let pool = ordered(&upstream, 1, 3).build(&runtime).unwrap();
        let mut leases = leases(&pool, 3).await;
        for lease in &mut leases {
            assert_eq!(lease.call(frame(1)).await.unwrap(), frame(1));
        }
        let mut kept = leases.pop().unwrap();
        drop(leases);
        upstream.say(&to_bytes(frame(9)));
        poll_until(async || shard(&pool, 0).await.closed_for(CloseReason::Broken) == 2).await;
        let failed = failure(kept.call(frame(2)).await);
        assert!(matches!(cause(&failed), SocketFailure::Unsolicited) && failed.is_retryable());
        drop(kept);
        poll_until(async || shard(&pool, 0).await.connections() == 0).await;
        let mut anew = soon(pool.acquire()).await.unwrap();
        assert_eq!(anew.call(frame(3)).await.unwrap(), frame(3));
        drop(anew);
        // A peer that closes is the same.
        upstream.hang_up();
        poll_until(async || shard(&pool, 0).await.connections() == 0).await;
        assert_eq!(shard(pool.sockets(), 0).await.closed_for(CloseReason::Broken), 2);
        pool.close().await;
    });
}

#[test]
fn calls_beyond_the_bound_wait_in_their_order() {
    on_cores(1, async move |runtime, _| {
        let (upstream, answer, seen) = held_frames();
        let pool = ordered(&upstream, 1, 6).max_outstanding(2).build(&runtime).unwrap();
        let mut calls: Vec<_> = leases(&pool, 6)
            .await
            .into_iter()
            .zip(1..)
            .map(|(mut lease, id)| Some(Box::pin(async move { lease.call(frame(id)).await.unwrap() })))
            .collect();
        for call in &mut calls {
            assert!(poll_once(call.as_mut().unwrap()).await.is_pending());
        }
        poll_until(async || seen.load(Ordering::SeqCst) == 2).await;
        // One that is on the socket gives up, which makes no room; and one that waits, which costs nobody anything.
        drop(calls[0].take());
        drop(calls[3].take());
        for _ in 0..20 {
            yield_now().await;
        }
        assert_eq!(seen.load(Ordering::SeqCst), 2);
        let mut answered = 0;
        for (at, call) in calls.iter_mut().enumerate() {
            let Some(call) = call else { continue };
            while poll_once(call).await.is_pending() {
                if answered <= at && answered < seen.load(Ordering::SeqCst) {
                    answer.send(1).unwrap();
                    answered += 1;
                }
                yield_now().await;
            }
        }
        assert_eq!(seen.load(Ordering::SeqCst), 5);
        drop(calls);
        pool.close().await;
    });
}

#[test]
fn a_request_that_cannot_be_encoded_harms_nobody_and_a_reply_that_cannot_be_decoded_fails_the_socket() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(|mut socket, _| {
            while let Some(asked) = read_frame(&mut socket) {
                let value = if asked.id == 13 { REFUSED } else { asked.value };
                write_frame(&mut socket, Frame { id: asked.id, value });
            }
        });
        let pool = ordered(&upstream, 1, 2).build(&runtime).unwrap();
        let mut leases = leases(&pool, 2).await;
        let mut other = leases.pop().unwrap();
        let mut call = Box::pin(other.call(frame(1)));
        assert!(poll_once(&mut call).await.is_pending());
        // Between two others, in the same write; half of it had been encoded.
        let failed = failure(leases[0].call(Frame { id: 2, value: REFUSED }).await);
        assert!(matches!(failed, PipelineError::Encode(_)) && failed.is_unsent() && !failed.is_retryable());
        assert!(leases[0].is_clean());
        let mut behind = Box::pin(leases[0].call(frame(3)));
        assert!(poll_once(&mut behind).await.is_pending());
        assert_eq!(soon(call).await.unwrap(), frame(1));
        assert_eq!(soon(behind).await.unwrap(), frame(3));

        let failed = failure(soon(other.call(frame(13))).await);
        assert!(matches!(cause(&failed), SocketFailure::Decode(_)) && !failed.is_unsent());
        drop((leases, other));
        pool.close().await;
    });
}

#[test]
fn a_codec_that_panics_fails_its_socket_and_no_other() {
    struct Panicking;

    impl Encoder<Frame> for Panicking {
        type Error = io::Error;

        fn encode(&mut self, frame: Frame, into: &mut BytesMut) -> io::Result<()> {
            Frames.encode(frame, into)?;
            assert!(frame.id != 13, "on purpose, in encode");
            Ok(())
        }
    }

    impl Decoder for Panicking {
        type Item = Frame;
        type Error = io::Error;

        fn decode(&mut self, from: &mut BytesMut) -> io::Result<Option<Frame>> {
            let frame = Frames.decode(from)?;
            assert!(frame.is_none_or(|frame| frame.id != 14), "on purpose, in decode");
            Ok(frame)
        }
    }

    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(echo_frames);
        let connector = FramedConnector::new(TcpConnector::new(upstream.address), || Panicking);
        let pool = Pool::builder(connector)
            .slots_per_core(1)
            .leases_per_slot(2)
            .pipelined()
            .build(&runtime)
            .unwrap();
        for id in [13, 14] {
            let mut lease = soon(pool.acquire()).await.unwrap();
            let mut other = soon(pool.acquire()).await.unwrap();
            let task = spawn(async move { lease.call(frame(id)).await.unwrap_err().into_inner().unwrap() });
            let mut call = Box::pin(other.call(frame(1)));
            match id {
                13 => assert!(soon(task).await.unwrap_err().is_panic()),
                _ => assert!(matches!(cause(&soon(task).await.unwrap()), SocketFailure::Stopped)),
            }
            let failed = failure(soon(&mut call).await);
            assert!(matches!(cause(&failed), SocketFailure::Stopped) && failed.is_retryable());
            drop(call);
            drop(other);
            poll_until(async || shard(&pool, 0).await.connections() == 0).await;
            let mut anew = soon(pool.acquire()).await.unwrap();
            assert_eq!(anew.call(frame(2)).await.unwrap(), frame(2));
        }
        assert_eq!(shard(pool.sockets(), 0).await.scheduler_failures, 0);
        pool.close().await;
    });
}

/// The one whose turn it is when the socket fails is told, and not left on a socket that nobody serves.
#[test]
fn a_call_that_was_to_begin_when_the_socket_failed_is_told() {
    on_cores(1, async move |runtime, _| {
        let (upstream, answer, seen) = held_frames();
        let pool = ordered(&upstream, 1, 2).max_outstanding(1).build(&runtime).unwrap();
        let mut leases = leases(&pool, 2).await;
        let (mut second, mut first) = (leases.pop().unwrap(), leases.pop().unwrap());
        let mut on_it = Box::pin(first.call(frame(1)));
        assert!(poll_once(&mut on_it).await.is_pending());
        let mut next = Box::pin(second.call(frame(2)));
        assert!(poll_once(&mut next).await.is_pending());
        poll_until(async || seen.load(Ordering::SeqCst) == 1).await;
        answer.send(1).unwrap();
        // Its turn comes with this reply; it does not look before the socket has failed.
        assert_eq!(soon(on_it).await.unwrap(), frame(1));
        upstream.hang_up();
        poll_until(async || shard(pool.sockets(), 0).await.connections() == 0).await;
        let failed = failure(soon(next).await);
        assert!(failed.is_retryable(), "{failed}");
        drop((first, second));
        pool.close().await;
    });
}

#[test]
fn a_socket_without_sessions_goes_back_to_its_pool_with_its_codec() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(echo_frames);
        let pool = ordered(&upstream, 1, 2).build(&runtime).unwrap();
        for round in 0..3 {
            let mut lease = soon(pool.acquire()).await.unwrap();
            assert_eq!(lease.call(frame(round)).await.unwrap(), frame(round));
            lease.exchange(async |_| Err::<(), _>(())).await.unwrap_err();
            drop(lease);
            poll_until(async || shard(&pool, 0).await.connections() == 0).await;
            let sockets = shard(pool.sockets(), 0).await;
            assert_eq!((sockets.idle, sockets.opens), (1, 1));
        }
        // Not with a reply still to come.
        let mut lease = soon(pool.acquire()).await.unwrap();
        assert!(poll_once(&mut Box::pin(lease.call(frame(9)))).await.is_pending());
        lease.exchange(async |_| Err::<(), _>(())).await.unwrap_err();
        drop(lease);
        poll_until(async || shard(&pool, 0).await.connections() == 0).await;
        assert_eq!(shard(pool.sockets(), 0).await.closed_for(CloseReason::Dirty), 1);
        pool.close().await;
    });
}

#[test]
fn closing_the_pool_leaves_no_socket_and_no_task() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::start(echo_frames);
        let pool = ordered(&upstream, 2, 2).build(&runtime).unwrap();
        for core in cores {
            let pool = pool.clone();
            let task = runtime
                .spawn_on(core, move || async move {
                    let mut leases = leases(&pool, 3).await;
                    for lease in &mut leases {
                        assert_eq!(lease.call(frame(1)).await.unwrap(), frame(1));
                    }
                })
                .unwrap();
            soon(task).await.unwrap();
        }
        assert_eq!(upstream.accepted(), 4);
        soon(pool.close()).await;
        poll_until(async || pool.sockets().stats().await.sum(|shard| shard.connections() as u64) == 0).await;
        assert!(matches!(pool.acquire().await, Err(AcquireError::Closed)));
        poll_until(async || upstream.live() == 0).await;

        // By a drop alone, too; a lease that is out goes on until it is dropped.
        let pool = ordered(&upstream, 2, 2).build(&runtime).unwrap();
        let mut lease = pool.acquire().await.unwrap();
        drop(pool);
        assert_eq!(soon(lease.call(frame(2))).await.unwrap(), frame(2));
        drop(lease);
        poll_until(async || upstream.live() == 0).await;

        let pool = ordered(&upstream, 1, 2).build(&runtime).unwrap();
        let lease = pool.acquire().await.unwrap();
        pool.drain(Duration::from_millis(1)).await.unwrap_err();
        drop(lease);
        pool.drain(support::PATIENCE).await.unwrap();
        poll_until(async || upstream.live() == 0).await;
    });
}

/// By its age, or because there are to be fewer.
#[test]
fn a_socket_whose_time_has_come_is_replaced_while_calls_go_on() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(echo_frames);
        let connector = FramedConnector::new(TcpConnector::new(upstream.address), || Frames);
        let builder = Pool::builder(connector).max_lifetime(Duration::from_millis(20));
        // Its time may come between the two acquires: the second must not have to wait for what the first one holds.
        let pool = builder.slots_per_core(2).leases_per_slot(4).pipelined().build(&runtime).unwrap();
        let session = pool.handle();
        let mut id = 0;
        while upstream.accepted() < 4 {
            // Some idle, and one in use throughout; nobody notices.
            let (mut one, two) =
                (soon(session.acquire()).await.unwrap(), soon(session.acquire()).await.unwrap());
            for _ in 0..50 {
                assert_eq!(soon(one.call(frame(id))).await.unwrap(), frame(id));
                id += 1;
            }
            assert!(one.is_clean() && two.is_clean());
        }
        let sockets = shard(pool.sockets(), 0).await;
        assert!(sockets.closed_for(CloseReason::Expired) >= 2, "{sockets:?}");
        assert_eq!(sockets.closed_for(CloseReason::Dirty) + sockets.closed_for(CloseReason::Broken), 0);
        pool.close().await;
    });
}

/// Also when the pool is dropped with calls under way and the core ends right then.
#[test]
fn a_core_that_ends_closes_its_sockets() {
    let upstream = Upstream::start(|mut socket, _| {
        let _ = socket.read_to_end(&mut Vec::new());
    });
    support::watched(|| {
        let runtime = support::runtime(1);
        let pool = ordered(&upstream, 2, 2).build(&runtime.handle()).unwrap();
        runtime
            .block_on(move || async move {
                for mut lease in leases(&pool, 3).await {
                    spawn(async move { lease.call(frame(1)).await.map(drop).map_err(drop) }).detach();
                }
                yield_now().await;
            })
            .unwrap();
        drop(runtime);
        support::block_until(|| upstream.live() == 0);
    });
}

#[test]
fn a_handle_of_another_core_is_refused_at_once() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::start(echo_frames);
        let pool = ordered(&upstream, 1, 2).build(&runtime).unwrap();
        let here = corelet::runtime::current_core().unwrap();
        let elsewhere = cores.into_iter().find(|core| *core != here).unwrap();
        let session = pool.handle_on(elsewhere).unwrap();
        assert!(matches!(soon(session.acquire()).await, Err(AcquireError::OtherCore)));
        pool.close().await;
    });
}

#[test]
fn calls_start_no_task() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(echo_frames);
        let pool = ordered(&upstream, 1, 2).build(&runtime).unwrap();
        let session = pool.handle();
        drop(soon(session.acquire()).await.unwrap());
        let before = core_stats().unwrap().executor.spawned;
        for id in 0..100 {
            let mut lease = session.acquire().await.unwrap();
            assert_eq!(lease.call(frame(id)).await.unwrap(), frame(id));
            // And one that gives up.
            assert!(poll_once(&mut Box::pin(lease.call(frame(id)))).await.is_pending());
        }
        assert_eq!(core_stats().unwrap().executor.spawned, before);
        pool.close().await;
    });
}

#[test]
fn settings_out_of_range_are_refused() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(echo_frames);
        for refused in [
            ordered(&upstream, 1, 2).max_outstanding(0).build(&runtime),
            ordered(&upstream, 1, 2).max_unsent_bytes(0).build(&runtime),
            ordered(&upstream, 1, 0).build(&runtime),
        ] {
            assert!(matches!(refused, Err(BuildError::InvalidSetting { .. })));
        }
    });
}

/// Calls are dropped at every poll, sockets fail in every way, and the others go on.
async fn storm<M>(pool: Pool<Pipelined<Frameworks, M>>, rounds: u64) -> u64
where
    M: corelet::pool::Identify<Frame, Frame>,
{
    let mut random = Random::new();
    let ids = Rc::new(std::cell::Cell::new(0));
    let mut tasks = Vec::new();
    for _ in 0..24 {
        let (pool, mut random, ids) = (pool.clone(), Random::seeded(random.next()), Rc::clone(&ids));
        tasks.push(spawn(async move {
            let session = pool.handle();
            let mut done = 0;
            for _ in 0..rounds {
                let mut lease = session.acquire().await.unwrap();
                for _ in 0..random.below(4) {
                    // Unique, so that a reply that crosses is seen.
                    let asked = frame(ids.replace(ids.get() + 1));
                    let polls = if random.below(3) == 0 { random.below(4) as usize } else { usize::MAX };
                    let cut = if random.below(2) == 0 { Cut::AtOnce } else { Cut::WhenWoken };
                    match cut_off(polls, cut, lease.call(asked)).await {
                        Some(Ok(reply)) => {
                            assert_eq!(reply, asked, "no reply crosses");
                            done += 1;
                        }
                        Some(Err(ExchangeError::Failed(PipelineError::Lost { .. }))) => {
                            assert!(!lease.is_clean());
                            break;
                        }
                        Some(Err(ExchangeError::Dirty)) => break,
                        Some(Err(error)) => panic!("{error}"),
                        None => {}
                    }
                }
            }
            done
        }));
    }
    let mut done = 0;
    for task in tasks {
        done += soon(task).await.unwrap();
    }
    settled(&pool, 0).await;
    soon(pool.close()).await;
    poll_until(async || shard(pool.sockets(), 0).await.connections() == 0).await;
    done
}

/// Serves some requests and then fails, in one of several ways.
fn troubled(
    mut socket: TcpStream,
    number: usize,
    ways: usize,
    serve: impl Fn(&mut TcpStream, usize) -> bool,
) {
    if !serve(&mut socket, 5 + number * 13 % 60) {
        return;
    }
    match number % ways {
        // Closes between two replies.
        0 => {}
        // Closes in the middle of one, with requests behind it.
        1 => {
            let Some(asked) = read_frame(&mut socket) else { return };
            let _ = socket.write_all(&to_bytes(asked)[..1 + number % 15]);
        }
        // Stalls.
        2 => {
            let _ = socket.read_to_end(&mut Vec::new());
        }
        // Says something unasked. Where replies have no ids, it would pass for the reply to a request.
        _ => {
            write_frame(&mut socket, frame(u64::MAX >> 1));
            let _ = socket.read_to_end(&mut Vec::new());
        }
    }
}

#[test]
fn no_reply_crosses_however_calls_are_dropped_and_sockets_fail() {
    let in_order = |socket: &mut TcpStream, frames: usize| {
        for number in 0..frames {
            let Some(asked) = read_frame(socket) else { return false };
            let bytes = to_bytes(asked);
            let pieces = if number % 2 == 0 { 16 } else { 3 };
            for piece in bytes.chunks(pieces) {
                if socket.write_all(piece).is_err() {
                    return false;
                }
            }
        }
        true
    };
    // Two at a time the other way round, if they come together.
    let reversed = |socket: &mut TcpStream, frames: usize| {
        for _ in 0..frames / 2 {
            let Some(first) = read_frame(socket) else { return false };
            socket.set_read_timeout(Some(Duration::from_micros(100))).unwrap();
            let mut peeked = [0; framed::FRAME_SIZE];
            let together = socket.peek(&mut peeked).is_ok_and(|count| count == peeked.len());
            socket.set_read_timeout(None).unwrap();
            let second = if together { read_frame(socket) } else { None };
            for reply in second.into_iter().chain([first]) {
                if !write_frame(socket, reply) {
                    return false;
                }
            }
        }
        true
    };
    let limit = Duration::from_millis(20);
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(move |socket, number| troubled(socket, number, 4, reversed));
        let pool = by_id(&upstream, 3, 4).reply_timeout(limit).max_outstanding(6).build(&runtime).unwrap();
        let done = storm(pool, 100).await;
        println!("by id: {done} calls ended well on {} sockets", upstream.accepted());
        assert!(done > 200 && upstream.accepted() > 20);
    });
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(move |socket, number| troubled(socket, number, 3, in_order));
        let pool =
            ordered(&upstream, 3, 4).reply_timeout(limit).max_unsent_bytes(50).build(&runtime).unwrap();
        let done = storm(pool, 100).await;
        println!("in order: {done} calls ended well on {} sockets", upstream.accepted());
        assert!(done > 200 && upstream.accepted() > 20);
    });
}
