//! The harness of the ownership baselines measures what it says: its samples, distributions, labels and counters.
#![cfg(all(feature = "pool", feature = "service"))]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "../benches/common/mod.rs"]
mod common;
#[path = "../benches/ownership/mod.rs"]
mod ownership;

use std::collections::BTreeSet;
use std::time::Duration;

use common::alloc::{held_by_this_thread, on_this_thread};
use corelet::pool::Fairness;
use corelet::runtime::spawn;
use ownership::counts::{Counter, Counts, Mark};
use ownership::latency::{Latency, PERCENTILES};
use ownership::report::{Label, Row, lines, path, write};
use ownership::samples::{Sample, Samples, Spread};
use proptest::prelude::*;
use serde_json::{Value, json};

fn sample(operations: u64, nanoseconds: u64) -> Sample {
    Sample { operations, elapsed: Duration::from_nanos(nanoseconds) }
}

#[test]
fn a_box_is_one_allocation_of_its_own_thread() {
    let before = on_this_thread();
    std::hint::black_box(Box::new(7_u64));
    assert_eq!(on_this_thread() - before, 1);

    let before = on_this_thread();
    // Spawning allocates here too, so the other thread's allocation is compared, not assumed.
    let other = std::thread::spawn(|| {
        let before = on_this_thread();
        std::hint::black_box(vec![0_u8; 64]);
        on_this_thread() - before
    });
    let here = on_this_thread() - before;
    assert_eq!(other.join().unwrap(), 1);
    assert!(here > 0);
}

#[test]
fn held_bytes_rise_and_fall_with_the_blocks() {
    let before = held_by_this_thread();
    let mut block = std::hint::black_box(vec![0_u8; 1000]);
    assert_eq!(held_by_this_thread() - before, 1000);
    block.reserve_exact(3000);
    assert_eq!(held_by_this_thread() - before, block.capacity() as i64);
    drop(block);
    assert_eq!(held_by_this_thread(), before);
}

#[test]
fn only_the_measured_samples_are_kept() {
    let mut samples = Samples::new(3);
    assert_eq!(samples.spread(), None, "nothing was measured");
    // A warm-up that is slow, as first times are.
    samples.push(sample(1, 1_000_000));
    samples.push(sample(2, 9_000));
    for nanoseconds in [40, 20, 30] {
        samples.push(sample(10, nanoseconds * 10));
    }
    assert_eq!(samples.spread(), Some(Spread { median: 30.0, least: 20.0, greatest: 40.0 }));
}

#[test]
fn the_median_of_an_even_number_is_between_the_middle_two() {
    let mut samples = Samples::new(4);
    for nanoseconds in [100, 10, 30, 20] {
        samples.push(sample(1, nanoseconds));
    }
    assert_eq!(samples.spread(), Some(Spread { median: 25.0, least: 10.0, greatest: 100.0 }));
}

#[test]
#[should_panic(expected = "a sample of nothing")]
fn a_sample_without_operations_is_refused() {
    Samples::new(1).push(sample(0, 10));
}

#[test]
fn time_is_per_operation_whatever_the_size_of_a_sample() {
    let mut samples = Samples::new(2);
    samples.push(sample(1_000, 50_000));
    samples.push(sample(10, 500));
    assert_eq!(samples.spread(), Some(Spread { median: 50.0, least: 50.0, greatest: 50.0 }));
}

