//! Leases against a real Redis: whatever happens to it, no request gets another one's reply, and the pool comes back.
//!
//! Every request carries a value that no other carries, and checks that it comes back. One test at a time, since each
//! counts the descriptors of the process.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod common;
#[path = "support/redis.rs"]
mod redis;
mod redis_support;
mod support;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::wait_for;
use corelet::net::Stream;
use corelet::pool::{CloseReason, Handle, Pool, PoolBuilder, PoolStats, TcpConnector};
use corelet::runtime::{CoreId, RuntimeHandle, timeout};
use redis_support::{Asks, Failure, Limits, Load, SLOTS, Values, World, in_time, in_world};
use support::{Cut, PATIENCE, Random, block_until, cut_off};

/// One that asks, with a connection of its own for each request.
struct Client {
    values: Values,
    handles: Vec<Handle<TcpConnector>>,
    limits: Limits,
}

impl Client {
    /// The shards take turns.
    fn handle(&self) -> &Handle<TcpConnector> {
        &self.handles[self.values.sequence as usize % self.handles.len()]
    }
}

impl Asks<TcpConnector> for Client {
    fn new(pool: &Pool<TcpConnector>, cores: &[CoreId], name: String) -> Client {
        let handles = cores.iter().map(|core| pool.handle_on(*core).unwrap()).collect();
        Client { values: Values::new(name), handles, limits: Limits::SHORT }
    }

    /// Now and then it is a pair of requests that belong together.
    async fn ask(&mut self) -> Result<(), Failure> {
        let (value, limits) = (self.values.next(), self.limits);
        let handle = self.handle();
        let begun = Instant::now();
        let acquired = handle.acquire_within(limits.acquire).await;
        in_time(begun, limits.acquire);
        let mut lease = acquired.map_err(Failure::Acquire)?;

        let begun = Instant::now();
        let pair = self.values.sequence.is_multiple_of(4);
        let exchange = lease.exchange(async |stream| {
            if !pair {
                return request(stream, &["ECHO", &value]).await;
            }
            let stored = request(stream, &["SET", &value, &value]).await?;
            assert_eq!(stored, b"OK", "the reply to a SET of {value}");
            request(stream, &["GET", &value]).await
        });
        let exchanged = timeout(limits.exchange, exchange).await;
        in_time(begun, limits.exchange);
        let reply = match exchanged {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => return Err(Failure::Exchange(error.to_string())),
            Err(late) => return Err(Failure::Exchange(late.to_string())),
        };
        assert_eq!(String::from_utf8_lossy(&reply), value, "a reply of another request");
        Ok(())
    }
}

/// Sends one command and reads its reply, of which it gives the text.
async fn request(stream: &mut Stream, words: &[&str]) -> io::Result<Vec<u8>> {
    let mut wire = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| wire += &format!("${}\r\n{word}\r\n", word.len()));
    stream.write_all(wire).await.0?;
    let mut received = Vec::with_capacity(512);
    loop {
        received.reserve(64);
        let count;
        (count, received) = stream.read(received).await;
        if count? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some((text, taken)) = reply(&received) {
            assert_eq!(taken, received.len(), "more than one reply to {words:?}");
            return Ok(text.to_vec());
        }
    }
}

/// The text of a reply, a simple or a bulk string, and its length on the wire; none when its end is not there yet.
fn reply(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (head, body) = (&bytes[1..line], line + 2);
    match bytes[0] {
        b'+' => Some((head, body)),
        b'$' => {
            let length: usize = std::str::from_utf8(head).unwrap().parse().expect("a string that is there");
            let text = bytes.get(body..body + length)?;
            let ending = bytes.get(body + length..body + length + 2)?;
            assert_eq!(ending, b"\r\n");
            Some((text, body + length + 2))
        }
        _ => panic!("not what was asked for: {}", String::from_utf8_lossy(bytes)),
    }
}

