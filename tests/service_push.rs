//! Push queues on one core: what is accepted comes out once, in order and by priority; what is not is given back, dropped
//! or a dead letter, as the settings have it, and counted.
#![cfg(feature = "service")]

mod support;

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use corelet::actor::channel::{self, TryRecvError};
use corelet::runtime::{Simulation, now, sleep, spawn, yield_now};
use corelet::service::push::{
    DeadLetter, DeadLetterReason, Priority, PushBuilder, PushConfigError, PushError, PushHandle, PushQueues,
    QueueStats, Rate, WhenFull,
};
use proptest::prelude::*;
use support::{on_cores, poll_once, soon};

const SECOND: Duration = Duration::from_secs(1);

fn queues<F: 'static>(high: usize, low: usize) -> (PushHandle<F>, PushQueues<F>) {
    PushBuilder::new().high_capacity(high).low_capacity(low).build().unwrap()
}

fn simulated<F, Fut>(test: F) -> Fut::Output
where
    F: FnOnce() -> Fut + 'static,
    Fut: Future + 'static,
    Fut::Output: 'static,
{
    Simulation::new(1, 1).block_on(test).unwrap()
}

/// The frames that are there, without their priority.
fn all<F: 'static>(queues: &mut PushQueues<F>) -> Vec<F> {
    std::iter::from_fn(|| queues.try_next()).map(|(_, frame)| frame).collect()
}

fn stats(queues: &PushQueues<u32>, priority: Priority) -> QueueStats {
    *queues.stats().of(priority)
}

#[test]
fn a_full_queue_gives_the_frame_back_and_the_other_has_its_own_places() {
    simulated(|| async {
        for capacity in [1, 2, 7, 8, 64, 100, 1000] {
            let (handle, mut queues) = queues(capacity, 1);
            for round in 0..3 {
                for number in 0..capacity {
                    assert_eq!(handle.high(number), Ok(()), "round {round} of {capacity}");
                }
                assert_eq!(handle.high(7), Err(PushError::Full(7)));
                assert_eq!(handle.low(8), Ok(()));
                assert_eq!(handle.low(9), Err(PushError::Full(9)));
                assert_eq!(queues.len(), capacity + 1);
                assert_eq!(queues.try_next(), Some((Priority::High, 0)));
                assert_eq!(handle.high(capacity), Ok(()), "one place has come free");
                assert!(handle.high(7).is_err_and(|refused| refused.is_full()));
                assert_eq!(all(&mut queues).len(), capacity + 1);
            }
            assert_eq!((handle.capacity(Priority::High), handle.capacity(Priority::Low)), (capacity, 1));
        }
    });
}

#[test]
fn low_waits_behind_so_many_of_high_and_no_more() {
    simulated(|| async {
        let (handle, mut queues) = PushBuilder::<u32>::new().high_before_low(3).build().unwrap();
        (0..4).for_each(|number| handle.low(100 + number).unwrap());
        (0..4).for_each(|number| handle.high(number).unwrap());
        let mut order = Vec::new();
        for next in 4..12 {
            let (_, frame) = queues.try_next().unwrap();
            order.push(frame);
            // There is always another of high priority.
            handle.high(next).unwrap();
        }
        assert_eq!(order, [0, 1, 2, 100, 3, 4, 5, 101]);
    });
}

