//! `acquire`: one acquire and its release on one core, for a connection that is only a number.
//!
//! - uncontended: one task, one operation after the other, all the connections open from the start. Size
//!   and idle handles must not show in the figure.
//! - contended: eight tasks per slot, each holding its lease across one yield.
//!
//! Policy and idle handles are corelet's own: the other pools have neither, so they have one line per
//! mode and size. Everyone's ratio is to corelet first-in-first-out without idle handles.

mod bb8;
pub mod corelet;
mod deadpool;
mod semaphore;

use crate::cores::{self, CLIENT};
use crate::meter::{Meter, Throughput};
use crate::report::{BASELINE, Common, Report, rounded};
use crate::rounds::{Plan, Spread, alternate};
use crate::runtimes::{Runtime, in_task};
use anyhow::{Context, Result};
use serde::Serialize;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

const TASKS_PER_SLOT: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Uncontended,
    Contended,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    Fifo,
    RoundRobin,
}

/// What one line measures.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub mode: Mode,
    pub size: usize,
    /// Always there for corelet, never for the others.
    pub policy: Option<Policy>,
    /// Handles that exist and ask for nothing; corelet only.
    pub idle_handles: usize,
}

const CASES: [(Mode, usize, &[usize]); 7] = [
    (Mode::Uncontended, 1, &[0]),
    (Mode::Uncontended, 4, &[0]),
    (Mode::Uncontended, 16, &[0, 10_000]),
    (Mode::Uncontended, 1024, &[0]),
    (Mode::Contended, 1, &[0]),
    (Mode::Contended, 4, &[0]),
    (Mode::Contended, 16, &[0]),
];

pub struct Subject {
    pub name: &'static str,
    /// Those that can have idle handles have a line for each number of them.
    has_handles: bool,
    policies: &'static [Option<Policy>],
    /// Runs one slice on the calling thread, set-up outside the measured time.
    run: fn(&Load, Duration) -> Result<Throughput>,
}

impl Subject {
    const fn peer(name: &'static str, run: fn(&Load, Duration) -> Result<Throughput>) -> Self {
        Self { name, has_handles: false, policies: &[None], run }
    }
}

pub const SUBJECTS: &[Subject] = &[
    Subject {
        name: BASELINE,
        has_handles: true,
        policies: &[Some(Policy::Fifo), Some(Policy::RoundRobin)],
        run: corelet::run,
    },
    // corelet with every setting on that keeps, limits or watches connections and acquires.
    Subject {
        name: "corelet_everything",
        has_handles: false,
        policies: &[Some(Policy::Fifo), Some(Policy::RoundRobin)],
        run: corelet::run_with_everything,
    },
    Subject::peer("bb8", bb8::run),
    Subject::peer("deadpool", deadpool::run),
    Subject::peer("semaphore", semaphore::run),
];

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    mode: Mode,
    policy: Option<Policy>,
    subject: &'static str,
    size: usize,
    idle_handles: usize,
    #[serde(serialize_with = "rounded")]
    ns_per_op: f64,
    #[serde(serialize_with = "rounded")]
    allocs_per_op: f64,
    #[serde(flatten)]
    common: Common,
}

pub fn bench(plan: &Plan, report: &mut Report) -> Result<()> {
    for (mode, size, idle_handles) in CASES {
        let entries: Vec<(&Subject, Load)> = SUBJECTS
            .iter()
            .filter(|subject| plan.includes(subject.name))
            .flat_map(|subject| loads(subject, mode, size, idle_handles).map(move |load| (subject, load)))
            .collect();
        let outcomes = alternate(plan.rounds, &entries, |(subject, load)| {
            cores::on_core(CLIENT, || (subject.run)(load, plan.slice))
                .with_context(|| format!("acquire {load:?}, subject {}", subject.name))
        })?;
        let times: Vec<Vec<f64>> =
            outcomes.iter().map(|rounds| rounds.iter().map(Throughput::ns_per_op).collect()).collect();
        let baseline = entries.iter().position(|(subject, load)| {
            subject.name == BASELINE && load.policy == Some(Policy::Fifo) && load.idle_handles == 0
        });
        for (((subject, load), rounds), own) in entries.iter().zip(&outcomes).zip(&times) {
            let spread = Spread::of(own.iter().copied());
            report.line(&Row {
                bench: "acquire",
                mode,
                policy: load.policy,
                subject: subject.name,
                size,
                idle_handles: load.idle_handles,
                ns_per_op: spread.median,
                allocs_per_op: Spread::of(rounds.iter().map(Throughput::allocs_per_op)).median,
                common: Common::new(subject.name, spread, own, baseline.map(|index| times[index].as_slice())),
            })?;
        }
    }
    Ok(())
}

