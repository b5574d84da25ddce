//! Cores that are driven by somebody else's loop: wait for the descriptor or the deadline, turn, and again.
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

mod common;

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use common::{PATIENCE, alone, cores, wait_for, within};
use corelet::net::{TcpListener, TcpStream};
use corelet::runtime::{
    Core, CoreId, EnterHook, GuestCore, RemoteJoinHandle, RuntimeHandle, TaskState, current_core, handle,
    sleep, spawn, yield_now,
};
use futures_channel::oneshot;

fn guests(count: usize) -> (RuntimeHandle, Vec<GuestCore>) {
    cores(count).build_guests().unwrap()
}

fn guest() -> Core {
    guests(1).1.remove(0).start().unwrap()
}

/// Waits until the core's descriptor is readable; false when `limit` or its next deadline came first.
fn wait_readable(core: &Core, limit: Duration) -> bool {
    let until = core.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
    let timeout = until.map_or(limit, |until| until.min(limit));
    let mut entry =
        libc::pollfd { fd: core.event_fd().unwrap().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // Rounded up, so that a deadline has really come.
    let millis = timeout.as_micros().div_ceil(1000) as i32;
    // SAFETY: one entry, alive for the length of the call.
    let ready = unsafe { libc::poll(&mut entry, 1, millis) };
    ready > 0
}

/// When the host's loop looks again although nothing told it to: what takes as long was found by that only.
const LOOPS_PATIENCE: Duration = Duration::from_secs(15);

/// The host's loop, until `done`.
fn drive(core: &mut Core, mut done: impl FnMut(&mut Core) -> bool) {
    let begun = Instant::now();
    while !done(core) {
        assert!(begun.elapsed() < PATIENCE, "the host's loop did not get there: {:?}", core.stats());
        if !core.turn().unwrap() && !done(core) {
            wait_readable(core, LOOPS_PATIENCE);
        }
    }
}

/// The host's loop, until `task` has given its result.
fn drive_until_joined<T>(core: &mut Core, mut task: RemoteJoinHandle<T>) -> T {
    let mut result = None;
    drive(core, |_| {
        if result.is_none()
            && let Poll::Ready(joined) = pin!(&mut task).poll(&mut Context::from_waker(Waker::noop()))
        {
            result = Some(joined.unwrap());
        }
        result.is_some()
    });
    result.unwrap()
}

#[test]
fn a_hosts_loop_runs_tasks_and_timers() {
    let mut core = guest();
    let begun = Instant::now();
    let task = core.spawn(async {
        let child = spawn(async {
            sleep(Duration::from_millis(20)).await;
            4
        });
        sleep(Duration::from_millis(5)).await;
        child.await.unwrap() + 1
    });
    drive(&mut core, |_| task.is_finished());
    assert!(begun.elapsed() >= Duration::from_millis(20));
    assert_eq!(core.block_on(task).unwrap().unwrap(), 5);
}

#[test]
fn a_foreign_wake_makes_the_descriptor_readable() {
    let mut core = guest();
    let id = core.id();
    let runtime = core.runtime().clone();
    for _ in 0..200 {
        let (send, receive) = oneshot::channel();
        let task = core.spawn(receive);
        while core.turn().unwrap() {}
        let thread = std::thread::spawn(move || send.send(7).unwrap());
        let begun = Instant::now();
        drive(&mut core, |_| task.is_finished());
        assert!(begun.elapsed() < LOOPS_PATIENCE, "found by the loop's patience, not by the wake");
        thread.join().unwrap();
    }
    // The same for a job.
    while core.turn().unwrap() {}
    let caller = std::thread::spawn(move || runtime.spawn_on(id, || async { 5 }).unwrap());
    let begun = Instant::now();
    assert!(wait_readable(&core, PATIENCE) && begun.elapsed() < LOOPS_PATIENCE);
    assert_eq!(drive_until_joined(&mut core, caller.join().unwrap()), 5);
}

#[test]
fn a_task_spawned_from_outside_makes_the_descriptor_readable() {
    let mut core = guest();
    core.event_fd().unwrap();
    while core.turn().unwrap() {}
    assert!(!wait_readable(&core, Duration::ZERO));
    let task = core.spawn(async {});
    assert!(wait_readable(&core, PATIENCE));
    drive(&mut core, |_| task.is_finished());
}

#[test]
fn a_quiet_core_leaves_its_descriptor_unreadable() {
    let mut core = guest();
    core.event_fd().unwrap();
    core.spawn(pending::<()>()).detach();
    while core.turn().unwrap() {}
    // One leftover signal is allowed.
    for _ in 0..2 {
        if wait_readable(&core, Duration::ZERO) {
            while core.turn().unwrap() {}
        }
    }
    assert!(!wait_readable(&core, Duration::from_millis(50)));
}

/// Talks to itself over a socket, driven by the host's loop.
fn echo_in_a_hosts_loop(guest: GuestCore) {
    within(PATIENCE, || {
        let mut core = guest.start().unwrap();
        core.event_fd().unwrap();
        let echo = core.spawn(async {
            let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.local_addr().unwrap();
            let client = spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                for round in 0..100_u8 {
                    stream.write_all(vec![round; 100]).await.0.unwrap();
                    let mut got = 0;
                    while got < 100 {
                        got += stream.receive().await.unwrap().unwrap().len();
                    }
                }
            });
            let mut peer = listener.accept().await.unwrap();
            while let Some(received) = peer.receive().await.unwrap() {
                peer.write_all(received.to_vec()).await.0.unwrap();
            }
            client.await.unwrap();
        });
        let begun = Instant::now();
        drive(&mut core, |_| echo.is_finished());
        assert!(begun.elapsed() < LOOPS_PATIENCE, "found by the loop's patience");
        core.block_on(echo).unwrap().unwrap();
    });
}

