//! Single promises about order, each kept under many interleavings: small scenes, where the worlds are large ones.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use corelet::net::{TcpListener, TcpStream};
use corelet::pool::{AcquireError, CloseReason, Lease, Pool, PoolBuilder, ShardStats, TcpConnector};
use corelet::runtime::{
    CoreId, Faults, RuntimeHandle, Simulation, core_stats, now, sleep, spawn, timeout, yield_now,
};
use futures_channel::oneshot;

use super::cut::Cut;
use super::random::Random;
use super::seeds;

const SEEDS: u64 = 60;
/// Longer than the simulated network takes for anything.
const SETTLED: Duration = Duration::from_millis(50);
/// Longer than anything here takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two cores, and an upstream on the first.
struct Scene {
    random: Random,
    runtime: RuntimeHandle,
    cores: Vec<CoreId>,
    faults: Faults,
    address: SocketAddr,
}

impl Scene {
    fn pool(&self) -> PoolBuilder<TcpConnector> {
        Pool::builder(TcpConnector::new(self.address)).connect_timeout(Duration::from_secs(1))
    }

    async fn on_second<F, Fut>(&self, task: F) -> Fut::Output
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        self.runtime.spawn_on(self.cores[1], task).unwrap().await.unwrap()
    }
}

/// Plays the scene once for each seed, with an upstream that serves each connection by `serve`.
fn play<S, SFut, F, Fut>(serve: S, scene: F)
where
    S: Fn(TcpStream) -> SFut + Copy + 'static,
    SFut: Future<Output = ()> + 'static,
    F: Fn(Scene) -> Fut + Copy + 'static,
    Fut: Future<Output = ()> + 'static,
{
    for seed in seeds(SEEDS) {
        let mut simulation = Simulation::new(seed, 2);
        simulation.turn_limit(1_000_000);
        let (runtime, cores, faults) = (simulation.handle(), simulation.cores(), simulation.faults());
        let played = simulation.block_on(move || async move {
            let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.local_addr().unwrap();
            let server = spawn(async move {
                while let Ok(stream) = listener.accept().await {
                    spawn(serve(stream)).detach();
                }
            });
            scene(Scene { random: Random::new(seed), runtime, cores, faults, address }).await;
            drop(server);
        });
        played.and_then(|()| simulation.run_until_idle()).unwrap();
        for position in 0..2 {
            let Some(stats) = simulation.stats(position) else { continue };
            let left = (stats.executor.live, stats.driver.in_flight, stats.driver.buffers_out);
            assert_eq!(left, (0, 0, 0), "seed {seed}: tasks, operations, buffers left on core {position}");
        }
    }
}

async fn echo(mut stream: TcpStream) {
    while let Ok(Some(received)) = stream.receive().await {
        if stream.write_all(received.to_vec()).await.0.is_err() {
            return;
        }
    }
}

/// Reads everything and answers nothing.
async fn keep_silent(mut stream: TcpStream) {
    while let Ok(Some(_)) = stream.receive().await {}
}

async fn ask(stream: &mut TcpStream, question: u64) -> io::Result<u64> {
    stream.write_all(question.to_le_bytes().to_vec()).await.0?;
    let answer = Vec::with_capacity(8);
    let (result, answer) = stream.read_exact(answer, 8).await;
    result?;
    Ok(u64::from_le_bytes(answer.try_into().unwrap()))
}

async fn works(lease: &mut Lease<TcpConnector>, question: u64) {
    let answer = lease.exchange(async |stream| ask(stream, question).await).await.unwrap();
    assert_eq!(answer, question, "a reply to somebody else's request");
}

async fn shard(pool: &Pool<TcpConnector>, index: usize) -> ShardStats {
    pool.stats().await.shards[index].clone()
}

/// Nothing is out and nobody waits, on either shard.
async fn assert_whole(pool: &Pool<TcpConnector>) {
    sleep(SETTLED).await;
    for shard in pool.stats().await.shards {
        assert_eq!((shard.leased, shard.waiting, shard.opening, shard.closing), (0, 0, 0, 0), "{shard:?}");
    }
}

