//! Who watches an actor hears of its end once, with the reason, whatever ends first and wherever.

mod support;

use std::cell::{Cell, RefCell};
use std::panic::panic_any;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corelet::actor::{self, Addressable, Exit, ExitReason, Monitors, Pid, channel};
use corelet::runtime::{CoreId, RuntimeHandle, Simulation, handle, sleep, spawn, yield_now};
use support::{on_cores, poll_until, soon};

enum Orders {}

impl Addressable for Orders {
    type Msg = Order;
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Return,
    Panic,
    PanicWithoutText,
    PanicInDrop,
    Exit,
}

struct PanicsInDrop;

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("in the drop");
    }
}

async fn servant(runtime: &RuntimeHandle, core: CoreId) -> Pid<Orders> {
    let spawned = actor::spawn_addr_on::<Orders, _, _>(runtime, core, async |mut inbox| {
        match inbox.recv().await.unwrap() {
            Order::Return => {}
            Order::Panic => panic!("on purpose, {}", 1),
            Order::PanicWithoutText => panic_any(7),
            Order::PanicInDrop => {
                let _kept = PanicsInDrop;
                actor::request_stop(actor::myself().unwrap());
                std::future::pending().await
            }
            Order::Exit => actor::exit("had enough").await,
        }
    });
    soon(spawned).await.unwrap()
}

#[test]
fn the_reason_says_how_the_actor_ended_on_either_core() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            for (order, reason) in [
                (Order::Return, ExitReason::Normal),
                (Order::Panic, ExitReason::Panicked("on purpose, 1".into())),
                (Order::PanicWithoutText, ExitReason::Panicked("(not a text)".into())),
                (Order::PanicInDrop, ExitReason::Panicked("in the drop".into())),
                (Order::Exit, ExitReason::Failed("had enough".into())),
            ] {
                let pid = servant(&runtime, core).await;
                let monitor = actor::monitor(pid);
                assert_eq!((monitor.pid(), monitor.down()), (pid.erase(), None));
                actor::send_to(pid, order).unwrap();
                let down = soon(monitor).await;
                assert_eq!((down.pid, down.reason), (pid.erase(), reason));
            }
        }
    });
}

#[test]
fn a_watch_that_races_the_end_gives_one_message() {
    on_cores(2, async |runtime, cores| {
        let (mut late, mut in_time) = (0, 0);
        for round in 0..500 {
            let pid = servant(&runtime, cores[1]).await;
            actor::send_to(pid, Order::Exit).unwrap();
            // The end and the watch are on their way together, and meet in every order.
            for _ in 0..round % 40 {
                std::hint::spin_loop();
            }
            let mut monitors = Monitors::new();
            let single = actor::monitor(pid);
            assert!(monitors.watch(pid));
            for down in [soon(single).await, soon(monitors.recv()).await] {
                assert_eq!(down.pid, pid);
                match down.reason {
                    ExitReason::NoProcess => late += 1,
                    ExitReason::Failed(_) => in_time += 1,
                    other => panic!("{other}"),
                }
            }
            assert!(monitors.is_empty() && monitors.try_recv().is_none());
        }
        println!("{late} watches came too late and {in_time} in time");
        assert_eq!(late + in_time, 1_000);
    });
}

#[test]
fn many_watches_have_one_reader_who_hears_of_each_once() {
    on_cores(2, async |runtime, cores| {
        let mut monitors = Monitors::new();
        let mut pids = Vec::new();
        for number in 0..200 {
            let pid = servant(&runtime, cores[number % 2]).await;
            assert!(monitors.watch(pid));
            assert!(!monitors.watch(pid), "it is watched already");
            assert!(monitors.is_watching(pid));
            pids.push(pid);
        }
        assert_eq!(monitors.len(), 200);
        for pid in &pids {
            actor::send_to(*pid, Order::Return).unwrap();
        }
        let mut heard = Vec::new();
        while !monitors.is_empty() {
            let down = soon(monitors.recv()).await;
            assert_eq!(down.reason, ExitReason::Normal);
            heard.push(down.pid);
        }
        heard.sort();
        pids.sort();
        assert_eq!(heard, pids);
        assert!(monitors.watch(pids[0]), "what was heard of may be asked for again");
        assert_eq!(soon(monitors.recv()).await.reason, ExitReason::NoProcess);
    });
}

#[test]
fn nothing_is_heard_of_an_actor_that_is_not_watched_any_more() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            let mut monitors = Monitors::new();
            let (first, second) = (servant(&runtime, core).await, servant(&runtime, core).await);
            monitors.watch(first);
            monitors.watch(second);
            let control = actor::monitor(first);
            actor::send_to(first, Order::Return).unwrap();
            soon(control).await;
            assert!(monitors.unwatch(first), "though its end has come in already");
            assert!(!monitors.unwatch(first));
            assert!(monitors.try_recv().is_none());
            assert!(monitors.watch(first), "a new watch has its own end");
            assert_eq!(soon(monitors.recv()).await.reason, ExitReason::NoProcess);
            drop(monitors);
            actor::send_to(second, Order::Return).unwrap();
            soon(actor::monitor(second)).await;
        }
    });
}

