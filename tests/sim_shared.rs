//! Shared sockets in simulated worlds, drawn from seeds: callers on one core or two give up at every poll, the kernel does
//! the rare things often, the server fails in every way, and the pool of sockets is resized, refreshed and limited
//! meanwhile. No reply crosses, nobody waits for ever, no limit is exceeded, no seat is lost, and nothing is left behind.
//!
//! `CORELET_SEED=n` runs the worlds of that seed only; `CORELET_SEEDS=n` so many seeds.
#![cfg(feature = "framed")]
#![allow(missing_docs, clippy::unwrap_used)]

mod framed;
mod support;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use corelet::net::{TcpListener, TcpStream};
use corelet::pool::{Call, Connector, ExchangeError, FramedConnector, Pool, TcpConnector};
use corelet::runtime::{Simulation, handle, sleep, spawn, timeout};
use framed::{FRAME_SIZE, Frame, Frames, frame, to_bytes};
use support::{Cut, Random, assert_settled, cut_off};

const CALLERS: u64 = 8;
const ROUNDS: u64 = 12;
const LIMIT: Duration = Duration::from_millis(50);

type Frameworks = FramedConnector<TcpConnector, fn() -> Frames>;

/// Which replies may come in another order than their requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    InTurn,
    InOrder,
    ById,
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match (number("CORELET_SEED"), number("CORELET_SEEDS")) {
        (Some(seed), count) => seed..seed + count.unwrap_or(1),
        (None, told) => 0..told.unwrap_or(count),
    }
}

/// Answers so many requests, some together and reversed if that is allowed, and then fails in a way that is drawn.
async fn serve(mut stream: TcpStream, mut random: Random, sharing: Sharing) -> Option<()> {
    let mut left = if random.below(4) == 0 { u64::MAX } else { random.below(30) };
    let mut received = Vec::new();
    while left > 0 {
        if received.len() < FRAME_SIZE {
            received.extend_from_slice(&stream.receive().await.ok()??);
            continue;
        }
        if random.below(4) == 0 {
            sleep(Duration::from_micros(random.below(200))).await;
        }
        let whole = (received.len() / FRAME_SIZE).min(left.try_into().unwrap_or(usize::MAX)) * FRAME_SIZE;
        let requests: Vec<u8> = received.drain(..whole).collect();
        left -= (whole / FRAME_SIZE) as u64;
        let replies: Vec<u8> = match sharing {
            Sharing::ById => requests.rchunks(FRAME_SIZE).flatten().copied().collect(),
            _ => requests,
        };
        let piece = if random.below(3) == 0 { 1 + random.below(20) as usize } else { replies.len() };
        for piece in replies.chunks(piece) {
            stream.write_all(piece.to_vec()).await.0.ok()?;
            if random.below(4) == 0 {
                stream.flush().await.ok()?;
                sleep(Duration::from_micros(random.below(50))).await;
            }
        }
    }
    match random.below(if sharing == Sharing::ById { 4 } else { 3 }) {
        0 => {}
        1 => drop(stream.write_all(to_bytes(frame(1 << 60))[..7].to_vec()).await),
        // Longer than anybody's patience.
        2 => sleep(4 * LIMIT).await,
        _ => drop(stream.write_all(to_bytes(frame(1 << 60)).to_vec()).await),
    }
    stream.flush().await.ok()
}

