//! A stop takes effect at the next scheduling point, wherever it lands, and destructors run.

mod support;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use corelet::actor::{self, ExitReason, channel};
use corelet::runtime::{RawPid, current_task, sleep, spawn, timeout, yield_now};
use support::{block_until, on_cores, poll_until, soon};

type Log = Rc<RefCell<Vec<&'static str>>>;

struct Says(&'static str, Log);

impl Drop for Says {
    fn drop(&mut self) {
        self.1.borrow_mut().push(self.0);
    }
}

#[test]
fn a_stop_before_the_first_poll_runs_nothing_but_destructors() {
    on_cores(1, async |_, _| {
        let log = Log::default();
        let guard = Says("guard", Rc::clone(&log));
        let theirs = Rc::clone(&log);
        let (pid, end) = actor::spawn_monitor(async move {
            theirs.borrow_mut().push("ran");
            drop(guard);
        });
        actor::request_stop(pid);
        assert_eq!(soon(end).await.reason, ExitReason::Stopped);
        assert_eq!(*log.borrow(), ["guard"]);
    });
}

#[test]
fn a_stop_while_parked_drops_what_the_actor_holds_the_last_first() {
    on_cores(1, async |_, _| {
        let log = Log::default();
        let theirs = Rc::clone(&log);
        let (pid, end) = actor::spawn_monitor(async move {
            let say = |what| Says(what, Rc::clone(&theirs));
            let _outer = say("outer");
            let _inner = say("inner");
            let nested = async {
                let _innermost = say("innermost");
                theirs.borrow_mut().push("parks");
                std::future::pending::<()>().await;
            };
            nested.await;
            theirs.borrow_mut().push("never");
        });
        poll_until(async || !log.borrow().is_empty()).await;
        actor::request_stop(pid);
        assert_eq!(soon(end).await.reason, ExitReason::Stopped);
        assert_eq!(*log.borrow(), ["parks", "innermost", "inner", "outer"]);
    });
}

#[test]
fn a_stop_while_queued_overtakes_the_wake() {
    on_cores(1, async |_, _| {
        let (sender, mut inbox) = channel::unbounded::<u8>();
        let received = Rc::new(Cell::new(false));
        let theirs = Rc::clone(&received);
        let (pid, end) = actor::spawn_monitor(async move {
            inbox.recv().await.unwrap();
            theirs.set(true);
        });
        yield_now().await;
        sender.send(1).unwrap();
        actor::request_stop(pid);
        assert_eq!(soon(end).await.reason, ExitReason::Stopped);
        assert!(!received.get());
    });
}

#[test]
fn a_stop_while_running_takes_effect_at_the_first_wait_and_not_before() {
    on_cores(1, async |_, _| {
        let log = Log::default();
        let theirs = Rc::clone(&log);
        let (_, end) = actor::spawn_monitor(async move {
            actor::request_stop(current_task().unwrap());
            theirs.borrow_mut().push("goes on");
            yield_now().await;
            theirs.borrow_mut().push("never");
        });
        assert_eq!(soon(end).await.reason, ExitReason::Stopped);
        assert_eq!(*log.borrow(), ["goes on"]);

        let (_, end) = actor::spawn_monitor(async {
            actor::request_stop(current_task().unwrap());
        });
        assert_eq!(soon(end).await.reason, ExitReason::Normal, "it has returned without a wait");
    });
}

#[test]
fn a_stop_ends_every_kind_of_wait() {
    on_cores(2, async |runtime, cores| {
        for kind in 0..6 {
            let (_sender, mut inbox) = channel::unbounded::<u8>();
            let sibling = actor::spawn(std::future::pending::<()>());
            let elsewhere = runtime.spawn_on(cores[1], std::future::pending::<()>).unwrap();
            let (pid, end) = actor::spawn_monitor(async move {
                match kind {
                    0 => drop(inbox.recv().await),
                    1 => sleep(Duration::from_secs(3600)).await,
                    2 => drop(timeout(Duration::from_secs(3600), inbox.recv()).await),
                    3 => drop(actor::monitor(sibling).await),
                    4 => drop(elsewhere.await),
                    _ => drop(actor::trap_exits().recv().await),
                }
            });
            yield_now().await;
            actor::request_stop(pid);
            assert_eq!(soon(end).await.reason, ExitReason::Stopped, "kind {kind}");
            actor::request_stop(sibling);
        }
    });
}

#[test]
fn a_busy_loop_stops_at_its_checkpoint_also_from_another_thread() {
    on_cores(2, async |runtime, cores| {
        let rounds = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&rounds);
        let (told, pid) = std::sync::mpsc::channel::<RawPid>();
        let spinner = runtime.spawn_on(cores[1], move || async move {
            told.send(current_task().unwrap()).unwrap();
            loop {
                theirs.fetch_add(1, Ordering::Relaxed);
                actor::checkpoint().await;
            }
        });
        let pid = pid.recv().unwrap();
        let end = actor::monitor(pid);
        std::thread::spawn(move || {
            block_until(|| rounds.load(Ordering::Relaxed) > 10_000);
            actor::request_stop(pid);
        });
        assert_eq!(soon(end).await.reason, ExitReason::Stopped);
        let joined: Result<(), _> = soon(spinner.unwrap()).await;
        assert!(joined.unwrap_err().is_cancelled());
    });
}

