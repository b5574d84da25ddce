//! A framed connection goes to its next user only when every reply was received, and its errors say whether the request
//! was sent.
#![cfg(feature = "framed")]
#![allow(missing_docs, clippy::unwrap_used)]

mod framed;
mod support;

use std::io::{self, Read, Write};
use std::time::Duration;

use bytes::Bytes;
use corelet::net::TcpStream;
use corelet::pool::{
    CloseReason, Connection, ExchangeError, FramedConnection, FramedConnector, FramedError, Lease, Pool,
    TcpConnector, UnixConnector,
};
use corelet::runtime::{RuntimeHandle, timeout};
use framed::{Frame, Frames, REFUSED, drip_frames, echo_frames, frame, read_frame, to_bytes, write_frame};
use support::{Cut, Random, Upstream, assert_settled, cut_off, on_cores, poll_until, shard, soon};
use tokio_util::codec::LengthDelimitedCodec;

type Connected = FramedConnection<TcpStream, Frames>;
type Frameworks = FramedConnector<TcpConnector, fn() -> Frames>;

fn pool(upstream: &Upstream, slots: usize, runtime: &RuntimeHandle) -> Pool<Frameworks> {
    let connector = FramedConnector::new(TcpConnector::new(upstream.address), (|| Frames) as fn() -> Frames);
    Pool::builder(connector).slots_per_core(slots).build(runtime).unwrap()
}

fn failure<T: std::fmt::Debug>(
    result: Result<T, ExchangeError<FramedError<io::Error>>>,
) -> FramedError<io::Error> {
    result.unwrap_err().into_inner().unwrap()
}

/// The connection is not used again.
async fn assert_discarded(pool: &Pool<Frameworks>, lease: Lease<Frameworks>, discards: u64) {
    assert!(!lease.is_clean());
    drop(lease);
    poll_until(async || shard(pool, 0).await.closed_for(CloseReason::Dirty) == discards).await;
}

#[test]
fn calls_on_one_connection_get_their_own_replies() {
    on_cores(1, async move |runtime, _| {
        for serve in [echo_frames, drip_frames] {
            let upstream = Upstream::start(serve);
            let pool = pool(&upstream, 1, &runtime);
            for id in 0..100 {
                let mut lease = pool.acquire().await.unwrap();
                assert_eq!(lease.call(frame(id)).await.unwrap(), frame(id));
                assert_eq!(lease.call_correlated(frame(id + 1)).await.unwrap(), frame(id + 1));
                assert!(lease.is_clean());
            }
            let stats = shard(&pool, 0).await;
            assert_eq!(stats.opens, 1);
            assert_settled(&stats);
            pool.close().await;
        }
    });
}

#[test]
fn a_request_whose_reply_was_not_received_costs_the_connection_although_nothing_failed() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(echo_frames);
        let pool = pool(&upstream, 1, &runtime);
        let mut lease = pool.acquire().await.unwrap();
        lease
            .exchange(async |connection: &mut Connected| {
                connection.send(frame(1)).await?;
                connection.send(frame(2)).await?;
                assert_eq!(connection.outstanding(), 2);
                assert_eq!(connection.receive().await?, frame(1));
                Ok::<_, FramedError<_>>(())
            })
            .await
            .unwrap();
        assert!(matches!(lease.call(frame(3)).await, Err(ExchangeError::Dirty)));
        assert_discarded(&pool, lease, 1).await;
        let mut lease = pool.acquire().await.unwrap();
        assert_eq!(lease.call(frame(4)).await.unwrap(), frame(4));
        drop(lease);
        pool.close().await;
    });
}

#[test]
fn a_call_does_not_take_the_reply_to_an_earlier_request() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(echo_frames);
        let pool = pool(&upstream, 1, &runtime);
        let mut lease = pool.acquire().await.unwrap();
        lease
            .exchange(async |connection: &mut Connected| {
                let nothing = connection.receive().await.unwrap_err();
                assert!(matches!(nothing, FramedError::NothingOutstanding));
                connection.send(frame(1)).await?;
                let refused = connection.call(frame(2)).await.unwrap_err();
                assert!(matches!(refused, FramedError::Outstanding { replies: 1 }) && refused.is_unsent());
                assert_eq!(connection.receive().await?, frame(1));
                assert_eq!(connection.call(frame(3)).await?, frame(3));
                Ok::<_, FramedError<_>>(())
            })
            .await
            .unwrap();
        assert!(lease.is_clean(), "what was refused has changed nothing");
        drop(lease);
        pool.close().await;
    });
}

