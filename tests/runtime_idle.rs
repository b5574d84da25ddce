//! A core with nothing to do uses nothing, and is awake at once when there is something. The tests measure the CPU
//! time of the whole process, so they take turns.
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

mod common;

use std::future::pending;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{PATIENCE, cores, open_descriptors, wait_for, within};
use corelet::runtime::{Core, handle, interval, sleep, spawn, yield_now};

fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure it is given.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

const WATCHED: Duration = Duration::from_millis(500);

/// The CPU time that this process uses while nobody asks anything of it.
#[track_caller]
fn assert_idle(what: &str) {
    // What was started a moment ago may still settle.
    std::thread::sleep(Duration::from_millis(50));
    let before = cpu_time();
    std::thread::sleep(WATCHED);
    let used = cpu_time() - before;
    assert!(used < WATCHED / 20, "{what}: used {used:?} of {WATCHED:?}");
}

fn guest() -> Core {
    let (_handle, mut guests) = cores(1).build_guests().unwrap();
    guests.remove(0).start().unwrap()
}

#[test]
fn an_idle_runtime_uses_no_cpu() {
    let _alone = alone();
    let runtime = cores(4).build().unwrap();
    assert_idle("never used");
    for core in runtime.cores() {
        runtime.spawn_on(core, pending::<()>).unwrap().detach();
        runtime.spawn_on(core, || sleep(Duration::from_secs(3600))).unwrap().detach();
        wait_for(runtime.spawn_on(core, yield_now).unwrap()).unwrap();
    }
    assert_idle("used, and left with parked tasks");
}

#[test]
fn a_timer_beyond_all_bounds_does_not_keep_the_core_awake() {
    let _alone = alone();
    let runtime = cores(1).build().unwrap();
    for seconds in [u64::MAX, u64::MAX / 2, 1 << 40, 10_000_000_000, 9_000_000_000] {
        let nap = runtime.spawn_on(runtime.cores()[0], move || sleep(Duration::from_secs(seconds))).unwrap();
        assert_idle(&format!("a sleep of {seconds} s"));
        drop(nap);
    }
}

#[test]
fn a_core_parks_once_per_thing_to_wait_for() {
    let _alone = alone();
    let mut core = guest();
    let before = core.stats();
    core.block_on(async { sleep(Duration::from_millis(300)).await }).unwrap();
    let after = core.stats();
    assert!(after.parks - before.parks <= 3, "{before:?} {after:?}");
    assert!(after.driver.enters - before.driver.enters <= 6, "{before:?} {after:?}");
}

#[test]
fn a_core_that_was_turned_by_its_descriptor_can_also_park() {
    let _alone = alone();
    let mut core = guest();
    core.event_fd().unwrap();
    core.turn().unwrap();
    for _ in 0..3 {
        // Its doorbell rings once, and must not go on ringing itself.
        let (runtime, id) = (core.runtime().clone(), core.id());
        let caller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            wait_for(runtime.spawn_on(id, || async {}).unwrap()).unwrap();
        });
        let before = core.stats();
        core.block_on(async { sleep(Duration::from_millis(200)).await }).unwrap();
        let after = core.stats();
        caller.join().unwrap();
        assert!(after.parks - before.parks <= 6, "{before:?} {after:?}");
        core.turn().unwrap();
    }
}

#[test]
fn a_busy_polling_core_sleeps_when_nothing_came() {
    let _alone = alone();
    let runtime = cores(2).busy_poll(Duration::from_millis(5)).build().unwrap();
    let ids = runtime.cores();
    let far = ids[1];
    let begun = Instant::now();
    runtime
        .block_on(move || async move {
            for number in 0..200 {
                let task = handle().spawn_on(far, move || async move { number }).unwrap();
                assert_eq!(task.await.unwrap(), number);
            }
            let nap = Instant::now();
            sleep(Duration::from_millis(2)).await;
            assert!(nap.elapsed() >= Duration::from_millis(2));
            sleep(Duration::from_millis(20)).await;
        })
        .unwrap();
    assert!(begun.elapsed() < PATIENCE);
    assert_idle("after busy polling");
}

#[test]
fn busy_polling_can_be_switched_off() {
    let _alone = alone();
    let mut core = guest();
    core.set_busy_poll(Duration::from_secs(3600));
    // A timer still ends the spinning on time.
    core.block_on(async { sleep(Duration::from_millis(20)).await }).unwrap();
    assert_eq!(core.stats().parks, 0);
    core.set_busy_poll(Duration::ZERO);
    let before = cpu_time();
    core.block_on(async { sleep(WATCHED).await }).unwrap();
    assert!(cpu_time() - before < WATCHED / 20);
}

#[test]
fn a_steady_interval_costs_one_park_a_tick() {
    let _alone = alone();
    let mut core = guest();
    let before = core.stats();
    core.block_on(async {
        let mut ticks = interval(Duration::from_millis(5));
        for _ in 0..20 {
            ticks.tick().await;
        }
    })
    .unwrap();
    let parks = core.stats().parks - before.parks;
    assert!(parks <= 45, "{parks} parks for 20 ticks");
}

#[test]
fn a_foreign_wake_finds_a_parked_core_at_once() {
    let _alone = alone();
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let ids = runtime.cores();
        let mut delays = Vec::new();
        for round in 0..400_u64 {
            // Now and then long enough for the core to be asleep, now and then just when it goes to sleep.
            let pause = Duration::from_micros(round * 37 % 300);
            let begun = Instant::now();
            while begun.elapsed() < pause {
                std::hint::spin_loop();
            }
            let asked = Instant::now();
            wait_for(runtime.spawn_on(ids[round as usize % 2], || async {}).unwrap()).unwrap();
            delays.push(asked.elapsed());
        }
        delays.sort();
        // A lost wake-up would take for ever; the machine may be busy with other things now and then.
        assert!(delays[delays.len() * 9 / 10] < Duration::from_secs(1), "{:?}", delays.last());
    });
}

#[test]
fn a_core_rings_another_only_when_that_sleeps() {
    let _alone = alone();
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let far = runtime.cores()[1];
        // Both sides park before each message: the hand-over must wake the other every time.
        runtime
            .block_on(move || async move {
                for number in 0..300 {
                    let task = handle().spawn_on(far, move || async move {
                        sleep(Duration::from_micros(200)).await;
                        number
                    });
                    assert_eq!(task.unwrap().await.unwrap(), number);
                }
            })
            .unwrap();
    });
}

#[test]
fn many_runtimes_leave_no_descriptor_behind() {
    let _alone = alone();
    within(PATIENCE, || {
        drop(cores(1).build().unwrap());
        let base = open_descriptors();
        for round in 0..30 {
            let runtime = cores(3).build().unwrap();
            assert!(open_descriptors() > base);
            if round % 3 == 0 {
                runtime.run(|| async { spawn(pending::<()>()).detach() }).unwrap();
            }
        }
        assert_eq!(open_descriptors(), base);
    });
}

#[test]
fn a_thread_may_make_cores_again_and_again() {
    let _alone = alone();
    let base = open_descriptors();
    let first = guest().features();
    for round in 0..50 {
        let mut core = guest();
        assert_eq!(core.features(), first, "round {round}: something of the earlier rings is still there");
        core.block_on(yield_now()).unwrap();
    }
    assert_eq!(open_descriptors(), base);
}