#[test]
fn completions_make_the_descriptor_readable() {
    echo_in_a_hosts_loop(guests(1).1.remove(0));
}

#[test]
fn completions_make_the_descriptor_readable_on_the_smallest_ring() {
    let builder = cores(1).submission_entries(1).completion_entries(2).receive_buffers(2, 64);
    echo_in_a_hosts_loop(builder.build_guests().unwrap().1.remove(0));
}

#[test]
fn a_host_comes_back_for_what_a_failed_kernel_entry_left_behind() {
    for errno in [libc::EBUSY, libc::EAGAIN, libc::EINTR] {
        let calls = AtomicU32::new(0);
        let hook = EnterHook::new(move |_| {
            (!calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(5)).then_some(errno)
        });
        echo_in_a_hosts_loop(cores(1).enter_hook(hook).build_guests().unwrap().1.remove(0));
    }
    // None taken, every other time.
    let calls = AtomicU32::new(0);
    let hook = EnterHook::new(move |call| {
        call.to_submit *= calls.fetch_add(1, Ordering::Relaxed) % 2;
        None
    });
    echo_in_a_hosts_loop(cores(1).enter_hook(hook).build_guests().unwrap().1.remove(0));
}

#[test]
fn block_on_and_a_hosts_loop_may_take_turns() {
    let mut core = guest();
    for round in 0..20 {
        assert_eq!(
            core.block_on(async move {
                sleep(Duration::from_millis(1)).await;
                round
            })
            .unwrap(),
            round
        );
        let (send, receive) = oneshot::channel();
        let task = core.spawn(receive);
        while core.turn().unwrap() {}
        let thread = std::thread::spawn(move || send.send(round).unwrap());
        let begun = Instant::now();
        drive(&mut core, |_| task.is_finished());
        assert!(begun.elapsed() < LOOPS_PATIENCE);
        thread.join().unwrap();
    }
}

