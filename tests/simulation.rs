//! Simulated runs: replay, virtual time, and the failures they report.
#![allow(missing_docs, clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::net::{Shutdown, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use corelet::net::{ListenerOptions, TcpListener, TcpStream, UnixListener, UnixStream};
use corelet::runtime::{
    CoreId, Faults, RuntimeHandle, Simulation, SimulationError, current_core, handle, interval, now, sleep,
    spawn, timeout, yield_now,
};

const SEEDS: u64 = 100;

fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Serves echoes on `core`; gives the address.
async fn echo_on(handle: &RuntimeHandle, core: CoreId) -> SocketAddr {
    let (tell, told) = futures_channel::oneshot::channel();
    let server = move || async move {
        let mut listener = TcpListener::bind(anywhere()).unwrap();
        tell.send(listener.local_addr().unwrap()).unwrap();
        while let Ok(stream) = listener.accept().await {
            spawn(echo(stream)).detach();
        }
    };
    handle.spawn_on(core, server).unwrap().detach();
    told.await.unwrap()
}

async fn echo(mut stream: TcpStream) {
    while let Ok(Some(received)) = stream.receive().await {
        if stream.write_all(received.to_vec()).await.0.is_err() {
            return;
        }
    }
}

async fn read_to_end(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let (count, chunk) = stream.read(Vec::with_capacity(1000)).await;
        all.extend(chunk);
        if count? == 0 {
            return Ok(all);
        }
    }
}

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
                        corelet::runtime::sleep_until(begun + Duration::from_millis(millis)).await;
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
fn a_task_that_spins_until_a_deadline_gets_there() {
    let mut simulation = Simulation::new(6, 1);
    simulation
        .block_on(|| async {
            let until = now() + Duration::from_millis(3);
            while now() < until {
                yield_now().await;
            }
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

#[test]
fn bytes_keep_their_order_and_the_end_comes_after_them() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed, 2);
        let cores = simulation.cores();
        simulation
            .block_on(move || async move {
                let address = echo_on(&handle(), cores[1]).await;
                let mut stream = TcpStream::connect(address).await.unwrap();
                let (mut reader, mut writer) = stream.split();
                const TOTAL: usize = 20_000;
                let send = async {
                    let mut next = 0_usize;
                    while next < TOTAL {
                        let len = (1 + next * 7 % 5000).min(TOTAL - next);
                        let chunk: Vec<u8> = (next..next + len).map(|i| (i % 251) as u8).collect();
                        if len % 3 == 0 {
                            let rest = chunk[len / 2..].to_vec();
                            let halves = vec![chunk[..len / 2].to_vec(), rest];
                            next += writer.write_vectored(halves).await.0.unwrap();
                        } else {
                            writer.write_all(chunk).await.0.unwrap();
                            next += len;
                        }
                    }
                    writer.shutdown(Shutdown::Write).await.unwrap();
                };
                let receive = async {
                    let mut seen = 0_usize;
                    loop {
                        let (count, chunk) = reader.read(Vec::with_capacity(3000)).await;
                        if count.unwrap() == 0 {
                            break;
                        }
                        for byte in chunk {
                            assert_eq!(byte, (seen % 251) as u8, "seed {seed}, at {seen}");
                            seen += 1;
                        }
                    }
                    assert_eq!(seen, TOTAL, "seed {seed}");
                };
                futures_util::future::join(send, receive).await;
            })
            .unwrap();
    }
}

#[test]
fn one_side_may_end_while_the_other_goes_on() {
    for seed in 0..SEEDS {
        Simulation::new(seed, 1)
            .block_on(|| async {
                let mut listener = TcpListener::bind(anywhere()).unwrap();
                let address = listener.local_addr().unwrap();
                let mut client = TcpStream::connect(address).await.unwrap();
                let mut server = listener.accept().await.unwrap();
                assert_eq!(client.peer_addr().unwrap(), address);
                assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
                client.write_all("question").await.0.unwrap();
                client.shutdown(Shutdown::Write).await.unwrap();
                assert_eq!(read_to_end(&mut server).await.unwrap(), b"question");
                server.write_all("answer").await.0.unwrap();
                drop(server);
                assert_eq!(read_to_end(&mut client).await.unwrap(), b"answer");
            })
            .unwrap();
    }
}

#[test]
fn a_connection_moves_to_another_core() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed, 3);
        let cores = simulation.cores();
        simulation
            .block_on(move || async move {
                let address = echo_on(&handle(), cores[1]).await;
                let stream = TcpStream::connect(address).await.unwrap();
                let detached = stream.detach().unwrap();
                let task = move || async move {
                    let mut stream = TcpStream::from(detached.attach());
                    stream.write_all("here").await.0.unwrap();
                    stream.shutdown(Shutdown::Write).await.unwrap();
                    read_to_end(&mut stream).await.unwrap()
                };
                assert_eq!(handle().spawn_on(cores[2], task).unwrap().await.unwrap(), b"here");
            })
            .unwrap();
    }
}