/// What `percentile` in a hundred of the sorted values are at most, by its definition.
fn by_rank(sorted: &[u64], percentile: f64) -> u64 {
    let rank = (percentile / 100.0 * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted[rank.min(sorted.len()) - 1]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn percentiles_are_those_of_the_recorded_times(mut times in prop::collection::vec(1_u64..10_000_000_000, 1..400)) {
        let mut latency = Latency::new();
        times.iter().for_each(|nanoseconds| latency.record(Duration::from_nanos(*nanoseconds)));
        times.sort_unstable();
        prop_assert_eq!(latency.len(), times.len() as u64);
        for percentile in PERCENTILES {
            let (shown, exact) = (latency.at(percentile), by_rank(&times, percentile));
            // Three digits are kept.
            prop_assert!(shown.abs_diff(exact) <= exact / 1_000 + 1, "p{}: {} for {}", percentile, shown, exact);
        }
    }

    #[test]
    fn a_curve_rises_to_the_slowest(times in prop::collection::vec(1_u64..10_000_000_000, 1..400)) {
        let mut latency = Latency::new();
        times.iter().for_each(|nanoseconds| latency.record(Duration::from_nanos(*nanoseconds)));
        let curve = latency.curve();
        prop_assert!(curve.is_sorted_by(|one, next| one.0 <= next.0 && one.1 <= next.1), "{:?}", curve);
        let (percentile, slowest) = *curve.last().unwrap();
        prop_assert_eq!(percentile, 100.0);
        prop_assert_eq!(slowest, latency.at(100.0));
    }
}

#[test]
fn times_outside_the_range_count_as_its_ends() {
    let mut latency = Latency::new();
    latency.record(Duration::ZERO);
    latency.record(Duration::from_secs(3_600));
    assert_eq!(latency.len(), 2);
    assert_eq!(latency.at(50.0), 1);
    assert!(latency.at(100.0) >= 60_000_000_000);
}

#[test]
fn a_mark_counts_what_comes_after_it() {
    let mut core = common::core(Duration::ZERO);
    let counted = async {
        spawn(async {}).detach();
        let mark = Mark::now();
        assert_eq!(mark.counts(7), Counts::new(7, 0).with(Counter::TasksSpawned, 0));
        let (one, other) = (spawn(async {}), spawn(std::future::pending::<()>()));
        one.await.unwrap();
        mark.counts(2).expect(Counter::TasksSpawned, 2);
        // The one before the mark has ended, and the pending one has come.
        assert_eq!(mark.live_since(), 0);
        drop(other);
        let mark = Mark::now();
        drop(std::hint::black_box(Box::new(1_u64)));
        mark.counts(1).expect(Counter::TasksSpawned, 0).expect_allocations(1);
    };
    core.block_on(counted).unwrap();
}

#[test]
#[should_panic(expected = "tasks_spawned in 5 operations")]
fn an_expectation_that_is_not_met_names_its_counter() {
    Counts::new(5, 0).with(Counter::TasksSpawned, 1).expect(Counter::TasksSpawned, 2);
}

#[test]
#[should_panic(expected = "does not count capacity_waits")]
fn what_was_not_counted_is_not_zero() {
    Counts::new(5, 0).expect(Counter::CapacityWaits, 0);
}

#[test]
fn counters_are_named_for_what_they_count() {
    let names: BTreeSet<&str> = Counter::ALL.into_iter().map(Counter::name).collect();
    assert_eq!(names.len(), Counter::ALL.len(), "each has a name of its own");
    for counter in Counter::ALL {
        assert_eq!(
            counter.name(),
            snake(&format!("{counter:?}")),
            "its name in the results is that in the code"
        );
    }
    // What a pool counts has the pool's own name.
    let shards = common::core(Duration::ZERO).block_on(async {
        let pool = common::numbers(&corelet::runtime::handle(), 1, Fairness::Fifo);
        format!("{:?}", pool.stats().await)
    });
    let shards = shards.unwrap();
    let of_pools: Vec<&str> = Counter::ALL
        .into_iter()
        .filter(|counter| counter.meaning().ends_with("by the pool's own count"))
        .map(Counter::name)
        .collect();
    assert_eq!(of_pools, ["capacity_waits", "scheduler_spawns"]);
    for name in of_pools {
        assert!(shards.contains(&format!(" {name}: ")), "no {name} in {shards}");
    }
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

#[test]
fn a_row_says_what_was_measured_and_nothing_that_was_not() {
    let mut latency = Latency::new();
    latency.record(Duration::from_nanos(100));
    let counts = Counts::new(1_000, 5).with(Counter::TasksSpawned, 2_000);
    let rows = [
        Row {
            label: Label::new("pool", "contended/slots_4", "spawn_on_demand", true),
            operation: "acquire and release",
            counts: Some(counts),
            spread: Some(Spread { median: 2.0, least: 1.0, greatest: 3.0 }),
            latency: Some(("an acquire", latency)),
        },
        Row {
            label: Label::new("pool", "phase", "actor", false),
            operation: "a life",
            counts: None,
            spread: None,
            latency: None,
        },
    ];
    let written = lines(json!({ "kernel": "6.1" }), &rows);
    let parsed: Vec<Value> = written.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(parsed[0]["machine"]["kernel"], "6.1");
    assert_eq!(parsed[0]["counters"].as_object().unwrap().len(), Counter::ALL.len());
    let row = &parsed[1];
    assert_eq!((&row["scope"], &row["case"]), (&json!("pool"), &json!("contended/slots_4")));
    assert_eq!((&row["subject"], &row["reference"]), (&json!("spawn_on_demand"), &json!(true)));
    assert_eq!(row["ns_per_op"]["median"], 2.0);
    assert_eq!(
        row["counts"],
        json!({ "operations": 1000, "allocations": 5, "counters": { "tasks_spawned": 2000 } })
    );
    assert_eq!(row["latency_ns"]["of"], "an acquire");
    assert_eq!(row["latency_ns"]["percentiles"][0], json!([50.0, 100]));
    for absent in ["ns_per_op", "counts", "latency_ns"] {
        assert_eq!(parsed[2][absent], Value::Null, "{absent}");
    }
}

#[test]
fn a_trial_run_does_not_touch_the_figures_of_a_whole_one() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("baselines-test");
    let (whole, trial) = (path(&folder, false), path(&folder, true));
    assert_ne!(whole, trial);
    write(&whole, &["one".to_owned(), "two".to_owned()]).unwrap();
    write(&trial, &["three".to_owned()]).unwrap();
    assert_eq!(std::fs::read_to_string(whole).unwrap(), "one\ntwo\n");
}