#[test]
fn low_waits_no_longer_than_the_slice_however_fast_high_comes() {
    simulated(|| async {
        let (handle, mut queues) = PushBuilder::<u32>::new()
            .high_before_low(u32::MAX)
            .high_slice(Duration::from_millis(5))
            .build()
            .unwrap();
        handle.high(0).unwrap();
        handle.low(100).unwrap();
        handle.low(101).unwrap();
        let mut lows = Vec::new();
        for millisecond in 0..14 {
            let (priority, _) = queues.try_next().unwrap();
            match priority {
                Priority::High => handle.high(0).unwrap(),
                Priority::Low => lows.push(millisecond),
            }
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(lows, [5, 11]);
    });
}

#[test]
fn a_push_wakes_the_reader_and_a_dropped_wait_loses_nothing() {
    on_cores(1, async |_, _| {
        let (handle, mut queues) = queues::<u32>(4, 4);
        let reader = spawn(async move {
            assert_eq!(poll_once(&mut pin!(queues.recv())).await, Poll::Pending);
            let mut received = Vec::new();
            while let Some((_, frame)) = queues.recv().await {
                received.push(frame);
                if frame == 4 {
                    queues.close();
                }
            }
            received
        });
        yield_now().await;
        for number in 0..5 {
            handle.low(number).unwrap();
            yield_now().await;
            yield_now().await;
        }
        assert_eq!(soon(reader).await.unwrap(), [0, 1, 2, 3, 4]);
        assert_eq!(handle.low(5), Err(PushError::Closed(5)));
    });
}

#[test]
fn a_reader_that_is_never_out_of_frames_lets_others_run() {
    on_cores(1, async |_, _| {
        let (handle, mut queues) = queues::<u32>(4, 4);
        let others = Rc::new(Cell::new(false));
        let theirs = Rc::clone(&others);
        let pushes = handle.clone();
        let reader = spawn(async move {
            while !theirs.get() {
                pushes.high(0).unwrap();
                queues.recv().await.unwrap();
            }
        });
        let other = spawn(async move { others.set(true) });
        soon(reader).await.unwrap();
        soon(other).await.unwrap();
    });
}

#[test]
fn a_closed_queue_refuses_and_gives_what_it_has() {
    simulated(|| async {
        let (handle, mut queues) = queues::<u32>(4, 4);
        handle.low(1).unwrap();
        handle.high(2).unwrap();
        assert!(!handle.is_closed());
        queues.close();
        queues.close();
        assert!(handle.is_closed());
        assert_eq!(handle.high(3), Err(PushError::Closed(3)));
        assert_eq!(queues.drain().collect::<Vec<_>>(), [(Priority::High, 2), (Priority::Low, 1)]);
        assert_eq!(queues.recv().await, None);
        assert_eq!(stats(&queues, Priority::Low).undelivered, 0);
        drop(queues);
        assert_eq!(handle.high(4).unwrap_err().into_inner(), 4);
    });
}

#[test]
fn frames_that_may_not_leave_their_thread_may_be_in_settings_and_queues() {
    simulated(|| async {
        let (handle, mut queues) = queues::<Rc<()>>(1, 1);
        assert!(queues.is_empty() && queues.try_next().is_none() && !handle.is_closed());
    });
}

#[test]
fn a_policy_to_drop_drops_counts_and_goes_on() {
    simulated(|| async {
        for policy in [WhenFull::Drop, WhenFull::WarnAndDrop] {
            let (handle, mut queues) = PushBuilder::new().high_capacity(2).when_full(policy).build().unwrap();
            (0..5).for_each(|number| assert_eq!(handle.high(number), Ok(())));
            handle.low(5).unwrap();
            assert_eq!(all(&mut queues), [0, 1, 5]);
            let counted = stats(&queues, Priority::High);
            assert_eq!(
                (counted.pushed, counted.dropped, counted.dead_lettered, counted.lost()),
                (2, 3, 0, 3)
            );
            assert_eq!(stats(&queues, Priority::Low).dropped, 0);
            queues.close();
            assert_eq!(handle.high(6), Err(PushError::Closed(6)), "no policy is for what is closed");
        }
    });
}

#[test]
fn dropped_and_undelivered_frames_are_dead_letters() {
    simulated(|| async {
        let (sink, mut letters) = channel::bounded(4);
        let (handle, mut queues) =
            PushBuilder::new().high_capacity(2).when_full(WhenFull::Drop).dead_letters(sink).build().unwrap();
        (0..3).for_each(|number| handle.high(number).unwrap());
        let letter = |frame, priority, reason| Ok(DeadLetter { frame, priority, reason });
        assert_eq!(letters.try_recv(), letter(2, Priority::High, DeadLetterReason::Full));
        assert_eq!(queues.try_next(), Some((Priority::High, 0)));
        handle.low(3).unwrap();
        drop(queues);
        assert_eq!(letters.try_recv(), letter(1, Priority::High, DeadLetterReason::Undelivered));
        assert_eq!(letters.try_recv(), letter(3, Priority::Low, DeadLetterReason::Undelivered));
        assert_eq!(letters.try_recv(), Err(TryRecvError::Empty));
        let high = handle.stats().high;
        assert_eq!((high.pushed, high.dropped, high.undelivered, high.dead_lettered), (2, 1, 1, 2));
        assert_eq!((handle.stats().low.undelivered, handle.stats().low.lost()), (1, 0));
        drop(handle);
        assert_eq!(
            letters.try_recv(),
            Err(TryRecvError::Disconnected),
            "the queues' sender is gone with them"
        );
    });
}

#[test]
fn what_the_dead_letter_queue_does_not_take_is_lost_and_counted() {
    simulated(|| async {
        let (sink, letters) = channel::bounded(1);
        let settings = PushBuilder::new().low_capacity(3).when_full(WhenFull::WarnAndDrop).dead_letters(sink);
        let settings = settings.validate().unwrap();
        let (handle, queues) = settings.build();
        (0..5).for_each(|number| handle.low(number).unwrap());
        assert_eq!((handle.stats().low.dropped, handle.stats().low.dead_lettered), (2, 1), "it is full");
        drop(letters);
        drop(queues);
        let low = handle.stats().low;
        assert_eq!((low.pushed, low.undelivered, low.dead_lettered, low.lost()), (3, 3, 1, 4), "it is gone");
    });
}

#[test]
fn a_frame_whose_drop_panics_spoils_nothing() {
    struct Bomb(Arc<AtomicUsize>, bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(!self.1, "on purpose");
        }
    }

    on_cores(1, async |_, _| {
        let drops = Arc::new(AtomicUsize::new(0));
        let (handle, queues) = queues(4, 4);
        for armed in [true, false, true] {
            handle.high(Bomb(Arc::clone(&drops), armed)).ok().unwrap();
            handle.low(Bomb(Arc::clone(&drops), armed)).ok().unwrap();
        }
        drop(queues);
        assert_eq!(drops.load(Ordering::Relaxed), 6);
        assert_eq!((handle.stats().high.undelivered, handle.stats().low.undelivered), (3, 3));
    });
}

