//! The load generator: clients in closed loop, each checking that what it stored is what it gets.
//!
//! The clients run as tasks on the gateway's own cores. With as many threads of their own they would compete with the
//! gateway for the same processors, and the figures would measure the kernel's scheduler. They still talk to it over
//! sockets, and the kernel decides which core serves whom, so about half of the requests cross between two cores.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corelet::actor;
use corelet::runtime::{sleep, spawn};
use hdrhistogram::Histogram;

use crate::client::Client;

/// The longest latency told apart, in nanoseconds; a client gives up before.
const LONGEST: u64 = 10_000_000_000;
/// How long a client waits after a failure: hammering on something broken helps nobody.
const PAUSE: Duration = Duration::from_millis(1);
/// Keys that one client uses in turn.
const KEYS: u64 = 64;

/// What all clients of all cores share. Read often and written at most once, so sharing costs nothing.
pub struct Plan {
    pub address: SocketAddr,
    pub ends: Instant,
    /// Set by Ctrl-C.
    pub interrupted: Arc<AtomicBool>,
}

impl Plan {
    fn is_over(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed) || Instant::now() >= self.ends
    }
}

/// How many requests a core has made, for the progress line. On cache lines of its own, so that the cores do not slow
/// one another down by counting.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Progress(AtomicU64);

impl Progress {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the clients of one core, or of all, have seen.
pub struct Tally {
    pub requests: u64,
    pub errors: u64,
    pub mismatched: u64,
    pub first_error: Option<String>,
    /// Of the requests that were answered rightly, in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Tally {
    pub fn new() -> Tally {
        let latency = match Histogram::new_with_bounds(1, LONGEST, 3) {
            Ok(latency) => latency,
            Err(error) => unreachable!("the bounds are constant and valid: {error}"),
        };
        Tally { requests: 0, errors: 0, mismatched: 0, first_error: None, latency }
    }

    pub fn add(&mut self, other: &Tally) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.mismatched += other.mismatched;
        self.first_error = self.first_error.take().or_else(|| other.first_error.clone());
        if let Err(error) = self.latency.add(&other.latency) {
            unreachable!("both have the same bounds: {error}");
        }
    }
}

/// Runs the clients with these `numbers` on the current core until the plan is over.
pub async fn run(numbers: Vec<u64>, plan: Arc<Plan>, progress: Arc<Progress>) -> Tally {
    // One tally for all tasks of the core: they take turns on one thread, so plain counting will do.
    let tally = Rc::new(RefCell::new(Tally::new()));
    let clients: Vec<_> = numbers
        .into_iter()
        .map(|number| {
            let driver = Driver {
                client: Client::new(plan.address),
                plan: Arc::clone(&plan),
                tally: Rc::clone(&tally),
                progress: Arc::clone(&progress),
            };
            spawn(async move {
                actor::set_label(format!("client {number}"));
                driver.run(number).await
            })
        })
        .collect();
    for client in clients {
        if let Err(error) = client.await {
            // Its other clients' results are good, but one that panicked must not go unnoticed.
            let mut tally = tally.borrow_mut();
            tally.errors += 1;
            tally.first_error.get_or_insert_with(|| error.to_string());
        }
    }
    tally.replace(Tally::new())
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Right,
    Mismatched,
    Failed,
}

struct Driver {
    client: Client,
    plan: Arc<Plan>,
    tally: Rc<RefCell<Tally>>,
    progress: Arc<Progress>,
}

impl Driver {
    /// Stores a value that nobody else ever stores, under a key that nobody else uses, and asks for it back.
    async fn run(mut self, number: u64) {
        let process = std::process::id();
        let key = |generation: u64| format!("gateway:{process}:{number}:{generation}");
        let (mut generation, mut last) = (0, 0);
        for sequence in 0_u64.. {
            if self.plan.is_over() {
                break;
            }
            let key = key(generation);
            let value = format!("value {sequence} of client {number}");
            if self.send(&format!("SET {key} {value}"), "OK").await == Outcome::Failed {
                // Nobody knows whether it was stored, or still will be: by a slow upstream that finds the command in
                // the buffer of a connection given up long ago. So that this cannot pass for a wrong reply, go on
                // with another key.
                generation = (generation + 1) % KEYS;
                last = last.max(generation);
                continue;
            }
            self.send(&format!("GET {key}"), &format!("VALUE {value}")).await;
        }
        // Leave a real upstream as it was found, as far as it answers. Not a part of the load, so not counted.
        for generation in 0..=last {
            if self.client.request(&format!("DEL {}", key(generation))).await.is_err() {
                break;
            }
        }
    }

    async fn send(&mut self, line: &str, expected: &str) -> Outcome {
        let begun = Instant::now();
        let reply = self.client.request(line).await;
        let took = begun.elapsed();
        let (outcome, trouble) = match reply {
            Ok(reply) if reply == expected.as_bytes() => (Outcome::Right, None),
            Ok(reply) => {
                let text = String::from_utf8_lossy(&reply);
                match text.strip_prefix("ERROR ") {
                    Some(error) => (Outcome::Failed, Some(error.to_string())),
                    None => (Outcome::Mismatched, Some(format!("{line} was answered by {text}"))),
                }
            }
            Err(error) => (Outcome::Failed, Some(format!("the gateway did not answer: {error}"))),
        };
        self.count(outcome, took, trouble);
        if outcome == Outcome::Failed {
            sleep(PAUSE).await;
        }
        outcome
    }

    fn count(&self, outcome: Outcome, took: Duration, trouble: Option<String>) {
        let mut tally = self.tally.borrow_mut();
        tally.requests += 1;
        match outcome {
            Outcome::Right => tally.latency.saturating_record(took.as_nanos() as u64),
            Outcome::Mismatched => tally.mismatched += 1,
            Outcome::Failed => tally.errors += 1,
        }
        if tally.first_error.is_none() {
            tally.first_error = trouble;
        }
        // This core is the only writer, so a store does what a costlier increment would.
        self.progress.0.store(tally.requests, Ordering::Relaxed);
    }
}
