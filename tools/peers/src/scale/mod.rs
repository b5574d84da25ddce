//! `scale`: what an acquire costs, and how much memory things take, with few and with many of them.
//!
//! - `waiters`: `n` acquires of one handle are queued; a lease ends, the next waiter gets it, a new one joins the queue.
//! - `handles`: the same with one acquire each of `n` handles that take turns.
//! - `cancel`: of `n` queued acquires one is given up, and a new one joins the queue. The first in the queue, the last,
//!   and any.
//! - `slots`: `n` idle TCP connections; one is leased and given back.
//!
//! `bytes_per_item` is what the heap of the measuring thread grows by for a queued acquire, for a handle or for an idle
//! connection: the pool's part and the runtime's, neither the caller's future nor the kernel's socket. `ratio` is the time
//! against that of the smallest `n` of the same kind: flat is 1.

mod queue;
mod slots;

use crate::cores::{self, CLIENT};
use crate::meter::Throughput;
use crate::report::{Report, rounded};
use crate::rounds::{Plan, Spread, alternate, ratio};
use anyhow::{Context, Result};
use serde::Serialize;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Waiters,
    Handles,
    Cancel,
    Slots,
}

/// Which of the queued acquires is given up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    First,
    Any,
    Last,
}

const KINDS: [(What, Option<Place>, &[usize]); 6] = [
    (What::Waiters, None, &[10, 1_000, 100_000]),
    (What::Handles, None, &[1, 100, 10_000]),
    (What::Cancel, Some(Place::First), &[10, 100_000]),
    (What::Cancel, Some(Place::Any), &[10, 100_000]),
    (What::Cancel, Some(Place::Last), &[10, 100_000]),
    (What::Slots, None, &[1, 64, 1024]),
];

/// What one slice has measured.
pub struct Outcome {
    pub throughput: Throughput,
    pub bytes_per_item: f64,
}

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    what: What,
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
    n: usize,
    #[serde(serialize_with = "rounded")]
    ns_per_op: f64,
    #[serde(serialize_with = "rounded")]
    bytes_per_item: f64,
    #[serde(serialize_with = "rounded")]
    allocs_per_op: f64,
    rounds: usize,
    #[serde(serialize_with = "rounded")]
    min: f64,
    #[serde(serialize_with = "rounded")]
    max: f64,
    #[serde(serialize_with = "rounded")]
    ratio: f64,
}

pub fn bench(plan: &Plan, report: &mut Report) -> Result<()> {
    for (what, place, sizes) in KINDS {
        let outcomes = alternate(plan.rounds, sizes, |&n| {
            cores::on_core(CLIENT, || run(what, place, n, plan.slice))
                .with_context(|| format!("scale {what:?} {place:?}, {n} of them"))
        })?;
        let times: Vec<Vec<f64>> = outcomes
            .iter()
            .map(|rounds| rounds.iter().map(|outcome| outcome.throughput.ns_per_op()).collect())
            .collect();
        for ((&n, rounds), own) in sizes.iter().zip(&outcomes).zip(&times) {
            let spread = Spread::of(own.iter().copied());
            report.line(&Row {
                bench: "scale",
                what,
                place,
                n,
                ns_per_op: spread.median,
                bytes_per_item: Spread::of(rounds.iter().map(|outcome| outcome.bytes_per_item)).median,
                allocs_per_op: Spread::of(rounds.iter().map(|outcome| outcome.throughput.allocs_per_op()))
                    .median,
                rounds: own.len(),
                min: spread.min,
                max: spread.max,
                ratio: ratio(own, &times[0]),
            })?;
        }
    }
    Ok(())
}

fn run(what: What, place: Option<Place>, n: usize, slice: Duration) -> Result<Outcome> {
    match what {
        What::Slots => slots::run(n, slice),
        What::Waiters | What::Handles | What::Cancel => queue::run(what, place, n, slice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_runs_and_a_waiter_takes_some_memory() {
        for (what, place, sizes) in KINDS {
            // One more than a few, so that "first", "any" and "last" differ.
            let n = sizes[0].max(10);
            let outcome = run(what, place, n, Duration::from_millis(4)).unwrap();
            assert!(outcome.throughput.operations > 0, "{what:?}");
            assert!(outcome.bytes_per_item > 8.0, "{what:?}: {}", outcome.bytes_per_item);
        }
    }
}
