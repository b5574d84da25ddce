//! A message timer fires once or is taken back once, and whoever takes it back is told which.

mod support;

use std::cell::RefCell;
use std::cmp::Ordering::{Equal, Greater, Less};
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corelet::actor::{self, Addressable, CallError, Name, Pid, Reply, TimerId, channel};
use corelet::runtime::{Simulation, core_stats, now, sleep, spawn, yield_now};
use support::{Random, block_until, on_cores, poll_until, runtime, soon, watched};

const MILLISECOND: Duration = Duration::from_millis(1);

enum Numbers {}

impl Addressable for Numbers {
    type Msg = u64;
}

const NUMBERS: Name<u64> = Name::new("numbers");

type Heard = Rc<RefCell<Vec<u64>>>;

/// An actor that notes down what it gets.
fn listener() -> (Pid<Numbers>, Heard) {
    let heard = Heard::default();
    let theirs = Rc::clone(&heard);
    let pid = actor::spawn_addr::<Numbers, _, _>(async move |mut inbox| {
        while let Ok(number) = inbox.recv().await {
            theirs.borrow_mut().push(number);
        }
    });
    (pid, heard)
}

/// Runs `test` on one simulated core, whose clock only moves when everybody waits.
fn simulated<Fut: Future<Output = ()> + 'static>(test: impl Fn() -> Fut + Copy + 'static) {
    for seed in 0..20 {
        Simulation::new(seed, 1).block_on(test).unwrap();
    }
}

/// The simulated clock moves on: everybody has had their turn.
async fn settled() {
    sleep(Duration::from_nanos(1)).await;
}

fn timers() -> usize {
    core_stats().unwrap().timers
}

#[test]
fn sleeps_and_messages_come_in_one_order_of_their_instants() {
    simulated(|| async {
        let (pid, heard) = listener();
        let begun = now();
        for delay in [5, 1, 3, 9, 7, 2] {
            if delay % 2 == 1 {
                actor::send_after(pid, delay, MILLISECOND * delay as u32);
            } else {
                let heard = Rc::clone(&heard);
                spawn(async move {
                    sleep(MILLISECOND * delay as u32).await;
                    heard.borrow_mut().push(delay);
                })
                .detach();
            }
        }
        // One that is given up is nothing but gone.
        drop(spawn(sleep(MILLISECOND * 4)));
        sleep(MILLISECOND * 9).await;
        assert_eq!(now() - begun, MILLISECOND * 9);
        settled().await;
        assert_eq!(*heard.borrow(), [1, 2, 3, 5, 7, 9]);
        assert_eq!(timers(), 0);
    });
}

#[test]
fn a_message_comes_at_its_instant_and_not_before() {
    simulated(|| async {
        let (pid, heard) = listener();
        actor::send_after(pid, 1, MILLISECOND * 10);
        sleep(MILLISECOND * 10 - Duration::from_nanos(2)).await;
        settled().await;
        assert!(heard.borrow().is_empty());
        settled().await;
        settled().await;
        assert_eq!(*heard.borrow(), [1]);
        // Too long for any clock is a long time, not a panic.
        let far = actor::send_after(pid, 2, Duration::MAX);
        assert!(actor::cancel_timer(far).await);
    });
}

#[test]
fn a_cancel_is_true_once_and_only_before_the_timer_fires() {
    simulated(|| async {
        let (pid, heard) = listener();
        let (fires, cancelled) =
            (actor::send_after(pid, 1, MILLISECOND), actor::send_after(pid, 2, MILLISECOND));
        assert_eq!(actor::cancel_timer(cancelled).now(), Some(true));
        assert_eq!(actor::cancel_timer(cancelled).now(), Some(false));
        sleep(MILLISECOND * 2).await;
        assert_eq!(*heard.borrow(), [1]);
        assert!(!actor::cancel_timer(fires).await);
        // Its place is used again, and it is not taken for what is there now.
        let next = actor::send_after(pid, 3, MILLISECOND);
        assert!(!actor::cancel_timer(fires).await && !actor::cancel_timer(cancelled).await);
        assert!(actor::cancel_timer(next).await);
        assert_eq!(timers(), 0);
    });
}

#[test]
fn a_timer_is_named_on_every_thread_and_no_later_core_takes_its_name() {
    fn goes_everywhere<T: Copy + Send + Sync>() {}
    goes_everywhere::<TimerId>();
    watched(|| {
        let arm = || async {
            let (pid, _) = listener();
            actor::send_after(pid, 1, Duration::from_secs(3600))
        };
        let one = runtime(1);
        let core = one.cores()[0];
        let stale = one.block_on(arm).unwrap();
        drop(one);
        // A new core gets the lowest id that is free: those below are kept, and those above let go, until it is this one's
        // turn. Other tests take ids too, for a while.
        let (mut below, mut next) = (Vec::new(), None);
        block_until(|| {
            let candidate = runtime(1);
            match candidate.cores()[0].cmp(&core) {
                Less => below.push(candidate),
                Equal => next = Some(candidate),
                Greater => {}
            }
            next.is_some()
        });
        let next = next.unwrap();
        let fresh = next.block_on(arm).unwrap();
        let cancels = next
            .block_on(
                move || async move { [actor::cancel_timer(stale).await, actor::cancel_timer(fresh).await] },
            )
            .unwrap();
        assert_eq!(cancels, [false, true]);
    });
}

