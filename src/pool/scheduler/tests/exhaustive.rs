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

/// What matters besides when handles have limits: whose lease it is, and that somebody may be held back.
const OF_LIMITS: [Step; 3] = [Step::CancelHeldBack, Step::Release(1), Step::Discard(1)];

fn a_has_one(handle: HandleId) -> Option<NonZeroU32> {
    (handle == A).then_some(NonZeroU32::MIN)
}

fn small(fairness: Fairness, slots: usize, max_waiters: usize) -> Limits {
    let backoff = Backoff { initial: Duration::ZERO, max: Duration::ZERO, breaker: None };
    Limits { max_waiters, max_connecting: 2, fairness, backoff, ..limits(slots) }
}

fn enumerate(world: &World, alphabet: &[Step], depth: usize, visited: &mut u64) {
    *visited += 1;
    if depth == 0 {
        return;
    }
    for step in alphabet {
        let mut next = world.clone();
        if next.apply(*step) {
            enumerate(&next, alphabet, depth - 1, visited);
        }
    }
}

/// Visits every situation that can be reached from `start`, winds each up, and says how many there are.
fn explore(start: World, alphabet: &[Step]) -> usize {
    let mut seen = HashSet::from([start.essence()]);
    let mut frontier = vec![start];
    while let Some(world) = frontier.pop() {
        for step in alphabet {
            let mut next = world.clone();
            if next.apply(*step) && seen.insert(next.essence()) {
                frontier.push(next);
            }
        }
        world.wind_up();
    }
    seen.len()
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
    let alphabet = [&ALPHABET[..], &OF_LIMITS].concat();
    for fairness in [Fairness::Fifo, Fairness::RoundRobin] {
        let mut visited = 0;
        enumerate(&World::limited(small(fairness, 2, 3), a_has_one), &alphabet, DEPTH, &mut visited);
        println!("{fairness:?}: {visited} states in all orders of {DEPTH} events");
        assert!(visited > 30_000, "the alphabet has lost its letters: {visited} states");
    }
}

#[test]
fn every_reachable_situation_keeps_the_promises() {
    for fairness in [Fairness::Fifo, Fairness::RoundRobin] {
        let situations = explore(World::new(small(fairness, 3, 4)), &ALPHABET);
        println!("{fairness:?}: {situations} situations");
        assert!(situations > 2_000, "the alphabet has lost its letters: {situations} situations");
    }
}

#[test]
fn every_reachable_situation_under_a_limit_keeps_the_promises() {
    let alphabet = [&ALPHABET[..], &OF_LIMITS].concat();
    for fairness in [Fairness::Fifo, Fairness::RoundRobin] {
        let situations = explore(World::limited(small(fairness, 3, 4), a_has_one), &alphabet);
        println!("{fairness:?}: {situations} situations");
        assert!(situations > 1_000, "the alphabet has lost its letters: {situations} situations");
    }
}
