//! The command line.

use crate::rounds::Plan;
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use std::time::Duration;

/// Measures corelet side by side with other runtimes, pools, channels and actor libraries.
#[derive(Debug, Parser)]
#[command(version, about)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Acquire and release of a trivial connection on one core
    Acquire(Options),
    /// A round trip between two cores
    Xcore(Options),
    /// A 64-byte request and its reply over loopback TCP
    Rtt(Options),
    /// Yield, spawn, message and timer on one core
    Executor(Options),
    /// What a core costs inside another loop
    Guest(Options),
    /// corelet's pool with few and with many waiters, handles and slots
    Scale(Options),
    /// Many callers on one socket to a real Redis, exclusive and pipelined
    Pipelined(Options),
    /// Actors of several libraries: messages, starts and ends, memory
    Actors(Options),
    /// Framed services: queued frames, pushes, set-up of connections, echoes
    Service(Options),
    /// All of the above
    All(Options),
    /// The server that `rtt` starts: echoes on a free port until its standard input closes; or that of a subject of
    /// `service`, which ends with its parent
    #[command(hide = true)]
    EchoServer { subject: Option<String> },
}

#[derive(Args, Clone, Debug)]
pub struct Options {
    /// One JSON object a line instead of a table
    #[arg(long)]
    pub json: bool,
    /// How many times each subject runs [default: 9, or 3 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: Option<u16>,
    /// Short slices: to see that everything runs, not to believe the figures
    #[arg(long)]
    quick: bool,
    /// Only these subjects, separated by commas
    #[arg(long, value_delimiter = ',')]
    pub subjects: Option<Vec<String>>,
}

impl Options {
    pub fn plan(&self) -> Plan {
        Plan {
            rounds: self.rounds.map_or(if self.quick { 3 } else { 9 }, usize::from),
            slice: Duration::from_millis(if self.quick { 10 } else { 80 }),
            crowd: if self.quick { 1_000 } else { 100_000 },
            subjects: self.subjects.clone(),
        }
    }
}

/// Reads the arguments. What is wrong with them comes back as one line, without the usage text that
/// would bury it.
pub fn parse(arguments: impl Iterator<Item = std::ffi::OsString>) -> Result<Cli, String> {
    Cli::try_parse_from(arguments).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => error.exit(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "a bench is missing: acquire, xcore, rtt, executor, guest, scale, pipelined, actors, service or all (see --help)"
                .into()
        }
        _ => {
            let text = error.to_string();
            let message = text.split("\n\nUsage:").next().unwrap_or(&text);
            let message = message.split("\n\nFor more information").next().unwrap_or(message);
            let line = message.replace("\n\n", "; ").split_whitespace().collect::<Vec<_>>().join(" ");
            line.trim_start_matches("error: ").to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &str) -> Result<Options, String> {
        match parse(arguments.split(' ').map(Into::into))?.command {
            Command::Acquire(options) => Ok(options),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nine_rounds_unless_told_otherwise() {
        assert_eq!(options("peers acquire").unwrap().plan().rounds, 9);
        assert_eq!(options("peers acquire --quick").unwrap().plan().rounds, 3);
        assert_eq!(options("peers acquire --quick --rounds 11").unwrap().plan().rounds, 11);
    }

    #[test]
    fn subjects_are_a_comma_separated_list() {
        let plan = options("peers acquire --subjects bb8,semaphore").unwrap().plan();
        assert!(plan.includes("bb8") && plan.includes("semaphore") && !plan.includes("deadpool"));
        assert!(options("peers acquire").unwrap().plan().includes("deadpool"));
    }

    #[test]
    fn a_wrong_argument_is_one_line() {
        for wrong in [
            "peers",
            "peers nothing",
            "peers acquire --rounds 0",
            "peers acquire --rounds x",
            "peers acquire --no",
        ] {
            let message = options(wrong).expect_err(wrong);
            assert!(!message.is_empty() && !message.contains('\n'), "{wrong}: {message}");
        }
    }
}