async fn poll_once<F: Future + Unpin>(future: &mut F) {
    poll_fn(|cx| {
        assert!(Pin::new(&mut *future).poll(cx).is_pending(), "it should have to wait");
        std::task::Poll::Ready(())
    })
    .await;
}

#[test]
fn a_forwarded_acquire_may_be_given_up_at_every_moment() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).build(&scene.runtime).unwrap();
        let far = pool.handle_on(scene.cores[1]).unwrap();
        let (theirs, random) = (pool.clone(), Random::new(scene.random.draw()));
        let rival = scene.runtime.spawn_on(scene.cores[1], move || async move {
            let (handle, mut random) = (theirs.handle(), random);
            for question in 0..20 {
                let mut lease = handle.acquire().await.unwrap();
                works(&mut lease, question).await;
                sleep(random.some_time() / 8).await;
                drop(lease);
                yield_now().await;
            }
        });
        for question in 100..140 {
            let cut = match scene.random.below(3) {
                0 => Cut::Polls(1 + scene.random.below(3)),
                1 => Cut::WhenWoken(1 + scene.random.below(2)),
                _ => Cut::After(scene.random.some_time() / 8),
            };
            if let Some(lease) = cut.apply(far.acquire()).await {
                works(&mut lease.unwrap(), question).await;
            }
        }
        rival.unwrap().await.unwrap();
        assert_whole(&pool).await;
        let stats = shard(&pool, 1).await;
        assert_eq!((stats.opens, stats.idle), (1, 1), "a clean connection is not lost: {stats:?}");
        works(&mut timeout(PATIENCE, far.acquire()).await.unwrap().unwrap(), 0).await;
        pool.close().await;
    });
}

#[test]
fn a_forwarded_acquire_that_is_given_up_leaves_the_far_queue() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).build(&scene.runtime).unwrap();
        let far = pool.handle_on(scene.cores[1]).unwrap();
        let lease = far.acquire().await.unwrap();
        let (mut waiting, mut given_up) = (far.acquire(), Vec::new());
        poll_once(&mut waiting).await;
        for _ in 0..4 {
            let mut acquire = far.acquire();
            poll_once(&mut acquire).await;
            given_up.push(acquire);
        }
        sleep(scene.random.some_time() / 8).await;
        drop(given_up);
        sleep(SETTLED).await;
        let stats = shard(&pool, 1).await;
        assert_eq!((stats.waiting, stats.cancelled, stats.leased), (1, 4, 1), "{stats:?}");
        drop(lease);
        works(&mut timeout(PATIENCE, waiting).await.unwrap().unwrap(), 1).await;
        assert_whole(&pool).await;
        assert_eq!(shard(&pool, 1).await.opens, 1);
        pool.close().await;
    });
}

#[test]
fn the_waiters_of_a_core_that_ends_leave_the_far_queue() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).no_acquire_timeout().build(&scene.runtime).unwrap();
        let lease = pool.acquire().await.unwrap();
        let (theirs, here) = (pool.clone(), scene.cores[0]);
        let (tell, told) = oneshot::channel();
        let there = scene.runtime.spawn_on(scene.cores[1], move || async move {
            let handle = theirs.handle_on(here).unwrap();
            let mut waiting: Vec<_> = (0..3).map(|_| handle.acquire()).collect();
            for acquire in &mut waiting {
                poll_once(acquire).await;
            }
            tell.send(()).unwrap();
            futures_util::future::join_all(waiting).await;
        });
        told.await.unwrap();
        sleep(scene.random.some_time() / 8).await;
        scene.faults.kill_core(1);
        assert!(there.unwrap().await.unwrap_err().is_cancelled());
        sleep(SETTLED).await;
        let stats = shard(&pool, 0).await;
        assert_eq!((stats.waiting, stats.leased), (0, 1), "{stats:?}");
        drop(lease);
        sleep(SETTLED).await;
        let stats = shard(&pool, 0).await;
        assert_eq!((stats.idle, stats.opens), (1, 1), "it went to nobody who is gone: {stats:?}");
        timeout(PATIENCE, pool.close()).await.unwrap();
    });
}

