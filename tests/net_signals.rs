//! A storm of signals disturbs no transfer. It has a binary of its own, because its handler is the process's.
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

/// Signals the thread that begins it every 50 microseconds while it lives, with system calls not restarted.
struct Storm(libc::timer_t);

impl Storm {
    fn begin() -> Storm {
        // SAFETY: every structure is fully written before it is read, zero being a valid start for all of them; the
        // handler only adds to an atomic.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
            assert_eq!(libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()), 0);

            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGALRM;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = std::mem::zeroed();
            assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer), 0);

            let every = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
            let settings = libc::itimerspec { it_interval: every, it_value: every };
            assert_eq!(libc::timer_settime(timer, 0, &raw const settings, std::ptr::null_mut()), 0);
            Storm(timer)
        }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        // SAFETY: the timer was made by `begin` and is deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

#[test]
fn a_storm_of_signals_disturbs_no_transfer() {
    const TOTAL: usize = 1 << 20;
    for setup in [setups::ordinary(), setups::tiny_ring()] {
        run(setup, || async {
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
            eventually("a kernel entry is interrupted", || core_stats().unwrap().driver.retried_enters > 0)
                .await;
            drop(storm);
            assert!(SIGNALS.load(Ordering::Relaxed) > before + 50, "there was no storm");
        });
    }
}
