//! Every order of a small alphabet of events.

use std::collections::HashSet;
use std::num::NonZeroU32;

use super::world::{Step, World};
use super::*;

/// One letter for each thing that can happen. Which of several leases or opens it happens to makes no
/// difference, nor do events that find nothing to happen to, so there are no letters for those.
const ALPHABET: [Step; 16] = [
    Step::Acquire(A),
    Step::Acquire(B),
    Step::Cancel(0),
    Step::CancelNewest,
    Step::CancelGranted(0),
    Step::Take(0),
    Step::Forward,
    Step::Deregister(A),
    Step::Deregister(B),
    Step::Release(0),
    Step::Discard(0),
    Step::Connected,
    Step::ConnectFailed,
    Step::Closed,
    Step::Shutdown(Lifecycle::Closed),
    Step::Shutdown(Lifecycle::Failed),
];

/// What else can happen to connections while the pool runs.
const UPKEEP: [Step; 6] = [
    Step::Resize(1),
    Step::Resize(2),
    Step::Resize(3),
    Step::ExpireLeased(0),
    Step::ExpireIdle,
    Step::Refresh(true),
];

/// What matters besides when handles have limits: whose lease it is, and that somebody may be held back.
const OF_LIMITS: [Step; 3] = [Step::CancelHeldBack, Step::Release(1), Step::Discard(1)];

fn a_has_one(handle: HandleId) -> Option<NonZeroU32> {
    (handle == A).then_some(NonZeroU32::MIN)
}

/// What the other shards of a pool do to this one.
const OTHERS: [Step; 6] = [
    Step::Block(true),
    Step::Block(false),
    Step::Heed(true),
    Step::Heed(false),
    Step::GiveUp,
    Step::LendIdle,
];

fn small(fairness: Fairness, slots: usize, max_waiters: usize) -> Limits {
    let backoff = Backoff { initial: Duration::ZERO, max: Duration::ZERO, breaker: None };
    Limits { max_waiters, max_connecting: 2, fairness, backoff, ..limits(slots) }
}

fn enumerate(world: &World, letters: &[Step], depth: usize, visited: &mut u64) {
    *visited += 1;
    if depth == 0 {
        return;
    }
    for step in letters {
        let mut next = world.clone();
        if next.apply(*step) {
            enumerate(&next, letters, depth - 1, visited);
        }
    }
}

/// Every situation that can be reached from `start` by these letters, and how many steps there are between them.
fn reach(start: World, letters: &[Step]) -> (usize, u64) {
    let mut seen = HashSet::from([start.essence()]);
    let mut frontier = vec![start];
    let mut transitions = 0_u64;
    while let Some(world) = frontier.pop() {
        for step in letters {
            let mut next = world.clone();
            if next.apply(*step) {
                transitions += 1;
                if seen.insert(next.essence()) {
                    frontier.push(next);
                }
            }
        }
        world.wind_up();
    }
    (seen.len(), transitions)
}

#[test]
fn every_short_order_of_events_keeps_the_promises() {
    const DEPTH: usize = 7;
    for fairness in [Fairness::Fifo, Fairness::RoundRobin] {
        let mut visited = 0;
        enumerate(&World::new(small(fairness, 2, 3)), &ALPHABET, DEPTH, &mut visited);
        println!("{fairness:?}: {visited} states in all orders of {DEPTH} events");
        assert!(visited > 200_000, "the alphabet has lost its letters: {visited} states");
    }
}

#[test]
fn every_short_order_of_events_under_a_limit_keeps_the_promises() {
    const DEPTH: usize = 6;
    let letters = [&ALPHABET[..], &OF_LIMITS].concat();
    for fairness in [Fairness::Fifo, Fairness::RoundRobin] {
        let mut visited = 0;
        enumerate(&World::limited(small(fairness, 2, 3), a_has_one), &letters, DEPTH, &mut visited);
        println!("{fairness:?}: {visited} states in all orders of {DEPTH} events");
        assert!(visited > 30_000, "the alphabet has lost its letters: {visited} states");
    }
}

#[test]
fn every_reachable_situation_keeps_the_promises() {
    for fairness in [Fairness::Fifo, Fairness::RoundRobin] {
        let (situations, transitions) = reach(World::new(small(fairness, 3, 4)), &ALPHABET);
        println!("{fairness:?}: {situations} situations, {transitions} transitions between them");
        assert!(situations > 2_000, "the alphabet has lost its letters: {situations} situations");
    }
}

#[test]
fn every_reachable_situation_under_a_limit_keeps_the_promises() {
    let letters = [&ALPHABET[..], &OF_LIMITS].concat();
    for fairness in [Fairness::Fifo, Fairness::RoundRobin] {
        let (situations, transitions) = reach(World::limited(small(fairness, 3, 4), a_has_one), &letters);
        println!("{fairness:?}: {situations} situations, {transitions} transitions between them");
        assert!(situations > 1_000, "the alphabet has lost its letters: {situations} situations");
    }
}

#[test]
fn every_situation_that_limits_resizes_and_expiries_reach_keeps_the_promises() {
    let letters = [&ALPHABET[..], &OF_LIMITS, &UPKEEP].concat();
    let keep = Keep { min_idle: 1, ..Keep::default() };
    let start = World::limited(Limits { keep, ..small(Fairness::Fifo, 2, 2) }, a_has_one);
    let (situations, transitions) = reach(start, &letters);
    println!("{situations} situations, {transitions} transitions between them");
    assert!(situations > 2_000, "the alphabet has lost its letters: {situations} situations");
}

#[test]
fn every_short_order_of_events_with_resizes_and_expiries_keeps_the_promises() {
    const DEPTH: usize = 5;
    let letters = [&ALPHABET[..], &UPKEEP[..]].concat();
    for min_idle in [0, 1] {
        let keep = Keep { min_idle, ..Keep::default() };
        let mut visited = 0;
        let start = World::new(Limits { keep, ..small(Fairness::Fifo, 2, 2) });
        enumerate(&start, &letters, DEPTH, &mut visited);
        println!("{min_idle} kept: {visited} states in all orders of {DEPTH} events");
        assert!(visited > 20_000, "the alphabet has lost its letters: {visited} states");
    }
}

#[test]
fn every_situation_that_resizes_and_expiries_reach_keeps_the_promises() {
    let letters = [&ALPHABET[..], &UPKEEP[..]].concat();
    for min_idle in [0, 2] {
        let keep = Keep { min_idle, ..Keep::default() };
        let start = World::new(Limits { keep, ..small(Fairness::Fifo, 2, 2) });
        let (situations, transitions) = reach(start, &letters);
        println!("{min_idle} kept: {situations} situations, {transitions} transitions between them");
        assert!(situations > 2_000, "the alphabet has lost its letters: {situations} situations");
    }
}

#[test]
fn every_situation_that_other_shards_bring_about_keeps_the_promises() {
    let letters = [&ALPHABET[..], &OTHERS[..]].concat();
    for fairness in [Fairness::Fifo, Fairness::RoundRobin] {
        let (situations, transitions) = reach(World::new(small(fairness, 2, 3)), &letters);
        println!("{fairness:?}: {situations} situations, {transitions} transitions between them");
        assert!(situations > 1_500, "the alphabet has lost its letters: {situations} situations");
    }
}
