//! Wakers work from every thread, before and after their task, their core and their runtime have ended.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::cell::RefCell;
use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread::ThreadId;

use common::{PATIENCE, cores, on_core, wait_for, within};
use corelet::runtime::{spawn, yield_now};
use futures_channel::oneshot;

/// Gives the running task's waker.
async fn own_waker() -> Waker {
    poll_fn(|cx| Poll::Ready(cx.waker().clone())).await
}

#[test]
fn a_waker_is_cloned_woken_and_dropped_on_foreign_threads() {
    on_core(|| async {
        for _ in 0..100 {
            let ready = Arc::new(AtomicBool::new(false));
            let mut thread = None;
            poll_fn(|cx| {
                if ready.load(Ordering::Acquire) {
                    return Poll::Ready(());
                }
                if thread.is_none() {
                    let (waker, ready) = (cx.waker().clone(), Arc::clone(&ready));
                    thread = Some(std::thread::spawn(move || {
                        let copies: Vec<Waker> = (0..10).map(|_| waker.clone()).collect();
                        assert!(copies[3].will_wake(&waker));
                        ready.store(true, Ordering::Release);
                        copies[0].wake_by_ref();
                        copies.into_iter().skip(5).for_each(Waker::wake);
                    }));
                }
                Poll::Pending
            })
            .await;
            thread.unwrap().join().unwrap();
        }
    });
}

#[test]
fn a_waker_works_while_its_thread_is_being_torn_down() {
    thread_local!(static AT_EXIT: RefCell<Option<WakesInDrop>> = const { RefCell::new(None) });
    struct WakesInDrop(Waker, Arc<AtomicBool>);
    impl Drop for WakesInDrop {
        fn drop(&mut self) {
            self.1.store(true, Ordering::Release);
            self.0.wake_by_ref();
        }
    }
    on_core(|| async {
        let ready = Arc::new(AtomicBool::new(false));
        let mut started = false;
        poll_fn(|cx| {
            if ready.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut started, true) {
                let last = WakesInDrop(cx.waker().clone(), Arc::clone(&ready));
                std::thread::spawn(move || AT_EXIT.set(Some(last)));
            }
            Poll::Pending
        })
        .await;
    });
}

#[test]
fn a_waker_of_an_ended_task_does_nothing() {
    on_core(|| async {
        let stale = spawn(own_waker()).await.unwrap();
        let polls = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&polls);
        // The next tenant of the slot.
        let tenant = spawn(poll_fn(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Poll::<()>::Pending
        }));
        yield_now().await;
        stale.wake_by_ref();
        std::thread::spawn(move || stale.wake()).join().unwrap();
        for _ in 0..10 {
            yield_now().await;
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        drop(tenant);
    });
}

#[test]
fn a_waker_outlives_its_runtime_and_holds_nothing() {
    within(PATIENCE, || {
        let memory = Arc::new(());
        let runtime = cores(2).build().unwrap();
        let theirs = Arc::clone(&memory);
        let waker = runtime
            .block_on(|| async move {
                let (send, waker) = oneshot::channel();
                spawn(async move {
                    let _memory = theirs;
                    send.send(own_waker().await).unwrap();
                    pending::<()>().await;
                })
                .detach();
                waker.await.unwrap()
            })
            .unwrap();
        assert_eq!(Arc::strong_count(&memory), 2);
        drop(runtime);
        assert_eq!(Arc::strong_count(&memory), 1, "the task was freed although its waker lives");
        waker.wake_by_ref();
        let copy = waker.clone();
        std::thread::spawn(move || copy.wake()).join().unwrap();
        // Also with another runtime in the same place.
        let polls = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&polls);
        let runtime = cores(2).build().unwrap();
        runtime
            .block_on(move || async move {
                for _ in 0..20 {
                    let count = Arc::clone(&count);
                    spawn(poll_fn(move |_| {
                        count.fetch_add(1, Ordering::Relaxed);
                        Poll::<()>::Pending
                    }))
                    .detach();
                }
                yield_now().await;
                waker.wake();
                for _ in 0..10 {
                    yield_now().await;
                }
            })
            .unwrap();
        assert_eq!(polls.load(Ordering::Relaxed), 20);
    });
}

