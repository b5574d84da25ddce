//! Simulated runs: replay, virtual time, and the failures they report.
#![allow(missing_docs, clippy::unwrap_used)]

mod network;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use corelet::net::TcpStream;
use corelet::runtime::{
    Simulation, SimulationError, current_core, handle, interval, now, sleep, sleep_until, spawn, yield_now,
};
use network::echo_on;

const SEEDS: u64 = 200;

/// Several clients on one core, an echo server on another, sleeps in between.
fn busy_run(seed: u64) -> (u64, Vec<String>) {
    let mut simulation = Simulation::new(seed, 3);
    let cores = simulation.cores();
    simulation
        .block_on(move || async move {
            let address = echo_on(&handle(), cores[1]).await;
            let clients: Vec<_> = (0..4_u8)
                .map(|client| {
                    spawn(async move {
                        let mut stream = TcpStream::connect(address).await.unwrap();
                        for round in 0..4_u8 {
                            let sent = vec![client * 16 + round; 700];
                            let (result, sent) = stream.write_all(sent).await;
                            result.unwrap();
                            let mut got = Vec::with_capacity(sent.len());
                            while got.len() < sent.len() {
                                let (count, back) = stream.read(got).await;
                                assert_ne!(count.unwrap(), 0);
                                got = back;
                            }
                            assert_eq!(got, sent);
                            sleep(Duration::from_micros(u64::from(client) * 10)).await;
                        }
                    })
                })
                .collect();
            for client in clients {
                client.await.unwrap();
            }
        })
        .unwrap();
    (simulation.trace_hash(), simulation.trace().iter().map(ToString::to_string).collect())
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    let mut hashes = Vec::new();
    for seed in 0..10 {
        let (hash, events) = busy_run(seed);
        let (again, same_events) = busy_run(seed);
        assert_eq!(events, same_events, "seed {seed}");
        assert_eq!(hash, again, "seed {seed}");
        hashes.push(hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 10);
}

#[test]
fn an_hour_of_sleep_takes_no_time_and_is_an_hour_exactly() {
    let begun = Instant::now();
    let mut simulation = Simulation::new(1, 1);
    let before = simulation.now();
    let hour = Duration::from_secs(3600);
    let inside = simulation.block_on(move || async move {
        let begun = now();
        sleep(hour).await;
        now() - begun
    });
    assert_eq!(inside, Ok(hour));
    assert_eq!(simulation.now() - before, hour);
    assert_eq!(simulation.elapsed(), hour);
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn timers_of_all_cores_fire_in_order_at_their_instants() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed, 3);
        let cores = simulation.cores();
        let fired = simulation
            .block_on(move || async move {
                let (tell, told) = crossbeam_channel::unbounded();
                let begun = now();
                let mut sleepers = Vec::new();
                for millis in [50_u64, 10, 40, 20, 30, 60] {
                    let tell = tell.clone();
                    let sleeper = move || async move {
                        sleep_until(begun + Duration::from_millis(millis)).await;
                        tell.send((millis, now() - begun)).unwrap();
                    };
                    sleepers.push(handle().spawn_on(cores[millis as usize / 10 % 3], sleeper).unwrap());
                }
                for sleeper in sleepers {
                    sleeper.await.unwrap();
                }
                told.try_iter().collect::<Vec<_>>()
            })
            .unwrap();
        let expected: Vec<_> =
            [10, 20, 30, 40, 50, 60].map(|millis| (millis, Duration::from_millis(millis))).into();
        assert_eq!(fired, expected, "seed {seed}");
    }
}

#[test]
fn a_task_on_another_core_is_spawned_and_joined() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed, 4);
        let cores = simulation.cores();
        let expected = cores.clone();
        let seen = simulation
            .block_on(move || async move {
                let mut seen = Vec::new();
                for core in cores {
                    let task = handle().spawn_on(core, || async { current_core().unwrap() }).unwrap();
                    seen.push(task.await.unwrap());
                }
                seen
            })
            .unwrap();
        assert_eq!(seen, expected);
    }
}