#[test]
fn what_nobody_can_take_is_dropped_silently_when_the_time_comes() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    const NOBODY: Name<Counted> = Name::new("nobody");
    simulated(|| async {
        let dropped = Arc::new(AtomicUsize::new(0));
        let message = || Counted(Arc::clone(&dropped));
        let count = || dropped.load(Ordering::SeqCst);
        let dead = actor::spawn(async {});
        let (wrong, heard) = listener();
        let closed = actor::spawn(async {
            let (_sender, inbox) = channel::unbounded();
            actor::register(Name::<Counted>::new("closed"), &inbox).unwrap();
            drop(inbox);
            pending::<()>().await
        });
        let after = actor::monitor(dead);
        after.await;
        for pid in [dead, wrong.erase(), closed] {
            actor::send_after_dyn(pid, message(), MILLISECOND);
        }
        actor::send_after_named(NOBODY, message(), MILLISECOND);
        actor::send_after_named(Name::new("closed"), message(), MILLISECOND);
        assert_eq!((count(), timers()), (0, 5));
        sleep(MILLISECOND * 2).await;
        assert_eq!((count(), timers()), (5, 0));
        assert!(heard.borrow().is_empty());
        // What is taken back is dropped at once.
        let timer = actor::send_after_dyn(dead, message(), MILLISECOND);
        assert!(actor::cancel_timer(timer).await);
        assert_eq!(count(), 6);
    });
}

#[test]
fn a_named_message_reaches_whoever_has_the_name_when_the_time_comes() {
    simulated(|| async {
        let ((first, of_first), (second, of_second)) = (listener(), listener());
        actor::register_pid(NUMBERS, first).unwrap();
        actor::send_after_named(NUMBERS, 1, MILLISECOND);
        actor::send_after_named(NUMBERS, 2, MILLISECOND * 3);
        actor::send_after(first, 3, MILLISECOND * 3);
        sleep(MILLISECOND * 2).await;
        let end = actor::monitor(first);
        actor::request_stop(first);
        end.await;
        actor::register_pid(NUMBERS, second).unwrap();
        sleep(MILLISECOND * 2).await;
        assert_eq!((&*of_first.borrow(), &*of_second.borrow()), (&vec![1], &vec![2]));
    });
}

