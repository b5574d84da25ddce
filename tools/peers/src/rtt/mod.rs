//! `rtt`: a 64-byte request and its 64-byte reply over loopback TCP.
//!
//! The server is a process of its own on core 1, the same for all; one thread on core 0 drives all the
//! connections of a subject at once, each sending its next request when it has its reply. Connecting is
//! outside the measured time; Nagle's algorithm is off on both sides.

mod compio;
pub mod corelet;
mod glommio;
mod monoio;
pub mod raw;
pub mod server;
mod tokio;
mod tokio_uring;

use crate::cores::{self, CLIENT};
use crate::meter::{Latency, LatencyMeter};
use crate::report::{BASELINE, Common, Report, rounded};
use crate::rounds::{Plan, Spread, alternate};
use crate::runtimes::Runtime;
use anyhow::{Context, Result};
use serde::Serialize;
use server::Server;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Bytes of a request, and of its reply.
pub const MESSAGE: usize = 64;

pub const CONNECTIONS: [usize; 3] = [1, 16, 128];

/// What one line measures.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub server: SocketAddr,
    pub connections: usize,
}

pub struct Subject {
    pub name: &'static str,
    /// Runs one slice on the calling thread, connecting outside the measured time.
    run: fn(&Load, Duration) -> Result<Latency>,
}

pub const SUBJECTS: &[Subject] = &[
    Subject { name: BASELINE, run: corelet::run },
    Subject { name: "corelet_busy_poll", run: corelet::run_spinning },
    Subject { name: "raw_single", run: raw::single },
    Subject { name: "raw_linked", run: raw::linked },
    Subject { name: "tokio", run: tokio::run },
    Subject { name: "tokio_uring", run: tokio_uring::run },
    Subject { name: "monoio", run: monoio::run },
    Subject { name: "compio", run: compio::run },
    Subject { name: "glommio", run: glommio::run },
];

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    subject: &'static str,
    connections: usize,
    #[serde(serialize_with = "rounded")]
    requests_per_s: f64,
    #[serde(serialize_with = "rounded")]
    cpu_us_per_request: f64,
    #[serde(serialize_with = "rounded")]
    p50_us: f64,
    #[serde(serialize_with = "rounded")]
    p99_us: f64,
    #[serde(flatten)]
    common: Common,
}

pub fn bench(plan: &Plan, report: &mut Report) -> Result<()> {
    let subjects: Vec<&Subject> = SUBJECTS.iter().filter(|subject| plan.includes(subject.name)).collect();
    if subjects.is_empty() {
        return Ok(());
    }
    let server = Server::start()?;
    for connections in CONNECTIONS {
        let load = Load { server: server.address(), connections };
        let outcomes = alternate(plan.rounds, &subjects, |subject| {
            cores::on_core(CLIENT, || (subject.run)(&load, plan.slice))
                .with_context(|| format!("rtt with {connections} connections, subject {}", subject.name))
        })?;
        let times: Vec<Vec<f64>> = outcomes
            .iter()
            .map(|rounds| rounds.iter().map(|round| 1.0 / round.per_second()).collect())
            .collect();
        let baseline = subjects.iter().position(|subject| subject.name == BASELINE);
        for ((subject, rounds), own) in subjects.iter().zip(&outcomes).zip(&times) {
            let spread = |figure: fn(&Latency) -> f64| Spread::of(rounds.iter().map(figure));
            let requests_per_s = spread(Latency::per_second);
            let baseline = baseline.map(|index| times[index].as_slice());
            report.line(&Row {
                bench: "rtt",
                subject: subject.name,
                connections,
                requests_per_s: requests_per_s.median,
                cpu_us_per_request: spread(Latency::cpu_us_per_op).median,
                p50_us: spread(|round| round.p50_us).median,
                p99_us: spread(|round| round.p99_us).median,
                common: Common::new(subject.name, requests_per_s, own, baseline),
            })?;
        }
    }
    Ok(())
}

/// One connection of a runtime, or what stands for one, such as a handle of a pool.
pub trait Exchange: 'static {
    /// Sends [`MESSAGE`] bytes and receives as many.
    fn exchange(&mut self) -> impl Future<Output = io::Result<()>>;
}

/// Drives all the connections at once, each in a task of the running `R`.
pub async fn measure<R: Runtime>(connections: Vec<impl Exchange>, slice: Duration) -> Result<Latency> {
    let meter = Rc::new(LatencyMeter::new(slice));
    let failure = Rc::new(RefCell::new(None));
    let tasks: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let (meter, failure) = (meter.clone(), failure.clone());
            R::spawn(async move {
                let mut began = Instant::now();
                loop {
                    if let Err(error) = connection.exchange().await {
                        *failure.borrow_mut() = Some(error);
                        break;
                    }
                    match meter.lap(began) {
                        Some(next) => began = next,
                        None => break,
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    match failure.take() {
        Some(error) => Err(error).context("an exchange failed"),
        None => meter.outcome().context("the tasks ended before the slice was over"),
    }
}

/// For those runtimes that hand out what a read got without a way to read exactly so much.
fn short(length: usize) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("{length} of {MESSAGE} bytes, then no more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_exchanges_with_the_server() {
        let server = Server::in_this_process().unwrap();
        for subject in SUBJECTS {
            for connections in [1, 3] {
                let load = Load { server: server.address(), connections };
                let outcome = cores::on_core(CLIENT, || (subject.run)(&load, Duration::from_millis(4)))
                    .expect(subject.name);
                assert!(outcome.operations > 0, "{}", subject.name);
            }
        }
    }
}
