//! `service`: what the parts of a framed service cost: a connection's task, its push queues, its set-up, and all of it
//! together behind a socket.
//!
//! A frame is a length of four bytes and a body, 64 bytes together; the codec is tokio-util's `LengthDelimitedCodec` for all.
//! The first four cases have no sockets: what a connection sends is counted and forgotten.
//!
//! - `connection_frames`: 1,000 frames wait in a connection's two push queues, half of them in each, until it may send;
//!   from then until it has sent them all, per frame. Pushing them is not counted.
//! - `push_high`, `push_low`: a number is pushed into one of two queues and received from them, in one task and without
//!   waiting; per number. `tokio_mpsc` is one channel alone.
//! - `push_xcore`: 64 numbers are pushed from core 0 into a queue on core 1, and when the last of them has been received, one
//!   comes back by a queue on core 0. The figure is the median round trip over 64; the allocations are those of both sides.
//!   `spinning` and `asleep` as in `xcore`; spinning, tokio's channel is between two bare threads, for its runtime does not
//!   spin.
//! - `startup_prepared`, `startup_factory`: a connection with two push queues and an application of 32 routes behind 4
//!   middleware is set up, finds its peer gone, and ends; per connection. The application is there once for all of them
//!   (`prepared`), or is made for each (`factory`). The task it would run in is not part of it. Before that, one connection
//!   has each route called.
//! - `echo_rtt`: requests per second of an echo server on core 1, a process of its own, with a bare ring on core 0 as the
//!   client, the same for all: each connection sends its next request when it has its reply, which is compared. The CPU time
//!   and the allocations per request are those of the serving thread, as it tells itself. `corelet_raw` and `monoio_raw`
//!   send back what they receive and look for no frames.
//!
//! Every subject's file says what it is made of.

mod actix;
mod cases;
mod corelet;
mod echo;
mod frames;
mod memory;
mod monoio;
mod stopwatch;
mod tokio;
mod xcore;

use crate::cores::{self, CLIENT};
use crate::meter::Throughput;
use crate::report::{BASELINE, Common, Report, rounded};
use crate::rounds::{Plan, Spread, alternate};
use crate::rtt::CONNECTIONS;
use crate::xcore::Mode;
use anyhow::{Context, Result, bail};
use cases::{pushes, queued_frames, startup};
use echo::Servers;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Case {
    ConnectionFrames,
    PushHigh,
    PushLow,
    PushXcore(Mode),
    StartupPrepared,
    StartupFactory,
    EchoRtt(usize),
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Self::ConnectionFrames => "connection_frames",
            Self::PushHigh => "push_high",
            Self::PushLow => "push_low",
            Self::PushXcore(_) => "push_xcore",
            Self::StartupPrepared => "startup_prepared",
            Self::StartupFactory => "startup_factory",
            Self::EchoRtt(_) => "echo_rtt",
        }
    }
}

const CASES: [Case; 10] = [
    Case::ConnectionFrames,
    Case::PushHigh,
    Case::PushLow,
    Case::PushXcore(Mode::Spinning),
    Case::PushXcore(Mode::Asleep),
    Case::StartupPrepared,
    Case::StartupFactory,
    Case::EchoRtt(CONNECTIONS[0]),
    Case::EchoRtt(CONNECTIONS[1]),
    Case::EchoRtt(CONNECTIONS[2]),
];

/// What one subject did in one round.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    ns_per_op: f64,
    allocs_per_op: f64,
    echo: Option<Echo>,
}

/// What there is to say of an echo server besides.
#[derive(Clone, Copy, Debug)]
struct Echo {
    cpu_us_per_request: f64,
    p50_us: f64,
    p99_us: f64,
}

impl Outcome {
    fn in_memory(ns_per_op: f64, allocs_per_op: f64) -> Self {
        Self { ns_per_op, allocs_per_op, echo: None }
    }
}

/// Called with its address by a server that listens.
pub type Announce = Box<dyn FnOnce(SocketAddr) -> Result<()> + Send>;

pub struct Subject {
    pub name: &'static str,
    takes_part: fn(Case) -> bool,
    /// Runs one slice of a case that has no server; called on core 0.
    run: fn(Case, Duration) -> Result<Outcome>,
    serve_echoes: fn(Announce) -> Result<()>,
}

impl Subject {
    fn run(&self, case: Case, slice: Duration, servers: &Servers) -> Result<Outcome> {
        match case {
            Case::EchoRtt(connections) => echo::run(servers.of(self.name)?, connections, slice),
            _ => (self.run)(case, slice),
        }
    }
}

fn echoes_only(case: Case) -> bool {
    matches!(case, Case::EchoRtt(_))
}

pub const SUBJECTS: &[Subject] = &[
    Subject {
        name: BASELINE,
        takes_part: |_| true,
        run: |case, slice| match case {
            Case::PushXcore(mode) => xcore::corelet(mode, slice),
            _ => in_memory::<corelet::Corelet>(case, slice),
        },
        serve_echoes: corelet::serve_echoes,
    },
    Subject {
        name: "corelet_raw",
        takes_part: echoes_only,
        run: |_, _| no_form(),
        serve_echoes: corelet::serve_raw_echoes,
    },
    Subject {
        name: "tokio",
        takes_part: |case| !matches!(case, Case::PushXcore(_)),
        run: in_memory::<tokio::Tokio>,
        serve_echoes: tokio::serve_echoes,
    },
    Subject {
        name: "tokio_each",
        takes_part: |case| case == Case::ConnectionFrames,
        run: |_, slice| queued_frames::<tokio::TokioEach>(slice).map(of),
        serve_echoes: |_| no_form(),
    },
    Subject {
        name: "tokio_mpsc",
        takes_part: |case| matches!(case, Case::PushHigh | Case::PushLow | Case::PushXcore(_)),
        run: |case, slice| match case {
            Case::PushXcore(mode) => xcore::tokio(mode, slice),
            _ => pushes::<tokio::TokioMpsc>(true, slice).map(of),
        },
        serve_echoes: |_| no_form(),
    },
    Subject {
        name: "actix-server",
        takes_part: |case| matches!(case, Case::StartupPrepared | Case::StartupFactory | Case::EchoRtt(_)),
        run: |case, slice| startup::<actix::Actix>(case == Case::StartupFactory, slice).map(of),
        serve_echoes: actix::serve_echoes,
    },
    Subject {
        name: "monoio_raw",
        takes_part: echoes_only,
        run: |_, _| no_form(),
        serve_echoes: monoio::serve_echoes,
    },
];

