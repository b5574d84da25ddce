//! Accepting when descriptors run out. Each test runs in a child process of its own, whose limit it lowers.
#![allow(missing_docs, unsafe_code, clippy::unwrap_used)]

mod net_support;

use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use corelet::net::TcpListener;
use corelet::runtime::{core_stats, sleep, timeout};
use net_support::*;

const CHILD: &str = "CORELET_TEST_CHILD";

/// Runs `body` in a child process: this test's binary again, told to run this test only.
fn in_a_child(test: &str, body: impl FnOnce()) {
    if std::env::var(CHILD).as_deref() == Ok(test) {
        return body();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "the child ran another test: {out}");
}

/// Forbids further descriptors; gives the limit there was.
fn use_descriptors_up() -> u64 {
    let lowest_free = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read and write the live structure.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = limit.rlim_cur;
        // The limit is on numbers, and the lowest free one is given out first.
        limit.rlim_cur = lowest_free;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}

fn restore(soft: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: as above.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = soft;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}

#[test]
fn accepting_without_free_descriptors_waits_and_recovers() {
    in_a_child("accepting_without_free_descriptors_waits_and_recovers", || {
        run(setups::ordinary(), || async {
            let mut listener = TcpListener::bind(Family::V4.loopback()).unwrap();
            let address = listener.local_addr().unwrap();
            // The client's end is made before there is no room for the server's.
            let client = std::net::TcpStream::connect(address).unwrap();
            let soft = use_descriptors_up();
            let begun = Instant::now();
            let error = listener.accept().await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EMFILE));

            // Asked again and again, it waits longer and longer between two tries: 5 ms, 10, 20 and so on.
            let before = core_stats().unwrap();
            for _ in 0..6 {
                assert_eq!(listener.accept().await.unwrap_err().raw_os_error(), Some(libc::EMFILE));
            }
            let after = core_stats().unwrap();
            assert!(begun.elapsed() >= Duration::from_millis(315), "{:?}", begun.elapsed());
            let entered = after.driver.enters - before.driver.enters;
            assert!(entered < 60, "{entered} kernel entries while there is nothing to gain");

            restore(soft);
            let accepted = listener.accept().await.unwrap();
            assert_eq!(accepted.peer_addr().unwrap(), client.local_addr().unwrap());
            // And at once it is quick again.
            let also = std::net::TcpStream::connect(address).unwrap();
            let begun = Instant::now();
            assert_eq!(listener.accept().await.unwrap().peer_addr().unwrap(), also.local_addr().unwrap());
            assert!(begun.elapsed() < Duration::from_secs(1));
        });
    });
}

/// A caller that waits for something else beside accept drops the future again and again; the wait between two tries
/// is counted from the failure, not from the last call.
#[test]
fn accepts_dropped_while_out_of_descriptors_do_not_put_the_next_try_off() {
    in_a_child("accepts_dropped_while_out_of_descriptors_do_not_put_the_next_try_off", || {
        run(setups::ordinary(), || async {
            let mut listener = TcpListener::bind(Family::V4.loopback()).unwrap();
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let soft = use_descriptors_up();
            for _ in 0..6 {
                assert!(listener.accept().await.is_err());
            }
            restore(soft);
            let begun = Instant::now();
            let accepted = loop {
                if let Ok(accepted) = timeout(Duration::from_millis(1), listener.accept()).await {
                    break accepted.unwrap();
                }
                assert!(begun.elapsed() < Duration::from_secs(2), "accepts no more");
            };
            assert_eq!(accepted.peer_addr().unwrap(), client.local_addr().unwrap());
        });
    });
}

#[test]
fn connecting_without_free_descriptors_is_an_error_and_leaves_nothing() {
    in_a_child("connecting_without_free_descriptors_is_an_error_and_leaves_nothing", || {
        run(setups::ordinary(), || async {
            let listener = TcpListener::bind(Family::V4.loopback()).unwrap();
            let address = listener.local_addr().unwrap();
            let soft = use_descriptors_up();
            let error = corelet::net::TcpStream::connect(address).await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
            assert_eq!(
                TcpListener::bind(Family::V4.loopback()).unwrap_err().raw_os_error(),
                Some(libc::EMFILE)
            );
            restore(soft);
            sleep(Duration::from_millis(1)).await;
            drop(corelet::net::TcpStream::connect(address).await.unwrap());
        });
    });
}