#[test]
fn a_message_whose_drop_panics_harms_nobody() {
    struct Hostile;
    impl Drop for Hostile {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    on_cores(1, async |_, _| {
        let dead = actor::spawn(async {});
        soon(actor::monitor(dead)).await;
        actor::send_after_dyn(dead, Hostile, Duration::ZERO);
        let cancelled = actor::send_after_dyn(dead, Hostile, MILLISECOND);
        assert!(actor::cancel_timer(cancelled).await);
        actor::send_after_dyn(dead, Hostile, Duration::from_secs(3600));
        actor::send_after_dyn(dead, Hostile, Duration::from_secs(3600));
        let (pid, heard) = listener();
        actor::send_after(pid, 1, Duration::ZERO);
        poll_until(async || *heard.borrow() == [1]).await;
        assert_eq!(actor::clear_timers(), 2);
        // Left to the end of the core.
        actor::send_after_dyn(dead, Hostile, Duration::from_secs(3600));
        actor::send_after_dyn(dead, Hostile, Duration::from_secs(3600));
    });
}

#[test]
fn clearing_takes_back_what_the_core_has_armed_and_no_sleep() {
    simulated(|| async {
        /// Arms another as it is dropped.
        struct Again(Pid<Numbers>);
        impl Drop for Again {
            fn drop(&mut self) {
                actor::send_after(self.0, 9, MILLISECOND);
            }
        }
        let (pid, heard) = listener();
        let mut armed: Vec<_> =
            (0..9).map(|number| actor::send_after(pid, number, MILLISECOND * number as u32)).collect();
        armed.push(actor::send_after_dyn(pid.erase(), Again(pid), MILLISECOND));
        let late = spawn(sleep(MILLISECOND));
        yield_now().await;
        assert_eq!(actor::clear_timers(), 10);
        for timer in armed {
            assert!(!actor::cancel_timer(timer).await, "it was taken back before");
        }
        late.await.unwrap();
        sleep(MILLISECOND).await;
        settled().await;
        assert_eq!(*heard.borrow(), [9], "what was armed meanwhile was not cleared");
        assert_eq!(actor::clear_timers(), 0);
    });
}

#[test]
fn timers_end_with_their_core_and_say_so() {
    watched(|| {
        let dropped = Arc::new(());
        let (one, other) = (runtime(1), runtime(1));
        let theirs = Arc::clone(&dropped);
        let arm = move || async move {
            let (pid, _) = listener();
            actor::send_after_dyn(pid.erase(), theirs, Duration::from_secs(3600))
        };
        let timer = one.block_on(arm).unwrap();
        assert_eq!(Arc::strong_count(&dropped), 2);
        drop(one);
        assert_eq!(Arc::strong_count(&dropped), 1);
        let cancelled = other.block_on(move || async move { actor::cancel_timer(timer).await });
        assert!(!cancelled.unwrap());
        // Also from a thread that is no core's. Another test's core may have the id by now, and is asked.
        let (mut cancel, mut answer) = (actor::cancel_timer(timer), None);
        block_until(|| {
            answer = cancel.now();
            answer.is_some()
        });
        assert_eq!(answer, Some(false));
    });
}

#[test]
fn a_call_leaves_no_timer_behind() {
    enum Server {}
    impl Addressable for Server {
        type Msg = Option<Reply<u64>>;
    }
    simulated(|| async {
        let server = actor::spawn_addr::<Server, _, _>(async |mut inbox| {
            let mut kept = Vec::new();
            while let Ok(question) = inbox.recv().await {
                match question {
                    Some(reply) if kept.is_empty() => {
                        reply.send(1);
                        kept.push(None);
                    }
                    question => kept.push(question),
                }
            }
        });
        let limit = Duration::from_secs(1);
        assert_eq!(actor::call_timeout(server, Some, limit).await, Ok(1));
        assert_eq!(timers(), 0);
        assert_eq!(actor::call_timeout(server, Some, limit).await, Err(CallError::Timeout));
        assert_eq!(timers(), 0);
    });
}

/// Every timer fires or is taken back by exactly one of those who try, from two cores at once.
#[test]
fn fires_and_true_cancels_add_up_to_what_was_armed() {
    // Three in four are asked about from the other core, one after another.
    const TIMERS: u64 = 240;
    on_cores(2, async |runtime, cores| {
        let mut random = Random::new();
        for round in 0..5 {
            let (pid, heard) = listener();
            let armed: Vec<(u64, TimerId)> = (0..TIMERS)
                .map(|number| {
                    // Some are far away, so that there is something to take back however slow all of this is.
                    let soon = Duration::from_micros(random.below(3_000));
                    let delay = if number % 8 == 0 { Duration::from_secs(3600) } else { soon };
                    (number, actor::send_after(pid, number, delay))
                })
                .collect();
            let last = actor::send_after(pid, TIMERS, MILLISECOND * 20);
            let cancels = |skip: u64| {
                let armed = armed.clone();
                move || async move {
                    let mut cancelled = Vec::new();
                    for (number, timer) in armed.into_iter().filter(|(number, _)| number % 4 != skip) {
                        if actor::cancel_timer(timer).await {
                            cancelled.push(number);
                        } else {
                            yield_now().await;
                        }
                    }
                    cancelled
                }
            };
            let far = runtime.spawn_on(cores[1], cancels(round % 4)).unwrap();
            let near = spawn(cancels((round + 1) % 4)());
            let (far, near) = (soon(far).await.unwrap(), soon(near).await.unwrap());
            poll_until(async || heard.borrow().last() == Some(&TIMERS)).await;
            assert!(!actor::cancel_timer(last).await);
            let mut fates: Vec<u64> = heard.borrow().iter().chain(&far).chain(&near).copied().collect();
            fates.sort_unstable();
            assert_eq!(fates, (0..=TIMERS).collect::<Vec<_>>(), "each has one fate");
            assert!(far.len() + near.len() >= TIMERS as usize / 8);
        }
    });
}

/// The same in simulated runs, in which the order of cancels, letters and instants is drawn from a seed.
#[test]
fn fires_and_true_cancels_add_up_in_every_simulated_order() {
    for seed in 0..100 {
        let mut simulation = Simulation::new(seed, 3);
        let handle = simulation.handle();
        let (fired, cancelled) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (fires, cancels) = (Arc::clone(&fired), Arc::clone(&cancelled));
        simulation
            .block_on(move || async move {
                let mut random = Random::seeded(seed);
                let pid = actor::spawn_addr::<Numbers, _, _>(async move |mut inbox| {
                    while inbox.recv().await.is_ok() {
                        fires.fetch_add(1, Ordering::SeqCst);
                    }
                });
                for _ in 0..30 {
                    let timer = actor::send_after(pid, 0, Duration::from_micros(random.below(100)));
                    for core in handle.cores() {
                        let wait = Duration::from_micros(random.below(100));
                        let cancels = Arc::clone(&cancels);
                        let cancel = move || async move {
                            sleep(wait).await;
                            let cancelled = actor::cancel_timer(timer).await;
                            cancels.fetch_add(cancelled.into(), Ordering::SeqCst);
                        };
                        handle.spawn_on(core, cancel).unwrap().detach();
                    }
                }
            })
            .unwrap();
        simulation.run_until_idle().unwrap();
        let (fired, cancelled) = (fired.load(Ordering::SeqCst), cancelled.load(Ordering::SeqCst));
        assert_eq!(fired + cancelled, 30, "seed {seed}: {fired} fired and {cancelled} were taken back");
    }
}
