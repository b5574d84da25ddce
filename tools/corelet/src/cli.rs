//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::top::Sort;

/// Looks whether a machine can run corelet, and into processes that do.
#[derive(Debug, Parser)]
#[command(name = "corelet", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Doctor(Doctor),
    Top(Top),
}

/// Tells whether corelet can start here, and what to do where it cannot.
///
/// Looks at the kernel, io_uring and the limits of this process, and starts a runtime on every core that it may use. A
/// service has limits of its own: run this as the service's user, in its container or by its service manager.
///
/// The exit status is 0 if corelet starts, with or without warnings, 1 if it does not, and 2 for a wrong command line.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Prints one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Shows what a process is doing that has opened an observer: its cores, its pools, its actors.
///
/// Keys: s sorts by something else, r reverses, the arrows scroll, q quits. When the process ends, what was seen last stays,
/// and the view goes on with the next process that opens the same socket.
#[derive(Debug, Args)]
pub struct Top {
    /// The observer's socket
    pub socket: PathBuf,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// What actors are sorted by
    #[arg(long, value_enum, default_value_t = Sort::Polls)]
    pub sort: Sort,
    /// Prints one screen, of what has happened in one interval
    #[arg(long)]
    pub once: bool,
    /// Prints it as a JSON object
    #[arg(long, requires = "once")]
    pub json: bool,
    /// Prints so many actors at most; 40 on a screen, which has room for some 500, and all of them as JSON, by default
    #[arg(long, value_name = "N", requires = "once")]
    pub actors: Option<usize>,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("0.05 to 3600 seconds".into()),
    }
}
