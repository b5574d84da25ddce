//! `actors`: what it costs to use actors, against other actor libraries and against a task with a channel.
//!
//! - `call`: an actor is asked and its reply awaited; per call.
//! - `cast`: an actor is told something, without a reply; the sender lets 64 of them be handled before it goes on; per
//!   message.
//! - `call_xcore`, `cast_xcore`: the same from core 0 to an actor on core 1. 63 casts and a call that comes back after
//!   them make 64. `spinning`: both cores look for work without pause. `asleep`: both sleep in the kernel in between.
//!   No other library offers the first; `crossbeam` is a bare round trip over two channels, the least there can be. The
//!   figure is the median round trip, over 64 for casts; the allocations are those of both sides.
//! - `spawn`: a parent starts an actor, has it stop, and gets its exit signal, one after the other; per actor.
//! - `idle_actor`: a crowd of actors is started, and waits with empty mailboxes. `bytes_per_item` is what the heap of
//!   the measuring thread grows by for each, the address that the caller keeps not counted; `min`, `max` and `ratio` are
//!   of these bytes. `ns_per_op` is for starting one of them.
//! - `supervised_restart`: an actor fails, its supervisor restarts it, and the new one answers a call; per restart.
//! - `snapshot_100k`: a list of a crowd of actors, each with its identity and state; per list. `bytes_per_item` is what a
//!   list takes for each.
//!
//! A crowd is 100,000 actors; 1,000 with `--quick`.
//!
//! All actors do the same: add up numbers, and answer with the sum. Every library runs on one thread, as its documentation
//! describes it for a single-threaded runtime, with mailboxes that have no bound if there is a choice; the file of each
//! says what was chosen. Who has no form of a case is left out of it:
//!
//! - `snapshot_100k`: actix, compio-actor and a task with a channel keep no list of actors. kameo has one only for its
//!   console, behind a feature that adds costs to every message. ractor's is the list of a supervisor's children, with their
//!   identity and status; corelet's is of all actors, with their parent, counters, names and mailboxes too.
//! - `spawn`: actix has no exit signals; there the actor tells its parent as it stops.

mod actix;
mod by_hand;
mod cases;
mod compio_actor;
mod corelet;
mod kameo;
mod ractor;
mod tokio;
mod xcore;

use crate::cores::{self, CLIENT};
use crate::report::{BASELINE, Common, Report, rounded, rounded_option};
use crate::rounds::{Plan, Spread, alternate};
use crate::xcore::Mode;
use anyhow::{Context, Result};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Case {
    Call,
    Cast,
    CallXcore(Mode),
    CastXcore(Mode),
    Spawn,
    IdleActor,
    SupervisedRestart,
    Snapshot,
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Cast => "cast",
            Self::CallXcore(_) => "call_xcore",
            Self::CastXcore(_) => "cast_xcore",
            Self::Spawn => "spawn",
            Self::IdleActor => "idle_actor",
            Self::SupervisedRestart => "supervised_restart",
            Self::Snapshot => "snapshot_100k",
        }
    }

    fn mode(self) -> Option<Mode> {
        match self {
            Self::CallXcore(mode) | Self::CastXcore(mode) => Some(mode),
            _ => None,
        }
    }
}

const CASES: [Case; 10] = [
    Case::Call,
    Case::Cast,
    Case::CallXcore(Mode::Spinning),
    Case::CallXcore(Mode::Asleep),
    Case::CastXcore(Mode::Spinning),
    Case::CastXcore(Mode::Asleep),
    Case::Spawn,
    Case::IdleActor,
    Case::SupervisedRestart,
    Case::Snapshot,
];

/// What one subject did in one round.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    pub ns_per_op: f64,
    pub allocs_per_op: f64,
    pub bytes_per_item: Option<f64>,
}

impl Outcome {
    /// What the spread and the ratio are of.
    fn headline(&self, case: Case) -> f64 {
        match (case, self.bytes_per_item) {
            (Case::IdleActor, Some(bytes)) => bytes,
            _ => self.ns_per_op,
        }
    }
}

pub struct Subject {
    pub name: &'static str,
    takes_part: fn(Case) -> bool,
    /// Runs one slice of a case; called on core 0.
    run: fn(Case, &Plan) -> Result<Outcome>,
}

/// The cases of a library that neither spins nor lists its actors.
fn without_spinning_and_lists(case: Case) -> bool {
    case.mode() != Some(Mode::Spinning) && case != Case::Snapshot
}