#[test]
fn a_rate_holds_on_simulated_time_and_says_when_to_come_again() {
    simulated(|| async {
        let rate = Rate::new(10, SECOND).burst(3);
        let (handle, mut queues) = PushBuilder::<u32>::new().high_rate(rate).build().unwrap();
        let other = handle.clone();
        (0..3).for_each(|number| handle.high(number).unwrap());
        for handle in [&handle, &other] {
            let refused = handle.high(7).unwrap_err();
            assert_eq!(refused.retry_after(), Some(Duration::from_millis(100)));
            assert!(!refused.is_full() && !refused.is_closed() && refused.into_inner() == 7);
        }
        (0..50).for_each(|number| handle.low(number).unwrap());
        sleep(Duration::from_millis(99)).await;
        assert_eq!(handle.high(7).unwrap_err().retry_after(), Some(Duration::from_millis(1)));
        sleep(Duration::from_millis(1)).await;
        other.high(3).unwrap();
        assert!(handle.high(7).is_err());
        let high = stats(&queues, Priority::High);
        assert_eq!((high.limited, high.pushed, stats(&queues, Priority::Low).limited), (4, 4, 0));

        // In a minute, as many as it says.
        while queues.try_next().is_some() {}
        let (begun, mut pushed) = (now(), 0_u32);
        while now() - begun <= Duration::from_secs(60) {
            match handle.high(0) {
                Ok(()) => pushed += 1,
                Err(refused) => sleep(refused.retry_after().unwrap()).await,
            }
            while queues.try_next().is_some() {}
        }
        assert_eq!(pushed, 600);
    });
}

#[test]
fn a_full_queue_costs_no_permit_and_a_refused_permit_no_place() {
    simulated(|| async {
        let rate = Rate::new(1, SECOND).burst(4);
        let (handle, mut queues) =
            PushBuilder::<u32>::new().high_capacity(2).high_rate(rate).build().unwrap();
        (0..2).for_each(|number| handle.high(number).unwrap());
        (0..10).for_each(|_| assert_eq!(handle.high(7), Err(PushError::Full(7))));
        assert_eq!(all(&mut queues), [0, 1]);
        (2..4).for_each(|number| handle.high(number).unwrap());
        assert_eq!(all(&mut queues), [2, 3]);
        (0..10).for_each(|_| assert!(handle.high(7).unwrap_err().retry_after().is_some()));
        sleep(2 * SECOND).await;
        (4..6).for_each(|number| handle.high(number).unwrap());
        assert_eq!(all(&mut queues), [4, 5]);
    });
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let settings = PushBuilder::<()>::new;
    let none = Rate::new(0, SECOND);
    for (builder, error) in [
        (settings().high_capacity(0), PushConfigError::NoPlaces { priority: Priority::High }),
        (settings().low_capacity(0), PushConfigError::NoPlaces { priority: Priority::Low }),
        (settings().high_before_low(0), PushConfigError::NoRun),
        (settings().high_slice(Duration::ZERO), PushConfigError::NoSlice),
        (settings().high_rate(none), PushConfigError::Rate { priority: Priority::High, rate: none }),
        (settings().low_rate(none), PushConfigError::Rate { priority: Priority::Low, rate: none }),
    ] {
        assert_eq!(builder.clone().validate().err(), Some(error));
        assert!(!error.to_string().is_empty());
        assert_eq!(simulated(move || async move { builder.build().err() }), Some(error));
    }
    assert!(settings().high_capacity(usize::MAX).low_capacity(usize::MAX).validate().is_ok());
}

