//! A wake means *look*, and nothing else: whoever is woken looks at its own condition, so no wake that comes late, from what
//! was waited for before, is ever taken for what is waited for now.

mod support;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use corelet::actor::channel::{self, RecvTimeoutError};
use corelet::actor::{self, CallError, ExitReason, Mutex, select_timeout};
use corelet::net::{wait_readable, wait_readable_timeout, wait_writable, wait_writable_timeout};
use corelet::runtime::{Simulation, core_stats, now, sleep, spawn, timeout, yield_now};
use support::{on_cores, poll_once, poll_until, soon};

const SHORT: Duration = Duration::from_millis(1);
/// Long enough to be cut short by whoever misreads a wake.
const PAUSE: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(3600);

fn in_flight() -> usize {
    core_stats().unwrap().driver.in_flight
}

/// The waker of the calling task.
async fn own_waker() -> Waker {
    poll_fn(|cx| Poll::Ready(cx.waker().clone())).await
}

async fn full_sleep() {
    let begun = now();
    sleep(PAUSE).await;
    assert!(now() - begun >= PAUSE, "the sleep was cut short");
}

/// What is done to a task that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// It is woken for nothing.
    StaleWake,
    /// What it waits for at times comes.
    Message,
    /// What it waited for first, and lost, comes.
    OldMessage,
    /// Time passes.
    Time,
    Stop,
}

const EVENTS: [Event; 5] = [Event::StaleWake, Event::Message, Event::OldMessage, Event::Time, Event::Stop];
/// Two of these are more than a wait, one is less, and no sum of one is a sum of the other: a deadline and a message never
/// meet.
const STEP: Duration = Duration::from_millis(7);
const WAIT: Duration = Duration::from_millis(10);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Happened {
    Received(Result<u32, RecvTimeoutError>),
    Slept,
    Ended(ExitReason),
}

/// What a task did, and how long after its start.
type Story = Vec<(Duration, Happened)>;

/// Waits for a message, sleeps, and waits for a message again, while `events` happen to it. Where `landed`, it has been
/// woken already when it begins each wait: every wait ends its first poll with a wake to be spent.
async fn told(events: Vec<Event>, landed: bool) -> Story {
    let story = Rc::new(RefCell::new(Story::new()));
    let waker = Rc::new(RefCell::new(None));
    let (sender, mut receiver) = channel::unbounded();
    let (old_sender, mut old_receiver) = channel::unbounded::<u32>();
    let begun = now();
    let (theirs, their_waker) = (Rc::clone(&story), Rc::clone(&waker));
    let pid = actor::spawn(async move {
        let tell = |happened| theirs.borrow_mut().push((now() - begun, happened));
        let own = own_waker().await;
        // Leaves the task's waker with a channel that it does not receive from any more.
        assert!(poll_once(&mut pin!(old_receiver.recv())).await.is_pending());
        their_waker.replace(Some(own.clone()));
        for turn in 0..2 {
            if landed {
                own.wake_by_ref();
            }
            tell(Happened::Received(receiver.recv_timeout(WAIT).await));
            if turn == 0 {
                if landed {
                    own.wake_by_ref();
                }
                sleep(WAIT).await;
                tell(Happened::Slept);
            }
        }
    });
    let end = actor::monitor(pid);
    let end = spawn(async move {
        let reason = end.await.reason;
        (now() - begun, Happened::Ended(reason))
    });
    while waker.borrow().is_none() {
        yield_now().await;
    }
    let wake = || waker.borrow().as_ref().unwrap().wake_by_ref();
    let mut next = 0;
    for event in events {
        match event {
            Event::StaleWake => wake(),
            Event::Message => {
                // Refused when the task has ended.
                let _ = sender.send(next);
                next += 1;
            }
            Event::OldMessage => drop(old_sender.send(0)),
            Event::Time => sleep(STEP).await,
            Event::Stop => actor::request_stop(pid),
        }
    }
    let ended = end.await.unwrap();
    story.borrow_mut().push(ended);
    story.take()
}

/// The same, from what is promised.
fn foretold(events: &[Event]) -> Story {
    let mut clock = Duration::ZERO;
    let mut messages = Vec::new();
    let mut stop = None;
    for event in events {
        match event {
            Event::Time => clock += STEP,
            Event::Message => messages.push(clock),
            Event::Stop => drop(stop.get_or_insert(clock)),
            Event::StaleWake | Event::OldMessage => {}
        }
    }
    let mut story = Story::new();
    let mut at = Duration::ZERO;
    let mut received = 0;
    for turn in 0..2 {
        let deadline = at + WAIT;
        match messages.get(received) {
            Some(sent) if *sent < deadline => {
                at = at.max(*sent);
                story.push((at, Happened::Received(Ok(received as u32))));
                received += 1;
            }
            _ => {
                at = deadline;
                story.push((at, Happened::Received(Err(RecvTimeoutError::Timeout))));
            }
        }
        if turn == 0 {
            at += WAIT;
            story.push((at, Happened::Slept));
        }
    }
    match stop {
        // It is stopped before it looks at what came in the same instant.
        Some(stop) if stop <= at => {
            story.retain(|(time, _)| *time < stop);
            story.push((stop, Happened::Ended(ExitReason::Stopped)));
        }
        _ => story.push((at, Happened::Ended(ExitReason::Normal))),
    }
    story
}