pub const SUBJECTS: &[Subject] = &[
    Subject { name: BASELINE, takes_part: |_| true, run: corelet::run },
    Subject {
        name: "corelet_bare",
        takes_part: |case| !matches!(case, Case::SupervisedRestart | Case::Snapshot),
        run: corelet::run_bare,
    },
    Subject { name: "ractor", takes_part: |case| case.mode() != Some(Mode::Spinning), run: ractor::run },
    Subject { name: "kameo", takes_part: without_spinning_and_lists, run: cases::run::<kameo::Kameo> },
    Subject { name: "actix", takes_part: without_spinning_and_lists, run: cases::run::<actix::Actix> },
    Subject {
        name: "compio-actor",
        takes_part: without_spinning_and_lists,
        run: cases::run::<compio_actor::CompioActor>,
    },
    Subject { name: "by_hand", takes_part: without_spinning_and_lists, run: cases::run::<by_hand::ByHand> },
    Subject {
        name: "crossbeam",
        takes_part: |case| case == Case::CallXcore(Mode::Spinning),
        run: |_, plan| Ok(xcore::outcome(crate::xcore::crossbeam::run(plan.slice)?, 1)),
    },
];

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    case: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    subject: &'static str,
    #[serde(serialize_with = "rounded")]
    ns_per_op: f64,
    #[serde(serialize_with = "rounded")]
    allocs_per_op: f64,
    #[serde(serialize_with = "rounded_option")]
    bytes_per_item: Option<f64>,
    #[serde(flatten)]
    common: Common,
}

pub fn bench(plan: &Plan, report: &mut Report) -> Result<()> {
    for case in CASES {
        let subjects: Vec<&Subject> = SUBJECTS
            .iter()
            .filter(|subject| (subject.takes_part)(case) && plan.includes(subject.name))
            .collect();
        let outcomes = alternate(plan.rounds, &subjects, |subject| {
            cores::on_core(CLIENT, || (subject.run)(case, plan))
                .with_context(|| format!("actors {case:?}, subject {}", subject.name))
        })?;
        let headlines: Vec<Vec<f64>> = outcomes
            .iter()
            .map(|rounds| rounds.iter().map(|outcome| outcome.headline(case)).collect())
            .collect();
        let baseline = subjects.iter().position(|subject| subject.name == BASELINE);
        for ((subject, rounds), own) in subjects.iter().zip(&outcomes).zip(&headlines) {
            let median = |figure: fn(&Outcome) -> f64| Spread::of(rounds.iter().map(figure)).median;
            let bytes: Vec<f64> = rounds.iter().filter_map(|outcome| outcome.bytes_per_item).collect();
            report.line(&Row {
                bench: "actors",
                case: case.name(),
                mode: case.mode(),
                subject: subject.name,
                ns_per_op: median(|outcome| outcome.ns_per_op),
                allocs_per_op: median(|outcome| outcome.allocs_per_op),
                bytes_per_item: (!bytes.is_empty()).then(|| Spread::of(bytes).median),
                common: Common::new(
                    subject.name,
                    Spread::of(own.iter().copied()),
                    own,
                    baseline.map(|index| headlines[index].as_slice()),
                ),
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_subject_does_every_case_it_takes_part_in_and_ends() {
        let plan = Plan { rounds: 1, slice: Duration::from_millis(4), crowd: 100, subjects: None };
        for subject in SUBJECTS {
            for case in CASES.into_iter().filter(|&case| (subject.takes_part)(case)) {
                let outcome = cores::on_core(CLIENT, || (subject.run)(case, &plan))
                    .unwrap_or_else(|error| panic!("{}, {case:?}: {error:#}", subject.name));
                assert!(outcome.ns_per_op > 0.0, "{}, {case:?}: {outcome:?}", subject.name);
                // An actor that is only an address would be none.
                let counted = matches!(case, Case::IdleActor | Case::Snapshot);
                assert_eq!(
                    outcome.bytes_per_item.is_some_and(|bytes| bytes >= 16.0),
                    counted,
                    "{}, {case:?}: {outcome:?}",
                    subject.name
                );
            }
        }
    }

    #[test]
    fn idle_actors_are_compared_by_their_bytes() {
        let outcome = Outcome { ns_per_op: 1.0, allocs_per_op: 2.0, bytes_per_item: Some(3.0) };
        assert_eq!(outcome.headline(Case::IdleActor), 3.0);
        assert_eq!(outcome.headline(Case::Snapshot), 1.0);
        assert_eq!(Outcome { bytes_per_item: None, ..outcome }.headline(Case::Call), 1.0);
    }
}
