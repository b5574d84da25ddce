//! `peers` measures corelet against other runtimes, pools, channels and actor libraries, side by side in one process.
//!
//! ```text
//! cargo run --release -- acquire     acquire and release of a trivial connection on one core
//! cargo run --release -- xcore       a round trip between core 0 and core 1
//! cargo run --release -- rtt         a 64-byte request and its reply over loopback TCP
//! cargo run --release -- executor    yield, spawn, ping-pong and timers on one core
//! cargo run --release -- guest       a core inside other loops, against one on its own thread
//! cargo run --release -- scale       corelet's pool with few and with many waiters, handles and slots
//! cargo run --release -- pipelined   many callers on one socket to a real Redis, exclusive and pipelined
//! cargo run --release -- actors      messages, starts and ends of actors, and their memory
//! cargo run --release -- service     framed services: queued frames, pushes, set-up of connections, echoes
//! cargo run --release -- all
//! ```
//!
//! `--json` prints one object a line, `--rounds N` sets the number of rounds (9), `--subjects a,b`
//! restricts who runs, `--quick` only checks that everything works. Two cores are needed.
//!
//! Subjects alternate in short rounds. `min` and `max` are over the rounds, of `ns_per_op`, of
//! `requests_per_s` (`rtt`), of `p50_us` (`xcore`) or of `bytes_per_item` (`actors`, `idle_actor`). `ratio` is the median over the rounds of a
//! subject's time per operation divided by corelet's in the same round: above 1, corelet is faster.
//!
//! This crate is outside corelet's workspace, so that nobody who builds corelet compiles the peers.

mod acquire;
mod actors;
// The benches of the library count by the same allocator.
#[path = "../../../benches/common/alloc.rs"]
mod alloc;
mod cli;
mod cores;
mod executor;
mod guest;
mod meter;
mod pipelined;
mod report;
mod rings;
mod rounds;
mod rtt;
mod runtimes;
mod scale;
mod service;
mod xcore;

use anyhow::{Result, bail};
use cli::{Command, Options};
use report::Report;
use rounds::Plan;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

struct Bench {
    name: &'static str,
    subjects: fn() -> Vec<&'static str>,
    run: fn(&Plan, &mut Report) -> Result<()>,
}

const ACQUIRE: Bench = Bench {
    name: "acquire",
    subjects: || acquire::SUBJECTS.iter().map(|subject| subject.name).collect(),
    run: acquire::bench,
};

const XCORE: Bench = Bench {
    name: "xcore",
    subjects: || xcore::SUBJECTS.iter().map(|subject| subject.name).collect(),
    run: xcore::bench,
};

const RTT: Bench = Bench {
    name: "rtt",
    subjects: || rtt::SUBJECTS.iter().map(|subject| subject.name).collect(),
    run: rtt::bench,
};

const EXECUTOR: Bench = Bench {
    name: "executor",
    subjects: || executor::SUBJECTS.iter().map(|subject| subject.name).collect(),
    run: executor::bench,
};

const GUEST: Bench = Bench {
    name: "guest",
    subjects: || guest::SUBJECTS.iter().map(|subject| subject.name).collect(),
    run: guest::bench,
};

const SCALE: Bench = Bench { name: "scale", subjects: || vec![report::BASELINE], run: scale::bench };

const PIPELINED: Bench = Bench {
    name: "pipelined",
    subjects: || pipelined::SUBJECTS.iter().map(|subject| subject.name).collect(),
    run: pipelined::bench,
};

const ACTORS: Bench = Bench {
    name: "actors",
    subjects: || actors::SUBJECTS.iter().map(|subject| subject.name).collect(),
    run: actors::bench,
};

const SERVICE: Bench = Bench {
    name: "service",
    subjects: || service::SUBJECTS.iter().map(|subject| subject.name).collect(),
    run: service::bench,
};

fn main() -> ExitCode {
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(message) => {
            eprintln!("peers: {message}");
            return ExitCode::from(2);
        }
    };
    let outcome = match &cli.command {
        Command::Acquire(options) => run(&[ACQUIRE], options),
        Command::Xcore(options) => run(&[XCORE], options),
        Command::Rtt(options) => run(&[RTT], options),
        Command::Executor(options) => run(&[EXECUTOR], options),
        Command::Guest(options) => run(&[GUEST], options),
        Command::Scale(options) => run(&[SCALE], options),
        Command::Pipelined(options) => run(&[PIPELINED], options),
        Command::Actors(options) => run(&[ACTORS], options),
        Command::Service(options) => run(&[SERVICE], options),
        Command::All(options) => run(
            &[
                ACQUIRE,
                XCORE,
                RTT,
                EXECUTOR,
                GUEST,
                SCALE,
                Bench { run: pipelined::bench_if_there, ..PIPELINED },
                ACTORS,
                SERVICE,
            ],
            options,
        ),
        Command::EchoServer { subject } => rtt::server::run(subject.as_deref()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the lines has seen enough.
        Err(error) if error.is::<report::ReaderGone>() => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(benches: &[Bench], options: &Options) -> Result<()> {
    let plan = options.plan();
    let mut known: Vec<&str> = Vec::new();
    for name in benches.iter().flat_map(|bench| (bench.subjects)()) {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    for wanted in options.subjects.iter().flatten() {
        if !known.contains(&wanted.as_str()) {
            let names: Vec<_> = benches.iter().map(|bench| bench.name).collect();
            bail!("no subject {wanted:?} in {}; there are {}", names.join(", "), known.join(", "));
        }
    }
    for bench in benches {
        let mut report = Report::new(options.json);
        (bench.run)(&plan, &mut report)?;
        report.finish()?;
    }
    Ok(())
}
