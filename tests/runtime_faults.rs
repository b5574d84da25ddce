//! Whatever a kernel entry answers, everything still completes: errors, interruptions, short submits, early returns, and
//! rings so small that nothing fits.
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

mod common;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use common::{PATIENCE, cores, wait_for, within};
use corelet::net::{TcpListener, TcpStream};
use corelet::runtime::{
    CoreId, EnterCall, EnterHook, RuntimeBuilder, current_core, handle, sleep, spawn, timeout, yield_now,
};
use futures_channel::oneshot;

/// A stream of numbers that every run repeats (splitmix64, Steele et al., 2014).
struct Draw(AtomicU64);

impl Draw {
    fn new(seed: u64) -> Draw {
        Draw(AtomicU64::new(seed))
    }

    fn below(&self, limit: u64) -> u64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// A bit of everything, between two cores and a foreign thread.
fn workload(builder: RuntimeBuilder) {
    within(PATIENCE, || {
        let runtime = builder.build().unwrap();
        let ids = runtime.cores();
        let results = runtime.run(move || {
            let ids = ids.clone();
            async move {
                let other = if current_core() == Some(ids[0]) { ids[1] } else { ids[0] };
                let parts = [spawn(timers()), spawn(hops(other)), spawn(replies()), spawn(sockets())];
                for part in parts {
                    part.await.unwrap();
                }
                spawn(pending::<()>()).detach();
            }
        });
        assert_eq!(results.unwrap().len(), 2);
    });
}

async fn timers() {
    let naps: Vec<_> = (0..50_u64).map(|nap| spawn(sleep(Duration::from_micros(nap * 50)))).collect();
    for nap in naps {
        nap.await.unwrap();
    }
    assert!(timeout(Duration::from_millis(1), pending::<()>()).await.is_err());
}

async fn hops(other: CoreId) {
    for number in 0..50 {
        let there = handle().spawn_on(other, move || async move {
            yield_now().await;
            number
        });
        assert_eq!(there.unwrap().await.unwrap(), number);
    }
}

async fn replies() {
    for number in 0..20 {
        let (send, receive) = oneshot::channel();
        let thread = std::thread::spawn(move || send.send(number));
        assert_eq!(receive.await, Ok(number));
        thread.join().unwrap().unwrap();
    }
}

async fn sockets() {
    let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let clients: Vec<_> = (0..8_u8)
        .map(|client| {
            spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                for _ in 0..10 {
                    stream.write_all(vec![client; 3000]).await.0.unwrap();
                    let mut got = 0;
                    while got < 3000 {
                        let received = stream.receive().await.unwrap().unwrap();
                        assert!(received.iter().all(|byte| *byte == client));
                        got += received.len();
                    }
                }
            })
        })
        .collect();
    let servers: Vec<_> = {
        let mut servers = Vec::new();
        for _ in 0..clients.len() {
            let mut peer = listener.accept().await.unwrap();
            servers.push(spawn(async move {
                while let Some(received) = peer.receive().await.unwrap() {
                    peer.write_all(received.to_vec()).await.0.unwrap();
                }
            }));
        }
        servers
    };
    for task in clients.into_iter().chain(servers) {
        task.await.unwrap();
    }
}

fn tiny(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.submission_entries(1).completion_entries(2).receive_buffers(2, 64)
}

/// Runs the workload with a hook on rings of the usual size, and on the smallest.
fn workload_with(hook: impl Fn(&Draw, &mut EnterCall) -> Option<i32> + Send + Sync + Copy + 'static) {
    for (seed, small) in [(1, false), (2, true), (3, false), (4, true)] {
        let draw = Draw::new(seed);
        let builder = cores(2).enter_hook(EnterHook::new(move |call| hook(&draw, call)));
        workload(if small { tiny(builder) } else { builder });
    }
}

#[test]
fn everything_completes_undisturbed() {
    workload(cores(2));
}

#[test]
fn everything_completes_on_the_smallest_ring() {
    workload(tiny(cores(2)));
    workload(tiny(cores(2)).busy_poll(Duration::from_micros(100)));
}

#[test]
fn everything_completes_although_entries_fail_now_and_then() {
    workload_with(|draw, _| {
        let errors = [libc::EBUSY, libc::EAGAIN, libc::EINTR];
        (draw.below(3) == 0).then(|| errors[draw.below(3) as usize])
    });
}

#[test]
fn everything_completes_although_most_entries_fail() {
    for errno in [libc::EBUSY, libc::EAGAIN, libc::EINTR] {
        let draw = Draw::new(errno as u64);
        let hook = EnterHook::new(move |_| (draw.below(10) != 0).then_some(errno));
        workload(tiny(cores(2).enter_hook(hook)));
    }
}