#[test]
fn nobody_listens_is_refused_and_an_unanswered_attempt_times_out() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed, 1);
        let faults = simulation.faults();
        simulation
            .block_on(move || async move {
                let refused = TcpStream::connect("127.0.0.1:9".parse().unwrap()).await.unwrap_err();
                assert_eq!(refused.raw_os_error(), Some(111));
                let mut listener = TcpListener::bind(anywhere()).unwrap();
                let address = listener.local_addr().unwrap();
                assert_eq!(faults.make_unreachable(address), 1);
                let begun = now();
                let limit = Duration::from_secs(1);
                let late = TcpStream::connect_timeout(address, limit).await.unwrap_err();
                assert_eq!((late.kind(), now() - begun), (std::io::ErrorKind::TimedOut, limit));
                let attempt = spawn(TcpStream::connect(address));
                sleep(limit).await;
                assert!(!attempt.is_finished());
                faults.heal(address);
                attempt.await.unwrap().unwrap();
                listener.accept().await.unwrap();
            })
            .unwrap();
    }
}

#[test]
fn a_silent_server_takes_connections_and_says_nothing() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed, 2);
        let (faults, cores) = (simulation.faults(), simulation.cores());
        simulation
            .block_on(move || async move {
                let address = echo_on(&handle(), cores[1]).await;
                faults.silence(address);
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all("anybody?").await.0.unwrap();
                let answer = timeout(Duration::from_secs(10), stream.receive()).await;
                assert!(answer.is_err());
                faults.heal(address);
                assert!(stream.receive().await.unwrap().is_some());
            })
            .unwrap();
    }
}

#[test]
fn a_reset_reaches_both_sides() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed, 2);
        let (faults, cores): (Faults, _) = (simulation.faults(), simulation.cores());
        simulation
            .block_on(move || async move {
                let address = echo_on(&handle(), cores[1]).await;
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all("x").await.0.unwrap();
                assert_eq!(stream.read(Vec::with_capacity(1)).await.0.unwrap(), 1);
                assert_eq!(faults.reset_connections(address), 1);
                let error = stream.read(Vec::with_capacity(1)).await.0.unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
            })
            .unwrap();
    }
}

#[test]
fn a_killed_core_ends_its_tasks_and_its_connections() {
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed, 2);
        let (faults, cores) = (simulation.faults(), simulation.cores());
        simulation
            .block_on(move || async move {
                let address = echo_on(&handle(), cores[1]).await;
                let mut stream = TcpStream::connect(address).await.unwrap();
                let task = handle().spawn_on(cores[1], std::future::pending::<()>).unwrap();
                let answered = stream.write_all("x").await.0.is_ok()
                    && stream.read(Vec::with_capacity(1)).await.0.is_ok_and(|count| count == 1);
                assert!(answered);
                faults.kill_core(1);
                assert!(task.await.unwrap_err().is_cancelled());
                assert_eq!(stream.read(Vec::with_capacity(1)).await.0.unwrap(), 0);
                assert_eq!(TcpStream::connect(address).await.unwrap_err().raw_os_error(), Some(111));
                let gone = handle().spawn_on(cores[1], || async {}).unwrap();
                assert!(gone.await.unwrap_err().is_cancelled());
            })
            .unwrap();
        assert!(!simulation.kill_core(1) && simulation.stats(1).is_none());
        assert!(simulation.kill_core(0));
        assert_eq!(simulation.block_on(|| async {}), Err(SimulationError::CoreEnded { seed }));
    }
}

#[test]
fn listeners_on_several_cores_share_an_address() {
    let mut simulation = Simulation::new(8, 3);
    let cores = simulation.cores();
    let served = simulation
        .block_on(move || async move {
            let address: SocketAddr = "0.0.0.0:7000".parse().unwrap();
            let (tell, told) = crossbeam_channel::unbounded();
            for core in cores {
                let tell = tell.clone();
                let server = move || async move {
                    let options = ListenerOptions { reuse_port: true, ..ListenerOptions::default() };
                    let mut listener = TcpListener::bind_with(address, options).unwrap();
                    while listener.accept().await.is_ok() {
                        tell.send(current_core().unwrap()).unwrap();
                    }
                };
                handle().spawn_on(core, server).unwrap().detach();
            }
            sleep(Duration::from_millis(10)).await;
            for _ in 0..32 {
                TcpStream::connect("127.0.0.1:7000".parse().unwrap()).await.unwrap();
            }
            sleep(Duration::from_secs(1)).await;
            let mut served: Vec<CoreId> = told.try_iter().collect();
            assert_eq!(served.len(), 32);
            served.sort_unstable();
            served.dedup();
            served
        })
        .unwrap();
    assert_eq!(served, simulation.cores());
}

#[test]
fn unix_sockets_are_found_by_their_path() {
    Simulation::new(9, 1)
        .block_on(|| async {
            let mut listener = UnixListener::bind("/simulated/socket").unwrap();
            let mut client = UnixStream::connect("/simulated/socket").await.unwrap();
            let mut server = listener.accept().await.unwrap();
            client.write_all("hello").await.0.unwrap();
            assert_eq!(&*server.receive().await.unwrap().unwrap(), b"hello");
            assert!(UnixStream::connect("/simulated/other").await.is_err());
            assert!(!std::path::Path::new("/simulated/socket").exists());
        })
        .unwrap();
}