#[test]
fn park_returns_when_there_is_something_to_do() {
    within(PATIENCE, || {
        let mut core = guest();
        while core.turn().unwrap() {}
        // A ready task.
        let task = core.spawn(async {});
        core.park(None).unwrap();
        while !task.is_finished() {
            core.turn().unwrap();
        }
        // A limit.
        let begun = Instant::now();
        core.park(Some(Duration::from_millis(10))).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(10));
        // Mail.
        let (runtime, id) = (core.runtime().clone(), core.id());
        let caller = std::thread::spawn(move || wait_for(runtime.spawn_on(id, || async { 3 }).unwrap()));
        while !caller.is_finished() {
            while core.turn().unwrap() {}
            core.park(Some(Duration::from_secs(1))).unwrap();
        }
        assert_eq!(caller.join().unwrap().unwrap(), 3);
        // A deadline.
        let nap = core.spawn(async { sleep(Duration::from_millis(5)).await });
        while !nap.is_finished() {
            if !core.turn().unwrap() && !nap.is_finished() {
                core.park(None).unwrap();
            }
        }
    });
}

/// Drives a guest core until it is told to end.
fn host(guest: GuestCore, end: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut core = guest.start().unwrap();
        drive(&mut core, |_| end.load(Ordering::Acquire));
    })
}

async fn ping(far: CoreId, home: CoreId, rounds: u32) -> u32 {
    let mut sum = 0;
    for round in 0..rounds {
        let there = handle().spawn_on(far, move || async move {
            assert_eq!(current_core(), Some(far));
            let back = handle().spawn_on(home, move || async move {
                assert_eq!(current_core(), Some(home));
                round
            });
            back.unwrap().await.unwrap()
        });
        sum += there.unwrap().await.unwrap();
    }
    sum
}