#[test]
fn a_full_mailbox_loses_no_end() {
    on_cores(2, async |runtime, cores| {
        let heard = Rc::new(Cell::new(0));
        let (ready, mut readied) = channel::unbounded::<()>();
        let mut pids = Vec::new();
        for number in 0..100 {
            pids.push(servant(&runtime, cores[number % 2]).await);
        }
        let (theirs, watched) = (Rc::clone(&heard), pids.clone());
        let (clog, mut clogged) = channel::bounded::<u8>(1);
        let reader = spawn(async move {
            let mut exits = actor::trap_exits();
            for pid in &watched {
                actor::link(*pid);
            }
            clog.send(1).unwrap();
            assert!(clog.send(2).unwrap_err().is_full(), "its own mailbox is full");
            ready.send(()).unwrap();
            for _ in 0..watched.len() {
                let Exit { reason, .. } = exits.recv().await;
                assert_eq!(reason, ExitReason::Normal);
                theirs.set(theirs.get() + 1);
            }
            assert_eq!(clogged.try_recv(), Ok(1));
        });
        soon(readied.recv()).await.unwrap();
        for pid in pids {
            actor::send_to(pid, Order::Return).unwrap();
        }
        soon(reader).await.unwrap();
        assert_eq!(heard.get(), 100);
    });
}

#[test]
fn who_is_lost_with_a_core_is_heard_of_also_when_the_request_is() {
    for seed in 0..200 {
        let mut simulation = Simulation::new(seed, 3);
        let cores = simulation.cores();
        let faults = simulation.faults();
        simulation
            .block_on(move || async move {
                let victim = soon(servant(&handle(), cores[1])).await;
                let mut monitors = Monitors::new();
                let early = actor::monitor(victim);
                if seed % 2 == 0 {
                    // Else its registration may still be on its way when the core ends.
                    soon(servant(&handle(), cores[1])).await;
                }
                faults.kill_core(1);
                let late = actor::monitor(victim);
                monitors.watch(victim);
                for reason in [early.await.reason, late.await.reason, monitors.recv().await.reason] {
                    assert_eq!(reason, ExitReason::CoreEnded, "seed {seed}");
                }
                // It is gone for good now.
                let after = actor::monitor(victim).await.reason;
                assert_eq!(after, ExitReason::CoreEnded, "seed {seed}");
            })
            .unwrap();
    }
}

#[test]
fn a_core_that_watches_may_end_at_any_time() {
    for seed in 0..100 {
        let mut simulation = Simulation::new(seed, 2);
        let cores = simulation.cores();
        simulation
            .block_on(move || async move {
                let watched = actor::spawn(std::future::pending::<()>());
                let watcher = handle().spawn_on(cores[1], move || async move {
                    let mut monitors = Monitors::new();
                    monitors.watch(watched);
                    actor::monitor(watched).await;
                });
                watcher.unwrap().detach();
                for _ in 0..seed % 7 {
                    yield_now().await;
                }
            })
            .unwrap();
        simulation.kill_core(1);
        simulation.run_until_idle().unwrap();
        simulation.block_on(|| async {}).unwrap();
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_watcher_from_hearing() {
    struct Bomb(AtomicUsize);
    impl std::task::Wake for Bomb {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("a waker panics on purpose");
        }
    }
    on_cores(1, async |runtime, cores| {
        let pid = servant(&runtime, cores[0]).await;
        let bomb = Arc::new(Bomb(AtomicUsize::new(0)));
        let waker = Arc::clone(&bomb).into();
        let mut armed = actor::monitor(pid);
        assert!(
            std::pin::Pin::new(&mut armed).poll(&mut std::task::Context::from_waker(&waker)).is_pending()
        );
        let other = actor::monitor(pid);
        let follower = Rc::new(RefCell::new(None));
        let theirs = Rc::clone(&follower);
        let linked = actor::spawn(async move {
            actor::link(pid);
            theirs.replace(actor::myself());
            sleep(support::PATIENCE).await;
        });
        poll_until(async || follower.borrow().is_some()).await;
        actor::send_to(pid, Order::Exit).unwrap();
        assert_eq!(soon(other).await.reason, ExitReason::Failed("had enough".into()));
        assert_eq!(armed.down().unwrap().reason, ExitReason::Failed("had enough".into()));
        assert!(matches!(
            soon(actor::monitor(linked)).await.reason,
            ExitReason::NoProcess | ExitReason::Failed(_)
        ));
        assert_eq!(bomb.0.load(Ordering::SeqCst), 1);
    });
}