#[test]
fn work_is_sent_in_from_outside_between_two_calls() {
    let mut simulation = Simulation::new(3, 2);
    let far = simulation.cores()[1];
    let task = simulation.handle().spawn_on(far, || async { sleep(Duration::from_secs(1)).await }).unwrap();
    simulation.run_until_idle().unwrap();
    assert_eq!(simulation.elapsed(), Duration::from_secs(1));
    simulation.block_on(|| task).unwrap().unwrap();
    assert_eq!(simulation.stats(1).unwrap().executor.live, 0);
}

#[test]
fn time_is_let_pass_by_the_exact_amount() {
    let mut simulation = Simulation::new(4, 1);
    let ticks = Rc::new(Cell::new(0));
    let counted = Rc::clone(&ticks);
    simulation
        .block_on(|| async move {
            spawn(async move {
                let mut beat = interval(Duration::from_millis(10));
                loop {
                    beat.tick().await;
                    counted.set(counted.get() + 1);
                }
            })
            .detach();
        })
        .unwrap();
    simulation.advance(Duration::from_millis(35)).unwrap();
    assert_eq!((ticks.get(), simulation.elapsed()), (3, Duration::from_millis(35)));
    simulation.advance(Duration::from_millis(5)).unwrap();
    assert_eq!((ticks.get(), simulation.elapsed()), (4, Duration::from_millis(40)));
}

#[test]
fn a_deadlock_is_an_error_that_names_the_seed() {
    let mut simulation = Simulation::new(4711, 2);
    let error = simulation
        .block_on(|| async {
            sleep(Duration::from_secs(5)).await;
            std::future::pending::<()>().await;
        })
        .unwrap_err();
    assert!(error.is_deadlock());
    assert_eq!(
        error,
        SimulationError::Deadlock { seed: 4711, at: Duration::from_secs(5), parked: 1 }.clone()
    );
    assert!(error.to_string().contains("simulation seed = 4711"), "{error}");
    // What was stuck has been stopped, and the simulation goes on.
    assert_eq!(simulation.block_on(|| async { 1 }), Ok(1));
    assert_eq!(simulation.stats(0).unwrap().executor.live, 0);
}

#[test]
fn a_run_that_keeps_itself_busy_for_ever_is_given_up() {
    let mut simulation = Simulation::new(5, 1);
    simulation.turn_limit(1000);
    let error = simulation
        .block_on(|| async {
            let mut beat = interval(Duration::from_millis(1));
            loop {
                beat.tick().await;
            }
        })
        .unwrap_err();
    assert!(matches!(error, SimulationError::Exhausted { seed: 5, turns: 1000, .. }), "{error}");
}

#[test]
fn a_task_that_spins_until_a_deadline_gets_there_and_makes_no_timer_late() {
    let mut simulation = Simulation::new(6, 1);
    simulation
        .block_on(|| async {
            let (begun, short) = (now(), Duration::from_micros(100));
            let sleeper = spawn(async move {
                sleep(short).await;
                now() - begun
            });
            while now() < begun + Duration::from_millis(3) {
                yield_now().await;
            }
            assert_eq!(sleeper.await.unwrap(), short);
        })
        .unwrap();
}

#[test]
fn a_panic_of_the_root_comes_out() {
    let mut simulation = Simulation::new(7, 1);
    let caught = catch_unwind(AssertUnwindSafe(|| simulation.block_on(|| async { panic!("on purpose") })));
    let payload = caught.map(|result: Result<(), _>| result).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
}

#[test]
fn the_seed_of_a_panicking_run_is_printed() {
    const INSIDE: &str = "CORELET_TEST_PANICS";
    if std::env::var_os(INSIDE).is_some() {
        let _: Result<(), _> = Simulation::new(4242, 1).block_on(|| async { panic!("on purpose") });
        unreachable!("the panic comes out");
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_seed_of_a_panicking_run_is_printed", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert_eq!(said.matches("simulation seed = 4242").count(), 1, "{said}");
}

#[test]
fn the_run_order_of_tasks_depends_on_the_seed_alone() {
    let order = |seed| {
        Simulation::new(seed, 1)
            .block_on(|| async {
                let order = Rc::new(RefCell::new(Vec::new()));
                let tasks: Vec<_> = (0..16)
                    .map(|task| {
                        let order = Rc::clone(&order);
                        spawn(async move { order.borrow_mut().push(task) })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
                order.take()
            })
            .unwrap()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}
