//! Sleeps, time-outs and intervals: never early, in order, steady, and gone when they are dropped.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use common::{PATIENCE, cores, on_core, wait_for, within};
use corelet::runtime::{interval, now, sleep, sleep_until, spawn, timeout, yield_now};

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

#[test]
fn a_sleep_never_ends_early() {
    on_core(|| async {
        let sleeps: Vec<_> = (0..300_u64)
            .map(|step| {
                spawn(async move {
                    let duration = Duration::from_nanos(step * 97_531);
                    let begun = Instant::now();
                    sleep(duration).await;
                    assert!(begun.elapsed() >= duration);
                })
            })
            .collect();
        for sleep in sleeps {
            sleep.await.unwrap();
        }
        for step in 0..50_u64 {
            let begun = Instant::now();
            sleep(Duration::from_micros(step * 31)).await;
            assert!(begun.elapsed() >= Duration::from_micros(step * 31));
        }
    });
}

#[test]
fn the_shorter_sleep_ends_first_in_whatever_order_they_begin() {
    for durations in [[ms(40), ms(8)], [ms(8), ms(40)]] {
        let order = on_core(move || async move {
            let order = Rc::new(RefCell::new(Vec::new()));
            let sleeps = durations.map(|duration| {
                let order = Rc::clone(&order);
                spawn(async move {
                    sleep(duration).await;
                    order.borrow_mut().push(duration);
                })
            });
            for sleep in sleeps {
                sleep.await.unwrap();
            }
            order.take()
        });
        assert_eq!(order, [ms(8), ms(40)]);
    }
}

#[test]
fn a_shorter_sleep_that_begins_later_shortens_the_park() {
    within(PATIENCE, || {
        let runtime = cores(1).build().unwrap();
        let core = runtime.cores()[0];
        let long = runtime.spawn_on(core, || sleep(Duration::from_secs(3600))).unwrap();
        // The core is parked for an hour by now, or will be.
        let short = runtime.spawn_on(core, || sleep(ms(20))).unwrap();
        wait_for(short).unwrap();
        drop(long);
    });
}

#[test]
fn ten_thousand_timers_fire_in_the_order_of_their_deadlines() {
    on_core(|| async {
        // The first deadline must not come before the last timer is armed, which takes a busy machine its time.
        for lead in [50, 200, 1000, 5000] {
            let fired = Rc::new(RefCell::new(Vec::new()));
            let base = now() + ms(lead);
            let sleeps: Vec<_> = (0..10_000_u64)
                .map(|timer| {
                    let fired = Rc::clone(&fired);
                    // Scattered over 20 ms, each deadline once.
                    let at = base + Duration::from_micros(timer * 7919 % 10_007 * 2);
                    spawn(async move {
                        sleep_until(at).await;
                        assert!(Instant::now() >= at);
                        fired.borrow_mut().push(at);
                    })
                })
                .collect();
            // Runs behind all of them.
            let armed = spawn(async { now() }).await.unwrap();
            for sleep in sleeps {
                sleep.await.unwrap();
            }
            assert_eq!(fired.borrow().len(), 10_000);
            if armed < base {
                return assert!(fired.borrow().is_sorted());
            }
        }
        panic!("arming ten thousand timers took more than five seconds");
    });
}

#[test]
fn a_sleep_of_nothing_lets_others_run_and_ends() {
    on_core(|| async {
        let ran = Rc::new(Cell::new(false));
        let flag = Rc::clone(&ran);
        spawn(async move { flag.set(true) }).detach();
        sleep(Duration::ZERO).await;
        assert!(ran.get());
        sleep_until(Instant::now() - ms(5)).await;
    });
}

#[test]
fn a_sleep_polled_again_after_its_end_stays_ready() {
    on_core(|| async {
        let mut nap = sleep(ms(1));
        (&mut nap).await;
        (&mut nap).await;
        assert!(nap.deadline() <= Instant::now());
    });
}

