//! Simulated sockets, as tasks see them.

use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use corelet::net::{ListenerOptions, TcpListener, TcpStream, UnixListener, UnixStream};
use corelet::runtime::{
    CoreId, RuntimeHandle, Simulation, SimulationError, current_core, handle, now, sleep, spawn, timeout,
};

use super::SEEDS;

fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Serves echoes on `core`; gives the address.
pub(super) async fn echo_on(handle: &RuntimeHandle, core: CoreId) -> SocketAddr {
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
                        if len.is_multiple_of(3) {
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
        let (faults, cores) = (simulation.faults(), simulation.cores());
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
            drop(client);
            let mut got = Vec::new();
            while let Some(received) = server.receive().await.unwrap() {
                got.extend_from_slice(&received);
            }
            assert_eq!(got, b"hello");
            assert!(UnixStream::connect("/simulated/other").await.is_err());
            assert!(!std::path::Path::new("/simulated/socket").exists());
        })
        .unwrap();
}