/// Calls from many tasks until all have had enough; gives how many ended well.
async fn call_around<C>(pool: Pool<C>, mut random: Random, first_id: u64) -> u64
where
    C: Connector,
    C::Connection: Call<Frame, Reply = Frame>,
{
    let ids = Rc::new(Cell::new(first_id));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (session, ids, mut random) = (pool.handle(), Rc::clone(&ids), Random::seeded(random.next()));
            spawn(async move {
                let mut done = 0;
                for _ in 0..ROUNDS {
                    // Refused while the server cannot be reached, or all is stuck behind a silent one.
                    let Ok(mut lease) = session.acquire().await else { continue };
                    for _ in 0..1 + random.below(3) {
                        let asked = frame(ids.replace(ids.get() + 1));
                        let polls = if random.below(3) == 0 { random.below(5) as usize } else { usize::MAX };
                        let cut = if random.below(2) == 0 { Cut::AtOnce } else { Cut::WhenWoken };
                        let call = timeout(2 * LIMIT, lease.call(asked));
                        match cut_off(polls, cut, call).await {
                            Some(Ok(Ok(reply))) => {
                                assert_eq!(reply, asked, "no reply crosses");
                                done += 1;
                            }
                            Some(Ok(Err(ExchangeError::Dirty))) => break,
                            _ => {}
                        }
                    }
                    if random.below(4) == 0 {
                        sleep(Duration::from_micros(random.below(300))).await;
                    }
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for caller in callers {
        done += caller.await.unwrap();
    }
    // However the server fails: sooner or later it does not.
    let session = pool.handle();
    let mut patience = 400;
    while patience > 0 {
        let asked = frame(ids.replace(ids.get() + 1));
        if let Ok(mut lease) = session.acquire().await
            && let Ok(Ok(reply)) = timeout(2 * LIMIT, lease.call(asked)).await
        {
            assert_eq!(reply, asked, "no reply crosses");
            break;
        }
        sleep(LIMIT / 10).await;
        patience -= 1;
    }
    assert!(patience > 0, "no seat is left");
    done
}

/// What is done to the pools while they are used.
async fn meddle<U: Connector, L: Connector>(
    sessions: Pool<U>,
    sockets: Pool<L>,
    mut random: Random,
    limit: usize,
) {
    for _ in 0..random.below(6) {
        sleep(Duration::from_micros(random.below(20_000))).await;
        match random.below(4) {
            0 => sockets.resize(1 + random.below(3) as usize).unwrap(),
            1 => sockets.refresh(),
            2 => sessions.resize(1 + random.below(6) as usize).unwrap(),
            _ => sockets.set_max_connections(1 + random.below(4) as usize).unwrap(),
        }
    }
    sockets.set_max_connections(limit).unwrap();
}

/// Callers on every core, and whoever meddles; then the end. Gives how many calls ended well.
async fn live<U, L>(sessions: Pool<U>, sockets: Pool<L>, mut random: Random, limit: usize) -> u64
where
    U: Connector,
    U::Connection: Call<Frame, Reply = Frame>,
    L: Connector,
{
    let cores = handle().cores();
    let meddler = spawn(meddle(sessions.clone(), sockets.clone(), Random::seeded(random.next()), limit));
    let callers: Vec<_> = (0_u64..)
        .zip(cores)
        .map(|(number, core)| {
            let (pool, random) = (sessions.clone(), Random::seeded(random.next()));
            handle().spawn_on(core, move || call_around(pool, random, number << 32)).unwrap()
        })
        .collect();
    let mut done = 0;
    for caller in callers {
        done += caller.await.unwrap();
    }
    meddler.await.unwrap();
    sessions.close().await;
    let (sessions, sockets) = (sessions.stats().await, sockets.stats().await);
    assert_eq!(sockets.sum(|shard| shard.connections() as u64), 0, "no socket is left: {sockets:?}");
    sessions.shards.iter().chain(&sockets.shards).for_each(assert_settled);
    done
}

/// One world; gives how many calls ended well.
fn world(seed: u64, sharing: Sharing) -> u64 {
    let mut simulation = Simulation::new(seed, 1 + seed as usize % 2);
    let outcome = simulation.block_on(move || async move {
        let mut random = Random::seeded(seed);
        let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut served = Random::seeded(random.next());
        let server = spawn(async move {
            loop {
                let Ok(stream) = listener.accept().await else { continue };
                let random = Random::seeded(served.next());
                spawn(serve(stream, random, sharing)).detach();
            }
        });
        let connector = FramedConnector::new(TcpConnector::new(address), (|| Frames) as fn() -> Frames);
        let most = 1 + random.below(4) as usize;
        let mut builder = Pool::<Frameworks>::builder(connector)
            .slots_per_core(1 + random.below(2) as usize)
            .max_connections(most)
            .acquire_timeout(Duration::from_secs(5))
            .max_lifetime(Duration::from_millis(1 + random.below(20)))
            .min_idle(random.below(3) as usize);
        if random.below(2) == 0 {
            builder = builder.idle_timeout(Duration::from_millis(1 + random.below(20)));
        }
        let builder = builder.leases_per_slot(1 + random.below(4) as usize);
        let (bound, draws) = (1 + random.below(6) as usize, Random::seeded(random.next()));
        let done = match sharing {
            Sharing::InTurn => {
                let pool = builder.build(&handle()).unwrap();
                let sockets = pool.sockets().clone();
                live(pool, sockets, draws, most).await
            }
            Sharing::InOrder => {
                let builder = builder.pipelined().reply_timeout(LIMIT).max_outstanding(bound);
                let pool = builder.build(&handle()).unwrap();
                let sockets = pool.sockets().clone();
                live(pool, sockets, draws, most).await
            }
            Sharing::ById => {
                let builder = builder.pipelined_by_id().reply_timeout(LIMIT).max_unsent_bytes(bound * 16);
                let pool = builder.build(&handle()).unwrap();
                let sockets = pool.sockets().clone();
                live(pool, sockets, draws, most).await
            }
        };
        drop(server);
        done
    });
    outcome.unwrap_or_else(|error| panic!("CORELET_SEED={seed}: {error}"))
}

fn worlds(sharing: Sharing) {
    let seeds = seeds(150);
    let many = seeds.end - seeds.start;
    let done: u64 = seeds.map(|seed| world(seed, sharing)).sum();
    println!("{done} calls ended well in {many} worlds");
    assert!(done > many, "hardly anything ends well: {done} calls");
}

#[test]
fn worlds_of_leases_in_turn_keep_every_promise() {
    worlds(Sharing::InTurn);
}

#[test]
fn worlds_of_calls_in_order_keep_every_promise() {
    worlds(Sharing::InOrder);
}

#[test]
fn worlds_of_calls_by_id_keep_every_promise() {
    worlds(Sharing::ById);
}

#[test]
fn a_world_repeats_itself() {
    let hash = |seed| {
        let mut simulation = Simulation::new(seed, 1);
        simulation
            .block_on(move || async move {
                let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
                let address = listener.local_addr().unwrap();
                let server = spawn(async move {
                    let stream = listener.accept().await.unwrap();
                    serve(stream, Random::seeded(1), Sharing::InOrder).await
                });
                let connector = FramedConnector::new(TcpConnector::new(address), || Frames);
                let pool = Pool::builder(connector).leases_per_slot(4).pipelined().build(&handle()).unwrap();
                let mut lease = pool.acquire().await.unwrap();
                let _: Result<Frame, _> = lease.call(frame(1)).await;
                drop((lease, server));
                pool.close().await;
            })
            .unwrap();
        simulation.trace_hash()
    };
    assert_eq!(hash(7), hash(7));
}
