//! Sockets on a core that somebody else's loop drives: it waits for the core's descriptor and knows nothing else.
#![allow(missing_docs, unsafe_code, clippy::unwrap_used)]

mod net_support;

use std::cell::Cell;
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use corelet::net::{StreamOptions, TcpStream};
use corelet::runtime::{Core, RuntimeBuilder, timeout};
use net_support::*;

fn guest(builder: RuntimeBuilder) -> Core {
    let (_, guests) = builder.build_guests().unwrap();
    guests.into_iter().next().unwrap().start().unwrap()
}

/// The host's loop: turns the core, and sleeps until its descriptor or its deadline calls.
fn drive(core: &mut Core, mut over: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !over() {
        assert!(begun.elapsed() < PATIENCE / 2, "the core slept through it");
        if core.turn().unwrap() {
            continue;
        }
        if over() {
            return;
        }
        let limit =
            core.next_deadline().map_or(PATIENCE / 2, |at| at.saturating_duration_since(Instant::now()));
        let mut poll =
            libc::pollfd { fd: core.event_fd().unwrap().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live entry, as announced; the descriptor is borrowed from the core.
        unsafe { libc::poll(&raw mut poll, 1, limit.as_millis() as i32 + 1) };
    }
}

/// A loopback address of this test alone: programs that run beside it open thousands of connections between the ports of
/// the usual one, and the kernel may still remember one of the same two ports.
fn lonely_address() -> Ipv4Addr {
    static CALLS: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high | 1, low, CALLS.fetch_add(1, Ordering::Relaxed))
}

/// A posted write finds the socket full, and goes on when the peer reads. Nothing else happens on the core.
fn a_stuck_posted_write_goes_on(builder: fn() -> RuntimeBuilder) {
    within(PATIENCE, move || {
        let mut core = guest(builder());
        core.event_fd().unwrap();
        let listener = std::net::TcpListener::bind((lonely_address(), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (full, written, flushed) =
            (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let task = core.spawn({
            let (full, written, flushed) = (Rc::clone(&full), Rc::clone(&written), Rc::clone(&flushed));
            async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                let narrow = StreamOptions { send_buffer: Some(8192), ..StreamOptions::default() };
                stream.set_options(&narrow).unwrap();
                let mut at = 0;
                while let Ok(result) =
                    timeout(Duration::from_millis(30), stream.write(pattern(at, 100_000))).await
                {
                    at += result.0.unwrap();
                }
                stream.write_all(pattern(at, 4096)).await.0.unwrap();
                written.set(at + 4096);
                full.set(true);
                stream.flush().await.unwrap();
                flushed.set(true);
            }
        });
        drive(&mut core, || full.get());
        let (mut peer, _) = listener.accept().unwrap();
        let expected = written.get();
        let reader = std::thread::spawn(move || {
            // By now the host sleeps.
            std::thread::sleep(Duration::from_millis(50));
            let mut all = vec![0; expected];
            peer.read_exact(&mut all).unwrap();
            assert_pattern(0, &all);
        });
        drive(&mut core, || flushed.get());
        reader.join().unwrap();
        drop(task);
    });
}

#[test]
fn a_stuck_posted_write_goes_on_when_the_peer_reads() {
    a_stuck_posted_write_goes_on(setups::ordinary);
}

#[test]
fn a_stuck_posted_write_goes_on_over_a_tiny_ring() {
    a_stuck_posted_write_goes_on(setups::tiny_ring);
}

#[test]
fn a_stuck_posted_write_goes_on_with_a_troubled_kernel() {
    a_stuck_posted_write_goes_on(setups::troubled_tiny_ring);
}

#[test]
fn an_echo_goes_on_with_a_troubled_kernel() {
    within(PATIENCE, || {
        let mut core = guest(setups::troubled_tiny_ring());
        let task = core.spawn(async {
            let (mut near, mut far) = pair(Family::V4).await;
            for round in 0..200 {
                near.write_all(pattern(round, 100)).await.0.unwrap();
                expect_pattern(&mut far, round, 100).await;
                far.write_all(pattern(round, 5000)).await.0.unwrap();
                expect_pattern(&mut near, round, 5000).await;
            }
        });
        drive(&mut core, || task.is_finished());
    });
}