#[test]
fn an_exchange_broken_off_at_any_moment_on_either_core_is_never_heard_of_again() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(2).build(&scene.runtime).unwrap();
        let mut cuts = [0; 2];
        for round in 0..30_u64 {
            let home = scene.random.below(2);
            let lease = pool.handle_on(scene.cores[home]).unwrap().acquire().await;
            let mut lease = lease.unwrap();
            works(&mut lease, round << 8).await;
            let exchange = lease.exchange(async |stream| ask(stream, round << 8 | 1).await);
            let cut = match scene.random.below(3) {
                0 => Cut::Polls(1 + scene.random.below(2)),
                1 => Cut::WhenWoken(1 + scene.random.below(2)),
                _ => Cut::After(scene.random.up_to(Duration::from_micros(300))),
            };
            match cut.apply(exchange).await {
                Some(answer) => assert_eq!(answer.unwrap(), round << 8 | 1),
                None => cuts[home] += u64::from(!lease.is_clean()),
            }
        }
        assert_whole(&pool).await;
        for (home, cuts) in cuts.into_iter().enumerate() {
            assert_eq!(shard(&pool, home).await.closed_for(CloseReason::Dirty), cuts);
        }
        pool.close().await;
    });
}

#[test]
fn the_end_of_a_core_leaves_nobody_on_the_other_waiting() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).no_acquire_timeout().build(&scene.runtime).unwrap();
        // Both shards are leased out for good: one to a task here, the other to one there.
        let (near, far) = (pool.handle(), pool.handle_on(scene.cores[1]).unwrap());
        let (theirs, here) = (pool.clone(), scene.cores[0]);
        let (tell, told) = oneshot::channel();
        let there = scene.runtime.spawn_on(scene.cores[1], move || async move {
            let both = (theirs.handle().acquire().await.unwrap(), theirs.handle_on(here).unwrap());
            let lease = both.1.acquire().await.unwrap();
            tell.send(()).unwrap();
            // More of them than there are slots, from the core that is going to end.
            let waiting = (both.1.acquire(), both.1.acquire());
            futures_util::future::join(waiting.0, waiting.1).await.0.unwrap();
            drop((both.0, lease));
        });
        told.await.unwrap();
        let waiting = spawn(async move { far.acquire().await.map(drop) });
        let served = spawn(async move { near.acquire().await.map(drop) });
        sleep(scene.random.some_time()).await;
        assert!(!waiting.is_finished() && !served.is_finished());
        scene.faults.kill_core(1);
        let refused = timeout(PATIENCE, waiting).await.unwrap().unwrap();
        assert!(matches!(refused, Err(AcquireError::Closed)), "{refused:?}");
        timeout(PATIENCE, served).await.unwrap().unwrap().unwrap();
        assert!(there.unwrap().await.unwrap_err().is_cancelled());
        let again = pool.handle_on(scene.cores[1]).unwrap().acquire().await;
        assert!(matches!(again, Err(AcquireError::Closed)), "{again:?}");
        works(&mut pool.acquire().await.unwrap(), 7).await;
        sleep(SETTLED).await;
        let stats = shard(&pool, 0).await;
        assert_eq!((stats.leased, stats.waiting, stats.idle), (0, 0, 1), "{stats:?}");
        timeout(PATIENCE, pool.close()).await.unwrap();
    });
}