#[test]
fn a_reply_to_another_request_is_a_typed_error_and_costs_the_connection() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(|mut socket, _| {
            while let Some(asked) = read_frame(&mut socket) {
                write_frame(&mut socket, frame(asked.id ^ 1));
            }
        });
        let pool = pool(&upstream, 1, &runtime);
        let mut lease = pool.acquire().await.unwrap();
        let wrong = failure(lease.call_correlated(frame(4)).await);
        assert!(matches!(wrong, FramedError::WrongReply) && !wrong.is_unsent());
        assert_discarded(&pool, lease, 1).await;
        // Also if the exchange overlooks it.
        let mut lease = pool.acquire().await.unwrap();
        lease
            .exchange(async |connection: &mut Connected| {
                connection.call_correlated(frame(4)).await.unwrap_err();
                Ok::<_, ()>(())
            })
            .await
            .unwrap();
        assert_discarded(&pool, lease, 2).await;
        pool.close().await;
    });
}

#[test]
fn a_frame_too_many_costs_the_connection() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(|mut socket, _| {
            while let Some(asked) = read_frame(&mut socket) {
                let twice = [to_bytes(asked), to_bytes(asked)].concat();
                socket.write_all(&twice[..20]).unwrap();
            }
        });
        let pool = pool(&upstream, 1, &runtime);
        let mut lease = pool.acquire().await.unwrap();
        assert_eq!(lease.call(frame(1)).await.unwrap(), frame(1));
        assert_discarded(&pool, lease, 1).await;
        pool.close().await;
    });
}

#[test]
fn errors_of_the_codec_are_told_apart_and_an_unencoded_request_was_not_sent() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(|mut socket, _| {
            while let Some(asked) = read_frame(&mut socket) {
                write_frame(&mut socket, Frame { id: asked.id, value: REFUSED });
            }
        });
        let pool = pool(&upstream, 1, &runtime);
        let mut lease = pool.acquire().await.unwrap();
        let failed = failure(lease.call(Frame { id: 1, value: REFUSED }).await);
        assert!(matches!(failed, FramedError::Encode(_)) && failed.is_unsent() && !failed.is_retryable());
        drop(lease);
        let mut lease = soon(pool.acquire()).await.unwrap();
        let failed = failure(lease.call(frame(1)).await);
        assert!(matches!(failed, FramedError::Decode(_)) && !failed.is_unsent());
        drop(lease);
        pool.close().await;
    });
}

#[test]
fn a_peer_that_closes_within_a_frame_is_told_from_one_that_closes_before_it() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(|mut socket, number| {
            let Some(asked) = read_frame(&mut socket) else { return };
            socket.write_all(&to_bytes(asked)[..if number == 0 { 7 } else { 0 }]).unwrap();
        });
        let pool = pool(&upstream, 1, &runtime);
        let mut lease = pool.acquire().await.unwrap();
        let failed = failure(soon(lease.call(frame(1))).await);
        assert!(matches!(failed, FramedError::ClosedMidFrame) && !failed.is_unsent());
        drop(lease);
        let mut lease = soon(pool.acquire()).await.unwrap();
        let failed = failure(soon(lease.call(frame(2))).await);
        assert!(matches!(failed, FramedError::Closed { sent: true }) && !failed.is_retryable());
        drop(lease);
        pool.close().await;
    });
}

/// The server closes an idle connection just when it is used again.
#[test]
fn a_call_on_a_connection_that_was_closed_before_it_was_not_sent_and_may_be_made_again() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(echo_frames);
        let pool = pool(&upstream, 1, &runtime);
        drop(soon(pool.acquire()).await.unwrap());
        poll_until(async || shard(&pool, 0).await.idle == 1).await;
        let mut lease = pool.acquire().await.unwrap();
        let failed = lease
            .exchange(async |connection: &mut Connected| {
                poll_until(async || upstream.accepted() == 1).await;
                upstream.hang_up();
                poll_until(async || !connection.is_quiet()).await;
                connection.call(frame(1)).await
            })
            .await;
        let failed = failure(failed);
        assert!(matches!(failed, FramedError::Closed { sent: false }), "{failed}");
        assert!(failed.is_unsent() && failed.is_retryable());
        drop(lease);
        let mut again = soon(pool.acquire()).await.unwrap();
        assert_eq!(again.call(frame(1)).await.unwrap(), frame(1));
        drop(again);
        pool.close().await;
    });
}

