//! `xcore`: a round trip between core 0 and core 1, as the thread on core 0 sees it.
//!
//! - spinning: both threads look for the next message without pause.
//! - asleep: both threads sleep in the kernel until the other wakes them.
//!
//! Each subject takes part in the modes it has a natural form for.

mod corelet;
pub mod crossbeam;
mod eventfd;
mod msg_ring;
mod tokio;

use crate::alloc;
use crate::cores::{self, CLIENT, SERVER};
use crate::meter::{Latency, LatencyMeter};
use crate::report::{BASELINE, Common, Report, rounded};
use crate::rounds::{Plan, Spread, alternate};
use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Spinning,
    Asleep,
}

pub struct Subject {
    pub name: &'static str,
    modes: &'static [Mode],
    /// Runs one slice; called on core 0, it puts its other thread on core 1.
    run: fn(Mode, Duration) -> Result<Latency>,
}

pub const SUBJECTS: &[Subject] = &[
    Subject { name: BASELINE, modes: &[Mode::Spinning, Mode::Asleep], run: corelet::run },
    Subject { name: "crossbeam", modes: &[Mode::Spinning], run: |_, slice| crossbeam::run(slice) },
    Subject { name: "eventfd", modes: &[Mode::Asleep], run: |_, slice| eventfd::run(slice) },
    Subject { name: "msg_ring", modes: &[Mode::Asleep], run: |_, slice| msg_ring::run(slice) },
    Subject { name: "tokio", modes: &[Mode::Asleep], run: |_, slice| tokio::run(slice) },
];

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    mode: Mode,
    subject: &'static str,
    #[serde(serialize_with = "rounded")]
    p50_us: f64,
    #[serde(serialize_with = "rounded")]
    p99_us: f64,
    #[serde(serialize_with = "rounded")]
    allocs_per_op: f64,
    #[serde(flatten)]
    common: Common,
}

pub fn bench(plan: &Plan, report: &mut Report) -> Result<()> {
    for mode in [Mode::Spinning, Mode::Asleep] {
        let subjects: Vec<&Subject> = SUBJECTS
            .iter()
            .filter(|subject| subject.modes.contains(&mode) && plan.includes(subject.name))
            .collect();
        let outcomes = alternate(plan.rounds, &subjects, |subject| {
            cores::on_core(CLIENT, || (subject.run)(mode, plan.slice))
                .with_context(|| format!("xcore {mode:?}, subject {}", subject.name))
        })?;
        // The median round trip, not the mean: one preemption of either core would weigh as much as
        // ten thousand round trips.
        let times: Vec<Vec<f64>> =
            outcomes.iter().map(|rounds| rounds.iter().map(|round| round.p50_us).collect()).collect();
        let baseline = subjects.iter().position(|subject| subject.name == BASELINE);
        for ((subject, rounds), own) in subjects.iter().zip(&outcomes).zip(&times) {
            let median = |figure: fn(&Latency) -> f64| Spread::of(rounds.iter().map(figure)).median;
            let spread = Spread::of(own.iter().copied());
            report.line(&Row {
                bench: "xcore",
                mode,
                subject: subject.name,
                p50_us: spread.median,
                p99_us: median(|round| round.p99_us),
                allocs_per_op: median(|round| round.allocs_per_op),
                common: Common::new(subject.name, spread, own, baseline.map(|index| times[index].as_slice())),
            })?;
        }
    }
    Ok(())
}

/// Runs `answer` on core 1 while `ask` runs here, and adds the allocations of both. Each side must end
/// when the other does.
pub fn pair(
    answer: impl FnOnce() -> Result<Answers> + Send,
    ask: impl FnOnce() -> Result<Latency>,
) -> Result<Latency> {
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            cores::pin(SERVER)?;
            answer().map(|answers| answers.allocs_per_op())
        });
        let asked = ask();
        let allocs_per_op =
            answering.join().map_err(|_| anyhow!("the answering thread panicked"))?.context("answering")?;
        let mut latency = asked?;
        latency.allocs_per_op += allocs_per_op;
        Ok(latency)
    })
}

/// Round trips until the slice is over.
pub fn round_trips(slice: Duration, mut round_trip: impl FnMut() -> Result<()>) -> Result<Latency> {
    let meter = LatencyMeter::new(slice);
    let mut began = Instant::now();
    loop {
        round_trip()?;
        match meter.lap(began) {
            Some(next) => began = next,
            None => return meter.outcome().context("the slice ended without an outcome"),
        }
    }
}

/// Counts the answering thread's allocations per answer, from its own side: the asking thread cannot
/// read a thread-local counter of another.
pub struct Answers {
    answers: u64,
    allocations_when_warm: u64,
}

impl Answers {
    /// Answers before counting starts, while queues grow.
    const WARM: u64 = 64;

    pub fn new() -> Self {
        Self { answers: 0, allocations_when_warm: 0 }
    }

    /// For an answering side that cannot tell one answer from the next: allocations since the warm-up, over the
    /// answers that the asking side has counted.
    pub fn counted(allocations_when_warm: u64, answers: u64) -> Self {
        Self { answers: answers + Self::WARM, allocations_when_warm }
    }

    #[inline]
    pub fn one(&mut self) {
        self.answers += 1;
        if self.answers == Self::WARM {
            self.allocations_when_warm = alloc::on_this_thread();
        }
    }

    fn allocs_per_op(&self) -> f64 {
        match self.answers.checked_sub(Self::WARM) {
            None | Some(0) => 0.0,
            Some(answers) => (alloc::on_this_thread() - self.allocations_when_warm) as f64 / answers as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_makes_round_trips_and_ends() {
        for subject in SUBJECTS {
            for &mode in subject.modes {
                let outcome = cores::on_core(CLIENT, || (subject.run)(mode, Duration::from_millis(4)))
                    .expect(subject.name);
                assert!(outcome.operations > 0 && outcome.p50_us > 0.0, "{}: {outcome:?}", subject.name);
            }
        }
    }

    #[test]
    fn allocations_of_the_answering_thread_are_counted_after_the_warm_up() {
        let mut answers = Answers::new();
        for _ in 0..Answers::WARM + 10 {
            std::hint::black_box(Box::new(1_u8));
            answers.one();
        }
        assert_eq!(answers.allocs_per_op(), 1.0);
    }
}
