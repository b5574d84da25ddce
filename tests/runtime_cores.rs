//! Tasks on other cores: started, joined, aborted, and cancelled when their core ends; and a great many of them.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use common::{PATIENCE, cores, eventually, wait_for, within};
use corelet::runtime::{current_core, handle, sleep, spawn, timeout, yield_now};
use futures_channel::{mpsc, oneshot};

/// Counts the live ones of its kind.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Alive {
        count.fetch_add(1, Ordering::AcqRel);
        Alive(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[test]
fn a_task_runs_on_the_core_it_was_sent_to() {
    within(PATIENCE, || {
        let runtime = cores(3).build().unwrap();
        let ids = runtime.cores();
        // From a thread that is no core's.
        for id in &ids {
            let task = runtime.spawn_on(*id, || async { current_core() }).unwrap();
            assert_eq!(wait_for(task).unwrap(), Some(*id));
        }
        // From each core to each, itself included.
        runtime
            .run(move || {
                let ids = ids.clone();
                async move {
                    for id in ids {
                        let task = handle().spawn_on(id, || async {
                            yield_now().await;
                            current_core()
                        });
                        assert_eq!(task.unwrap().await.unwrap(), Some(id));
                    }
                }
            })
            .unwrap();
    });
}

#[test]
fn a_core_of_another_runtime_is_refused() {
    within(PATIENCE, || {
        let (one, other) = (cores(1).build().unwrap(), cores(1).build().unwrap());
        let theirs = other.cores()[0];
        let refused = one.spawn_on(theirs, || async {}).unwrap_err();
        assert_eq!(refused.core, theirs);
        assert_eq!(refused.to_string(), format!("{theirs:?} is not a core of this runtime"));
    });
}

#[test]
fn aborting_from_afar_drops_the_task_over_there() {
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let alive = Arc::new(AtomicUsize::new(0));
        for id in runtime.cores() {
            let probe = Alive::new(&alive);
            let mut task = runtime
                .spawn_on(id, move || async move {
                    let _probe = probe;
                    pending::<()>().await;
                })
                .unwrap();
            task.abort();
            assert!(wait_for(task).unwrap_err().is_cancelled());
            assert_eq!(alive.load(Ordering::Acquire), 0, "dropped before its handle says so");
        }
    });
}

#[test]
fn aborting_from_afar_does_not_undo_a_result() {
    within(PATIENCE, || {
        let runtime = cores(1).build().unwrap();
        let mut task = runtime.spawn_on(runtime.cores()[0], || async { 6 }).unwrap();
        runtime.block_on(yield_now).unwrap();
        task.abort();
        assert_eq!(wait_for(task).unwrap(), 6);
    });
}

#[test]
fn dropping_the_handle_from_afar_stops_the_task() {
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let alive = Arc::new(AtomicUsize::new(0));
        for round in 0..50 {
            let probe = Alive::new(&alive);
            let task = runtime.spawn_on(runtime.cores()[round % 2], move || async move {
                let _probe = probe;
                pending::<()>().await;
            });
            if round % 3 == 0 {
                runtime.block_on(yield_now).unwrap();
            }
            drop(task);
        }
        eventually("all are stopped", || alive.load(Ordering::Acquire) == 0);
    });
}

#[test]
fn a_task_detached_from_afar_runs_on() {
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let (send, receive) = oneshot::channel();
        let (go, gone) = oneshot::channel::<()>();
        runtime
            .spawn_on(runtime.cores()[1], || async move {
                gone.await.unwrap();
                send.send(1).unwrap();
            })
            .unwrap()
            .detach();
        go.send(()).unwrap();
        assert_eq!(wait_for(receive), Ok(1));
    });
}

#[test]
fn a_panic_over_there_comes_home_as_an_error() {
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let far = runtime.cores()[1];
        let in_future = runtime.spawn_on(far, || async { panic!("far away") }).unwrap();
        let error = wait_for(in_future).unwrap_err();
        assert!(error.is_panic() && error.to_string().contains("far away"));
        let in_closure = runtime.spawn_on(far, || -> std::future::Ready<()> { panic!("even earlier") });
        let error = wait_for(in_closure.unwrap()).unwrap_err();
        assert!(error.is_panic() && error.to_string().contains("even earlier"), "{error}");
        assert_eq!(wait_for(runtime.spawn_on(far, || async { 2 }).unwrap()).unwrap(), 2);
    });
}

#[test]
fn tasks_of_an_ended_core_are_cancelled() {
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let (handle, ids) = (runtime.handle(), runtime.cores());
        let before = handle.spawn_on(ids[1], pending::<()>).unwrap();
        // Another runtime's task waits for one of this.
        let onlooker = cores(1).build().unwrap();
        let watched = handle.spawn_on(ids[0], pending::<()>).unwrap();
        let watcher = onlooker.spawn_on(onlooker.cores()[0], move || watched).unwrap();
        drop(runtime);
        assert!(wait_for(before).unwrap_err().is_cancelled());
        assert!(wait_for(watcher).unwrap().unwrap_err().is_cancelled());
        let after = handle.spawn_on(ids[0], || async { unreachable!("the core has ended") });
        assert!(wait_for(after.unwrap()).map(|(): ()| ()).unwrap_err().is_cancelled());
    });
}

