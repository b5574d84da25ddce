//! Ends of streams: each side on its own, drops, closes, resets.

use std::future::poll_fn;
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::time::Duration;

use corelet::net::{StreamOptions, TcpStream};
use corelet::runtime::{spawn, yield_now};

use crate::net_support::{
    Family, PATIENCE, both, eventually, expect_end, expect_pattern, pair, pattern, poll_times, tcp_pair,
    unix_pair,
};

pub async fn each_side_ends_on_its_own() {
    for family in Family::all() {
        let (mut near, mut far) = pair(family).await;
        near.write_all(pattern(0, 100)).await.0.unwrap();
        near.shutdown(Shutdown::Write).await.unwrap();
        expect_pattern(&mut far, 0, 100).await;
        expect_end(&mut far).await;
        assert!(far.receive().await.unwrap().is_none(), "the end stays the end");
        far.write_all(pattern(0, 50_000)).await.0.unwrap();
        expect_pattern(&mut near, 0, 50_000).await;
        let error = near.write_all(vec![0; 5000]).await.0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        far.shutdown(Shutdown::Both).await.unwrap();
        expect_end(&mut near).await;
    }
}

pub async fn ending_the_reading_side_ends_a_pending_read() {
    for family in Family::all() {
        let (mut near, mut far) = pair(family).await;
        {
            let (mut reading, mut writing) = near.split();
            let (read, ended) =
                both(reading.read(Vec::with_capacity(8)), writing.shutdown(Shutdown::Read)).await;
            ended.unwrap();
            assert_eq!(read.0.unwrap(), 0);
        }
        near.write_all("still here").await.0.unwrap();
        let received = far.receive().await.unwrap().unwrap();
        assert_eq!(&*received, b"still here");
    }
}

pub async fn the_peer_sees_the_end_of_a_dropped_stream() {
    for family in Family::all() {
        // With nothing in flight.
        let (near, mut far) = pair(family).await;
        drop(near);
        expect_end(&mut far).await;
        // With a receive in the kernel.
        let (mut near, mut far) = pair(family).await;
        assert!(poll_times(near.receive(), 3).await.is_none());
        drop(near);
        expect_end(&mut far).await;
        // With a read in the kernel.
        let (mut near, mut far) = pair(family).await;
        assert!(poll_times(near.read(Vec::with_capacity(8)), 3).await.is_none());
        drop(near);
        expect_end(&mut far).await;
        // With a task that reads, stopped.
        let (mut near, mut far) = pair(family).await;
        let reader = spawn(async move { near.receive().await.map(drop) });
        yield_now().await;
        yield_now().await;
        reader.abort();
        assert!(reader.await.unwrap_err().is_cancelled());
        expect_end(&mut far).await;
    }
}

/// The peer is a thread that only reads, so nothing of its doing turns the core.
pub async fn a_stream_dropped_after_a_small_write_ends_though_nothing_else_happens() {
    let listener = std::net::TcpListener::bind(Family::V4.loopback()).unwrap();
    let address = listener.local_addr().unwrap();
    for flushes in [false, true] {
        let (done, heard) = futures_channel::oneshot::channel();
        let listener = listener.try_clone().unwrap();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE / 2)).unwrap();
            let mut all = String::new();
            let read = stream.read_to_string(&mut all);
            // The core may be gone if this was too late.
            let _ = done.send(read.map(|_| all));
        });
        let mut stream = TcpStream::connect(address).await.unwrap();
        if flushes {
            stream.write_all("hello, ").await.0.unwrap();
            stream.flush().await.unwrap();
        }
        stream.write_all("goodbye").await.0.unwrap();
        drop(stream);
        let all = heard.await.unwrap().expect("the end came while the core slept");
        assert_eq!(all, if flushes { "hello, goodbye" } else { "goodbye" });
        peer.join().unwrap();
    }
}

pub async fn the_peer_sees_the_end_of_a_closed_stream() {
    let (mut near, mut far) = tcp_pair(Family::V4).await;
    assert!(poll_times(near.receive(), 3).await.is_none());
    near.write_all(pattern(0, 10)).await.0.unwrap();
    near.close().await;
    expect_pattern(&mut far, 0, 10).await;
    expect_end(&mut far).await;

    let (mut near, mut far) = unix_pair().await;
    assert!(poll_times(near.read(Vec::with_capacity(8)), 3).await.is_none());
    near.close().await;
    expect_end(&mut far).await;
}