fn loads(subject: &Subject, mode: Mode, size: usize, idle_handles: &[usize]) -> impl Iterator<Item = Load> {
    let idle_handles = if subject.has_handles { idle_handles } else { &[0] };
    idle_handles.iter().flat_map(move |&idle_handles| {
        subject.policies.iter().map(move |&policy| Load { mode, size, policy, idle_handles })
    })
}

/// What a task holds to acquire with: a pool, or a handle of one.
pub trait Acquire: 'static {
    /// Waits for a connection; dropping what comes back releases it.
    fn acquire(&self) -> impl Future<Output = impl Sized>;
}

/// Runs the load's mode on a running `R`. `handle` is called once per task, before anything is measured.
pub async fn measure<R: Runtime, H: Acquire>(
    load: Load,
    slice: Duration,
    mut handle: impl FnMut() -> H,
) -> Result<Throughput> {
    match load.mode {
        Mode::Uncontended => in_task::<R, _>(uncontended(handle(), slice)).await,
        Mode::Contended => {
            let handles = (0..TASKS_PER_SLOT * load.size).map(|_| handle()).collect();
            contended::<R, H>(handles, slice).await
        }
    }
    .context("the tasks ended before the slice was over")
}

async fn uncontended(handle: impl Acquire, slice: Duration) -> Option<Throughput> {
    // A few operations per tick, so that the tick stays invisible beside the fastest subject.
    const PER_TICK: u64 = 16;
    let meter = Meter::new(slice);
    while meter.add(PER_TICK) {
        for _ in 0..PER_TICK {
            drop(handle.acquire().await);
        }
    }
    meter.outcome()
}

async fn contended<R: Runtime, H: Acquire>(handles: Vec<H>, slice: Duration) -> Option<Throughput> {
    let meter = Rc::new(Meter::new(slice));
    let tasks: Vec<_> = handles
        .into_iter()
        .map(|handle| {
            let meter = meter.clone();
            R::spawn(async move {
                loop {
                    let lease = handle.acquire().await;
                    R::yield_in_turn().await;
                    drop(lease);
                    if !meter.add(1) {
                        break;
                    }
                }
                R::leave_turns();
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    meter.outcome()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_subjects_with_handles_have_lines_for_idle_ones() {
        const BOTH: &[Option<Policy>] = &[Some(Policy::Fifo), Some(Policy::RoundRobin)];
        let peer = Subject::peer("bb8", bb8::run);
        assert_eq!(loads(&peer, Mode::Uncontended, 16, &[0, 10_000]).count(), 1);
        let own = Subject { name: BASELINE, has_handles: true, policies: BOTH, run: bb8::run };
        assert_eq!(loads(&own, Mode::Uncontended, 16, &[0, 10_000]).count(), 4);
    }

    #[test]
    fn every_pool_serves_both_modes() {
        for subject in SUBJECTS {
            for mode in [Mode::Uncontended, Mode::Contended] {
                let load = Load { mode, size: 2, policy: None, idle_handles: 0 };
                let outcome = (subject.run)(&load, Duration::from_millis(4)).expect(subject.name);
                assert!(outcome.operations > 0, "{}", subject.name);
            }
        }
    }
}
