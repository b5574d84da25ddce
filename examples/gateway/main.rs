//! A gateway on every core: clients speak a line protocol to it, and it speaks RESP to an upstream such as Redis, over
//! connections leased from the core's own shard of a pool.
//!
//! ```text
//! cargo run --release --example gateway -- --seconds 3
//! cargo run --release --example gateway -- --seconds 3 --upstream localhost:6379
//! cargo run --release --example gateway -- --seconds 3 --kill-upstream-every 50
//! cargo run --release --example gateway -- --seconds 3 --skew
//! cargo run --release --example gateway --features observer -- --seconds 60 --observe /tmp/gateway.sock
//! ```
//!
//! The example brings its own upstream and its own load, and checks every reply. Read it in this order:
//!
//! | file                       | shows                                                                    |
//! |----------------------------|--------------------------------------------------------------------------|
//! | `run.rs`                   | making a runtime and a pool, starting work on each core, closing in order |
//! | `front.rs`                 | a protocol and its routes, served on every core                          |
//! | `session.rs`               | handle, acquire, exchange, and what happens when one fails               |
//! | `upstream.rs`              | a small service with its own runtime and shared state on one core        |
//! | `load.rs`, `client.rs`     | many tasks on one core with a common result                              |
//! | `args.rs`, `error.rs`, `progress.rs`, `report.rs` | the command around it                             |

mod args;
mod client;
mod error;
mod front;
mod load;
mod progress;
mod report;
mod run;
mod session;
mod upstream;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use args::Args;
use error::GatewayError;

fn main() -> ExitCode {
    let args = match Args::read() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let outcome = watch_signals().and_then(|interrupted| run::run(&args, interrupted));
    match outcome {
        Ok(report) => {
            report.print();
            if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("gateway: {}", error.in_one_line());
            ExitCode::FAILURE
        }
    }
}

/// The flag is set by the first Ctrl-C, which ends the run early but in order. The second ends the process.
fn watch_signals() -> Result<Arc<AtomicBool>, GatewayError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: on the first signal the flag is not set yet, so that only the second shuts down.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&interrupted))
            .and_then(|_| flag::register(signal, Arc::clone(&interrupted)))
            .map_err(GatewayError::Signals)?;
    }
    Ok(interrupted)
}