#[test]
fn a_sleep_wakes_the_task_that_polled_it_last() {
    on_core(|| async {
        let mut nap = Box::pin(sleep(ms(15)));
        poll_fn(|cx| {
            assert!(nap.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        spawn(nap).await.unwrap();
    });
}

#[test]
fn an_interval_keeps_its_period_and_phase() {
    on_core(|| async {
        let period = ms(4);
        let begun = now();
        let mut ticks = interval(period);
        let first = ticks.tick().await;
        assert!(first >= begun + period);
        let mut before = first;
        for step in 1..30_u32 {
            let due = ticks.tick().await;
            assert!(Instant::now() >= due, "tick {step} came early");
            // A loaded machine may miss some; those are left out, and the beat stays.
            assert!(due > before);
            assert_eq!((due - first).as_nanos() % period.as_nanos(), 0, "tick {step} left the beat");
            before = due;
        }
    });
}

#[test]
fn ticks_that_were_missed_are_left_out() {
    on_core(|| async {
        let period = ms(5);
        let mut ticks = interval(period);
        let first = ticks.tick().await;
        // By now it may have been late, and others missed already.
        let taken = Instant::now();
        // The core is kept busy over at least six ticks.
        std::thread::sleep(period * 6);
        let asked = Instant::now();
        let late = ticks.tick().await;
        assert!(late > first && late <= taken + period, "the one that was due is given");
        let next = ticks.tick().await;
        assert!(next > asked && next >= late + period * 6, "missed ones are not made up for");
        assert!([late, next].iter().all(|due| (*due - first).as_nanos() % period.as_nanos() == 0));
    });
}

#[test]
fn a_tick_that_was_not_taken_is_given_to_the_next_call() {
    on_core(|| async {
        let begun = now();
        let mut ticks = interval(ms(12));
        for _ in 0..5 {
            assert!(
                timeout(Duration::from_micros(100), ticks.tick()).await.is_err() || begun.elapsed() > ms(10)
            );
        }
        let due = ticks.tick().await;
        assert!(due >= begun + ms(12) && due <= begun + ms(12) + PATIENCE);
    });
}

#[test]
#[should_panic(expected = "above zero")]
fn an_interval_needs_a_period() {
    on_core(|| async { drop(interval(Duration::ZERO)) });
}

#[test]
fn a_time_out_ends_what_is_too_slow_and_drops_it_first() {
    on_core(|| async {
        struct Flag(Rc<Cell<bool>>);
        impl Drop for Flag {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let dropped = Rc::new(Cell::new(false));
        let flag = Flag(Rc::clone(&dropped));
        let begun = Instant::now();
        let slow = async move {
            let _flag = flag;
            pending::<()>().await;
        };
        let elapsed = timeout(ms(10), slow).await.unwrap_err();
        assert!(dropped.get() && begun.elapsed() >= ms(10));
        assert_eq!(elapsed.after, ms(10));
        assert_eq!(elapsed.to_string(), "timed out after 10ms");
    });
}

#[test]
fn a_time_out_leaves_alone_what_is_quick_enough() {
    on_core(|| async {
        let quick = async {
            sleep(ms(1)).await;
            5
        };
        assert_eq!(timeout(Duration::from_secs(3600), quick).await, Ok(5));
    });
}

#[test]
fn a_time_out_that_is_over_holds_nothing_any_more() {
    on_core(|| async {
        for quick in [true, false] {
            let held = Rc::new(());
            let theirs = Rc::clone(&held);
            let work = poll_fn(move |_| {
                let _held = &theirs;
                if quick { Poll::Ready(()) } else { Poll::Pending }
            });
            let mut limited = pin!(timeout(ms(1), work));
            assert_eq!(limited.as_mut().await.is_ok(), quick);
            assert_eq!(Rc::strong_count(&held), 1);
        }
    });
}

#[test]
fn a_result_that_is_there_with_the_deadline_wins() {
    on_core(|| async {
        assert_eq!(timeout(Duration::ZERO, async { 1 }).await, Ok(1));
        let at = now() + ms(5);
        let both = timeout(at - now(), async {
            // Both are due when the core comes back.
            std::thread::sleep(ms(10));
            sleep_until(at).await;
            2
        });
        assert_eq!(both.await, Ok(2));
    });
}

#[test]
fn time_outs_in_a_row_each_take_their_time() {
    on_core(|| async {
        for _ in 0..10 {
            let begun = Instant::now();
            assert!(timeout(ms(3), pending::<()>()).await.is_err());
            assert!(begun.elapsed() >= ms(3));
        }
    });
}

#[test]
fn a_wait_too_long_for_the_clock_is_a_long_wait() {
    on_core(|| async {
        for duration in [Duration::MAX, Duration::from_secs(u64::MAX / 2), Duration::from_secs(1 << 40)] {
            assert_eq!(timeout(duration, async { 1 }).await, Ok(1));
            let mut ticks = interval(duration);
            assert!(timeout(ms(1), ticks.tick()).await.is_err());
            assert!(timeout(ms(1), sleep(duration)).await.is_err());
        }
    });
}

#[test]
fn a_dropped_timer_is_gone() {
    let (_handle, mut guests) = cores(1).build_guests().unwrap();
    let mut core = guests.remove(0).start().unwrap();
    core.block_on(async {
        let far: Vec<_> = (0..1000).map(|_| spawn(sleep(Duration::from_secs(3600)))).collect();
        yield_now().await;
        let mut polled = sleep(Duration::from_secs(3600));
        poll_fn(|cx| {
            assert!(Pin::new(&mut polled).poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        drop((far, polled));
        yield_now().await;
    })
    .unwrap();
    assert_eq!(core.stats().timers, 0);
    assert_eq!(core.next_deadline(), None);
}

#[test]
#[should_panic(expected = "must be called on a core")]
fn a_sleep_is_made_on_a_core_only() {
    drop(sleep(ms(1)));
}
