//! `pipelined`: what one socket to a real Redis carries, for one caller and for many.
//!
//! Each request is an `ECHO` of a number of its own, and each reply is compared with it. Every caller takes a lease for
//! each request.
//!
//! - `exclusive`: a pool of one connection; whoever has the lease has the socket.
//! - `pipelined`: a pool of one socket and as many leases on it as there are callers.
//! - `redis-rs`: the multiplexed connection of the `redis` crate on a current-thread tokio runtime, cloned for each
//!   caller; it has no leases.
//!
//! `ratio` is a subject's requests per second divided by those of `exclusive` with as many callers, in the same round:
//! here, above 1, the subject is faster. Redis runs on the other core. Without a `redis-server` to run, the bench fails
//! and says so; as one of `all` it is left out.

mod corelet;
mod redis_rs;
mod resp;
mod server;

use crate::cores::{self, CLIENT};
use crate::meter::Throughput;
use crate::report::{Report, rounded};
use crate::rounds::{Plan, Spread, alternate, ratio};
use anyhow::{Context, Result};
use serde::Serialize;
use std::net::SocketAddr;
use std::time::Duration;

const CALLERS: [usize; 3] = [1, 16, 64];

pub struct Subject {
    pub name: &'static str,
    /// Runs one slice with so many callers on the calling thread, set-up outside the measured time.
    run: fn(SocketAddr, usize, Duration) -> Result<Throughput>,
}

/// What the others are compared with.
const EXCLUSIVE: &str = "exclusive";

pub const SUBJECTS: &[Subject] = &[
    Subject { name: EXCLUSIVE, run: corelet::exclusive },
    Subject { name: "pipelined", run: corelet::pipelined },
    Subject { name: "redis-rs", run: redis_rs::run },
];

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    subject: &'static str,
    callers: usize,
    #[serde(serialize_with = "rounded")]
    requests_per_s: f64,
    #[serde(serialize_with = "rounded")]
    allocs_per_request: f64,
    rounds: usize,
    #[serde(serialize_with = "rounded")]
    min: f64,
    #[serde(serialize_with = "rounded")]
    max: f64,
    /// Null where `exclusive` did not run.
    #[serde(serialize_with = "rounded_ratio")]
    ratio: Option<f64>,
}

fn rounded_ratio<S: serde::Serializer>(ratio: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match ratio {
        Some(ratio) => rounded(ratio, serializer),
        None => serializer.serialize_none(),
    }
}

pub fn bench(plan: &Plan, report: &mut Report) -> Result<()> {
    let server = server::Redis::start()?;
    let address = server.address();
    let subjects: Vec<&Subject> = SUBJECTS.iter().filter(|subject| plan.includes(subject.name)).collect();
    for callers in CALLERS {
        let outcomes = alternate(plan.rounds, &subjects, |subject| {
            cores::on_core(CLIENT, || (subject.run)(address, callers, plan.slice))
                .with_context(|| format!("pipelined, {callers} callers, subject {}", subject.name))
        })?;
        let times: Vec<Vec<f64>> =
            outcomes.iter().map(|rounds| rounds.iter().map(Throughput::ns_per_op).collect()).collect();
        let exclusive = subjects.iter().position(|subject| subject.name == EXCLUSIVE);
        for ((subject, rounds), own) in subjects.iter().zip(&outcomes).zip(&times) {
            let spread = Spread::of(own.iter().map(|ns| 1e9 / ns));
            report.line(&Row {
                bench: "pipelined",
                subject: subject.name,
                callers,
                requests_per_s: spread.median,
                allocs_per_request: Spread::of(rounds.iter().map(Throughput::allocs_per_op)).median,
                rounds: own.len(),
                min: spread.min,
                max: spread.max,
                ratio: exclusive.map(|index| ratio(&times[index], own)),
            })?;
        }
    }
    Ok(())
}

/// As a bench of `all`, which goes on without it.
pub fn bench_if_there(plan: &Plan, report: &mut Report) -> Result<()> {
    if server::is_installed() {
        return bench(plan, report);
    }
    eprintln!("peers: pipelined is left out, for there is no redis-server to run");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_gets_its_own_replies() {
        if !server::is_installed() {
            eprintln!("left out: there is no redis-server to run");
            return;
        }
        let server = server::Redis::start().unwrap();
        for subject in SUBJECTS {
            for callers in [1, 5] {
                let outcome =
                    (subject.run)(server.address(), callers, Duration::from_millis(20)).expect(subject.name);
                assert!(outcome.operations > 0, "{}", subject.name);
            }
        }
    }
}