fn no_form<T>() -> Result<T> {
    bail!("there is no such case of this subject")
}

fn in_memory<K: cases::Connects + cases::Serves + cases::Queues>(
    case: Case,
    slice: Duration,
) -> Result<Outcome> {
    match case {
        Case::ConnectionFrames => queued_frames::<K>(slice),
        Case::PushHigh => pushes::<K>(true, slice),
        Case::PushLow => pushes::<K>(false, slice),
        Case::StartupPrepared => startup::<K>(false, slice),
        Case::StartupFactory => startup::<K>(true, slice),
        Case::PushXcore(_) | Case::EchoRtt(_) => no_form(),
    }
    .map(of)
}

fn of(throughput: Throughput) -> Outcome {
    Outcome::in_memory(throughput.ns_per_op(), throughput.allocs_per_op())
}

/// What the hidden subcommand does for a subject.
pub fn serve_echoes(subject: &str, announce: Announce) -> Result<()> {
    let subject = SUBJECTS.iter().find(|known| known.name == subject).context("no such subject")?;
    (subject.serve_echoes)(announce)
}

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    case: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<usize>,
    subject: &'static str,
    #[serde(serialize_with = "rounded")]
    ns_per_op: f64,
    #[serde(serialize_with = "rounded")]
    allocs_per_op: f64,
    #[serde(flatten)]
    echo: Option<EchoFigures>,
    #[serde(flatten)]
    common: Common,
}

/// Medians.
#[derive(Serialize)]
struct EchoFigures {
    #[serde(serialize_with = "rounded")]
    requests_per_s: f64,
    #[serde(serialize_with = "rounded")]
    cpu_us_per_request: f64,
    #[serde(serialize_with = "rounded")]
    p50_us: f64,
    #[serde(serialize_with = "rounded")]
    p99_us: f64,
}

impl EchoFigures {
    fn of(rounds: &[Outcome]) -> Option<Self> {
        let median = |figure: fn(&Echo) -> f64| {
            let figures: Vec<f64> =
                rounds.iter().filter_map(|round| round.echo.as_ref()).map(figure).collect();
            (!figures.is_empty()).then(|| Spread::of(figures).median)
        };
        Some(Self {
            requests_per_s: Spread::of(rounds.iter().map(|round| 1e9 / round.ns_per_op)).median,
            cpu_us_per_request: median(|echo| echo.cpu_us_per_request)?,
            p50_us: median(|echo| echo.p50_us)?,
            p99_us: median(|echo| echo.p99_us)?,
        })
    }
}

pub fn bench(plan: &Plan, report: &mut Report) -> Result<()> {
    let chosen: Vec<&Subject> = SUBJECTS.iter().filter(|subject| plan.includes(subject.name)).collect();
    let servers = Servers::start(chosen.iter().filter(|subject| (subject.takes_part)(Case::EchoRtt(1))))?;
    for case in CASES {
        let subjects: Vec<&Subject> =
            chosen.iter().copied().filter(|subject| (subject.takes_part)(case)).collect();
        let outcomes = alternate(plan.rounds, &subjects, |subject| {
            cores::on_core(CLIENT, || subject.run(case, plan.slice, &servers))
                .with_context(|| format!("service {case:?}, subject {}", subject.name))
        })?;
        let times: Vec<Vec<f64>> =
            outcomes.iter().map(|rounds| rounds.iter().map(|round| round.ns_per_op).collect()).collect();
        let baseline = subjects.iter().position(|subject| subject.name == BASELINE);
        for ((subject, rounds), own) in subjects.iter().zip(&outcomes).zip(&times) {
            let spread = Spread::of(own.iter().copied());
            report.line(&Row {
                bench: "service",
                case: case.name(),
                mode: if let Case::PushXcore(mode) = case { Some(mode) } else { None },
                connections: if let Case::EchoRtt(connections) = case { Some(connections) } else { None },
                subject: subject.name,
                ns_per_op: spread.median,
                allocs_per_op: Spread::of(rounds.iter().map(|round| round.allocs_per_op)).median,
                echo: EchoFigures::of(rounds),
                common: Common::new(subject.name, spread, own, baseline.map(|index| times[index].as_slice())),
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_does_every_case_it_takes_part_in_and_ends() {
        let servers = Servers::in_this_process().unwrap();
        let cases = [Case::EchoRtt(3)].into_iter().chain(CASES);
        for case in cases.filter(|&case| case != Case::EchoRtt(128)) {
            for subject in SUBJECTS.iter().filter(|subject| (subject.takes_part)(case)) {
                let outcome =
                    cores::on_core(CLIENT, || subject.run(case, Duration::from_millis(4), &servers))
                        .unwrap_or_else(|error| panic!("{}, {case:?}: {error:#}", subject.name));
                assert!(outcome.ns_per_op > 0.0, "{}, {case:?}: {outcome:?}", subject.name);
                assert_eq!(outcome.echo.is_some(), echoes_only(case), "{}, {case:?}", subject.name);
            }
        }
    }
}
