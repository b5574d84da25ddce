//! `executor`: what one operation of a one-core executor costs.
//!
//! - `yield`: 64 tasks yield in turn, each going behind the other 63; per yield.
//! - `spawn`: 100 tasks are spawned and joined, over and over; per task.
//! - `ping_pong`: 100 pairs of tasks pass a message to and fro, over one channel each way; per message.
//!   The channel is the same for all, `local_sync::mpsc::unbounded`: unsynchronised, so that the wake-ups
//!   are what shows.
//! - `timers`: a sleep of one second is armed, polled once and cancelled by dropping it, with 100 pending
//!   at any time; per timer.

pub mod cases;

use crate::cores::{self, CLIENT};
use crate::meter::Throughput;
use crate::report::{BASELINE, Common, Report, rounded};
use crate::rounds::{Plan, Spread, alternate};
use crate::runtimes::{compio::Compio, corelet::Corelet, glommio::Glommio, monoio::Monoio, tokio::Tokio};
use anyhow::{Context, Result};
use serde::Serialize;
use std::time::Duration;

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    Yield,
    Spawn,
    PingPong,
    Timers,
}

const CASES: [Case; 4] = [Case::Yield, Case::Spawn, Case::PingPong, Case::Timers];

pub struct Subject {
    pub name: &'static str,
    /// Runs one slice of a case on the calling thread, set-up outside the measured time.
    run: fn(Case, Duration) -> Result<Throughput>,
}

/// Any [`Timers`](crate::runtimes::Timers) runtime is one line here.
pub const SUBJECTS: &[Subject] = &[
    Subject { name: BASELINE, run: cases::run::<Corelet> },
    Subject { name: "tokio", run: cases::run::<Tokio> },
    Subject { name: "monoio", run: cases::run::<Monoio> },
    Subject { name: "compio", run: cases::run::<Compio> },
    Subject { name: "glommio", run: cases::run::<Glommio> },
];

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    case: Case,
    subject: &'static str,
    #[serde(serialize_with = "rounded")]
    ns_per_op: f64,
    #[serde(flatten)]
    common: Common,
}

pub fn bench(plan: &Plan, report: &mut Report) -> Result<()> {
    let subjects: Vec<&Subject> = SUBJECTS.iter().filter(|subject| plan.includes(subject.name)).collect();
    for case in CASES {
        let outcomes = alternate(plan.rounds, &subjects, |subject| {
            cores::on_core(CLIENT, || (subject.run)(case, plan.slice))
                .with_context(|| format!("executor {case:?}, subject {}", subject.name))
        })?;
        let times: Vec<Vec<f64>> =
            outcomes.iter().map(|rounds| rounds.iter().map(Throughput::ns_per_op).collect()).collect();
        let baseline = subjects.iter().position(|subject| subject.name == BASELINE);
        for (subject, own) in subjects.iter().zip(&times) {
            let spread = Spread::of(own.iter().copied());
            report.line(&Row {
                bench: "executor",
                case,
                subject: subject.name,
                ns_per_op: spread.median,
                common: Common::new(subject.name, spread, own, baseline.map(|index| times[index].as_slice())),
            })?;
        }
    }
    Ok(())
}