pub async fn a_write_that_failed_late_is_told_by_a_later_operation() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    stream.write_all("a").await.0.unwrap();
    stream.flush().await.unwrap();
    peer.read_exact(&mut [0]).unwrap();
    // A peer that closes with bytes unread resets the connection.
    stream.write_all("b").await.0.unwrap();
    stream.flush().await.unwrap();
    drop(peer);
    // The first write may still be taken before the reset is seen; the error comes, and stays.
    let error = loop {
        if let Err(error) = stream.write_all("c").await.0 {
            break error;
        }
        if let Err(error) = stream.flush().await {
            break error;
        }
    };
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
    assert!(stream.write_all("d").await.0.is_err());
    assert!(stream.flush().await.is_err());
    assert!(stream.read(Vec::with_capacity(1)).await.0.is_err());
    assert!(!stream.is_quiet());
    stream.close().await;
}

/// Several arrivals of one armed receive, the first half read, are all there after it was ended.
pub async fn unread_bytes_survive_the_end_of_an_armed_receive() {
    for family in Family::all() {
        let (mut near, mut far) = pair(family).await;
        assert!(poll_times(far.receive(), 3).await.is_none());
        near.write_all(pattern(0, 10)).await.0.unwrap();
        near.flush().await.unwrap();
        eventually("the first arrival", || !far.is_quiet()).await;
        let (count, buffer) = far.read(Vec::with_capacity(1)).await;
        assert_eq!((count.unwrap(), buffer[0]), (1, pattern(0, 1)[0]));
        for at in [10, 20, 30] {
            near.write_all(pattern(at, 10)).await.0.unwrap();
            near.flush().await.unwrap();
            for _ in 0..5 {
                yield_now().await;
            }
        }
        poll_fn(|cx| far.poll_quiesce(cx)).await.unwrap();
        assert!(!far.is_quiet(), "there are unread bytes");
        expect_pattern(&mut far, 1, 39).await;
    }
}

/// What stays armed has to be ended before a stream can leave its core; once that has held it up, nothing stays armed.
pub async fn a_stream_that_has_to_travel_is_held_up_by_an_armed_receive_once() {
    let (mut near, far) = tcp_pair(Family::V4).await;
    // Before it has ever received nothing holds it up.
    let mut far = TcpStream::from(far.detach().unwrap().attach());
    let mut held_up = 0;
    for at in (0..50).step_by(10) {
        near.write_all(pattern(at, 10)).await.0.unwrap();
        let received = far.receive().await.unwrap().unwrap();
        assert_eq!(received[..], pattern(at, 10));
        drop(received);
        let detached = match far.detach() {
            Ok(detached) => detached,
            Err(mut stream) => {
                held_up += 1;
                poll_fn(|cx| stream.poll_quiesce(cx)).await.unwrap();
                stream.detach().unwrap()
            }
        };
        far = TcpStream::from(detached.attach());
    }
    assert!(held_up <= 1, "{held_up} times");
}

/// Whether the receive that is being ended for it stays armed, as at first, or is a single one, as after that.
pub async fn a_departure_that_is_given_up_costs_no_receive() {
    let (mut near, mut far) = tcp_pair(Family::V4).await;
    for at in (0..30).step_by(10) {
        assert!(poll_times(far.receive(), 3).await.is_none());
        assert!(poll_times(poll_fn(|cx| far.poll_quiesce(cx)), 1).await.is_none_or(|ended| ended.is_ok()));
        near.write_all(pattern(at, 10)).await.0.unwrap();
        let received = far.receive().await.unwrap().unwrap();
        assert_eq!(received[..], pattern(at, 10));
    }
}

/// Closing must not wait for the peer, so only the linger time that waits for nothing is taken.
pub async fn closing_lingers_for_no_time() {
    let (near, mut far) = tcp_pair(Family::V4).await;
    let linger = |time| StreamOptions { linger: Some(time), ..StreamOptions::default() };
    let error = near.set_options(&linger(Duration::from_secs(1))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    near.set_options(&linger(Duration::ZERO)).unwrap();
    drop(near);
    let (count, _) = far.read(Vec::with_capacity(1)).await;
    assert_eq!(count.unwrap_err().kind(), ErrorKind::ConnectionReset);
}
