//! Leases that share sockets to a real Redis: a reply goes to the caller whose request it answers, whatever becomes of
//! Redis, of the socket and of the other callers.
#![cfg(feature = "framed")]
#![allow(missing_docs, clippy::unwrap_used)]

mod common;
#[path = "support/redis.rs"]
mod redis;
mod redis_support;
mod support;

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use common::wait_for;
use corelet::pool::{FramedConnector, Handle, InOrder, Pipelined, Pool, TcpConnector};
use corelet::runtime::{CoreId, RuntimeHandle, timeout};
use redis_support::{Asks, Failure, Limits, Load, SLOTS, Values, World, in_time, in_world};
use support::{Cut, PATIENCE, Random, block_until, cut_off};
use tokio_util::codec::{Decoder, Encoder};

/// Leases that share a socket.
const SHARERS: usize = 8;
/// Callers of one core: enough for all of its sockets to have several.
const CALLERS: usize = SLOTS * SHARERS - 4;

/// Asks Redis to echo a text.
struct Echo;

impl Encoder<String> for Echo {
    type Error = io::Error;

    fn encode(&mut self, text: String, to: &mut BytesMut) -> io::Result<()> {
        to.extend_from_slice(format!("*2\r\n$4\r\nECHO\r\n${}\r\n{text}\r\n", text.len()).as_bytes());
        Ok(())
    }
}

impl Decoder for Echo {
    type Item = String;
    type Error = io::Error;

    fn decode(&mut self, from: &mut BytesMut) -> io::Result<Option<String>> {
        let wrong = |what: &[u8]| io::Error::other(format!("not an echo: {}", String::from_utf8_lossy(what)));
        let Some(line) = from.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
        let head =
            from[..line].strip_prefix(b"$").and_then(|head| std::str::from_utf8(head).ok()?.parse().ok());
        let length: usize = head.ok_or_else(|| wrong(from))?;
        let end = line + 2 + length;
        if from.len() < end + 2 {
            return Ok(None);
        }
        let text = String::from_utf8(from[line + 2..end].to_vec()).map_err(|_| wrong(from))?;
        from.advance(end + 2);
        Ok(Some(text))
    }
}

type Shared = Pipelined<FramedConnector<TcpConnector, fn() -> Echo>, InOrder>;

/// One that calls, each time by a lease of its own.
struct Caller {
    values: Values,
    handle: Handle<Shared>,
    limits: Limits,
}

impl Asks<Shared> for Caller {
    fn new(pool: &Pool<Shared>, _: &[CoreId], name: String) -> Caller {
        // Sessions stay on their core.
        Caller { values: Values::new(name), handle: pool.handle(), limits: Limits::SHORT }
    }

    async fn ask(&mut self) -> Result<(), Failure> {
        let (value, limits) = (self.values.next(), self.limits);
        let begun = Instant::now();
        let acquired = self.handle.acquire_within(limits.acquire).await;
        in_time(begun, limits.acquire);
        let mut lease = acquired.map_err(Failure::Acquire)?;
        let begun = Instant::now();
        let called = timeout(limits.exchange, lease.call(value.clone())).await;
        in_time(begun, limits.exchange);
        match called {
            Ok(Ok(reply)) => assert_eq!(reply, value, "a reply of another request"),
            Ok(Err(error)) => return Err(Failure::Exchange(error.to_string())),
            Err(late) => return Err(Failure::Exchange(late.to_string())),
        }
        Ok(())
    }
}

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

fn run(cores: usize, test: fn(&mut World<Shared>)) {
    let build = |redis, runtime: &RuntimeHandle| {
        let connector = FramedConnector::new(TcpConnector::new(redis), (|| Echo) as fn() -> Echo);
        let settings = Pool::builder(connector).slots_per_core(SLOTS).acquire_timeout(Limits::SHORT.acquire);
        settings.leases_per_slot(SHARERS).pipelined().build(runtime).unwrap()
    };
    let sockets =
        |pool: &Pool<Shared>| wait_for(pool.sockets().stats()).sum(|shard| shard.connections() as u64);
    in_world(cores, build, sockets, test);
}

worlds! {
    replies_are_their_own_while_redis_is_killed_and_started_again,
    replies_to_those_who_gave_up_are_nobody_else_s,
    a_storm_of_cancels_never_hands_on_a_stale_reply,
}

fn replies_are_their_own_while_redis_is_killed_and_started_again(world: &mut World<Shared>) {
    let load = Load::start::<_, Caller>(world, CALLERS);
    for _ in 0..5 {
        load.answers_more(1000);
        let failed = load.failed();
        world.redis.kill();
        block_until(|| load.failed() >= failed + 10);
        world.redis.restart();
        // Nobody tells the pool.
        load.answers_more(1000);
    }
    assert!(load.stop().failed.load(Ordering::Relaxed) > 0);
    world.settle();
}

fn replies_to_those_who_gave_up_are_nobody_else_s(world: &mut World<Shared>) {
    let load = Load::start::<_, Caller>(world, CALLERS);
    for round in 0..4 {
        load.answers_more(500);
        let failed = load.exchanges_failed();
        if round % 2 == 0 {
            world.redis.stop();
            block_until(|| load.exchanges_failed() >= failed + CALLERS as u64);
            world.redis.resume();
        } else {
            let pause = 4 * Limits::SHORT.exchange.as_millis();
            assert_eq!(world.redis.command(&format!("CLIENT PAUSE {pause} ALL")), "+OK");
            block_until(|| load.exchanges_failed() > failed);
        }
        // The late replies come now, on the sockets that are still in use.
        load.answers_more(1000);
    }
    load.stop();
    world.settle();
}

fn a_storm_of_cancels_never_hands_on_a_stale_reply(world: &mut World<Shared>) {
    let seed = Random::new().next();
    world.on_each_core(CALLERS, move |caller: Caller| storm(caller, Random::seeded(seed)));
    world.settle();
}

async fn storm(mut caller: Caller, mut random: Random) {
    caller.limits = Limits::LONG;
    for _ in 0..300 {
        let cut = if random.below(2) == 0 { Cut::AtOnce } else { Cut::WhenWoken };
        let value = caller.values.next();
        let asked = async {
            let mut lease = caller.handle.acquire_within(PATIENCE).await.unwrap();
            lease.call(value.clone()).await.unwrap()
        };
        if random.below(4) == 0 {
            // By time, not by polls.
            if let Ok(reply) = timeout(Duration::from_micros(random.below(300)), asked).await {
                assert_eq!(reply, value);
            }
        } else if let Some(reply) = cut_off(1 + random.below(4) as usize, cut, asked).await {
            assert_eq!(reply, value);
        }
        caller.ask().await.unwrap();
    }
}