#[test]
fn two_racing_foreign_wakes_never_strand_a_task() {
    within(PATIENCE, || {
        const ROUNDS: usize = 3000;
        let barrier = Arc::new(Barrier::new(2));
        let flags: Arc<[AtomicUsize; 2]> = Arc::default();
        let (give, threads): (Vec<_>, Vec<_>) = (0..2)
            .map(|me| {
                let (give, wakers) = mpsc::channel::<Waker>();
                let (barrier, flags) = (Arc::clone(&barrier), Arc::clone(&flags));
                let thread = std::thread::spawn(move || {
                    for waker in wakers {
                        barrier.wait();
                        flags[me].fetch_add(1, Ordering::Release);
                        waker.wake();
                    }
                });
                (give, thread)
            })
            .unzip();
        let runtime = cores(1).build().unwrap();
        runtime
            .block_on(move || async move {
                for round in 1..=ROUNDS {
                    let mut asked = false;
                    poll_fn(|cx| {
                        if !std::mem::replace(&mut asked, true) {
                            give.iter().for_each(|give| give.send(cx.waker().clone()).unwrap());
                        }
                        match flags.iter().all(|flag| flag.load(Ordering::Acquire) >= round) {
                            true => Poll::Ready(()),
                            false => Poll::Pending,
                        }
                    })
                    .await;
                }
            })
            .unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn thousands_of_foreign_wakes_at_once_all_arrive() {
    within(PATIENCE, || {
        const TASKS: usize = 5000;
        let runtime = cores(2).build().unwrap();
        let wakers = Arc::new(Mutex::new(Vec::new()));
        let open = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (wakers, open) = (Arc::clone(&wakers), Arc::clone(&open));
                let body = move || {
                    poll_fn(move |cx| {
                        if open.load(Ordering::Acquire) {
                            return Poll::Ready(());
                        }
                        wakers.lock().unwrap().push(cx.waker().clone());
                        Poll::Pending
                    })
                };
                runtime.spawn_on(runtime.cores()[task % 2], body).unwrap()
            })
            .collect();
        common::eventually("all are parked", || wakers.lock().unwrap().len() == TASKS);
        {
            // A wake returns although the woken tasks want the lock that is held here.
            let wakers = wakers.lock().unwrap();
            for _ in 0..3 {
                wakers.iter().for_each(Waker::wake_by_ref);
            }
            open.store(true, Ordering::Release);
            wakers.iter().for_each(Waker::wake_by_ref);
        }
        for task in tasks {
            wait_for(task).unwrap();
        }
    });
}

#[test]
fn a_reply_from_another_thread_is_delivered() {
    on_core(|| async {
        let (ask, questions) = mpsc::channel::<(u32, oneshot::Sender<u32>)>();
        let thread = std::thread::spawn(move || {
            for (question, reply) in questions {
                reply.send(question * 2).unwrap();
            }
        });
        for question in 0..1000 {
            let (reply, answer) = oneshot::channel();
            ask.send((question, reply)).unwrap();
            assert_eq!(answer.await.unwrap(), question * 2);
        }
        drop(ask);
        thread.join().unwrap();
    });
}

/// Writes down the thread that drops it.
struct DroppedOn(Arc<Mutex<Vec<ThreadId>>>);

impl Drop for DroppedOn {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(std::thread::current().id());
    }
}

#[test]
fn a_future_is_dropped_on_its_own_core_only() {
    within(PATIENCE, || {
        let dropped_on = Arc::new(Mutex::new(Vec::new()));
        let runtime = cores(1).build().unwrap();
        let core = runtime.cores()[0];
        let home = runtime.block_on(|| async { std::thread::current().id() }).unwrap();
        let start = || {
            // Made over there; the thread that asks never holds the future.
            let list = Arc::clone(&dropped_on);
            runtime
                .spawn_on(core, move || {
                    let probe = DroppedOn(list);
                    async move {
                        let _probe = probe;
                        pending::<()>().await;
                    }
                })
                .unwrap()
        };
        // Aborted, handle dropped, woken to death by a foreign waker, left behind by the runtime.
        let mut aborted = start();
        aborted.abort();
        assert!(wait_for(aborted).unwrap_err().is_cancelled());
        let dropped = start();
        std::thread::spawn(move || drop(dropped)).join().unwrap();
        let list = Arc::clone(&dropped_on);
        let (give, waker) = mpsc::channel();
        let woken = runtime.spawn_on(core, move || {
            let probe = DroppedOn(list);
            let mut polls = 0;
            poll_fn(move |cx| {
                let _probe = &probe;
                polls += 1;
                if polls == 2 {
                    return Poll::Ready(());
                }
                give.send(cx.waker().clone()).unwrap();
                Poll::Pending
            })
        });
        let waker = waker.recv().unwrap();
        std::thread::spawn(move || waker.wake()).join().unwrap();
        wait_for(woken.unwrap()).unwrap();
        start().detach();
        runtime.block_on(|| async {}).unwrap();
        drop(runtime);
        let dropped_on = dropped_on.lock().unwrap();
        assert_eq!(*dropped_on, [home; 4]);
    });
}

#[test]
fn a_waker_kept_by_a_stranger_frees_its_task_exactly_once() {
    within(PATIENCE, || {
        let wakers = Arc::new(Mutex::new(Vec::new()));
        let drops = Arc::new(AtomicUsize::new(0));
        struct Counted(Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (kept, count) = (Arc::clone(&wakers), Arc::clone(&drops));
        cores(2)
            .build()
            .unwrap()
            .run(move || {
                let (kept, count) = (Arc::clone(&kept), Arc::clone(&count));
                async move {
                    for _ in 0..100 {
                        let (kept, probe) = (Arc::clone(&kept), Counted(Arc::clone(&count)));
                        spawn(async move {
                            let _probe = probe;
                            let waker = own_waker().await;
                            kept.lock().unwrap().push(waker);
                            pending::<()>().await;
                        })
                        .detach();
                    }
                }
            })
            .unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 200);
        for waker in wakers.lock().unwrap().drain(..) {
            waker.wake_by_ref();
            drop(waker);
        }
        assert_eq!(drops.load(Ordering::Relaxed), 200);
    });
}