/// What is done to queues, and to their model.
#[derive(Clone, Copy, Debug)]
enum Step {
    Push(Priority),
    TryNext,
    Poll,
    Close,
    Sleep(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        30 => Just(Step::Push(Priority::High)),
        30 => Just(Step::Push(Priority::Low)),
        25 => Just(Step::TryNext),
        20 => Just(Step::Poll),
        1 => Just(Step::Close),
        5 => any::<u8>().prop_map(Step::Sleep),
    ];
    proptest::collection::vec(step, 0..300)
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    high: usize,
    low: usize,
    run: u32,
    slice: Option<u64>,
    drops: bool,
    letters: usize,
}

fn setting() -> impl Strategy<Value = Setting> {
    let capacity = || prop_oneof![1..5_usize, 5..40_usize];
    let slice = proptest::option::of(1..200_u64);
    (capacity(), capacity(), 1..6_u32, slice, any::<bool>(), 1..10_usize)
        .prop_map(|(high, low, run, slice, drops, letters)| Setting { high, low, run, slice, drops, letters })
}

proptest! {
    #[test]
    fn any_use_of_the_queues_is_that_of_two_lists(steps in steps(), setting in setting()) {
        simulated(move || async move { against_two_lists(&steps, setting).await });
    }
}

async fn against_two_lists(steps: &[Step], setting: Setting) {
    let (sink, mut letters) = channel::bounded(setting.letters);
    let mut builder = PushBuilder::new()
        .high_capacity(setting.high)
        .low_capacity(setting.low)
        .high_before_low(setting.run)
        .when_full(if setting.drops { WhenFull::Drop } else { WhenFull::Error })
        .dead_letters(sink);
    if let Some(slice) = setting.slice {
        builder = builder.high_slice(Duration::from_millis(slice));
    }
    let (handle, mut queues) = builder.build().unwrap();
    let mut model = [VecDeque::new(), VecDeque::new()];
    let mut dead = Vec::new();
    let (mut passed, mut since, mut closed, mut accepted) = (0, None, false, [0; 2]);
    let mut expected = |model: &mut [VecDeque<u32>; 2]| {
        let ready = (!model[0].is_empty(), !model[1].is_empty());
        let over = ready == (true, true)
            && (passed == setting.run
                || setting.slice.is_some_and(|slice| {
                    now() - *since.get_or_insert(now()) >= Duration::from_millis(slice)
                }));
        if ready == (true, true) && !over {
            passed += 1;
        } else {
            (passed, since) = (0, None);
        }
        let high = ready.0 && !over;
        let frame = model[usize::from(!high)].pop_front()?;
        Some((if high { Priority::High } else { Priority::Low }, frame))
    };
    for (number, step) in steps.iter().enumerate() {
        let number = number as u32;
        match *step {
            Step::Push(priority) => {
                let at = usize::from(priority == Priority::Low);
                let full = model[at].len() == if at == 0 { setting.high } else { setting.low };
                let pushed = handle.push(priority, number);
                match (closed, full, setting.drops) {
                    (true, ..) => assert_eq!(pushed, Err(PushError::Closed(number))),
                    (_, true, false) => assert_eq!(pushed, Err(PushError::Full(number))),
                    (_, true, true) => {
                        assert_eq!(pushed, Ok(()));
                        dead.push((number, DeadLetterReason::Full));
                    }
                    (_, false, _) => {
                        assert_eq!(pushed, Ok(()));
                        model[at].push_back(number);
                        accepted[at] += 1;
                    }
                }
            }
            Step::TryNext => assert_eq!(queues.try_next(), expected(&mut model)),
            Step::Poll => {
                let next = expected(&mut model);
                let polled = poll_once(&mut pin!(queues.recv())).await;
                match next {
                    Some(next) => assert_eq!(polled, Poll::Ready(Some(next))),
                    None if closed => assert_eq!(polled, Poll::Ready(None)),
                    None => assert_eq!(polled, Poll::Pending),
                }
            }
            Step::Close => {
                queues.close();
                closed = true;
            }
            Step::Sleep(time) => sleep(Duration::from_millis(time.into())).await,
        }
        assert_eq!(queues.len(), model[0].len() + model[1].len());
        assert_eq!(queues.is_empty(), model.iter().all(VecDeque::is_empty));
        // A full budget for the next step.
        yield_now().await;
    }
    drop(queues);
    let left = model.iter().flatten().map(|number| (*number, DeadLetterReason::Undelivered));
    dead.extend(left);
    let buried: Vec<_> =
        std::iter::from_fn(|| letters.try_recv().ok()).map(|letter| (letter.frame, letter.reason)).collect();
    assert_eq!(buried, dead[..dead.len().min(setting.letters)]);
    let stats = handle.stats();
    assert_eq!([stats.high.pushed, stats.low.pushed], accepted);
    assert_eq!([stats.high.undelivered, stats.low.undelivered], [0, 1].map(|at| model[at].len() as u64));
    assert_eq!(stats.high.lost() + stats.low.lost(), (dead.len() - buried.len()) as u64);
}
