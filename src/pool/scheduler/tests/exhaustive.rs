//! Every order of a small alphabet of events.

use std::collections::HashSet;

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

fn small(fairness: Fairness, slots: usize, max_waiters: usize) -> Limits {
    let backoff = Backoff { initial: Duration::ZERO, max: Duration::ZERO, breaker: None };
    Limits { slots, max_waiters, max_connecting: 2, fairness, backoff, keep: Keep::default() }
}

fn enumerate(world: &World, depth: usize, visited: &mut u64) {
    *visited += 1;
    if depth == 0 {
        return;
    }
    for step in ALPHABET {
        let mut next = world.clone();
        if next.apply(step) {
            enumerate(&next, depth - 1, visited);
        }
    }
}

#[test]
fn every_short_order_of_events_keeps_the_promises() {
    const DEPTH: usize = 7;
    for fairness in [Fairness::Fifo, Fairness::RoundRobin] {
        let mut visited = 0;
        enumerate(&World::new(small(fairness, 2, 3)), DEPTH, &mut visited);
        println!("{fairness:?}: {visited} states in all orders of {DEPTH} events");
        assert!(visited > 200_000, "the alphabet has lost its letters: {visited} states");
    }
}

#[test]
fn every_reachable_situation_keeps_the_promises() {
    for fairness in [Fairness::Fifo, Fairness::RoundRobin] {
        let start = World::new(small(fairness, 3, 4));
        let mut seen = HashSet::from([start.essence()]);
        let mut frontier = vec![start];
        let mut transitions = 0_u64;
        while let Some(world) = frontier.pop() {
            for step in ALPHABET {
                let mut next = world.clone();
                if next.apply(step) {
                    transitions += 1;
                    if seen.insert(next.essence()) {
                        frontier.push(next);
                    }
                }
            }
            world.wind_up();
        }
        println!("{fairness:?}: {} situations, {transitions} transitions between them", seen.len());
        assert!(seen.len() > 2_000, "the alphabet has lost its letters: {} situations", seen.len());
    }
}