/// Nothing is armed between two calls of one exchange, so that the send itself has to find out.
#[test]
fn a_request_that_the_kernel_refused_was_not_sent() {
    on_cores(1, async move |runtime, _| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let connector =
            FramedConnector::new(TcpConnector::new(listener.local_addr().unwrap()), (|| Frames) as fn() -> _);
        let (reset, wait) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let asked = read_frame(&mut socket).unwrap();
            write_frame(&mut socket, asked);
            wait.recv().unwrap();
            socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
        });
        let pool: Pool<Frameworks> = Pool::builder(connector).slots_per_core(1).build(&runtime).unwrap();
        let mut lease = pool.acquire().await.unwrap();
        let failed = lease
            .exchange(async |connection: &mut Connected| {
                connection.call(frame(1)).await?;
                reset.send(()).unwrap();
                poll_until(async || server.is_finished()).await;
                connection.call(frame(2)).await
            })
            .await;
        let failed = failure(failed);
        assert!(matches!(failed, FramedError::Io { sent: false, .. } | FramedError::Closed { sent: false }));
        assert!(failed.is_retryable());
        drop(lease);
        pool.close().await;
    });
}

#[test]
fn a_dropped_call_costs_the_connection_wherever_it_is_dropped_and_no_reply_crosses() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(drip_frames);
        let pool = pool(&upstream, 2, &runtime);
        let mut random = Random::new();
        let mut finished = 0;
        for id in 0..500 {
            let mut lease = soon(pool.acquire()).await.unwrap();
            let cut = if random.below(2) == 0 { Cut::AtOnce } else { Cut::WhenWoken };
            let polls = random.below(6) as usize;
            match cut_off(polls, cut, lease.call(frame(id))).await {
                Some(reply) => {
                    finished += 1;
                    assert_eq!(reply.unwrap(), frame(id));
                }
                None => assert!(polls == 0 || !lease.is_clean()),
            }
        }
        println!("{finished} calls were left to finish");
        poll_until(async || shard(&pool, 0).await.closing == 0).await;
        assert_settled(&shard(&pool, 0).await);
        pool.close().await;
    });
}

#[test]
fn a_framed_connection_moves_to_another_core_with_its_codec() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::start(echo_frames);
        let pool = pool(&upstream, 1, &runtime);
        for core in cores {
            let session = pool.handle_on(core).unwrap();
            let mut lease = soon(session.acquire()).await.unwrap();
            assert_eq!(lease.call(frame(1)).await.unwrap(), frame(1));
        }
        pool.close().await;
    });
}

#[test]
fn frames_larger_than_a_buffer_arrive_whole_and_larger_than_the_codec_allows_are_refused() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let codec = || LengthDelimitedCodec::builder().max_frame_length(1 << 20).new_codec();
        let connector = FramedConnector::new(TcpConnector::new(upstream.address), codec);
        let pool = Pool::builder(connector).slots_per_core(1).build(&runtime).unwrap();
        let mut lease = pool.acquire().await.unwrap();
        for size in [0, 1, 4092, 4093, 5000, 70_000] {
            let large = Bytes::from((0..size).map(|at| at as u8).collect::<Vec<_>>());
            assert_eq!(soon(lease.call(large.clone())).await.unwrap(), large);
        }
        assert!(lease.is_clean());
        let refused =
            lease.call(Bytes::from(vec![0; (1 << 20) + 1])).await.unwrap_err().into_inner().unwrap();
        assert!(matches!(refused, FramedError::Encode(_)));
        drop(lease);
        pool.close().await;
    });
}

#[test]
fn a_call_that_times_out_costs_the_connection_and_the_next_one_gets_its_own_reply() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(|mut socket, number| {
            if number == 0 {
                let first = read_frame(&mut socket).unwrap();
                // Answers when the client has gone.
                while let Ok(1..) = socket.read(&mut [0]) {}
                write_frame(&mut socket, first);
            } else {
                echo_frames(socket, number);
            }
        });
        let pool = pool(&upstream, 1, &runtime);
        let mut lease = pool.acquire().await.unwrap();
        timeout(Duration::from_millis(5), lease.call(frame(1))).await.unwrap_err();
        drop(lease);
        let mut lease = soon(pool.acquire()).await.unwrap();
        assert_eq!(lease.call(frame(2)).await.unwrap(), frame(2));
        drop(lease);
        pool.close().await;
    });
}

#[test]
fn unix_sockets_are_framed_as_well() {
    on_cores(1, async move |runtime, _| {
        let path = std::env::temp_dir().join(format!("corelet-framed-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut bytes = [0; framed::FRAME_SIZE];
            while socket.read_exact(&mut bytes).is_ok() {
                socket.write_all(&bytes).unwrap();
            }
        });
        let connector = FramedConnector::new(UnixConnector::new(&path), || Frames);
        let pool = Pool::builder(connector).slots_per_core(1).build(&runtime).unwrap();
        let mut lease = soon(pool.acquire()).await.unwrap();
        assert_eq!(lease.call(frame(1)).await.unwrap(), frame(1));
        drop(lease);
        pool.close().await;
        server.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    });
}
