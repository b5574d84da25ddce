//! A lock is handed on in order, to whoever still waits, and is never lost.

mod support;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use corelet::actor::{Lock, Mutex};
use corelet::runtime::{JoinHandle, Simulation, core_stats, sleep, spawn, yield_now};
use proptest::prelude::*;
use support::{Cut, cut_off, on_cores, poll_once, poll_until, soon};

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3600);

fn timers() -> usize {
    core_stats().unwrap().timers
}

#[test]
fn a_lock_is_handed_on_in_the_order_of_asking() {
    on_cores(1, async |_, _| {
        let mutex = Rc::new(Mutex::new(Vec::new()));
        let held = mutex.lock().await;
        let tasks: Vec<_> = (0..20)
            .map(|number| {
                let mutex = Rc::clone(&mutex);
                spawn(async move {
                    let mut order = mutex.lock().await;
                    yield_now().await;
                    order.push(number);
                })
            })
            .collect();
        yield_now().await;
        drop(held);
        assert!(mutex.is_locked() && mutex.try_lock().is_none(), "a newcomer does not overtake");
        for task in tasks {
            soon(task).await.unwrap();
        }
        assert!(!mutex.is_locked());
        assert!(mutex.lock().await.iter().copied().eq(0..20));
    });
}

#[test]
fn a_waiter_whose_time_is_over_never_has_the_lock_and_the_next_one_has() {
    on_cores(1, async |_, _| {
        let mutex = Mutex::new(0);
        let held = mutex.lock().await;
        assert!(mutex.lock_timeout(SHORT).await.is_err());
        assert_eq!(timers(), 0);
        let mut first = pin!(mutex.lock_timeout(SHORT));
        let mut second = pin!(mutex.lock());
        assert!(poll_once(&mut first).await.is_pending() && poll_once(&mut second).await.is_pending());
        poll_until(async || timers() == 0).await;
        assert!(matches!(poll_once(&mut first).await, Poll::Ready(Err(_))));
        drop(held);
        assert!(poll_once(&mut second).await.is_ready());
        assert!(!mutex.is_locked(), "the guard went with the poll");
        *mutex.lock_timeout(LONG).await.unwrap() += 1;
        assert_eq!(timers(), 0, "an uncontended lock needs no timer");
        assert_eq!(*mutex.lock().await, 1);
    });
}

#[test]
fn a_lock_that_is_handed_over_together_with_the_deadline_is_taken() {
    on_cores(1, async |_, _| {
        let mutex = Mutex::new(());
        let held = mutex.lock().await;
        let mut wait = pin!(mutex.lock_timeout(SHORT));
        assert!(poll_once(&mut wait).await.is_pending());
        poll_until(async || timers() == 0).await;
        drop(held);
        assert!(matches!(poll_once(&mut wait).await, Poll::Ready(Ok(_))));
    });
}

#[test]
fn a_waiter_that_is_stopped_or_dropped_passes_on_what_it_was_handed() {
    on_cores(1, async |_, _| {
        for handed in [false, true] {
            let mutex = Rc::new(Mutex::new(()));
            let held = mutex.lock().await;
            let waiters: Vec<JoinHandle<()>> = (0..3)
                .map(|_| {
                    let mutex = Rc::clone(&mutex);
                    spawn(async move { drop(mutex.lock().await) })
                })
                .collect();
            yield_now().await;
            yield_now().await;
            let mut last = pin!(mutex.lock());
            assert!(poll_once(&mut last).await.is_pending());
            let mut held = Some(held);
            if handed {
                drop(held.take());
                assert!(mutex.is_locked());
            }
            // All before any of them runs again.
            waiters.iter().for_each(JoinHandle::abort);
            drop(held);
            for waiter in waiters {
                assert!(soon(waiter).await.is_err_and(|error| error.is_cancelled()));
            }
            drop(soon(last).await);
            assert!(!mutex.is_locked());
        }
        let mutex = Mutex::new(());
        let held = mutex.lock().await;
        // Polled, handed the lock and dropped, without another poll.
        let mut waiter = pin!(cut_off(1, Cut::WhenWoken, mutex.lock()));
        assert!(poll_once(&mut waiter).await.is_pending());
        drop(held);
        assert!(mutex.is_locked());
        assert!(matches!(poll_once(&mut waiter).await, Poll::Ready(None)));
        assert!(mutex.try_lock().is_some());
    });
}

