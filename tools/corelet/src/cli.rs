//! The command line.

use clap::{Args, Parser, Subcommand};

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