/// Every sequence of up to five things that can happen to a task that waits, each also with a wake that has landed before
/// it begins to wait.
#[test]
fn whatever_happens_to_a_waiting_task_it_tells_what_is_true() {
    let mut sequences = 0;
    let mut layer = vec![Vec::new()];
    for _ in 0..5 {
        let longer: Vec<Vec<Event>> = layer
            .iter()
            .flat_map(|events| EVENTS.map(|event| [events.as_slice(), &[event]].concat()))
            .collect();
        for events in &longer {
            for landed in [false, true] {
                let mut simulation = Simulation::new(sequences, 1);
                let theirs = events.clone();
                let told = simulation.block_on(move || told(theirs, landed)).unwrap();
                assert_eq!(told, foretold(events), "{events:?}, landed: {landed}");
                sequences += 1;
            }
        }
        layer = longer;
    }
    println!("{sequences} sequences");
}

#[test]
fn a_stale_wake_after_a_time_out_leaves_the_next_sleep_its_length() {
    on_cores(2, async |runtime, cores| {
        for core in [cores[0], cores[1]] {
            let (sender, mut receiver) = channel::unbounded();
            assert_eq!(receiver.recv_timeout(SHORT).await, Err(RecvTimeoutError::Timeout));
            let sent = runtime.spawn_on(core, async move || sender.send("late").unwrap()).unwrap();
            full_sleep().await;
            soon(sent).await.unwrap();
            assert_eq!(receiver.recv().await, Ok("late"));
        }
    });
}

#[test]
fn a_storm_of_stale_wakes_is_never_misread() {
    on_cores(1, async |_, _| {
        let waker = own_waker().await;
        let over = Arc::new(AtomicBool::new(false));
        let storm = {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    waker.wake_by_ref();
                    std::thread::yield_now();
                }
            })
        };
        let (sender, mut receiver) = channel::unbounded::<u32>();
        let (here, there) = UnixStream::pair().unwrap();
        let mutex = Mutex::new(());
        let held = mutex.lock().await;
        let mut task = spawn(std::future::pending::<()>());
        let mut monitor = actor::monitor(actor::spawn(std::future::pending::<()>()));
        let (reply, mut answer) = actor::reply::<()>();
        let mut exits = actor::trap_exits();
        let base = in_flight();
        for _ in 0..5 {
            full_sleep().await;
            let begun = Instant::now();
            assert_eq!(receiver.recv_timeout(SHORT).await, Err(RecvTimeoutError::Timeout));
            assert_eq!(receiver.recv_match_timeout(SHORT, |_| true).await, Err(RecvTimeoutError::Timeout));
            assert!(mutex.lock_timeout(SHORT).await.is_err());
            let readable = wait_readable_timeout(&here, SHORT).await;
            assert_eq!(readable.unwrap_err().kind(), ErrorKind::TimedOut);
            let arms =
                (&mut task, &mut monitor, &mut answer, exits.recv(), receiver.recv(), wait_readable(&here));
            assert!(select_timeout(SHORT, arms).await.is_none());
            assert!(begun.elapsed() >= 5 * SHORT);
        }
        sender.send(1).unwrap();
        assert_eq!(receiver.recv_timeout(LONG).await, Ok(1));
        over.store(true, Ordering::Relaxed);
        storm.join().unwrap();
        poll_until(async || in_flight() == base).await;
        drop((held, reply, there));
    });
}

#[test]
fn what_blocking_work_brings_too_late_harms_nobody() {
    on_cores(1, async |_, _| {
        let (go, wait) = std::sync::mpsc::channel();
        let (question, asked) = std::sync::mpsc::channel::<actor::Reply<&str>>();
        let (sender, mut done) = channel::unbounded();
        let worker = std::thread::spawn(move || {
            let reply = asked.recv().unwrap();
            wait.recv().unwrap();
            reply.send("late");
            sender.send("late").unwrap();
        });
        let (reply, answer) = actor::reply();
        question.send(reply).unwrap();
        assert!(timeout(SHORT, answer).await.is_err());
        assert_eq!(done.recv_timeout(SHORT).await, Err(RecvTimeoutError::Timeout));
        go.send(()).unwrap();
        full_sleep().await;
        worker.join().unwrap();
        // The place of the late answer serves another question by now.
        let (reply, mut answer) = actor::reply::<&str>();
        assert!(poll_once(&mut answer).await.is_pending());
        reply.send("in time");
        assert_eq!(answer.await, Ok("in time"));
        assert_eq!(soon(done.recv()).await, Ok("late"));
        let (reply, answer) = actor::reply::<&str>();
        drop(reply);
        assert_eq!(answer.await, Err(CallError::NoReply));
    });
}

