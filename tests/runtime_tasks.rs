//! Tasks and their handles: joined, aborted, stopped, detached, told apart, and run in a fair order.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::{PATIENCE, cores, on_core, within};
use corelet::runtime::{
    Core, JoinHandle, RawPid, current_core, current_task, sleep, spawn, timeout, yield_now,
};

/// Counts its drops.
#[derive(Clone, Default)]
struct Drops(Rc<Cell<u32>>);

struct Counted(Drops);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.set(self.0.0.get() + 1);
    }
}

impl Drops {
    fn probe(&self) -> Counted {
        Counted(self.clone())
    }

    fn count(&self) -> u32 {
        self.0.get()
    }
}

async fn let_others_run() {
    for _ in 0..4 {
        yield_now().await;
    }
}

#[test]
fn a_handle_gives_the_result() {
    on_core(|| async {
        let handle = spawn(async {
            yield_now().await;
            String::from("done")
        });
        assert!(!handle.is_finished());
        assert_eq!(handle.await.unwrap(), "done");
        let handle = spawn(async { 1 });
        let_others_run().await;
        assert!(handle.is_finished());
        assert_eq!(handle.await.unwrap(), 1);
    });
}

#[test]
fn a_spawned_task_does_not_run_before_its_parent_returns_to_the_executor() {
    on_core(|| async {
        let ran = Rc::new(Cell::new(false));
        let flag = Rc::clone(&ran);
        let child = spawn(async move { flag.set(true) });
        assert!(!ran.get());
        child.await.unwrap();
        assert!(ran.get());
    });
}