#[test]
fn a_connection_that_the_upstream_closed_while_idle_is_never_leased() {
    // Answers once, then hangs up after a while.
    let once = |mut stream: TcpStream| async move {
        if let (Ok(()), question) = stream.read_exact(Vec::with_capacity(8), 8).await {
            stream.write_all(question).await.0.unwrap();
            sleep(SETTLED).await;
        }
    };
    play(once, |scene| async move {
        let pool = scene.pool().slots_per_core(2).build(&scene.runtime).unwrap();
        for round in 0..4 {
            for core in &scene.cores {
                let handle = pool.handle_on(*core).unwrap();
                works(&mut handle.acquire().await.unwrap(), round).await;
            }
            sleep(2 * SETTLED).await;
            let stats = pool.stats().await;
            assert_eq!(stats.sum(|shard| shard.idle as u64), 0, "{stats:?}");
            assert_eq!(stats.sum(|shard| shard.closed_for(CloseReason::Broken)), 2 * (round + 1));
        }
        pool.close().await;
    });
}

#[test]
fn a_silent_upstream_costs_the_exchange_and_not_the_slot() {
    play(keep_silent, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).build(&scene.runtime).unwrap();
        for core in scene.cores.clone() {
            let handle = pool.handle_on(core).unwrap();
            for round in 0..5 {
                let begun = now();
                let mut lease = timeout(PATIENCE, handle.acquire()).await.unwrap().unwrap();
                assert!(now() - begun < SETTLED, "a slot is free as soon as its connection is closed");
                let limit = scene.random.up_to(Duration::from_millis(20));
                let exchange = lease.exchange(async |stream| ask(stream, round).await);
                assert!(timeout(limit, exchange).await.is_err());
            }
        }
        assert_whole(&pool).await;
        pool.close().await;
    });
}

#[test]
fn a_black_hole_holds_no_acquire_beyond_its_deadline() {
    play(echo, |mut scene| async move {
        scene.faults.make_unreachable(scene.address);
        let limit = Duration::from_millis(20);
        let pool = scene.pool().acquire_timeout(limit).build(&scene.runtime).unwrap();
        for core in scene.cores.clone() {
            let handle = pool.handle_on(core).unwrap();
            let begun = now();
            let error = handle.acquire().await.unwrap_err();
            assert!(matches!(error, AcquireError::Timeout { .. }), "{error:?}");
            assert_eq!(now() - begun, limit);
        }
        scene.faults.heal(scene.address);
        sleep(scene.random.up_to(SETTLED)).await;
        works(&mut timeout(PATIENCE, pool.handle().acquire()).await.unwrap().unwrap(), 3).await;
        pool.close().await;
    });
}

#[test]
fn a_close_with_blocked_waiters_ends_them_all() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).no_acquire_timeout().build(&scene.runtime).unwrap();
        let leases =
            (pool.acquire().await.unwrap(), pool.handle_on(scene.cores[1]).unwrap().acquire().await.unwrap());
        let wait = |pool: Pool<TcpConnector>, cores: Vec<CoreId>| async move {
            let handles: Vec<_> = cores.iter().map(|core| pool.handle_on(*core).unwrap()).collect();
            let waiting = handles.iter().flat_map(|handle| [handle.acquire(), handle.acquire()]);
            futures_util::future::join_all(waiting).await.into_iter().map(|result| result.map(drop)).collect()
        };
        let here: corelet::runtime::JoinHandle<Vec<_>> = spawn(wait(pool.clone(), scene.cores.clone()));
        let (theirs, cores) = (pool.clone(), scene.cores.clone());
        let there = scene.runtime.spawn_on(scene.cores[1], move || wait(theirs, cores)).unwrap();
        sleep(scene.random.some_time()).await;
        timeout(PATIENCE, pool.close()).await.unwrap();
        for result in here.await.unwrap().into_iter().chain(there.await.unwrap()) {
            assert!(matches!(result, Err(AcquireError::Closed)), "{result:?}");
        }
        // The leases outlive it.
        let (mut near, mut far) = leases;
        works(&mut near, 1).await;
        works(&mut far, 2).await;
        let release = async {
            sleep(scene.random.some_time()).await;
            drop((near, far));
        };
        let (drained, ()) = futures_util::future::join(pool.drain(PATIENCE), release).await;
        drained.unwrap();
    });
}

