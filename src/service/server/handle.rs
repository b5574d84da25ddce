//! A running server, as its owner knows it.

use std::net::SocketAddr;

use super::accept::Command;
use crate::actor::channel::Sender;

/// One core's share.
pub(super) struct Acceptor {
    pub(super) commands: Sender<Command>,
}

/// A running server.
///
/// # Drop
/// Stops accepting; the connections go on.
pub struct ServerHandle {
    address: SocketAddr,
    cores: Vec<Acceptor>,
}

impl ServerHandle {
    pub(super) fn new(address: SocketAddr, cores: Vec<Acceptor>) -> ServerHandle {
        ServerHandle { address, cores }
    }

    /// The address that is listened on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting.
    pub fn stop(&self) {
        for core in &self.cores {
            // Refused by a core that has ended.
            let _ = core.commands.send(Command::Stop);
        }
    }
}
