//! One limit on the connections of all cores: never exceeded, as the pool counts and as the server sees it; and whatever
//! ends, its part of the limit goes to the others.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use corelet::pool::{Affinity, BuildError, Pool, TcpConnector};
use corelet::runtime::{Cores, Runtime, RuntimeHandle, core_stats, sleep, spawn};
use futures_util::future::join_all;
use support::{Memory, PATIENCE, Random, all_settled, echo, on_cores, poll_until, set, shard, soon, watched};

/// An echo server that counts its connections on every accept: those whose client has not closed.
struct Counting {
    address: SocketAddr,
    most: Arc<AtomicUsize>,
    accepted: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    acceptor: Option<std::thread::JoinHandle<()>>,
}

/// Whether the client has closed. Its close comes before any connect that it makes room for, so it is seen here.
fn is_closed(socket: &TcpStream) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    let peek = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    match socket2::SockRef::from(socket).recv_with_flags(&mut byte, peek) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

impl Counting {
    fn start() -> Counting {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (most, accepted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let (peak, count, stopped) = (Arc::clone(&most), Arc::clone(&accepted), Arc::clone(&stop));
        let acceptor = std::thread::spawn(move || {
            let mut sockets: Vec<TcpStream> = Vec::new();
            while let Ok((socket, _)) = listener.accept() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                sockets.retain(|socket| !is_closed(socket));
                sockets.push(socket.try_clone().unwrap());
                peak.fetch_max(sockets.len(), Ordering::SeqCst);
                count.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    let (mut socket, mut buffer) = (socket, [0; 64]);
                    while let Ok(count @ 1..) = socket.read(&mut buffer) {
                        if socket.write_all(&buffer[..count]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Counting { address, most, accepted, stop, acceptor: Some(acceptor) }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        self.acceptor.take().unwrap().join().unwrap();
    }
}

#[test]
fn the_server_never_sees_more_connections_than_the_limit_wherever_the_load_goes() {
    const LIMIT: usize = 4;
    on_cores(3, async move |runtime, cores| {
        let server = Counting::start();
        let pool = Pool::builder(TcpConnector::new(server.address))
            .slots_per_core(4)
            .max_connections(LIMIT)
            .affinity(Affinity::Spill)
            .build(&runtime)
            .unwrap();
        // One core is hot and the others cold, in turns; those grow cold with idle connections.
        for round in 0..12 {
            let (theirs, hot) = (pool.clone(), cores[round % cores.len()]);
            let load = move || async move {
                let handle = theirs.handle().with_affinity(Affinity::Local);
                let leases = soon(join_all((0..LIMIT).map(|_| handle.acquire()))).await;
                for lease in leases {
                    lease.unwrap().exchange(async |stream| echo(stream, b"hot").await).await.unwrap();
                }
                let tasks: Vec<_> = (0..8)
                    .map(|_| {
                        let handle = theirs.handle();
                        spawn(async move {
                            for _ in 0..20 {
                                let mut lease = soon(handle.acquire()).await.unwrap();
                                lease.exchange(async |stream| echo(stream, b"warm").await).await.unwrap();
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            };
            soon(runtime.spawn_on(hot, load).unwrap()).await.unwrap();
        }
        let most = server.most.load(Ordering::SeqCst);
        assert_eq!(most, LIMIT, "the hot core got all that there may be, and no more");
        let stats = pool.stats().await;
        let moved = stats.sum(|shard| shard.closes[corelet::pool::CloseReason::Rebalanced as usize]);
        assert!(moved >= 11 * LIMIT as u64 / 2, "{stats:?}");
        assert!(server.accepted.load(Ordering::SeqCst) as u64 >= moved);
        all_settled(&pool).await;
        pool.close().await;
    });
}

#[test]
fn the_limit_holds_at_every_connect_under_random_load_and_changes() {
    on_cores(2, async move |runtime, cores| {
        let connector = Memory::default();
        let script = Arc::clone(&connector.0);
        let pool = Pool::builder(connector)
            .slots_per_core(4)
            .max_connections(3)
            .affinity(Affinity::Spill)
            .build(&runtime)
            .unwrap();
        let mut random = Random::new();
        let mut tasks = Vec::new();
        for core in cores.iter().cycle().take(6) {
            let (theirs, seed, cores) = (pool.clone(), random.next(), cores.clone());
            let work = move || async move {
                let mut random = Random::seeded(seed);
                let handles = [
                    theirs.handle(),
                    theirs.handle_on(cores[0]).unwrap(),
                    theirs.handle_on(cores[1]).unwrap(),
                ];
                for _ in 0..200 {
                    let handle = &handles[random.below(3) as usize];
                    let within = Duration::from_micros(random.below(2000));
                    if let Ok(mut lease) = handle.acquire_within(within).await {
                        match random.below(4) {
                            0 => sleep(Duration::from_micros(random.below(200))).await,
                            1 => drop(lease.exchange(async |_| Err::<(), ()>(())).await),
                            _ => {}
                        }
                    }
                }
            };
            tasks.push(runtime.spawn_on(*core, work).unwrap());
        }
        for task in tasks {
            soon(task).await.unwrap();
        }
        // One that moves is counted on both sides for a moment.
        let most = script.peak();
        assert!(most <= 2 * 3, "{most}");
        let settled =
            async || pool.stats().await.shards.iter().all(|shard| shard.leased + shard.closing == 0);
        poll_until(settled).await;
        assert!(script.live() <= 3, "{}", script.live());
        for limit in [1, 8, 2] {
            pool.set_max_connections(limit).unwrap();
            poll_until(async || script.live() <= limit && settled().await).await;
            let leases = soon(join_all([0; 4].map(|_| pool.acquire()).into_iter().take(limit))).await;
            assert!(leases.iter().all(Result::is_ok), "{leases:?}");
            let stats = pool.stats().await;
            assert!(
                stats.shards.iter().map(|shard| shard.connections()).sum::<usize>() <= limit,
                "{stats:?}"
            );
            drop(leases);
        }
        pool.close().await;
    });
}

#[test]
fn a_connection_being_closed_counts_until_its_close_is_done() {
    on_cores(2, async move |runtime, cores| {
        let connector = Memory::default();
        let script = Arc::clone(&connector.0);
        let pool = Pool::builder(connector).max_connections(1).build(&runtime).unwrap();
        set(&script.hold_closes, true);
        let mut lease = pool.acquire().await.unwrap();
        assert!(lease.exchange(async |_| Err::<(), ()>(())).await.is_err());
        drop(lease);
        poll_until(async || shard(&pool, 0).await.closing == 1).await;
        let far = pool.handle_on(cores[1]).unwrap();
        let waiting = spawn(async move { far.acquire().await.map(drop) });
        poll_until(async || shard(&pool, 1).await.hungry_waits == 1).await;
        assert_eq!(script.connects(), 1);
        set(&script.hold_closes, false);
        soon(waiting).await.unwrap().unwrap();
        assert_eq!((script.connects(), script.peak()), (2, 1));
        pool.close().await;
    });
}

#[test]
fn a_failed_connect_gives_its_part_of_the_limit_back() {
    on_cores(2, async move |runtime, cores| {
        for panics in [false, true] {
            let connector = Memory::default();
            let script = Arc::clone(&connector.0);
            let pool = Pool::builder(connector).max_connections(1).build(&runtime).unwrap();
            let fault = if panics { &script.panic_connects } else { &script.fail_connects };
            set(fault, true);
            assert!(soon(pool.acquire()).await.unwrap_err().is_connection_fault());
            set(fault, false);
            drop(soon(pool.handle_on(cores[1]).unwrap().acquire()).await.unwrap());
            assert_eq!(shard(&pool, 0).await.credits, 0);
            pool.close().await;
        }
    });
}

#[test]
fn a_failed_scheduler_gives_back_what_its_leases_do_not_hold() {
    on_cores(2, async move |runtime, cores| {
        let connector = Memory::default();
        let script = Arc::clone(&connector.0);
        let pool = Pool::builder(connector).slots_per_core(3).max_connections(3).build(&runtime).unwrap();
        let far = pool.handle_on(cores[1]).unwrap();
        let mut leases = soon(join_all([far.acquire(), far.acquire(), far.acquire()])).await;
        drop(leases.pop());
        poll_until(async || shard(&pool, 1).await.idle == 1).await;
        // The next look at an idle connection there fails the shard.
        set(&script.panic_is_quiet, true);
        assert!(soon(far.acquire()).await.is_err());
        set(&script.panic_is_quiet, false);
        let near = pool.handle();
        let first = soon(near.acquire()).await.unwrap();
        assert_eq!(script.peak(), 3);
        let second = spawn(async move { near.acquire().await.map(drop) });
        poll_until(async || shard(&pool, 0).await.hungry_waits == 1).await;
        drop(leases.pop());
        soon(second).await.unwrap().unwrap();
        drop((first, leases));
        pool.close().await;
    });
}

#[test]
fn an_ended_core_gives_its_part_of_the_limit_back() {
    watched(|| {
        let (handle, mut guests): (RuntimeHandle, _) =
            Runtime::builder().cores(Cores::Count(2)).pinned(false).build_guests().unwrap();
        let second = guests.pop().unwrap();
        let mut first = guests.pop().unwrap().start().unwrap();
        let (end, there) = (Arc::new(AtomicBool::new(false)), handle.cores()[1]);
        let told = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            let mut core = second.start().unwrap();
            while !told.load(Ordering::SeqCst) {
                if !core.turn().unwrap() {
                    core.park(Some(Duration::from_millis(1))).unwrap();
                }
            }
        });
        let test = async move {
            let connector = Memory::default();
            let script = Arc::clone(&connector.0);
            let pool = Pool::builder(connector).slots_per_core(4).max_connections(4).build(&handle).unwrap();
            let theirs = pool.clone();
            // Leased there, idle there, and opening there.
            let keep = handle.spawn_on(there, move || async move {
                let handle = theirs.handle();
                let kept = join_all([handle.acquire(), handle.acquire()]).await;
                drop(handle.acquire().await);
                std::future::pending::<()>().await;
                drop(kept);
            });
            poll_until(async || shard(&pool, 1).await.idle == 1).await;
            set(&script.hold_connects, true);
            let far = pool.handle_on(there).unwrap();
            let opening = spawn(async move { join_all([far.acquire(), far.acquire()]).await.len() });
            poll_until(async || shard(&pool, 1).await.opening == 1).await;
            end.store(true, Ordering::SeqCst);
            soon(opening).await.unwrap();
            set(&script.hold_connects, false);
            let leases = soon(join_all((0..4).map(|_| pool.acquire()))).await;
            assert!(leases.iter().all(Result::is_ok), "{leases:?}");
            assert_eq!(shard(&pool, 0).await.credits, 4);
            drop((leases, keep));
            pool.close().await;
        };
        first.block_on(test).unwrap();
        thread.join().unwrap();
    });
}

#[test]
fn an_acquire_for_a_core_that_sleeps_is_served_promptly() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default())
            .slots_per_core(1)
            .affinity(Affinity::Spill)
            .build(&runtime)
            .unwrap();
        let there = cores[1];
        let far = pool.handle_on(there).unwrap();
        drop(soon(far.acquire()).await.unwrap());
        let near = pool.handle();
        let _kept = near.acquire().await.unwrap();
        let parks = async || {
            let stats = runtime.spawn_on(there, async || core_stats().unwrap().parks).unwrap();
            soon(stats).await.unwrap()
        };
        for round in 0..40 {
            // Asking wakes it; it has slept again when the next answer counts one more.
            let before = parks().await;
            poll_until(async || parks().await > before).await;
            let begun = Instant::now();
            let lease = match round % 2 {
                0 => soon(far.acquire()).await,
                _ => soon(near.acquire()).await,
            };
            assert_eq!(lease.unwrap().home(), there);
            assert!(begun.elapsed() < PATIENCE / 10, "{:?}", begun.elapsed());
        }
        let stats = pool.stats().await;
        assert_eq!((stats.shards[0].spills_granted, stats.shards[0].forwards), (20, 21), "{stats:?}");
        pool.close().await;
    });
}

#[test]
fn a_limit_out_of_range_is_refused() {
    on_cores(1, async move |runtime, _| {
        for limit in [0, (1 << 30) + 1] {
            let built = Pool::builder(Memory::default()).max_connections(limit).build(&runtime);
            let what = |error: &BuildError| matches!(error, BuildError::InvalidSetting { what: "max_connections", got, .. } if *got == limit);
            assert!(built.is_err_and(|error| what(&error)));
            let pool = Pool::builder(Memory::default()).build(&runtime).unwrap();
            assert!(pool.set_max_connections(limit).is_err_and(|error| what(&error)));
        }
    });
}