#[test]
fn a_drain_meets_grants_on_their_way_and_waits_for_them() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).build(&scene.runtime).unwrap();
        drop(pool.acquire().await.unwrap());
        let (theirs, here, pause) = (pool.clone(), scene.cores[0], scene.random.some_time());
        let (tell, told) = oneshot::channel();
        let borrower = scene.runtime.spawn_on(scene.cores[1], move || async move {
            let handle = theirs.handle_on(here).unwrap();
            tell.send(()).unwrap();
            match handle.acquire().await {
                Ok(lease) => {
                    sleep(pause).await;
                    drop(lease);
                }
                Err(error) => assert!(matches!(error, AcquireError::Closed), "{error:?}"),
            }
            now()
        });
        told.await.unwrap();
        sleep(scene.random.up_to(Duration::from_micros(50))).await;
        pool.drain(PATIENCE).await.unwrap();
        let drained = now();
        assert!(borrower.unwrap().await.unwrap() <= drained, "drained while a lease was out");
    });
}

#[test]
fn the_last_handle_keeps_the_pool_and_its_drop_ends_every_actor() {
    play(echo, |scene| async move {
        let pool = scene.pool().build(&scene.runtime).unwrap();
        let handle = pool.handle_on(scene.cores[1]).unwrap();
        let theirs = pool.clone();
        scene.on_second(move || async move { works(&mut theirs.acquire().await.unwrap(), 1).await }).await;
        drop(pool);
        sleep(SETTLED).await;
        works(&mut handle.acquire().await.unwrap(), 2).await;
        // `play` sees that no task is left.
        drop(handle);
    });
}

#[test]
fn waiters_of_one_shard_are_served_by_arrival_and_nobody_overtakes() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).build(&scene.runtime).unwrap();
        let lease = pool.acquire().await.unwrap();
        let served = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..8 {
            let (handle, served, hold) = (pool.handle(), Rc::clone(&served), scene.random.some_time() / 8);
            let (tell, told) = oneshot::channel();
            tasks.push(spawn(async move {
                let mut acquire = handle.acquire();
                poll_once(&mut acquire).await;
                tell.send(()).unwrap();
                let lease = acquire.await.unwrap();
                served.borrow_mut().push(number);
                sleep(hold).await;
                drop(lease);
                // A hot one, which asks again at once.
                drop(handle.acquire().await.unwrap());
            }));
            told.await.unwrap();
        }
        drop(lease);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*served.borrow(), [0, 1, 2, 3, 4, 5, 6, 7]);
        pool.close().await;
    });
}

#[test]
fn an_acquire_that_waits_for_the_end_of_a_back_off_costs_no_turns() {
    play(echo, |scene| async move {
        let pause = Duration::from_secs(1);
        let nowhere = TcpConnector::new("127.0.0.1:9".parse().unwrap());
        let pool = Pool::builder(nowhere).connect_backoff(pause, pause).build(&scene.runtime).unwrap();
        let refused = pool.acquire().await.unwrap_err();
        assert!(matches!(refused, AcquireError::Connect { .. }), "{refused:?}");
        let (begun, polls) = (now(), core_stats().unwrap().executor.polls);
        let refused = pool.acquire().await.unwrap_err();
        assert!(matches!(refused, AcquireError::Connect { .. }), "{refused:?}");
        assert!(now() - begun > pause / 2, "it is tried again after the pause");
        let polls = core_stats().unwrap().executor.polls - polls;
        assert!(polls < 50, "{polls} polls");
        pool.close().await;
    });
}

#[test]
fn a_close_that_takes_its_time_costs_no_turns() {
    play(keep_silent, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).build(&scene.runtime).unwrap();
        let polls = core_stats().unwrap().executor.polls;
        for round in 0..10 {
            let mut lease = pool.acquire().await.unwrap();
            let exchange = lease.exchange(async |stream| ask(stream, round).await);
            let limit = scene.random.up_to(Duration::from_micros(500));
            assert!(timeout(limit, exchange).await.is_err());
        }
        assert_whole(&pool).await;
        let polls = core_stats().unwrap().executor.polls - polls;
        assert!(polls < 3000, "{polls} polls");
        pool.close().await;
    });
}
