//! Push queues whose handles are on other cores and on threads that are none: bounds, order and ends hold all the same.
#![cfg(feature = "service")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use corelet::actor::channel;
use corelet::runtime::{Simulation, sleep, spawn, yield_now};
use corelet::service::push::{Priority, PushBuilder, PushError, PushHandle, PushQueues, Rate, WhenFull};
use support::{block_until, on_cores, poll_until, runtime, soon, watched};

fn queues<F: 'static>(high: usize, low: usize) -> (PushHandle<F>, PushQueues<F>) {
    PushBuilder::new().high_capacity(high).low_capacity(low).build().unwrap()
}

#[test]
fn the_bound_holds_over_all_threads_with_what_is_on_its_way() {
    on_cores(2, async |runtime, cores| {
        const ROUNDS: usize = 300;
        for capacity in [1, 4, 64] {
            let (handle, mut queues) = queues::<usize>(capacity, 1);
            let accepted = Arc::new(AtomicUsize::new(0));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (handle, accepted) = (handle.clone(), Arc::clone(&accepted));
                    std::thread::spawn(move || {
                        while accepted.load(Ordering::Relaxed) < ROUNDS {
                            match handle.high(0) {
                                Ok(()) => drop(accepted.fetch_add(1, Ordering::Relaxed)),
                                Err(refused) => {
                                    assert!(refused.is_full());
                                    std::thread::yield_now();
                                }
                            }
                        }
                    })
                })
                .collect();
            let far = {
                let (handle, accepted) = (handle.clone(), Arc::clone(&accepted));
                runtime.spawn_on(cores[1], async move || {
                    while accepted.load(Ordering::Relaxed) < ROUNDS {
                        if handle.high(0).is_ok() {
                            accepted.fetch_add(1, Ordering::Relaxed);
                        }
                        yield_now().await;
                    }
                })
            };
            let mut received = 0;
            while accepted.load(Ordering::Relaxed) < ROUNDS {
                assert!(queues.len() <= capacity, "{} frames in a queue for {capacity}", queues.len());
                if handle.high(0).is_ok() {
                    accepted.fetch_add(1, Ordering::Relaxed);
                }
                while queues.try_next().is_some() {
                    received += 1;
                }
                yield_now().await;
            }
            // Some of the last may still be on their way, and wait for nobody but this core.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            soon(far.unwrap()).await.unwrap();
            received += queues.drain().count();
            assert_eq!(received, accepted.load(Ordering::Relaxed), "what was accepted is received");
            assert_eq!(handle.stats().high.pushed as usize, received);
        }
    });
}

#[test]
fn a_thread_may_use_every_place_of_a_queue_whose_core_waits() {
    on_cores(1, async |_, _| {
        for capacity in [1, 8, 64, 1000] {
            let (handle, mut queues) = queues::<usize>(capacity, 1);
            // What the core does meanwhile must leave no place in its hand.
            for _ in 0..capacity.min(10) {
                handle.high(0).unwrap();
            }
            while queues.try_next().is_some() {}
            let theirs = handle.clone();
            let pushed = std::thread::spawn(move || (0..).take_while(|n| theirs.high(*n).is_ok()).count());
            assert_eq!(pushed.join().unwrap(), capacity);
            assert_eq!(queues.drain().count(), capacity);
        }
    });
}

#[test]
fn a_refused_push_on_the_core_hides_no_frame_from_the_reader() {
    on_cores(1, async |_, _| {
        let (handle, mut queues) = queues::<u32>(2, 1);
        let reader = spawn(async move { (queues.recv().await, queues.recv().await) });
        yield_now().await;
        let theirs = handle.clone();
        std::thread::spawn(move || (0..2).for_each(|number| theirs.high(number).unwrap())).join().unwrap();
        // Their letter has not been opened, for this task has not yielded.
        assert_eq!(handle.high(7), Err(PushError::Full(7)));
        let heard = soon(reader).await.unwrap();
        assert_eq!(heard, (Some((Priority::High, 0)), Some((Priority::High, 1))));
    });
}

#[test]
fn order_is_that_of_the_pushes_whichever_thread_they_come_from() {
    on_cores(2, async |runtime, cores| {
        let (handle, mut queues) = queues::<u32>(1000, 1000);
        let mut next = 0;
        for round in 0..100 {
            let push = {
                let handle = handle.clone();
                move |numbers: std::ops::Range<u32>| {
                    for number in numbers {
                        handle.high(number).unwrap();
                        handle.low(number).unwrap();
                    }
                }
            };
            let numbers = next..next + 1 + round % 3;
            next = numbers.end;
            match round % 3 {
                0 => push(numbers),
                1 => std::thread::spawn(move || push(numbers)).join().unwrap(),
                _ => runtime.spawn_on(cores[1], async move || push(numbers)).unwrap().await.unwrap(),
            }
        }
        let mut heard = [Vec::new(), Vec::new()];
        for (priority, number) in queues.drain() {
            heard[usize::from(priority == Priority::Low)].push(number);
        }
        for heard in heard {
            assert!(heard.iter().copied().eq(0..next), "{heard:?}");
        }
    });
}

