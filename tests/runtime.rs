//! The life of a runtime: it starts, runs its roots, finishes what is queued, stops what is parked, and is gone.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use common::{PATIENCE, cores, eventually, threads_named, wait_for, within};
use corelet::runtime::{
    self, CoreId, Cores, Runtime, RuntimeHandle, current_core, interval, spawn, yield_now,
};

/// Writes down that it was dropped, and where.
struct Probe {
    name: &'static str,
    log: Log,
}

type Log = Arc<Mutex<Vec<(&'static str, ThreadId)>>>;

impl Drop for Probe {
    fn drop(&mut self) {
        self.log.lock().unwrap().push((self.name, std::thread::current().id()));
    }
}

struct PanicsInDrop(&'static str);

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("{}", self.0);
    }
}

#[test]
fn run_gives_the_result_of_every_core_in_order() {
    within(PATIENCE, || {
        let runtime = cores(4).build().unwrap();
        let ids = runtime.cores();
        assert_eq!(ids.len(), 4);
        let results = runtime.run(|| async { current_core().unwrap() }).unwrap();
        assert_eq!(results, ids);
    });
}

#[test]
fn root_exit_finishes_queued_work() {
    within(PATIENCE, || {
        let done = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&done);
        cores(2)
            .build()
            .unwrap()
            .run(move || {
                let counter = Arc::clone(&counter);
                async move {
                    for _ in 0..500 {
                        let counter = Arc::clone(&counter);
                        spawn(async move {
                            for _ in 0..10 {
                                yield_now().await;
                            }
                            counter.fetch_add(1, Ordering::Relaxed);
                        })
                        .detach();
                    }
                }
            })
            .unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 1000);
    });
}

fn hop(handle: RuntimeHandle, ids: Vec<CoreId>, left: usize, done: Arc<AtomicUsize>) {
    if left == 0 {
        done.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let target = ids[left % ids.len()];
    let next = handle.clone();
    let task = move || async move {
        yield_now().await;
        hop(next, ids, left - 1, done);
    };
    handle.spawn_on(target, task).unwrap().detach();
}

#[test]
fn root_exit_finishes_work_that_hops_between_cores() {
    for _ in 0..20 {
        within(PATIENCE, || {
            let runtime = cores(3).build().unwrap();
            let ids = runtime.cores();
            let done = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&done);
            runtime
                .run(move || {
                    let (ids, counter) = (ids.clone(), Arc::clone(&counter));
                    async move { hop(runtime::handle(), ids, 100, counter) }
                })
                .unwrap();
            assert_eq!(done.load(Ordering::Relaxed), 3);
        });
    }
}

#[test]
fn parked_tasks_are_stopped_once_and_after_the_queued_work() {
    within(PATIENCE, || {
        let log = Log::default();
        let kept = Arc::clone(&log);
        let threads = cores(1)
            .build()
            .unwrap()
            .run(move || {
                let log = Arc::clone(&log);
                async move {
                    for name in ["parked 1", "parked 2", "parked 3"] {
                        let probe = Probe { name, log: Arc::clone(&log) };
                        spawn(async move {
                            let _probe = probe;
                            pending::<()>().await;
                        })
                        .detach();
                    }
                    let probe = Probe { name: "queued", log };
                    spawn(async move {
                        let _probe = probe;
                        for _ in 0..1000 {
                            yield_now().await;
                        }
                    })
                    .detach();
                    std::thread::current().id()
                }
            })
            .unwrap();
        let log = kept.lock().unwrap();
        let mut names: Vec<_> = log.iter().map(|(name, _)| *name).collect();
        assert_eq!(names[0], "queued");
        names[1..].sort();
        assert_eq!(names[1..], ["parked 1", "parked 2", "parked 3"]);
        assert!(log.iter().all(|(_, thread)| *thread == threads[0]), "dropped off its core: {log:?}");
    });
}

#[test]
fn a_parked_daemon_does_not_hold_up_the_end() {
    within(PATIENCE, || {
        let begun = Instant::now();
        cores(2)
            .build()
            .unwrap()
            .run(|| async {
                spawn(pending::<()>()).detach();
                spawn(runtime::sleep(Duration::from_secs(3600))).detach();
            })
            .unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10));
    });
}

