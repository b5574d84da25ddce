//! The command line.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Parser, value_parser};

/// A gateway from a line protocol to Redis, with a load generator that checks every reply.
///
/// Each core serves its clients by exchanges over connections leased from its own shard of the pool.
#[derive(Clone, Debug, Parser)]
#[command(name = "gateway")]
pub struct Args {
    /// How long the load runs
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Client connections, each with one request at a time, spread over the cores
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = value_parser!(u32).range(1..=10_000))]
    pub clients: u32,
    /// Cores to run on; all that are allowed by default
    #[arg(long, value_name = "N")]
    pub cores: Option<usize>,
    /// Upstream connections of each core at most
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub slots: usize,
    /// Requests that may wait for a connection on each core; more are refused
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub max_waiters: usize,
    /// How long an idle core spins before it sleeps
    #[arg(long, value_name = "MICROS", default_value_t = 0, value_parser = value_parser!(u64).range(..=1_000_000))]
    pub busy_poll: u64,
    /// Where clients connect; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// A Redis to use instead of the embedded upstream
    #[arg(long, value_name = "HOST:PORT")]
    pub upstream: Option<String>,
    /// Breaks the embedded upstream's connections this often
    #[arg(long, value_name = "MS", conflicts_with = "upstream", value_parser = value_parser!(u64).range(1..))]
    pub kill_upstream_every: Option<u64>,
    /// All load goes to the first core, which also leases from the shards of the others
    #[arg(long)]
    pub skew: bool,
    /// Opens a socket there, for `corelet top` to look into the gateway by
    #[cfg(feature = "observer")]
    #[arg(long, value_name = "PATH")]
    pub observe: Option<std::path::PathBuf>,
}

impl Args {
    /// Reads the command line. When there is nothing to run, help or what is wrong has been printed: in one line, so
    /// that it is found in a log.
    pub fn read() -> Result<Args, ExitCode> {
        Args::try_parse().map_err(|error| {
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
                print!("{error}");
                return ExitCode::SUCCESS;
            }
            // Clap's first paragraph says what is wrong; then come usage and hints.
            let text = error.to_string();
            let wrong: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            let wrong = wrong.join(" ");
            eprintln!("gateway: {} (see --help)", wrong.strip_prefix("error: ").unwrap_or(&wrong));
            ExitCode::from(2)
        })
    }

    pub fn kill_every(&self) -> Option<Duration> {
        self.kill_upstream_every.map(Duration::from_millis)
    }
}