#[test]
fn each_of_many_pushers_keeps_its_order_and_wakes_a_reader_that_sleeps() {
    on_cores(2, async |runtime, cores| {
        const EACH: u32 = 2000;
        let (handle, mut queues) = queues::<(usize, u32)>(16, 16);
        let push = |number: usize| {
            let handle = handle.clone();
            async move || {
                for count in 0..EACH {
                    let priority = if number.is_multiple_of(2) { Priority::High } else { Priority::Low };
                    while let Err(refused) = handle.push(priority, (number, count)) {
                        assert!(refused.is_full());
                        yield_now().await;
                    }
                }
            }
        };
        let far: Vec<_> = (0..4).map(|number| runtime.spawn_on(cores[1], push(number)).unwrap()).collect();
        let here: Vec<_> = (4..6)
            .map(|number| {
                let push = push(number);
                spawn(async move { push().await })
            })
            .collect();
        let mut heard = [0; 6];
        for _ in 0..6 * EACH {
            let (_, (number, count)) = soon(queues.recv()).await.unwrap();
            assert_eq!(count, heard[number], "of pusher {number}");
            heard[number] += 1;
        }
        assert!(queues.is_empty());
        for task in far {
            soon(task).await.unwrap();
        }
        for task in here {
            soon(task).await.unwrap();
        }
    });
}

#[test]
fn every_push_ends_as_received_refused_or_dead_letter_when_queues_close_meanwhile() {
    on_cores(2, async |runtime, cores| {
        for round in 0..150 {
            let (sink, mut letters) = channel::unbounded();
            let (handle, mut queues) =
                PushBuilder::<u32>::new().high_capacity(8).dead_letters(sink).build().unwrap();
            let begun = Arc::new(AtomicBool::new(false));
            let push = {
                let (handle, begun) = (handle.clone(), Arc::clone(&begun));
                move || {
                    let mut accepted = 0_u64;
                    loop {
                        match handle.high(0) {
                            Ok(()) => accepted += 1,
                            Err(PushError::Closed(_)) => return accepted,
                            Err(_) => std::thread::yield_now(),
                        }
                        begun.store(true, Ordering::Relaxed);
                    }
                }
            };
            let thread = std::thread::spawn(push.clone());
            let far = runtime.spawn_on(cores[1], async move || push()).unwrap();
            poll_until(async || begun.load(Ordering::Relaxed)).await;
            let mut received = 0;
            for _ in 0..round % 20 {
                received += u64::from(queues.try_next().is_some());
            }
            if round % 2 == 0 {
                received += queues.drain().take(3).count() as u64;
            }
            drop(queues);
            let accepted = thread.join().unwrap() + soon(far).await.unwrap();
            // A sender that saw them close late has seen to its frame itself, before its push returned.
            let mut dead = 0;
            while letters.try_recv().is_ok() {
                dead += 1;
            }
            // Letters from other threads take the way of letters.
            let stats = handle.stats().high;
            while dead < stats.dead_lettered {
                soon(letters.recv()).await.unwrap();
                dead += 1;
            }
            assert_eq!(accepted, received + dead, "round {round}: {stats:?}");
            assert_eq!((stats.pushed, stats.undelivered, stats.lost()), (accepted, dead, 0));
        }
    });
}

#[test]
fn handles_outlive_their_core_and_get_their_frames_back() {
    watched(|| {
        let here = runtime(1);
        let (kept, letters) = here
            .block_on(|| async {
                let (sink, letters) = channel::unbounded();
                let (handle, queues) = PushBuilder::<u32>::new().dead_letters(sink).build().unwrap();
                // Ends with the core, in the hands of a task.
                spawn(async move {
                    let _queues = queues;
                    std::future::pending::<()>().await;
                })
                .detach();
                handle.high(1).unwrap();
                let theirs = handle.clone();
                std::thread::spawn(move || theirs.low(2).unwrap()).join().unwrap();
                (handle, letters.len())
            })
            .unwrap();
        drop(here);
        assert_eq!(letters, 0);
        assert!(kept.is_closed());
        assert_eq!(kept.high(3), Err(PushError::Closed(3)));
        // A core with the same id is another core.
        let again = runtime(1);
        again
            .block_on(move || async move {
                assert_eq!(kept.high(4), Err(PushError::Closed(4)));
                assert_eq!((kept.stats().high.undelivered, kept.stats().low.undelivered), (1, 1));
            })
            .unwrap();
    });
}