#[test]
fn a_ticking_daemon_does_not_hold_up_the_end() {
    within(PATIENCE, || {
        cores(2)
            .build()
            .unwrap()
            .run(|| async {
                spawn(async {
                    let mut ticks = interval(Duration::from_micros(500));
                    loop {
                        ticks.tick().await;
                    }
                })
                .detach();
            })
            .unwrap();
    });
}

#[test]
fn a_task_that_yields_for_ever_does_not_hold_up_the_end() {
    let log = Log::default();
    let kept = Arc::clone(&log);
    within(PATIENCE, || {
        cores(1)
            .build()
            .unwrap()
            .run(move || {
                let probe = Probe { name: "busy", log: Arc::clone(&log) };
                async move {
                    spawn(async move {
                        let _probe = probe;
                        loop {
                            yield_now().await;
                        }
                    })
                    .detach();
                }
            })
            .unwrap();
    });
    assert_eq!(kept.lock().unwrap().len(), 1);
}

#[test]
fn dropping_a_runtime_stops_the_tasks_in_flight() {
    within(PATIENCE, || {
        let log = Log::default();
        let runtime = cores(2).build().unwrap();
        let mut handles = Vec::new();
        for core in runtime.cores() {
            for _ in 0..10 {
                let probe = Probe { name: "stopped", log: Arc::clone(&log) };
                let task = move || async move {
                    let _probe = probe;
                    pending::<()>().await;
                };
                handles.push(runtime.spawn_on(core, task).unwrap());
            }
        }
        drop(runtime);
        assert_eq!(log.lock().unwrap().len(), 20);
        for handle in handles {
            assert!(wait_for(handle).unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn the_threads_are_gone_when_the_runtime_is() {
    within(PATIENCE, || {
        for round in 0..10 {
            let runtime = cores(3).thread_name("gone").build().unwrap();
            eventually("three threads", || threads_named("gone-") == 3);
            match round % 2 {
                0 => drop(runtime),
                _ => drop(runtime.run(|| async {}).unwrap()),
            }
            // A joined thread stays listed for the instant the kernel needs to bury it.
            eventually("no thread", || threads_named("gone-") == 0);
        }
    });
}

#[test]
fn each_thread_is_pinned_to_its_core() {
    within(PATIENCE, || {
        let allowed = affinity();
        let runtime = Runtime::builder().cores(Cores::All).build().unwrap();
        let masks = runtime.run(|| async { affinity() }).unwrap();
        assert!(masks.iter().all(|mask| mask.len() == 1), "{masks:?}");
        assert_eq!(masks.concat(), allowed);
    });
}

#[test]
fn without_pinning_threads_may_run_anywhere() {
    within(PATIENCE, || {
        let allowed = affinity();
        let masks = cores(2).build().unwrap().run(|| async { affinity() }).unwrap();
        assert!(masks.iter().all(|mask| *mask == allowed), "{masks:?}");
    });
}

/// The cores that the calling thread may run on.
#[allow(unsafe_code)]
fn affinity() -> Vec<usize> {
    // SAFETY: the set is plain bits, filled by the call; the macros stay inside it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|core| libc::CPU_ISSET(*core, &set)).collect()
    }
}

#[test]
fn futures_need_not_be_send() {
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let count = runtime.block_on(|| async {
            let shared = Rc::new(Cell::new(0));
            let theirs = Rc::clone(&shared);
            let returned = spawn(async move {
                yield_now().await;
                theirs.set(theirs.get() + 1);
                theirs
            });
            let theirs = returned.await.unwrap();
            assert!(Rc::ptr_eq(&shared, &theirs));
            shared.get()
        });
        assert_eq!(count.unwrap(), 1);
        let far = runtime.cores()[1];
        let made_there = runtime.spawn_on(far, || {
            let not_send = Rc::new(5);
            async move {
                yield_now().await;
                *not_send
            }
        });
        assert_eq!(wait_for(made_there.unwrap()).unwrap(), 5);
    });
}

#[test]
fn block_on_may_be_called_again_and_again() {
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let first = runtime.cores()[0];
        for round in 0..100 {
            let answer = runtime.block_on(move || async move {
                yield_now().await;
                (round, current_core().unwrap())
            });
            assert_eq!(answer.unwrap(), (round, first));
        }
        assert_eq!(runtime.run(|| async { 1 }).unwrap(), [1, 1]);
    });
}

