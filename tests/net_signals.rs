//! A storm of signals disturbs no transfer. It has a binary of its own, because it hits every thread of the process.
#![allow(missing_docs, unsafe_code, clippy::unwrap_used)]

mod net_support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corelet::runtime::{core_stats, sleep, spawn};
use net_support::*;

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_signal: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Signals every 50 microseconds while it lives, with system calls not restarted.
struct Storm;

impl Storm {
    fn begin() -> Storm {
        // SAFETY: the action is fully written before it is used, and the handler only adds to an atomic.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
            assert_eq!(libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()), 0);
        }
        Storm::set(50);
        Storm
    }

    fn set(micros: i64) {
        let every = libc::timeval { tv_sec: 0, tv_usec: micros };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        // SAFETY: reads a live structure, and is to report nothing.
        assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) }, 0);
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        Storm::set(0);
    }
}

/// Keeps the storm off the calling thread, so that the core's own thread takes it.
fn shelter() {
    // SAFETY: the set is initialised by the first call and lives across the others.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()), 0);
    }
}

/// Lets the storm onto the calling thread.
fn expose() {
    // SAFETY: as above.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        assert_eq!(libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()), 0);
    }
}

#[test]
fn a_storm_of_signals_disturbs_no_transfer() {
    const TOTAL: usize = 4 << 20;
    shelter();
    for setup in [setups::ordinary(), setups::tiny_ring()] {
        run(setup, || async {
            expose();
            let storm = Storm::begin();
            let before = SIGNALS.load(Ordering::Relaxed);
            for family in Family::all() {
                let (mut near, mut far) = narrow_pair(family).await;
                let writer = spawn(async move {
                    let mut at = 0;
                    while at < TOTAL {
                        let len = (1 + at % 9000).min(TOTAL - at);
                        near.write_all(pattern(at, len)).await.0.unwrap();
                        at += len;
                    }
                });
                expect_pattern(&mut far, 0, TOTAL).await;
                expect_end(&mut far).await;
                writer.await.unwrap();
            }
            // Interrupted sleeps last as long as they should.
            let begun = std::time::Instant::now();
            sleep(Duration::from_millis(20)).await;
            assert!(begun.elapsed() >= Duration::from_millis(20));
            drop(storm);
            shelter();
            assert!(SIGNALS.load(Ordering::Relaxed) > before + 50, "there was no storm");
            assert!(core_stats().unwrap().driver.retried_enters > 0, "no kernel entry was interrupted");
        });
    }
}