/// Runs a test in a world of one core and in one of two, where every other lease is of the other core's shard.
macro_rules! worlds {
    ($($case:ident),* $(,)?) => {
        mod on_one_core {
            $(#[test] fn $case() { crate::run(1, crate::$case); })*
        }
        mod on_two_cores {
            $(#[test] fn $case() { crate::run(2, crate::$case); })*
        }
    };
}

fn settings(redis: SocketAddr) -> PoolBuilder<TcpConnector> {
    Pool::builder(TcpConnector::new(redis)).slots_per_core(SLOTS).acquire_timeout(Limits::SHORT.acquire)
}

fn sockets(pool: &Pool<TcpConnector>) -> u64 {
    wait_for(pool.stats()).sum(|shard| shard.connections() as u64)
}

fn run(cores: usize, test: fn(&mut World<TcpConnector>)) {
    in_world(cores, |redis, runtime| settings(redis).build(runtime).unwrap(), sockets, test);
}

worlds! {
    replies_are_their_own_while_redis_is_killed_and_started_again,
    idle_connections_that_redis_kills_are_evicted_before_their_next_use,
    a_stopped_redis_holds_nobody_beyond_the_deadlines,
    a_paused_redis_answers_late_and_nobody_gets_a_late_answer,
    a_storm_of_cancels_never_hands_on_a_stale_reply,
}

fn replies_are_their_own_while_redis_is_killed_and_started_again(world: &mut World<TcpConnector>) {
    let load = Load::start::<_, Client>(world, 6);
    for _ in 0..5 {
        load.answers_more(300);
        let failed = load.failed();
        world.redis.kill();
        // Seen by whoever was asking, and by later ones.
        block_until(|| load.failed() >= failed + 10);
        world.redis.restart();
        // Nobody tells the pool.
        load.answers_more(300);
    }
    let counts = load.stop();
    assert!(counts.failed.load(Ordering::Relaxed) > 0);
    world.settle();
    let stats = world.stats();
    assert!(stats.sum(|shard| shard.connect_failures) > 0, "nobody came while it was down: {stats:?}");
}

/// With nobody asking, and nobody telling it.
#[test]
fn a_pool_that_keeps_connections_is_warm_again_by_itself_after_a_restart() {
    let build = |redis, runtime: &RuntimeHandle| settings(redis).min_idle(SLOTS).build(runtime).unwrap();
    in_world(2, build, sockets, |world| {
        let warm = |world: &World<_>| world.stats().shards.iter().all(|shard| shard.idle == SLOTS);
        block_until(|| warm(world));
        for _ in 0..3 {
            let before = world.stats();
            world.redis.kill();
            block_until(|| world.stats().sum(|shard| shard.idle as u64) == 0);
            block_until(|| {
                let failures = |stats: &PoolStats| stats.sum(|shard| shard.connect_failures);
                failures(&world.stats()) > failures(&before)
            });
            world.redis.restart();
            block_until(|| warm(world));
            assert_eq!(world.stats().sum(|shard| shard.acquires), before.sum(|shard| shard.acquires));
            world.on_each_core(SLOTS, async |mut client: Client| {
                client.limits = Limits::LONG;
                client.ask().await.unwrap();
            });
            block_until(|| warm(world));
        }
        world.settle();
    });
}

fn idle_connections_that_redis_kills_are_evicted_before_their_next_use(world: &mut World<TcpConnector>) {
    for _ in 0..5 {
        world.warm(SLOTS);
        let before = world.stats();
        let killed = world.redis.command("CLIENT KILL TYPE normal SKIPME yes");
        assert_eq!(killed, format!(":{}", SLOTS * world.cores.len()));
        // With nobody asking.
        block_until(|| world.stats().sum(|shard| shard.idle as u64) == 0);
        let broken = |stats: &PoolStats| stats.sum(|shard| shard.closed_for(CloseReason::Broken));
        assert_eq!(broken(&world.stats()) - broken(&before), (SLOTS * world.cores.len()) as u64);
        // So not one of the next requests meets a dead connection.
        world.on_each_core(SLOTS + 1, async |mut client: Client| {
            client.limits = Limits::LONG;
            for _ in 0..20 {
                client.ask().await.unwrap();
            }
        });
    }
    world.settle();
}

fn a_stopped_redis_holds_nobody_beyond_the_deadlines(world: &mut World<TcpConnector>) {
    world.warm(SLOTS);
    let load = Load::start::<_, Client>(world, 3 * SLOTS);
    for _ in 0..2 {
        load.answers_more(100);
        let (acquires, exchanges) = (load.acquires_failed(), load.exchanges_failed());
        world.redis.stop();
        // Those with a connection end by their own limit, those without by the pool's. How late, each one checks.
        block_until(|| {
            load.acquires_failed() > acquires && load.exchanges_failed() >= exchanges + SLOTS as u64
        });
        world.redis.resume();
        load.answers_more(100);
    }
    load.stop();
    world.settle();
}

fn a_paused_redis_answers_late_and_nobody_gets_a_late_answer(world: &mut World<TcpConnector>) {
    let load = Load::start::<_, Client>(world, 6);
    for _ in 0..3 {
        load.answers_more(100);
        let failed = load.exchanges_failed();
        // Long enough for requests in flight to be given up. Their replies come, to nobody.
        let pause = 4 * Limits::SHORT.exchange.as_millis();
        assert_eq!(world.redis.command(&format!("CLIENT PAUSE {pause} ALL")), "+OK");
        block_until(|| load.exchanges_failed() > failed);
        load.answers_more(300);
    }
    load.stop();
    world.settle();
}

fn a_storm_of_cancels_never_hands_on_a_stale_reply(world: &mut World<TcpConnector>) {
    let mut random = Random::new();
    let seed = random.next();
    world.on_each_core(SLOTS + 1, move |client: Client| storm(client, Random::seeded(seed)));
    world.settle();
    let stats = world.stats();
    assert!(
        stats.sum(|shard| shard.closed_for(CloseReason::Dirty)) > 100,
        "hardly any was cut in its exchange: {stats:?}"
    );
}

async fn storm(mut client: Client, mut random: Random) {
    client.limits = Limits::LONG;
    for _ in 0..1500 {
        // Given up anywhere: in the queue, on the way to the other core, with the request sent, with the reply here.
        let cut = if random.below(2) == 0 { Cut::AtOnce } else { Cut::WhenWoken };
        let value = client.values.next();
        let handle = client.handle();
        let asked = async {
            let mut lease = handle.acquire_within(PATIENCE).await.unwrap();
            lease.exchange(async |stream| request(stream, &["ECHO", &value]).await).await.unwrap()
        };
        if random.below(4) == 0 {
            // By time, not by polls.
            let limit = Duration::from_micros(random.below(300));
            if let Ok(reply) = timeout(limit, asked).await {
                assert_eq!(reply, value.as_bytes());
            }
        } else if let Some(reply) = cut_off(1 + random.below(5) as usize, cut, asked).await {
            assert_eq!(reply, value.as_bytes());
        }
        client.ask().await.unwrap();
    }
}
