//! Whole pools in simulated worlds, drawn from seeds: clients on every core ask, give up and break off at every moment,
//! and their upstream is late, silent, hostile or gone, while cores are killed and pools closed.
//!
//! `CORELET_SEED=n` runs the world of that seed only, `CORELET_SEEDS=n` so many worlds; both together so many from
//! there on. A failure names its seed.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod checks;
mod client;
mod connector;
mod cut;
mod ledger;
mod order;
mod plan;
mod promises;
mod random;
mod upstream;
mod world;

use ledger::Tally;
use std::ops::Range;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// The seeds to run, `count` unless told otherwise.
fn seeds(count: u64) -> Range<u64> {
    match (number("CORELET_SEED"), number("CORELET_SEEDS")) {
        (Some(seed), count) => seed..seed + count.unwrap_or(1),
        (None, told) => 0..told.unwrap_or(count),
    }
}

fn run_worlds(cores: usize, count: u64) {
    let (seeds, mut tally) = (seeds(count), Tally::default());
    for seed in seeds.clone() {
        tally.add(&world::run(seed, cores).tally);
    }
    println!("{seeds:?} with {cores} cores: {tally:?}");
    if seeds.end - seeds.start < count {
        return;
    }
    let Tally {
        matched, broken_exchanges, cut_exchanges, far_leases, spilled_leases, given_up, closed, ..
    } = tally;
    let Tally {
        saturated,
        timed_out,
        refused_connects,
        deregistered,
        waited,
        kills,
        rebalanced,
        hungry_waits,
        ..
    } = tally;
    let Tally { idled, expired, superseded, resized, prepared, checks, limited, would_miss, .. } = tally;
    let some_of_each =
        [matched, broken_exchanges, cut_exchanges, far_leases, spilled_leases, given_up, closed, saturated]
            .into_iter()
            .chain([idled, expired, superseded, resized, prepared, checks, limited, would_miss])
            .chain([timed_out, refused_connects, deregistered, waited, kills, rebalanced, hungry_waits])
            .all(|count| count > 0);
    assert!(some_of_each, "the worlds leave something out: {tally:?}");
}

#[test]
fn worlds_of_two_cores_keep_every_promise() {
    run_worlds(2, 600);
}

#[test]
fn worlds_of_three_cores_keep_every_promise() {
    run_worlds(3, 400);
}

#[test]
fn the_same_seed_makes_the_same_world_and_another_seed_another() {
    let mut hashes = Vec::new();
    for seed in seeds(20) {
        for cores in [2, 3] {
            let outcome = world::run(seed, cores);
            assert_eq!(outcome, world::run(seed, cores), "seed {seed} with {cores} cores");
            hashes.push(outcome.hash);
        }
    }
    let runs = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), runs);
}
