//! The echo server: this same program, started again with a hidden subcommand on core 1. `service` starts the servers that
//! it compares in the same way.
//!
//! A process of its own, so that its CPU time, its allocations and its locks are nobody's. It ends when
//! its standard input closes, which happens also when the parent is killed.

mod echo;

use crate::cores::{self, SERVER};
use crate::service;
use anyhow::{Context, Result, anyhow, bail};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The hidden subcommand.
const SUBCOMMAND: &str = "echo-server";
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A running echo server; stopped when dropped.
pub struct Server {
    process: Option<Child>,
    address: SocketAddr,
}

impl Server {
    /// Starts the process and waits until it listens.
    pub fn start() -> Result<Self> {
        Self::start_as(None)
    }

    /// The same, for the server of a subject of `service`.
    pub fn start_as(subject: Option<&str>) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program to start the echo server")?;
        let process = Command::new(&program)
            .arg(SUBCOMMAND)
            .args(subject)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start the echo server ({} {SUBCOMMAND})", program.display()))?;
        // From here on, dropping it ends the process.
        let mut server = Self { process: Some(process), address: (Ipv4Addr::LOCALHOST, 0).into() };
        server.address = server.first_line().context("the echo server did not start")?;
        Ok(server)
    }

    /// The same server on a thread, for tests: a test program has no subcommands.
    #[cfg(test)]
    pub fn in_this_process() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            // Nothing is ever written into this pipe, and its other end lives as long as the tests.
            let (reader, writer) = std::io::pipe().unwrap();
            std::mem::forget(writer);
            cores::pin(SERVER).unwrap();
            echo::serve(&listener, &reader).unwrap();
        });
        Ok(Self { process: None, address })
    }

    /// One that somebody else has started, for tests.
    #[cfg(test)]
    pub fn elsewhere(address: SocketAddr) -> Self {
        Self { process: None, address }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address the process prints once it listens.
    fn first_line(&mut self) -> Result<SocketAddr> {
        let process = self.process.as_mut().context("no process")?;
        let output = process.stdout.take().context("its output is not ours")?;
        // Read on a thread, so that a server that says nothing cannot hold us up.
        let (line, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let read = BufReader::new(output).read_line(&mut text);
            let _ = line.send(read.map(|_| text));
        });
        let line = lines
            .recv_timeout(START_TIMEOUT)
            .map_err(|_| anyhow!("it said nothing for {} s", START_TIMEOUT.as_secs()))?
            .context("its output cannot be read")?;
        if line.is_empty() {
            bail!("it ended with {}", process.wait().context("waiting for it")?);
        }
        line.trim().parse().with_context(|| format!("it printed {line:?} instead of its address"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // Whatever fails here, it has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// What the hidden subcommand does.
pub fn run(subject: Option<&str>) -> Result<()> {
    cores::pin(SERVER)?;
    if let Some(subject) = subject {
        cores::end_with_parent()?;
        return service::serve_echoes(subject, Box::new(announce));
    }
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on the loopback interface")?;
    announce(listener.local_addr()?)?;
    echo::serve(&listener, &std::io::stdin())
}

/// Tells the parent that there is a server.
fn announce(address: SocketAddr) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{address}").and_then(|()| output.flush())?;
    Ok(())
}
