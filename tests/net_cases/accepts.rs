//! Accepting, and cancelling.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use corelet::net::{ListenerOptions, TcpListener, TcpStream};
use corelet::runtime::yield_now;

use crate::net_support::{
    Family, Random, eventually, expect_gone, expect_pattern, pair, pattern, poll_times,
};

/// Clients on a thread of their own; each sends its number and waits for the end.
fn clients(address: SocketAddr, count: u32) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for number in 0..count {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(&number.to_le_bytes()).unwrap();
        }
    })
}

async fn number_of(stream: &mut TcpStream) -> u32 {
    let mut bytes = Vec::with_capacity(4);
    while bytes.len() < 4 {
        let count;
        (count, bytes) = stream.read(bytes).await;
        assert_ne!(count.unwrap(), 0);
    }
    u32::from_le_bytes(bytes.try_into().unwrap())
}

pub async fn one_listener_accepts_thousands() {
    const COUNT: u32 = 2000;
    let mut listener = TcpListener::bind(Family::V4.loopback()).unwrap();
    let clients = clients(listener.local_addr().unwrap(), COUNT);
    let mut seen = BTreeSet::new();
    for _ in 0..COUNT {
        seen.insert(number_of(&mut listener.accept().await.unwrap()).await);
    }
    assert_eq!(seen.len(), COUNT as usize, "each of them once");
    clients.join().unwrap();
}

pub async fn a_dropped_accept_loses_no_connection() {
    const COUNT: u32 = 300;
    let mut listener = TcpListener::bind(Family::V4.loopback()).unwrap();
    let clients = clients(listener.local_addr().unwrap(), COUNT);
    let mut random = Random::logged("the drops");
    let mut seen = BTreeSet::new();
    while seen.len() < COUNT as usize {
        match poll_times(listener.accept(), random.below(4) as usize).await {
            Some(stream) => {
                assert!(seen.insert(number_of(&mut stream.unwrap()).await), "given twice");
            }
            None => yield_now().await,
        }
    }
    clients.join().unwrap();
}

pub async fn connections_nobody_took_are_closed_with_their_listener() {
    for armed in [false, true] {
        let mut listener = TcpListener::bind(Family::V4.loopback()).unwrap();
        let address = listener.local_addr().unwrap();
        if armed {
            assert!(poll_times(listener.accept(), 2).await.is_none());
        }
        let mut streams = Vec::new();
        for _ in 0..20 {
            streams.push(TcpStream::connect(address).await.unwrap());
        }
        // Some are with the listener by now, others still in the kernel's queue.
        drop(listener);
        for stream in &mut streams {
            expect_gone(stream).await;
        }
    }
}

/// A server that does not accept leaves its clients waiting. It must not run out of descriptors over them.
pub async fn a_listener_draws_in_a_bounded_number_of_connections() {
    const BACKLOG: u32 = 16;
    const MANY: usize = 1000;
    let options = ListenerOptions { backlog: BACKLOG, ..ListenerOptions::default() };
    let mut listener = TcpListener::bind_with(Family::V4.loopback(), options).unwrap();
    let address = listener.local_addr().unwrap();
    assert!(poll_times(listener.accept(), 2).await.is_none());
    let clients = std::thread::spawn(move || {
        // A burst may fill the backlog for a moment; only several failures in a row mean that nobody takes any more.
        let (mut streams, mut failures) = (Vec::new(), 0);
        while streams.len() < MANY && failures < 5 {
            match std::net::TcpStream::connect_timeout(&address, Duration::from_millis(20)) {
                Ok(stream) => {
                    streams.push(stream);
                    failures = 0;
                }
                Err(_) => failures += 1,
            }
        }
        streams
    });
    eventually("no client gets in any more", || clients.is_finished()).await;
    let clients = clients.join().unwrap();
    assert!(clients.len() < MANY / 2, "{} connections that nobody asked for", clients.len());
    let mut waiting: BTreeSet<_> = clients.iter().map(|client| client.local_addr().unwrap()).collect();
    while !waiting.is_empty() {
        waiting.remove(&listener.accept().await.unwrap().peer_addr().unwrap());
    }
}

/// An operation that ended by itself while it was being cancelled leaves a cancel behind, which finds its place in the
/// table taken by the next operation.
pub async fn a_cancel_ends_its_own_operation_only() {
    for family in Family::all() {
        let (mut near, mut far) = pair(family).await;
        let mut random = Random::logged("the drops");
        for _ in 0..300 {
            // Taken by the read that is dropped, or, when that was cancelled first, by the next one.
            let read = far.read(Vec::with_capacity(1));
            let polls = random.below(3) as usize;
            let (dropped, written) =
                crate::net_support::both(poll_times(read, polls), near.write_all("x")).await;
            written.0.unwrap();
            near.write_all(pattern(0, 4)).await.0.unwrap();
            near.flush().await.unwrap();
            if dropped.is_some() {
                expect_pattern(&mut far, 0, 4).await;
                continue;
            }
            // Whatever the dropped read took, this one is not cancelled.
            let (count, mut got) = far.read(Vec::with_capacity(64)).await;
            count.unwrap();
            while got.last() != pattern(0, 4).last() {
                let count;
                (count, got) = far.read(got).await;
                assert_ne!(count.unwrap(), 0);
            }
        }
    }
}