#[test]
fn two_guests_on_two_threads_spawn_on_each_other() {
    within(PATIENCE, || {
        let (runtime, guests) = guests(2);
        let ids = runtime.cores();
        let end = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = guests.into_iter().map(|guest| host(guest, Arc::clone(&end))).collect();
        let (first, second) = (ids[0], ids[1]);
        let there = runtime.spawn_on(first, move || ping(second, first, 200)).unwrap();
        let back = runtime.spawn_on(second, move || ping(first, second, 200)).unwrap();
        assert_eq!(wait_for(there).unwrap(), 19_900);
        assert_eq!(wait_for(back).unwrap(), 19_900);
        end.store(true, Ordering::Release);
        for id in ids {
            // Ends their waits.
            runtime.spawn_on(id, || async {}).unwrap().detach();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn two_guests_may_share_one_thread() {
    let (runtime, mut guests) = guests(2);
    let mut cores: Vec<Core> = guests.drain(..).map(|guest| guest.start().unwrap()).collect();
    let ids = runtime.cores();
    let (first, second) = (ids[0], ids[1]);
    let task = cores[0].spawn(ping(second, first, 50));
    let begun = Instant::now();
    while !task.is_finished() {
        assert!(begun.elapsed() < PATIENCE);
        for core in &mut cores {
            core.turn().unwrap();
        }
    }
}

#[test]
fn block_on_gives_the_output() {
    let mut core = guest();
    let not_send = Rc::new(Cell::new(1));
    let theirs = Rc::clone(&not_send);
    let output = core
        .block_on(async move {
            yield_now().await;
            theirs.set(2);
            spawn(async { 3 }).await.unwrap()
        })
        .unwrap();
    assert_eq!((output, not_send.get()), (3, 2));
}

#[test]
fn block_on_carries_a_panic_on() {
    let mut core = guest();
    let blocked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        core.block_on(async {
            yield_now().await;
            panic!("carried on")
        })
    }));
    let payload = blocked.map(|_: std::io::Result<()>| ()).unwrap_err();
    assert_eq!(*payload.downcast_ref::<&str>().unwrap(), "carried on");
    assert_eq!(core.block_on(async { 1 }).unwrap(), 1);
    assert_eq!(current_core(), None);
}

#[test]
fn tasks_go_on_in_the_next_block_on() {
    let mut core = guest();
    let (send, receive) = oneshot::channel();
    core.spawn(async move {
        sleep(Duration::from_millis(5)).await;
        send.send(1).unwrap();
    })
    .detach();
    core.block_on(async {}).unwrap();
    assert_eq!(core.block_on(receive).unwrap(), Ok(1));
}

#[test]
fn the_state_of_a_task_can_be_looked_at() {
    let mut core = guest();
    let task = core.spawn(pending::<()>());
    let pid = task.pid();
    assert_eq!(core.task_state(pid), Some(TaskState::Queued));
    core.turn().unwrap();
    assert_eq!(core.task_state(pid), Some(TaskState::Parked));
    task.abort();
    core.turn().unwrap();
    assert_eq!(core.task_state(pid), None);
    let next = core.spawn(pending::<()>());
    assert_eq!(next.pid().index(), pid.index());
    assert_eq!(core.task_state(pid), None, "a stale identity names nobody");
    assert!(core.task_state(next.pid()).is_some());
    let stats = core.stats();
    assert_eq!((stats.executor.live, stats.executor.ready), (1, 1));
    drop(task);
}

#[test]
fn an_identity_of_an_ended_core_names_nobody_on_the_next() {
    // In a process whose other tests take no ids and give none back.
    alone("an_identity_of_an_ended_core_names_nobody_on_the_next", || {
        let mut old = guest();
        let id = old.id();
        let stale = old.spawn(pending::<()>());
        let waker: Rc<Cell<Option<Waker>>> = Rc::default();
        let kept = Rc::clone(&waker);
        let stale_too = old.spawn(poll_fn(move |cx| {
            kept.set(Some(cx.waker().clone()));
            Poll::<()>::Pending
        }));
        old.turn().unwrap();
        drop(old);
        assert!(stale.is_finished() && stale_too.is_finished());
        let mut new = guest();
        assert_eq!(new.id(), id, "the lowest that is free");
        let polls = Rc::new(Cell::new(0));
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let polls = Rc::clone(&polls);
                new.spawn(poll_fn(move |_| {
                    polls.set(polls.get() + 1);
                    Poll::<()>::Pending
                }))
            })
            .collect();
        while new.turn().unwrap() {}
        stale.abort();
        waker.take().unwrap().wake();
        drop((stale, stale_too));
        for _ in 0..3 {
            while new.turn().unwrap() {}
        }
        assert_eq!(polls.get(), 3);
        assert!(tasks.iter().all(|task| !task.is_finished()));
    });
}

#[test]
fn what_a_core_leaves_behind_ends_with_it() {
    let mut core = guest();
    let memory = Rc::new(());
    let theirs = Rc::clone(&memory);
    let mut task = pin!(core.spawn(async move {
        let _memory = theirs;
        sleep(Duration::from_secs(3600)).await;
    }));
    core.turn().unwrap();
    drop(core);
    assert_eq!(Rc::strong_count(&memory), 1);
    match task.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error)) => assert!(error.is_cancelled()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_guest_that_is_never_started_refuses_its_tasks() {
    let (runtime, guests) = guests(2);
    let ids = runtime.cores();
    let early = runtime.spawn_on(ids[0], || async { 1 }).unwrap();
    drop(guests);
    assert!(wait_for(early).unwrap_err().is_cancelled());
    let late = runtime.spawn_on(ids[1], || async { 1 }).unwrap();
    assert!(wait_for(late).unwrap_err().is_cancelled());
}

#[test]
fn what_is_sent_to_a_guest_before_its_start_waits_for_it() {
    let (runtime, mut guests) = guests(1);
    let early = runtime.spawn_on(runtime.cores()[0], || async { 8 }).unwrap();
    let mut core = guests.remove(0).start().unwrap();
    assert_eq!(drive_until_joined(&mut core, early), 8);
}