#[test]
fn frames_for_queues_that_leaked_with_their_core_are_dead_letters() {
    watched(|| {
        let (home, other) = (runtime(1), runtime(1));
        let handle = home
            .block_on(|| async {
                let (handle, queues) = PushBuilder::<u32>::new().build().unwrap();
                std::mem::forget(queues);
                handle
            })
            .unwrap();
        drop(home);
        let again = runtime(1);
        let on_another_life = handle.clone();
        again.block_on(move || async move { on_another_life.high(1) }).unwrap().unwrap();
        drop((again, other));
        block_until(|| handle.is_closed());
        assert_eq!(handle.high(2), Err(PushError::Closed(2)));
        let high = handle.stats().high;
        assert_eq!((high.pushed, high.undelivered), (1, 1), "accepted by nobody, and counted");
    });
}

#[test]
fn dead_letters_cross_cores() {
    on_cores(2, async |runtime, cores| {
        let (sink, mut letters) = channel::bounded(16);
        let far = runtime.spawn_on(cores[1], async move || {
            let builder = PushBuilder::<u32>::new().low_capacity(1).when_full(WhenFull::Drop);
            let (handle, queues) = builder.dead_letters(sink).build().unwrap();
            (0..4).for_each(|number| handle.low(number).unwrap());
            drop(queues);
            handle.stats().low
        });
        let low = soon(far.unwrap()).await.unwrap();
        assert_eq!((low.dropped, low.undelivered, low.dead_lettered), (3, 1, 4));
        for expected in [1, 2, 3, 0] {
            assert_eq!(soon(letters.recv()).await.unwrap().frame, expected);
        }
    });
}

#[test]
fn one_rate_is_for_the_handles_of_all_threads() {
    on_cores(1, async |_, _| {
        const BURST: u32 = 500;
        let rate = Rate::new(1, Duration::from_secs(3600)).burst(BURST);
        let (handle, mut queues) =
            PushBuilder::<u32>::new().low_capacity(10_000).low_rate(rate).build().unwrap();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let handle = handle.clone();
                std::thread::spawn(move || (0..1000).filter(|n| handle.low(*n).is_ok()).count())
            })
            .collect();
        let here = (0..1000).filter(|n| handle.low(*n).is_ok()).count();
        let there: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(here + there, BURST as usize);
        let low = handle.stats().low;
        assert_eq!(low.limited, u64::from(4000 - BURST));
        assert_eq!(queues.drain().count(), here + there);
    });
}

#[test]
fn what_is_dropped_or_limited_on_many_threads_at_once_is_counted_once() {
    on_cores(1, async |_, _| {
        let (handle, queues) =
            PushBuilder::<u32>::new().high_capacity(5).when_full(WhenFull::Drop).build().unwrap();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let handle = handle.clone();
                std::thread::spawn(move || (0..5000).for_each(|number| handle.high(number).unwrap()))
            })
            .collect();
        (0..5000).for_each(|number| handle.high(number).unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(queues);
        let high = handle.stats().high;
        assert_eq!((high.pushed, high.dropped, high.undelivered), (5, 20_000 - 5, 5));
    });
}

#[test]
fn simulated_cores_push_to_each_other_in_order_on_virtual_time() {
    for seed in 0..40 {
        let mut simulation = Simulation::new(seed, 2);
        let (runtime, cores) = (simulation.handle(), simulation.cores());
        let heard = simulation.block_on(move || async move {
            let rate = Rate::new(1000, Duration::from_secs(1)).burst(1);
            let (handle, mut queues) = PushBuilder::<u32>::new().high_rate(rate).build().unwrap();
            let far = runtime.spawn_on(cores[1], async move || {
                for number in 0..50 {
                    while let Err(refused) = handle.high(number) {
                        sleep(refused.retry_after().unwrap()).await;
                    }
                }
            });
            let mut heard = Vec::new();
            while heard.len() < 50 {
                heard.push(queues.recv().await.unwrap().1);
            }
            far.unwrap().await.unwrap();
            heard
        });
        assert!(heard.unwrap().into_iter().eq(0..50), "seed {seed}");
        assert!(
            simulation.elapsed() >= Duration::from_millis(49)
                && simulation.elapsed() < Duration::from_millis(60)
        );
    }
}
