//! Leases against a real Redis: whatever happens to it, no request gets another one's reply, and the pool comes back.
//!
//! Every request carries a value that no other carries, and checks that it comes back. One test at a time, since each
//! counts the descriptors of the process.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;
#[path = "support/redis.rs"]
mod redis;
mod redis_support;
mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use corelet::pool::CloseReason;
use corelet::runtime::timeout;
use redis_support::{ACQUIRE_LIMIT, Client, EXCHANGE_LIMIT, Load, SLOTS, World, request};
use support::{Cut, Random, block_until, cut_off};

/// Runs a test in a world of one core and in one of two, where every other lease is of the other core's shard.
macro_rules! worlds {
    ($($case:ident),* $(,)?) => {
        mod on_one_core {
            $(#[test] fn $case() { crate::redis_support::in_world(1, crate::$case); })*
        }
        mod on_two_cores {
            $(#[test] fn $case() { crate::redis_support::in_world(2, crate::$case); })*
        }
    };
}

worlds! {
    replies_are_their_own_while_redis_is_killed_and_started_again,
    idle_connections_that_redis_kills_are_evicted_before_their_next_use,
    a_stopped_redis_holds_nobody_beyond_the_deadlines,
    a_paused_redis_answers_late_and_nobody_gets_a_late_answer,
    a_storm_of_cancels_never_hands_on_a_stale_reply,
}

fn replies_are_their_own_while_redis_is_killed_and_started_again(world: &mut World) {
    let load = Load::start(world, 6);
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

fn idle_connections_that_redis_kills_are_evicted_before_their_next_use(world: &mut World) {
    for _ in 0..5 {
        world.warm();
        let before = world.stats();
        let killed = world.redis.command("CLIENT KILL TYPE normal SKIPME yes");
        assert_eq!(killed, format!(":{}", SLOTS * world.cores.len()));
        // With nobody asking.
        block_until(|| world.stats().sum(|shard| shard.idle as u64) == 0);
        let broken =
            |stats: &corelet::pool::PoolStats| stats.sum(|shard| shard.closed_for(CloseReason::Broken));
        assert_eq!(broken(&world.stats()) - broken(&before), (SLOTS * world.cores.len()) as u64);
        // So not one of the next requests meets a dead connection.
        world.on_each_core(async |mut client: Client| {
            for _ in 0..20 {
                client.ask().await.unwrap();
            }
        });
    }
    world.settle();
}

fn a_stopped_redis_holds_nobody_beyond_the_deadlines(world: &mut World) {
    world.warm();
    let load = Load::start(world, 3 * SLOTS);
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

fn a_paused_redis_answers_late_and_nobody_gets_a_late_answer(world: &mut World) {
    let load = Load::start(world, 6);
    for _ in 0..3 {
        load.answers_more(100);
        let failed = load.exchanges_failed();
        // Long enough for requests in flight to be given up. Their replies come, to nobody.
        let pause = 4 * EXCHANGE_LIMIT.as_millis();
        assert_eq!(world.redis.command(&format!("CLIENT PAUSE {pause} ALL")), "+OK");
        block_until(|| load.exchanges_failed() > failed);
        load.answers_more(300);
    }
    load.stop();
    world.settle();
}

fn a_storm_of_cancels_never_hands_on_a_stale_reply(world: &mut World) {
    let mut random = Random::new();
    let seed = random.next();
    world.on_each_core(move |client: Client| storm(client, Random::seeded(seed)));
    world.settle();
    let stats = world.stats();
    assert!(
        stats.sum(|shard| shard.closed_for(CloseReason::Dirty)) > 100,
        "hardly any was cut in its exchange: {stats:?}"
    );
}

async fn storm(mut client: Client, mut random: Random) {
    for _ in 0..1500 {
        // Given up anywhere: in the queue, on the way to the other core, with the request sent, with the reply here.
        let cut = if random.below(2) == 0 { Cut::AtOnce } else { Cut::WhenWoken };
        let value = client.value();
        let handle = client.handle();
        let asked = async {
            let mut lease = handle.acquire_within(ACQUIRE_LIMIT).await.unwrap();
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