#[test]
fn without_a_scheduling_point_a_stop_waits() {
    on_cores(2, async |runtime, cores| {
        let (go_on, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (theirs, saw) = (Arc::clone(&go_on), Arc::clone(&seen));
        let (told, pid) = std::sync::mpsc::channel::<RawPid>();
        let task = runtime.spawn_on(cores[1], move || async move {
            told.send(current_task().unwrap()).unwrap();
            block_until(|| theirs.load(Ordering::SeqCst));
            saw.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        });
        let pid = pid.recv().unwrap();
        let mut end = actor::monitor(pid);
        actor::request_stop(pid);
        for _ in 0..100 {
            yield_now().await;
        }
        assert!(end.down().is_none());
        go_on.store(true, Ordering::SeqCst);
        assert_eq!(soon(&mut end).await.reason, ExitReason::Stopped);
        assert!(seen.load(Ordering::SeqCst), "the code between two awaits has run to its end");
        let joined: Result<(), _> = soon(task.unwrap()).await;
        assert!(joined.unwrap_err().is_cancelled());
    });
}

#[test]
fn a_panic_while_being_stopped_is_the_reason_and_ends_nobody_else() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in the stop");
        }
    }
    on_cores(2, async |runtime, cores| {
        let bystander = spawn(async { sleep(Duration::from_millis(1)).await });
        for core in cores {
            let (told, pid) = std::sync::mpsc::channel::<RawPid>();
            let task = runtime.spawn_on(core, move || async move {
                let _bomb = Bomb;
                told.send(current_task().unwrap()).unwrap();
                std::future::pending::<()>().await;
            });
            let pid = loop {
                match pid.try_recv() {
                    Ok(pid) => break pid,
                    Err(_) => yield_now().await,
                }
            };
            let end = actor::monitor(pid);
            actor::request_stop(pid);
            assert_eq!(soon(end).await.reason, ExitReason::Panicked("in the stop".into()));
            assert!(soon(task.unwrap()).await.unwrap_err().is_panic());
        }
        soon(bystander).await.unwrap();
    });
}

#[test]
fn to_stop_the_dead_does_nothing_to_who_comes_after() {
    on_cores(1, async |_, _| {
        let first = actor::spawn(async {});
        soon(actor::monitor(first)).await;
        let second = spawn(async { sleep(Duration::from_millis(1)).await });
        assert_eq!(second.pid().index(), first.raw().index(), "the slot is used again");
        actor::request_stop(first);
        soon(second).await.unwrap();
    });
}

#[test]
fn joiners_and_watchers_hear_of_one_end_alike_before_and_after() {
    on_cores(1, async |_, _| {
        let task = spawn(async { 7 });
        let end = actor::monitor(task.pid());
        assert_eq!(soon(end).await.reason, ExitReason::Normal);
        assert_eq!(soon(task).await.unwrap(), 7, "joined after the end");
        let task = spawn(std::future::pending::<()>());
        let end = actor::monitor(task.pid());
        task.abort();
        assert!(soon(task).await.unwrap_err().is_cancelled(), "joined before the end");
        assert_eq!(soon(end).await.reason, ExitReason::Stopped);
    });
}

#[test]
fn the_end_of_a_run_finishes_what_is_queued_and_stops_what_is_parked_once() {
    use corelet::actor::supervisor::{ChildSpec, Supervisor};
    use std::sync::Mutex;

    /// Says in which way it ends.
    struct Ends(Arc<Mutex<Vec<&'static str>>>, &'static str);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(self.1);
        }
    }

    support::watched(|| {
        let runtime = support::runtime(2);
        let cores = runtime.cores();
        let ends = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&ends);
        let first = cores[0];
        let results = runtime.run(move || {
            let (log, cores) = (Arc::clone(&log), cores.clone());
            async move {
                if corelet::runtime::current_core() != Some(first) {
                    return 2;
                }
                // Parked for ever, watched and linked over both cores; and a timer that is far away.
                let theirs = Arc::clone(&log);
                let daemon = ChildSpec::new("daemon", async move || {
                    let _ends = Ends(Arc::clone(&theirs), "daemon");
                    sleep(Duration::from_secs(3600)).await
                });
                let daemon = Supervisor::builder().child(daemon.on(cores[1])).start().await.unwrap();
                let parked = Ends(Arc::clone(&log), "parked");
                actor::spawn(async move {
                    let _parked = parked;
                    actor::link(daemon);
                    actor::monitor(daemon).await
                });
                // Queued: it has some way to go, and goes it.
                let queued = Ends(Arc::clone(&log), "queued");
                actor::spawn(async move {
                    for _ in 0..100 {
                        yield_now().await;
                    }
                    queued.0.lock().unwrap().push("finished");
                });
                1
            }
        });
        assert_eq!(results.unwrap(), [1, 2]);
        let mut ends = ends.lock().unwrap().clone();
        assert_eq!(ends[..2], ["finished", "queued"], "before anything is stopped");
        ends[2..].sort_unstable();
        assert_eq!(ends[2..], ["daemon", "parked"]);
    });
}