#[test]
fn everything_completes_although_the_first_thousand_entries_fail() {
    let calls = AtomicU64::new(0);
    let hook =
        EnterHook::new(move |_| (calls.fetch_add(1, Ordering::Relaxed) < 1000).then_some(libc::EAGAIN));
    workload(cores(2).enter_hook(hook));
}

#[test]
fn everything_completes_although_the_kernel_takes_fewer_entries_than_offered() {
    workload_with(|draw, call| {
        call.to_submit = draw.below(u64::from(call.to_submit) + 1) as u32;
        None
    });
    workload_with(|_, call| {
        call.to_submit = call.to_submit.min(1);
        None
    });
}

#[test]
fn everything_completes_although_waits_end_early() {
    workload_with(|draw, call| {
        if draw.below(2) == 0 {
            call.min_complete = 0;
        }
        None
    });
}

#[test]
fn everything_completes_although_all_of_this_happens_at_once() {
    workload_with(|draw, call| match draw.below(6) {
        0 => Some(libc::EBUSY),
        1 => Some(libc::EINTR),
        2 => {
            call.to_submit = call.to_submit.saturating_sub(1);
            None
        }
        3 => {
            call.min_complete = 0;
            None
        }
        _ => None,
    });
}

#[test]
fn failed_entries_are_counted() {
    let failing = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&failing);
    let hook = EnterHook::new(move |_| switch.load(Ordering::Relaxed).then_some(libc::EINTR));
    let (_handle, mut guests) = cores(1).enter_hook(hook).build_guests().unwrap();
    let mut core = guests.remove(0).start().unwrap();
    core.block_on(async { sleep(Duration::from_millis(1)).await }).unwrap();
    assert_eq!(core.stats().driver.retried_enters, 0);
    failing.store(true, Ordering::Relaxed);
    for _ in 0..5 {
        core.park(Some(Duration::from_millis(1))).unwrap();
    }
    failing.store(false, Ordering::Relaxed);
    assert_eq!(core.stats().driver.retried_enters, 5);
}

#[test]
fn a_ring_that_breaks_ends_its_core_and_cancels_its_tasks() {
    within(PATIENCE, || {
        let broken = Arc::new(AtomicBool::new(false));
        let switch = Arc::clone(&broken);
        let hook = EnterHook::new(move |_| switch.load(Ordering::Relaxed).then_some(libc::EIO));
        let runtime = cores(2).enter_hook(hook).build().unwrap();
        let ids = runtime.cores();
        let waiting = runtime.spawn_on(ids[1], pending::<()>).unwrap();
        wait_for(runtime.spawn_on(ids[1], yield_now).unwrap()).unwrap();
        broken.store(true, Ordering::Relaxed);
        // Whatever has the core come out of its sleep has it find out.
        let nudge = runtime.spawn_on(ids[1], || sleep(Duration::from_millis(1))).unwrap();
        assert!(wait_for(waiting).unwrap_err().is_cancelled());
        assert!(wait_for(nudge).unwrap_err().is_cancelled());
        let late = runtime.block_on(|| sleep(Duration::from_millis(1)));
        assert!(late.unwrap_err().is_cancelled());
        drop(runtime);
    });
}

#[test]
fn a_storm_of_signals_is_survived() {
    extern "C" fn ignore(_: libc::c_int) {}
    // SAFETY: the handler does nothing, which is safe at any point; the structure is plain data, and calls that the
    // signal interrupts are not restarted.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let ids = runtime.cores();
        let targets: Vec<libc::pthread_t> = ids
            .iter()
            .map(|id| {
                // SAFETY: gives the calling thread's own name.
                let own = || async { unsafe { libc::pthread_self() } };
                wait_for(runtime.spawn_on(*id, own).unwrap()).unwrap()
            })
            .collect();
        let (over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (end, sends) = (Arc::clone(&over), Arc::clone(&sent));
        let storm = std::thread::spawn(move || {
            while !end.load(Ordering::Acquire) {
                for target in &targets {
                    // SAFETY: the core's thread lives until its runtime is dropped, which is after this thread's end.
                    assert_eq!(unsafe { libc::pthread_kill(*target, libc::SIGUSR1) }, 0);
                    sends.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        });
        // Twice on each at least, and for as long as it takes the storm to be one.
        for (round, id) in ids.iter().cycle().enumerate() {
            if round >= 2 * ids.len() && sent.load(Ordering::Relaxed) > 100 {
                break;
            }
            let other = if *id == ids[0] { ids[1] } else { ids[0] };
            let work = runtime.spawn_on(*id, move || async move {
                timers().await;
                hops(other).await;
                replies().await;
                sockets().await;
            });
            wait_for(work.unwrap()).unwrap();
        }
        over.store(true, Ordering::Release);
        storm.join().unwrap();
        drop(runtime);
    });
}