#[test]
fn several_threads_may_block_on_one_runtime() {
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let runtime = &runtime;
                scope.spawn(move || {
                    for _ in 0..50 {
                        assert_eq!(runtime.block_on(move || async move { thread }).unwrap(), thread);
                    }
                });
            }
        });
    });
}

#[test]
fn a_panic_in_block_on_is_an_error_and_the_runtime_goes_on() {
    within(PATIENCE, || {
        let runtime = cores(1).build().unwrap();
        let in_future = runtime.block_on(|| async { panic!("in the future") }).unwrap_err();
        assert!(in_future.is_panic() && in_future.to_string().contains("in the future"));
        let in_closure = runtime
            .block_on(|| {
                if true {
                    panic!("in the closure")
                }
                async {}
            })
            .unwrap_err();
        assert!(in_closure.is_panic() && in_closure.to_string().contains("in the closure"));
        assert_eq!(runtime.block_on(|| async { 7 }).unwrap(), 7);
    });
}

#[test]
fn a_panic_in_one_root_is_reported_after_the_others_have_ended() {
    within(PATIENCE, || {
        let runtime = cores(3).build().unwrap();
        let unlucky = runtime.cores()[1];
        let ended = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&ended);
        let error = runtime
            .run(move || {
                let counter = Arc::clone(&counter);
                async move {
                    if current_core() == Some(unlucky) {
                        panic!("one root");
                    }
                    runtime::sleep(Duration::from_millis(30)).await;
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            })
            .unwrap_err();
        assert!(error.is_panic() && error.to_string().contains("one root"));
        assert_eq!(ended.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_panic_ends_its_own_task_only() {
    common::on_core(|| async {
        let error = spawn(async { panic!("on purpose") }).await.unwrap_err();
        assert!(error.is_panic() && error.to_string().contains("on purpose"));
        yield_now().await;
    });
}

#[test]
fn a_panic_in_the_destructor_of_a_stopped_task_is_contained() {
    within(PATIENCE, || {
        let log = Log::default();
        let runtime = cores(1).build().unwrap();
        let probes = Arc::clone(&log);
        runtime
            .block_on(|| async move {
                // Stopped by its handle.
                let stopped = spawn(async {
                    let _bomb = PanicsInDrop("in a stopped task");
                    pending::<()>().await;
                });
                yield_now().await;
                stopped.abort();
                let error = stopped.await.unwrap_err();
                assert!(error.is_panic() && error.to_string().contains("in a stopped task"));
                // Stopped by the end of the runtime, between two others.
                for name in ["before", "bomb", "after"] {
                    let probe = Probe { name, log: Arc::clone(&probes) };
                    spawn(async move {
                        let _bomb = (name == "bomb").then(|| PanicsInDrop("at the end"));
                        let _probe = probe;
                        pending::<()>().await;
                    })
                    .detach();
                }
                yield_now().await;
            })
            .unwrap();
        drop(runtime);
        assert_eq!(log.lock().unwrap().len(), 3);
    });
}

#[test]
fn a_panic_in_the_drop_of_an_unwanted_result_is_contained() {
    common::on_core(|| async {
        spawn(async { PanicsInDrop("an unwanted result") }).detach();
        for _ in 0..3 {
            yield_now().await;
        }
        assert_eq!(spawn(async { 3 }).await.unwrap(), 3);
    });
}

#[test]
fn a_panic_whose_payload_panics_in_its_own_drop_is_contained() {
    common::on_core(|| async {
        spawn(async { std::panic::panic_any(PanicsInDrop("a payload")) }).detach();
        for _ in 0..3 {
            yield_now().await;
        }
        struct Nested;
        impl Drop for Nested {
            fn drop(&mut self) {
                std::panic::panic_any(PanicsInDrop("a payload of a drop"));
            }
        }
        spawn(async { Nested }).detach();
        for _ in 0..3 {
            yield_now().await;
        }
        assert_eq!(spawn(async { 3 }).await.unwrap(), 3);
    });
}

#[test]
fn panics_in_the_drops_of_both_a_future_and_its_result_are_contained() {
    struct Both {
        _bomb: PanicsInDrop,
    }
    impl Future for Both {
        type Output = PanicsInDrop;
        fn poll(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<PanicsInDrop> {
            std::task::Poll::Ready(PanicsInDrop("the result"))
        }
    }
    common::on_core(|| async {
        let error = spawn(Both { _bomb: PanicsInDrop("the future") }).await.map(drop).unwrap_err();
        assert!(error.is_panic() && error.to_string().contains("the future"), "{error}");
        assert_eq!(spawn(async { 3 }).await.unwrap(), 3);
    });
}

#[test]
fn of_several_panics_the_first_is_the_tasks() {
    common::on_core(|| async {
        let task = spawn(poll_fn({
            let bomb = PanicsInDrop("the future's drop");
            move |_| -> Poll<()> {
                let _bomb = &bomb;
                panic!("the poll")
            }
        }));
        let error = task.await.unwrap_err();
        assert!(error.is_panic() && error.to_string().contains("the poll"), "{error}");
    });
}

#[test]
fn a_task_spawned_by_the_destructor_of_a_stopped_one_ends_cancelled() {
    struct SpawnsInDrop(Log);
    impl Drop for SpawnsInDrop {
        fn drop(&mut self) {
            let probe = Probe { name: "late", log: Arc::clone(&self.0) };
            let late = spawn(async move {
                drop(probe);
                unreachable!("nothing runs on a core that has shut down");
            });
            assert!(late.is_finished());
            late.detach();
        }
    }
    within(PATIENCE, || {
        let log = Log::default();
        let runtime = cores(1).build().unwrap();
        let theirs = Arc::clone(&log);
        runtime
            .block_on(move || async move {
                spawn(async move {
                    let _late = SpawnsInDrop(theirs);
                    pending::<()>().await;
                })
                .detach();
                yield_now().await;
            })
            .unwrap();
        drop(runtime);
        assert_eq!(log.lock().unwrap().len(), 1);
    });
}

#[test]
fn the_last_owner_of_a_runtime_may_be_a_task_of_its_own() {
    within(PATIENCE, || {
        let runtime = Arc::new(cores(2).thread_name("ownr").build().unwrap());
        let first = runtime.cores()[0];
        let theirs = Arc::clone(&runtime);
        let (release, released) = futures_channel::oneshot::channel::<()>();
        let owner = runtime
            .spawn_on(first, move || async move {
                released.await.unwrap();
                drop(theirs);
            })
            .unwrap();
        drop(runtime);
        release.send(()).unwrap();
        wait_for(owner).unwrap();
        eventually("both threads have ended", || threads_named("ownr-") == 0);
    });
}

#[test]
fn a_core_that_blocks_on_its_own_runtime_is_told_so() {
    within(PATIENCE, || {
        let runtime = Arc::new(cores(2).build().unwrap());
        let theirs = Arc::clone(&runtime);
        let error = runtime.block_on(move || async move { theirs.block_on(|| async {}).is_ok() });
        let error = error.unwrap_err();
        assert!(error.is_panic() && error.to_string().contains("cannot block on its own runtime"), "{error}");
    });
}

#[test]
fn a_runtime_may_run_inside_a_task_of_another() {
    within(PATIENCE, || {
        let outer = cores(1).build().unwrap();
        let answer = outer.block_on(|| async {
            let inner = cores(1).build().unwrap();
            assert_ne!(inner.cores()[0], current_core().unwrap());
            inner.block_on(|| async { 11 }).unwrap()
        });
        assert_eq!(answer.unwrap(), 11);
    });
}
