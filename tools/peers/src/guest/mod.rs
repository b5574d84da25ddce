//! `guest`: what a core costs that somebody else's loop drives, against one on a thread of its own.
//!
//! - `yield`: as in `executor`; per yield.
//! - `acquire`: as in `acquire`, uncontended, four slots, in a task of the core; per acquire and release.
//! - `acquire_from_host`: the same from a future of the host's, which enters the core for each, and lets the
//!   host and the core go on after every 16. Hosts that have no futures of their own do as for `acquire`.
//! - `rtt`: as in `rtt`, over 1 and 16 connections, in tasks of the core; per request.
//!
//! The baseline is the pinned core, whose lines therefore have no ratio.

mod hosts;

use crate::acquire::{self, Mode, Policy};
use crate::cores::{self, CLIENT};
use crate::executor::{Case, cases};
use crate::meter::{Meter, Throughput};
use crate::report::{BASELINE, Common, Report, rounded};
use crate::rounds::{Plan, Spread, alternate};
use crate::rtt::{self, server::Server};
use crate::runtimes::Timers;
use anyhow::{Context, Result};
use corelet::runtime::host::here;
use hosts::{GuestPoll, InTokio, InTokioUring, Pinned};
use serde::Serialize;
use std::net::SocketAddr;
use std::time::Duration;

const PINNED: &str = "pinned";
const SLOTS: usize = 4;
/// Acquires of a host's future between two of its yields.
const VISITS: u64 = 16;

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Yield,
    Acquire,
    AcquireFromHost,
    Rtt,
}

/// The operations, and for `rtt` over how many connections.
const CASES: [(What, Option<usize>); 5] = [
    (What::Yield, None),
    (What::Acquire, None),
    (What::AcquireFromHost, None),
    (What::Rtt, Some(1)),
    (What::Rtt, Some(16)),
];

#[derive(Clone, Copy, Debug)]
struct Load {
    what: What,
    connections: Option<usize>,
    server: SocketAddr,
}

pub struct Subject {
    pub name: &'static str,
    /// The time of one operation, over one slice on the calling thread.
    run: fn(&Load, Duration) -> Result<f64>,
}

pub const SUBJECTS: &[Subject] = &[
    Subject { name: PINNED, run: run::<Pinned> },
    Subject { name: "guest-poll", run: run::<GuestPoll> },
    Subject { name: "tokio", run: run_with_futures::<InTokio> },
    Subject { name: "tokio-uring", run: run_with_futures::<InTokioUring> },
];

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    host: &'static str,
    what: What,
    connections: Option<usize>,
    #[serde(serialize_with = "rounded")]
    ns_per_op: f64,
    #[serde(flatten)]
    common: Common,
}

pub fn bench(plan: &Plan, report: &mut Report) -> Result<()> {
    let subjects: Vec<&Subject> = SUBJECTS.iter().filter(|subject| plan.includes(subject.name)).collect();
    if subjects.is_empty() {
        return Ok(());
    }
    let server = Server::start()?;
    for (what, connections) in CASES {
        let load = Load { what, connections, server: server.address() };
        let times = alternate(plan.rounds, &subjects, |subject| {
            cores::on_core(CLIENT, || (subject.run)(&load, plan.slice))
                .with_context(|| format!("guest {what:?}, host {}", subject.name))
        })?;
        let baseline = subjects.iter().position(|subject| subject.name == PINNED);
        for (subject, own) in subjects.iter().zip(&times) {
            let spread = Spread::of(own.iter().copied());
            let role = if subject.name == PINNED { BASELINE } else { subject.name };
            report.line(&Row {
                bench: "guest",
                host: subject.name,
                what,
                connections,
                ns_per_op: spread.median,
                common: Common::new(role, spread, own, baseline.map(|index| times[index].as_slice())),
            })?;
        }
    }
    Ok(())
}

fn run<H: Timers>(load: &Load, slice: Duration) -> Result<f64> {
    match load.what {
        What::Yield => cases::run::<H>(Case::Yield, slice).map(|outcome| outcome.ns_per_op()),
        What::Acquire | What::AcquireFromHost => {
            let load = acquire::Load {
                mode: Mode::Uncontended,
                size: SLOTS,
                policy: Some(Policy::Fifo),
                idle_handles: 0,
            };
            H::run(move || acquire::corelet::on_core(load, slice))?.map(|outcome| outcome.ns_per_op())
        }
        What::Rtt => {
            let load = rtt::Load { server: load.server, connections: load.connections.unwrap_or(1) };
            let outcome = H::run(move || rtt::corelet::on_core(load, slice))??;
            Ok(1e9 / outcome.per_second())
        }
    }
}

fn run_with_futures<H: Timers>(load: &Load, slice: Duration) -> Result<f64> {
    match load.what {
        What::AcquireFromHost => {
            let outcome = H::run(move || acquire_from_host(slice))??;
            Ok(outcome.ns_per_op())
        }
        _ => run::<H>(load, slice),
    }
}

/// Acquires in a task of the host's, which the task of the core that measures only waits for.
async fn acquire_from_host(slice: Duration) -> Result<Throughput> {
    let core = here();
    let pool = acquire::corelet::pool(SLOTS, Some(Policy::Fifo), core.runtime())?;
    let handle = pool.handle();
    drop(handle.acquire().await?);
    let measured = tokio::task::spawn_local(async move {
        let meter = Meter::new(slice);
        while meter.add(VISITS) {
            for _ in 0..VISITS {
                core.on_core(async { handle.acquire().await.map(drop) }).await??;
            }
            // The host has other things to look at, and the core its turn.
            tokio::task::yield_now().await;
        }
        meter.outcome().context("the tasks ended before the slice was over")
    });
    let outcome = measured.await?;
    pool.close().await;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::Runtime;

    #[test]
    fn every_host_runs_every_operation() {
        let server = Server::in_this_process().unwrap();
        for subject in SUBJECTS {
            for (what, connections) in CASES {
                let load = Load { what, connections, server: server.address() };
                let slice = Duration::from_millis(4);
                let time = cores::on_core(CLIENT, || (subject.run)(&load, slice))
                    .unwrap_or_else(|error| panic!("{} {what:?}: {error:#}", subject.name));
                assert!(time.is_finite() && time > 0.0, "{} {what:?}: {time}", subject.name);
            }
        }
    }

    #[test]
    fn tasks_are_the_core_s_and_end_with_their_result() {
        fn on<H: Runtime>() {
            let outcome = H::run(|| async {
                let core = corelet::runtime::current_core();
                H::spawn(async {}).await;
                (core.is_some(), corelet::runtime::current_task().is_some())
            });
            assert_eq!(outcome.unwrap(), (true, true));
        }
        on::<Pinned>();
        on::<GuestPoll>();
        on::<InTokio>();
        on::<InTokioUring>();
    }
}