#[test]
fn what_a_task_leaks_does_not_keep_its_core_open() {
    within(PATIENCE, || {
        let runtime = cores(1).build().unwrap();
        let (handle, id) = (runtime.handle(), runtime.cores()[0]);
        runtime.block_on(|| async { std::mem::forget(sleep(Duration::from_secs(3600))) }).unwrap();
        drop(runtime);
        let late = handle.spawn_on(id, || async {}).unwrap();
        assert!(wait_for(late).unwrap_err().is_cancelled());
    });
}

#[test]
fn tasks_sent_while_a_runtime_ends_run_or_are_cancelled() {
    within(PATIENCE, || {
        for _ in 0..30 {
            let runtime = cores(2).build().unwrap();
            let (handle, ids) = (runtime.handle(), runtime.cores());
            let alive = Arc::new(AtomicUsize::new(0));
            let sender = {
                let alive = Arc::clone(&alive);
                std::thread::spawn(move || {
                    let tasks: Vec<_> = (0..500)
                        .map(|round| {
                            let probe = Alive::new(&alive);
                            let task = move || async move {
                                yield_now().await;
                                drop(probe);
                            };
                            handle.spawn_on(ids[round % 2], task).unwrap()
                        })
                        .collect();
                    for task in tasks {
                        match wait_for(task) {
                            Ok(()) => {}
                            Err(error) => assert!(error.is_cancelled()),
                        }
                    }
                })
            };
            drop(runtime);
            sender.join().unwrap();
            assert_eq!(alive.load(Ordering::Acquire), 0);
        }
    });
}

#[test]
fn a_hundred_thousand_jobs_at_once_all_run() {
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let ids = runtime.cores();
        let sum = Arc::new(AtomicU64::new(0));
        for number in 0..100_000_u64 {
            let sum = Arc::clone(&sum);
            let job = move || async move {
                sum.fetch_add(number, Ordering::Relaxed);
            };
            runtime.spawn_on(ids[number as usize % 2], job).unwrap().detach();
        }
        runtime.run(|| async {}).unwrap();
        assert_eq!(sum.load(Ordering::Relaxed), 4_999_950_000);
    });
}

#[test]
fn two_cores_flood_each_other_and_finish() {
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let ids = runtime.cores();
        let sums = runtime
            .run(move || {
                let ids = ids.clone();
                async move {
                    let other = if current_core() == Some(ids[0]) { ids[1] } else { ids[0] };
                    let tasks: Vec<_> = (0..5000_u64)
                        .map(|number| handle().spawn_on(other, move || async move { number }).unwrap())
                        .collect();
                    let mut sum = 0;
                    for task in tasks {
                        sum += task.await.unwrap();
                    }
                    sum
                }
            })
            .unwrap();
        assert_eq!(sums, [12_497_500; 2]);
    });
}

#[test]
fn a_ball_goes_to_and_fro() {
    for spin in [Duration::ZERO, Duration::from_micros(50)] {
        within(PATIENCE, move || {
            const ROUNDS: u32 = 5000;
            let runtime = cores(2).busy_poll(spin).build().unwrap();
            let ids = runtime.cores();
            let (mut to_b, mut at_b) = mpsc::channel::<u32>(1);
            let (mut to_a, mut at_a) = mpsc::channel::<u32>(1);
            let b = runtime.spawn_on(ids[1], move || async move {
                while let Ok(ball) = at_b.recv().await {
                    to_a.try_send(ball + 1).unwrap();
                }
            });
            let a = runtime.spawn_on(ids[0], move || async move {
                let mut ball = 0;
                while ball < ROUNDS {
                    to_b.try_send(ball).unwrap();
                    ball = at_a.recv().await.unwrap();
                }
                ball
            });
            assert_eq!(wait_for(a.unwrap()).unwrap(), ROUNDS);
            wait_for(b.unwrap()).unwrap();
        });
    }
}

#[test]
fn time_and_other_work_go_on_while_a_task_waits_for_another_core() {
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let far = runtime.cores()[1];
        runtime
            .block_on(move || async move {
                // The task over there ends when some time has passed here.
                let (ticked, four_ticks) = oneshot::channel();
                let ticker = spawn(async move {
                    for _ in 0..4 {
                        sleep(Duration::from_millis(1)).await;
                    }
                    ticked.send(()).unwrap();
                });
                handle().spawn_on(far, || four_ticks).unwrap().await.unwrap().unwrap();
                ticker.await.unwrap();
                // A wait that is given up stops the task over there.
                let (alive, gone) = oneshot::channel::<()>();
                let never = handle()
                    .spawn_on(far, || async move {
                        let _alive = alive;
                        pending::<()>().await;
                    })
                    .unwrap();
                assert!(timeout(Duration::from_millis(5), never).await.is_err());
                assert!(gone.await.is_err());
            })
            .unwrap();
    });
}