#[test]
fn a_task_aborted_before_its_first_poll_never_runs() {
    on_core(|| async {
        let drops = Drops::default();
        let probe = drops.probe();
        let task = spawn(async move {
            let _probe = probe;
            unreachable!("it was aborted first");
        });
        task.abort();
        assert_eq!(drops.count(), 0, "not before its next scheduling point");
        assert!(task.await.unwrap_err().is_cancelled());
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn a_task_aborted_while_parked_is_dropped_at_once() {
    on_core(|| async {
        let drops = Drops::default();
        let probe = drops.probe();
        let task = spawn(async move {
            let _probe = probe;
            pending::<()>().await;
        });
        let_others_run().await;
        task.abort();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn a_task_that_aborts_itself_ends_at_its_next_await() {
    on_core(|| async {
        let own: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
        let steps = Rc::new(Cell::new(0));
        let (handle, count) = (Rc::clone(&own), Rc::clone(&steps));
        own.replace(Some(spawn(async move {
            handle.borrow().as_ref().unwrap().abort();
            count.set(1);
            yield_now().await;
            count.set(2);
        })));
        let_others_run().await;
        let task = own.take().unwrap();
        assert!(task.await.unwrap_err().is_cancelled());
        assert_eq!(steps.get(), 1);
    });
}

#[test]
fn a_task_that_aborts_itself_and_returns_has_a_result() {
    on_core(|| async {
        let own: Rc<RefCell<Option<JoinHandle<i32>>>> = Rc::default();
        let handle = Rc::clone(&own);
        own.replace(Some(spawn(async move {
            handle.borrow().as_ref().unwrap().abort();
            5
        })));
        let_others_run().await;
        let task = own.take().unwrap();
        assert_eq!(task.await.unwrap(), 5);
    });
}

#[test]
fn aborting_a_finished_task_keeps_its_result() {
    on_core(|| async {
        let task = spawn(async { 9 });
        let_others_run().await;
        task.abort();
        let_others_run().await;
        assert_eq!(task.await.unwrap(), 9);
    });
}

#[test]
fn aborting_a_finished_task_leaves_the_next_tenant_of_its_slot_alone() {
    on_core(|| async {
        let old = spawn(async {});
        let_others_run().await;
        let new = spawn(async {
            let_others_run().await;
            "alive"
        });
        assert_eq!(old.pid().index(), new.pid().index(), "the slot is used again");
        assert_ne!(old.pid(), new.pid());
        old.abort();
        drop(old);
        assert_eq!(new.await.unwrap(), "alive");
    });
}

#[test]
fn dropping_the_handle_stops_the_task() {
    on_core(|| async {
        let drops = Drops::default();
        for ran_before in [false, true] {
            let probe = drops.probe();
            let task = spawn(async move {
                let _probe = probe;
                pending::<()>().await;
            });
            if ran_before {
                let_others_run().await;
            }
            drop(task);
            let_others_run().await;
        }
        assert_eq!(drops.count(), 2);
    });
}

#[test]
fn a_detached_task_runs_on() {
    on_core(|| async {
        let done = Rc::new(Cell::new(false));
        let flag = Rc::clone(&done);
        spawn(async move {
            let_others_run().await;
            flag.set(true);
        })
        .detach();
        for _ in 0..20 {
            yield_now().await;
        }
        assert!(done.get());
    });
}

#[test]
fn a_handle_may_be_awaited_by_another_task() {
    on_core(|| async {
        let mut first = spawn(async {
            sleep(Duration::from_millis(5)).await;
            21
        });
        // It was polled here before, so this task's waker must give way to the other's.
        poll_fn(|cx| {
            assert!(Pin::new(&mut first).poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        let second = spawn(async move { first.await.unwrap() * 2 });
        assert_eq!(second.await.unwrap(), 42);
    });
}

#[test]
fn awaiting_by_reference_is_cancel_safe() {
    on_core(|| async {
        let go = Rc::new(Cell::new(false));
        let may = Rc::clone(&go);
        let mut task = spawn(async move {
            while !may.get() {
                yield_now().await;
            }
            1
        });
        assert!(timeout(Duration::from_millis(1), &mut task).await.is_err());
        go.set(true);
        assert_eq!((&mut task).await.unwrap(), 1);
    });
}

#[test]
#[should_panic(expected = "polled after it had given its result")]
fn a_handle_polled_after_its_result_panics() {
    on_core(|| async {
        let mut task = spawn(async {});
        (&mut task).await.unwrap();
        let _ = task.await;
    });
}

#[test]
fn a_task_that_awaits_itself_can_be_aborted() {
    on_core(|| async {
        let own: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
        let handle = Rc::clone(&own);
        let drops = Drops::default();
        let probe = drops.probe();
        let task = spawn(async move {
            let _probe = probe;
            let own: JoinHandle<()> = poll_fn(|_| match handle.take() {
                Some(own) => Poll::Ready(own),
                None => Poll::Pending,
            })
            .await;
            let _ = own.await;
        });
        let stopper = spawn(async { 1 });
        own.replace(Some(task));
        let_others_run().await;
        assert_eq!(drops.count(), 0, "it waits for itself, for ever");
        stopper.await.unwrap();
        // Its own handle lies inside it: only the end of the core stops it now.
    });
}

#[test]
fn a_task_may_own_its_own_handle() {
    on_core(|| async {
        let drops = Drops::default();
        for ends in [true, false] {
            let own: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
            let (handle, probe) = (Rc::clone(&own), drops.probe());
            let task = spawn(async move {
                let _probe = probe;
                let own = handle.take();
                assert!(own.as_ref().is_some_and(|own| !own.is_finished()));
                if !ends {
                    own.as_ref().unwrap().abort();
                    pending::<()>().await;
                }
            });
            own.replace(Some(task));
            let_others_run().await;
        }
        assert_eq!(drops.count(), 2);
    });
}

#[test]
fn a_task_knows_its_identity() {
    on_core(|| async {
        let root = current_task().unwrap();
        let child = spawn(async { (current_task().unwrap(), current_core().unwrap()) });
        let named = child.pid();
        let (seen, core) = child.await.unwrap();
        assert_eq!(seen, named);
        assert_eq!(seen.core(), core);
        assert_ne!(seen, root);
    });
    assert_eq!(current_task(), None);
    assert_eq!(current_core(), None);
}

#[test]
fn no_two_tasks_ever_have_the_same_identity() {
    on_core(|| async {
        let mut seen = std::collections::HashSet::<RawPid>::new();
        for round in 0..1000 {
            let tasks: Vec<_> = (0..round % 7 + 1).map(|_| spawn(async {})).collect();
            for task in tasks {
                assert!(seen.insert(task.pid()));
                task.await.unwrap();
            }
        }
    });
}

#[test]
fn tasks_spawn_tasks_to_any_depth() {
    fn nest(left: u32) -> Pin<Box<dyn Future<Output = u32>>> {
        Box::pin(async move {
            match left {
                0 => 0,
                _ => spawn(nest(left - 1)).await.unwrap() + 1,
            }
        })
    }
    assert_eq!(on_core(|| nest(5000)), 5000);
}

#[test]
fn a_million_tasks_are_spawned_and_joined() {
    on_core(|| async {
        let count = Rc::new(Cell::new(0_u32));
        for _ in 0..100 {
            let batch: Vec<_> = (0..10_000)
                .map(|_| {
                    let count = Rc::clone(&count);
                    spawn(async move { count.set(count.get() + 1) })
                })
                .collect();
            for task in batch {
                task.await.unwrap();
            }
        }
        assert_eq!(count.get(), 1_000_000);
        assert_eq!(Rc::strong_count(&count), 1, "nothing of them is left");
    });
}

#[test]
fn yielding_tasks_take_turns() {
    on_core(|| async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..3)
            .map(|task| {
                let order = Rc::clone(&order);
                spawn(async move {
                    for _ in 0..5 {
                        order.borrow_mut().push(task);
                        yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.borrow(), [0, 1, 2].repeat(5));
    });
}

#[test]
fn a_task_that_is_always_ready_starves_neither_timers_nor_mail() {
    within(PATIENCE, || {
        let runtime = cores(1).build().unwrap();
        let core = runtime.cores()[0];
        let busy = runtime.spawn_on(core, || async {
            loop {
                yield_now().await;
            }
        });
        runtime.block_on(|| sleep(Duration::from_millis(5))).unwrap();
        let answer = runtime.spawn_on(core, || async { 3 }).unwrap();
        assert_eq!(common::wait_for(answer).unwrap(), 3);
        drop(busy);
    });
}

/// Parks until somebody uses the waker that it leaves behind.
async fn parked(waker: Rc<RefCell<Option<Waker>>>) {
    let mut left = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut left, true) {
            return Poll::Ready(());
        }
        waker.replace(Some(cx.waker().clone()));
        Poll::Pending
    })
    .await;
}

/// Has one task wake A, then B, with C already queued; gives the order in which the three ran.
async fn wake_two() -> Vec<&'static str> {
    let order = Rc::new(RefCell::new(Vec::new()));
    let wakers: [Rc<RefCell<Option<Waker>>>; 2] = Default::default();
    let sleepers: Vec<_> = ["A", "B"]
        .into_iter()
        .zip(&wakers)
        .map(|(name, waker)| {
            let (order, waker) = (Rc::clone(&order), Rc::clone(waker));
            spawn(async move {
                parked(waker).await;
                order.borrow_mut().push(name);
            })
        })
        .collect();
    let_others_run().await;
    let late = {
        let order = Rc::clone(&order);
        spawn(async move { order.borrow_mut().push("C") })
    };
    for waker in &wakers {
        waker.take().unwrap().wake();
    }
    for task in sleepers {
        task.await.unwrap();
    }
    late.await.unwrap();
    order.take()
}

#[test]
fn without_the_wake_slot_tasks_run_in_the_order_they_became_ready() {
    assert_eq!(on_core(wake_two), ["C", "A", "B"]);
}

#[test]
fn with_the_wake_slot_the_newest_wake_runs_next() {
    let order = within(PATIENCE, || {
        let runtime = cores(1).wake_slot(true).build().unwrap();
        runtime.block_on(wake_two).unwrap()
    });
    assert_eq!(order, ["B", "C", "A"]);
}

#[test]
fn the_wake_slot_can_be_switched_at_run_time() {
    let (_handle, mut guests) = cores(1).build_guests().unwrap();
    let mut core = guests.remove(0).start().unwrap();
    assert_eq!(core.block_on(wake_two()).unwrap(), ["C", "A", "B"]);
    let slot = |core: &Core| (core.stats().executor.slot_hits, core.stats().executor.slot_displaced);
    assert_eq!(slot(&core), (0, 0));
    core.set_wake_slot(true);
    assert_eq!(core.block_on(wake_two()).unwrap(), ["B", "C", "A"]);
    let counted = slot(&core);
    assert!(
        counted.0 >= 1 && counted.1 >= 1,
        "one ran from the slot, and pushed one out before: {counted:?}"
    );
    core.set_wake_slot(false);
    assert_eq!(core.block_on(wake_two()).unwrap(), ["C", "A", "B"]);
    assert_eq!(slot(&core), counted);
}

#[test]
fn two_tasks_that_wake_each_other_through_the_slot_starve_nobody() {
    within(PATIENCE, || {
        let runtime = cores(1).wake_slot(true).build().unwrap();
        runtime
            .block_on(|| async {
                let wakers: Rc<[RefCell<Option<Waker>>; 2]> = Rc::default();
                let players: Vec<_> = (0..2)
                    .map(|me| {
                        let wakers = Rc::clone(&wakers);
                        spawn(poll_fn(move |cx| {
                            wakers[me].replace(Some(cx.waker().clone()));
                            if let Some(other) = wakers[1 - me].take() {
                                other.wake();
                            }
                            Poll::<()>::Pending
                        }))
                    })
                    .collect();
                for _ in 0..100 {
                    yield_now().await;
                }
                sleep(Duration::from_millis(1)).await;
                drop(players);
            })
            .unwrap();
    });
}

#[test]
fn a_join_error_tells_its_cause() {
    on_core(|| async {
        let cancelled = {
            let task = spawn(pending::<()>());
            task.abort();
            task.await.unwrap_err()
        };
        assert!(cancelled.is_cancelled() && !cancelled.is_panic());
        assert_eq!(cancelled.to_string(), "the task was cancelled");
        assert!(cancelled.try_into_panic().unwrap_err().is_cancelled());

        let panicked = spawn(async { panic!("number {}", std::hint::black_box(7)) }).await.unwrap_err();
        assert!(panicked.is_panic() && !panicked.is_cancelled());
        assert!(panicked.to_string().contains("number 7"), "{panicked}");
        let payload = panicked.try_into_panic().unwrap();
        assert_eq!(payload.downcast_ref::<String>().unwrap(), "number 7");

        let odd = spawn(async { std::panic::panic_any(7_u8) }).await.unwrap_err();
        assert!(odd.is_panic());
        assert_eq!(*odd.try_into_panic().unwrap().downcast::<u8>().unwrap(), 7);
    });
}

#[test]
fn a_handle_may_be_polled_by_a_stranger() {
    on_core(|| async {
        let mut task = pin!(spawn(async {
            yield_now().await;
            2
        }));
        let mut cx = Context::from_waker(Waker::noop());
        while task.as_mut().poll(&mut cx).is_pending() {
            yield_now().await;
        }
    });
}

#[test]
fn a_join_error_travels_like_any_other_error() {
    fn any_error<E: std::error::Error + Send + Sync + 'static>() {}
    any_error::<corelet::runtime::JoinError>();
}
