//! The `corelet` command: whether this machine can run corelet, and what a process that does is doing.

mod cli;
mod doctor;
mod top;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Doctor(options) => doctor::run(&options),
        Command::Top(options) => top::run(&options),
    }
}