#[test]
fn a_holder_that_panics_or_is_stopped_lets_go() {
    on_cores(1, async |_, _| {
        let mutex = Rc::new(Mutex::new(0));
        let theirs = Rc::clone(&mutex);
        let panicking = spawn(async move {
            let mut value = theirs.lock().await;
            *value = 1;
            yield_now().await;
            panic!("on purpose");
        });
        yield_now().await;
        assert_eq!(*soon(mutex.lock()).await, 1, "as the panic left it");
        assert!(soon(panicking).await.is_err_and(|error| error.is_panic()));

        let theirs = Rc::clone(&mutex);
        let stopped = spawn(async move {
            let _value = theirs.lock().await;
            sleep(LONG).await;
        });
        poll_until(async || mutex.is_locked()).await;
        assert!(mutex.lock_timeout(SHORT).await.is_err());
        stopped.abort();
        assert_eq!(*soon(mutex.lock()).await, 1);
        assert!(soon(stopped).await.is_err_and(|error| error.is_cancelled()));
    });
}

/// A waker that polls what waits there and then, instead of having it polled.
struct AtOnce;

thread_local! {
    static WAITING: RefCell<Option<Lock<'static, u32>>> = const { RefCell::new(None) };
    static SEEN: Cell<Option<u32>> = const { Cell::new(None) };
}

impl Wake for AtOnce {
    fn wake(self: Arc<Self>) {
        let Some(mut lock) = WAITING.take() else { return };
        let polled = Pin::new(&mut lock).poll(&mut Context::from_waker(&Waker::from(self)));
        if let Poll::Ready(guard) = polled {
            SEEN.set(Some(*guard));
        }
    }
}

#[test]
fn whoever_is_woken_by_a_hand_over_finds_the_value_free() {
    on_cores(1, async |_, _| {
        let mutex: &'static Mutex<u32> = Box::leak(Box::new(Mutex::new(7)));
        let held = mutex.try_lock().unwrap();
        let mut lock = mutex.lock();
        let waker = Waker::from(Arc::new(AtOnce));
        assert!(Pin::new(&mut lock).poll(&mut Context::from_waker(&waker)).is_pending());
        WAITING.set(Some(lock));
        drop(held);
        assert_eq!(SEEN.get(), Some(7));
        assert!(!mutex.is_locked());
    });
}

#[test]
fn a_task_that_only_locks_lets_others_run() {
    on_cores(1, async |_, _| {
        let mutex = Mutex::new(0);
        let others = Rc::new(Cell::new(0_u32));
        let theirs = Rc::clone(&others);
        let _other = spawn(async move {
            loop {
                theirs.set(theirs.get() + 1);
                yield_now().await;
            }
        });
        for _ in 0..10_000 {
            *mutex.lock().await += 1;
        }
        assert!(others.get() >= 10_000 / 129, "10,000 locks let others run {} times", others.get());
        assert_eq!(mutex.into_inner(), 10_000);
    });
}

/// What happens to a lock, by the number of the task that does it.
#[derive(Clone, Copy, Debug)]
enum Event {
    Ask(usize),
    /// Looks again, as after a stale wake.
    Poll(usize),
    /// Lets go, or gives up.
    Drop(usize),
    Try,
}

const TASKS: usize = 5;

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        (0..TASKS).prop_map(Event::Ask),
        (0..TASKS).prop_map(Event::Poll),
        (0..TASKS).prop_map(Event::Drop),
        Just(Event::Try),
    ];
    proptest::collection::vec(event, 0..60)
}

proptest! {
    #[test]
    fn any_use_of_a_lock_is_that_of_a_queue(events in events()) {
        let mut simulation = Simulation::new(0, 1);
        simulation.block_on(async move || against_a_queue(&events).await).unwrap();
    }
}

async fn against_a_queue(events: &[Event]) {
    let mutex = Mutex::new(());
    let mut locks: [_; TASKS] = std::array::from_fn(|_| None);
    let mut guards: [_; TASKS] = std::array::from_fn(|_| None);
    // Who has asked, in order; the first one has the lock, or can have it for the asking.
    let queue = RefCell::new(Vec::new());
    for event in events {
        match *event {
            Event::Ask(task) | Event::Poll(task) if guards[task].is_none() => {
                if locks[task].is_none() {
                    if matches!(event, Event::Poll(_)) {
                        continue;
                    }
                    locks[task] = Some(mutex.lock());
                    queue.borrow_mut().push(task);
                }
                let polled = poll_once(locks[task].as_mut().unwrap()).await;
                assert_eq!(polled.is_ready(), queue.borrow()[0] == task, "{queue:?}");
                if let Poll::Ready(guard) = polled {
                    (guards[task], locks[task]) = (Some(guard), None);
                }
            }
            Event::Drop(task) => {
                queue.borrow_mut().retain(|waiting| *waiting != task);
                (guards[task], locks[task]) = (None, None);
            }
            Event::Try => assert_eq!(mutex.try_lock().is_some(), queue.borrow().is_empty()),
            Event::Ask(_) | Event::Poll(_) => {}
        }
        assert_eq!(mutex.is_locked(), !queue.borrow().is_empty());
        yield_now().await;
    }
}