#[test]
fn a_descriptor_is_waited_for_until_it_is_ready() {
    on_cores(1, async |_, _| {
        let base = in_flight();
        let (mut here, mut there) = UnixStream::pair().unwrap();
        soon(wait_writable(&here)).await.unwrap();
        soon(wait_writable_timeout(&here, LONG)).await.unwrap();
        let timed_out = wait_readable_timeout(&here, SHORT).await.unwrap_err();
        assert_eq!(timed_out.kind(), ErrorKind::TimedOut);

        // Filled up, it is not writable until the other end has read.
        here.set_nonblocking(true).unwrap();
        while here.write(&[0; 4096]).is_ok() {}
        assert_eq!(wait_writable_timeout(&here, SHORT).await.unwrap_err().kind(), ErrorKind::TimedOut);
        let reader = spawn(async move {
            there.set_nonblocking(true).unwrap();
            while there.read(&mut [0; 4096]).is_ok() {}
            there
        });
        soon(wait_writable(&here)).await.unwrap();
        let mut there = soon(reader).await.unwrap();

        // By value too: the descriptor closes with the wait.
        let (owned, far) = UnixStream::pair().unwrap();
        assert!(poll_once(&mut pin!(wait_readable(owned))).await.is_pending());
        poll_until(async || in_flight() == base).await;
        assert_eq!((&far).read(&mut [0]).unwrap(), 0);

        there.write_all(b"!").unwrap();
        soon(wait_readable_timeout(&here, LONG)).await.unwrap();
        assert_eq!(in_flight(), base);
        assert_eq!(core_stats().unwrap().timers, 0);
    });
}

#[test]
fn a_stopped_waiter_leaves_the_waits_of_others_alone() {
    on_cores(1, async |_, _| {
        let base = in_flight();
        let (here, mut there) = UnixStream::pair().unwrap();
        let here = Rc::new(here);
        let heard = Rc::new(Cell::new(0));
        let waiter = || {
            let (here, heard) = (Rc::clone(&here), Rc::clone(&heard));
            spawn(async move {
                wait_readable(&*here).await.unwrap();
                heard.set(heard.get() + 1);
            })
        };
        let (first, stopped, last) = (waiter(), waiter(), waiter());
        poll_until(async || in_flight() == base + 3).await;
        drop(stopped);
        // At once, before the kernel has heard of the cancel.
        let fresh = waiter();
        poll_until(async || in_flight() == base + 3).await;
        full_sleep().await;
        assert_eq!(heard.get(), 0, "nothing has come");
        there.write_all(b"!").unwrap();
        for waiter in [first, last, fresh] {
            soon(waiter).await.unwrap();
        }
        assert_eq!(heard.get(), 3);
        assert_eq!(in_flight(), base);
    });
}

#[test]
fn the_late_end_of_a_cancelled_wait_is_nobodys() {
    on_cores(1, async |_, _| {
        let base = in_flight();
        let (_silent_there, silent) = {
            let (there, here) = UnixStream::pair().unwrap();
            (there, here)
        };
        for round in 0..200 {
            let (here, mut there) = UnixStream::pair().unwrap();
            let mut wait = Box::pin(wait_readable(&here));
            assert!(poll_once(&mut wait).await.is_pending());
            if round % 2 == 0 {
                yield_now().await;
            }
            // Ready and given up at the same time: its completion and its cancel are both on their way.
            there.write_all(b"!").unwrap();
            drop(wait);
            let mut next = pin!(wait_readable(&silent));
            for _ in 0..3 {
                assert!(poll_once(&mut next).await.is_pending(), "a completion of the wait before");
                yield_now().await;
            }
        }
        poll_until(async || in_flight() == base).await;
    });
}

#[test]
fn a_simulation_says_that_it_has_no_descriptors() {
    let mut simulation = Simulation::new(1, 1);
    let waited = simulation.block_on(|| async {
        let (here, _there) = UnixStream::pair().unwrap();
        wait_readable(&here).await.unwrap_err().kind()
    });
    assert_eq!(waited, Ok(ErrorKind::Unsupported));
}

#[test]
fn a_loop_stops_at_its_checkpoint_and_code_without_one_runs_on() {
    on_cores(1, async |_, _| {
        let steps = Rc::new(Cell::new(0_u64));
        let theirs = Rc::clone(&steps);
        let endless = actor::spawn(async move {
            loop {
                theirs.set(theirs.get() + 1);
                actor::checkpoint().await;
            }
        });
        let end = actor::monitor(endless);
        poll_until(async || steps.get() > 1_000).await;
        actor::request_stop(endless);
        assert_eq!(soon(end).await.reason, ExitReason::Stopped);

        // A stop that comes while the task runs is met at the next scheduling point, and nowhere before.
        let (uninterrupted, stopped) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (theirs, passed) = (Rc::clone(&uninterrupted), Rc::clone(&stopped));
        let (_, end) = actor::spawn_monitor(async move {
            actor::request_stop(actor::myself().unwrap());
            for _ in 0..1_000 {
                theirs.set(theirs.get() + 1);
            }
            actor::checkpoint().await;
            passed.set(true);
        });
        assert_eq!(soon(end).await.reason, ExitReason::Stopped);
        assert_eq!((uninterrupted.get(), stopped.get()), (1_000, false));
    });
}
