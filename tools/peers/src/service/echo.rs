//! `echo_rtt`: the servers under test, and their client.

use super::frames::{Control, body, on_the_wire};
use super::{Echo, Outcome, Subject};
use crate::rtt::Load;
use crate::rtt::raw::Clients;
use crate::rtt::server::Server;
use anyhow::{Context, Result, ensure};
use io_uring::squeue::Flags;
use std::net::SocketAddr;
use std::time::Duration;

/// One server for each subject that has one. They have nothing to do while another is measured, and sleep.
pub struct Servers(Vec<(&'static str, Server)>);

impl Servers {
    pub fn start<'s>(subjects: impl Iterator<Item = &'s &'s Subject>) -> Result<Self> {
        let start = |subject: &&Subject| {
            let server = Server::start_as(Some(subject.name))
                .with_context(|| format!("the server of {}", subject.name))?;
            Ok((subject.name, server))
        };
        subjects.map(start).collect::<Result<_>>().map(Self)
    }

    pub fn of(&self, subject: &str) -> Result<SocketAddr> {
        let server = self.0.iter().find(|(name, _)| *name == subject).context("it has no server")?;
        Ok(server.1.address())
    }
}

/// One slice on so many connections.
pub fn run(server: SocketAddr, connections: usize, slice: Duration) -> Result<Outcome> {
    let mut control = Control::connect(server)?;
    let mut clients = Clients::connect(&Load { server, connections }, on_the_wire(&body(0)))?;
    // Every connection has been accepted after this.
    clients.exchange(Duration::ZERO, Flags::empty())?;
    let before = control.figures()?;
    let latency = clients.exchange(slice, Flags::empty())?;
    let after = control.figures()?;
    // More than the client has counted, for it does not count its warm-up.
    let answered = after.answered - before.answered;
    ensure!(
        answered >= latency.operations,
        "the server has answered {answered} of {} requests",
        latency.operations
    );
    let per_request = |figure: f64| figure / answered as f64;
    Ok(Outcome {
        ns_per_op: 1e9 / latency.per_second(),
        allocs_per_op: per_request((after.allocations - before.allocations) as f64),
        echo: Some(Echo {
            cpu_us_per_request: per_request((after.cpu - before.cpu).as_secs_f64() * 1e6),
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores;
    use crate::service::{Case, SUBJECTS};
    use std::sync::mpsc;

    impl Servers {
        /// The same servers on threads, for a test program has no subcommands.
        pub fn in_this_process() -> Result<Self> {
            let mut servers = Vec::new();
            for subject in SUBJECTS.iter().filter(|subject| (subject.takes_part)(Case::EchoRtt(1))) {
                let (announce, announced) = mpsc::channel();
                std::thread::spawn(move || {
                    cores::pin(cores::SERVER).unwrap();
                    let announce = move |address| Ok(announce.send(address)?);
                    (subject.serve_echoes)(Box::new(announce)).unwrap();
                });
                servers.push((subject.name, Server::elsewhere(announced.recv()?)));
            }
            Ok(Self(servers))
        }
    }

    #[test]
    fn a_server_tells_what_its_thread_has_done() {
        let servers = Servers::in_this_process().unwrap();
        for (name, server) in &servers.0 {
            let mut control = Control::connect(server.address()).unwrap();
            let first = control.figures().unwrap();
            let mut clients =
                Clients::connect(&Load { server: server.address(), connections: 2 }, on_the_wire(&body(1)))
                    .unwrap();
            let latency = clients.exchange(Duration::from_millis(20), Flags::empty()).unwrap();
            let then = control.figures().unwrap();
            assert!(then.answered > first.answered + latency.operations, "{name}: {first:?}, {then:?}");
            assert!(then.cpu > first.cpu, "{name}: {first:?}, {then:?}");
        }
    }
}
