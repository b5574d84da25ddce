//! A running server, as its owner knows it.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use futures_channel::oneshot;

use super::address::Address;
use super::error::DrainTimeout;
use super::keeper::Command;
use super::stats::{ConnectionInfo, ServerStats};
use crate::actor::channel::Sender;
use crate::runtime::CoreId;
use crate::service::connection::ConnectionId;

/// A running server. Used from any core and any thread; share it in an `Arc`.
///
/// # Drop
/// Ends the server as [`shutdown`](ServerHandle::shutdown) does, without waiting for it.
/// [`detach`](ServerHandle::detach) lets it run for as long as its cores.
#[must_use = "the server ends when its handle is dropped"]
#[derive(Default)]
pub struct ServerHandle {
    addresses: Vec<Address>,
    cores: Vec<(CoreId, Sender<Command>)>,
    detached: bool,
}

/// All connections of a server have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// How many there were when the drain began.
    pub connections: usize,
}

impl ServerHandle {
    pub(super) fn add(&mut self, core: CoreId, addresses: Vec<Address>, commands: Sender<Command>) {
        self.addresses = addresses;
        self.cores.push((core, commands));
    }

    pub(super) fn commands(&self) -> impl Iterator<Item = &Sender<Command>> {
        self.cores.iter().map(|(_, commands)| commands)
    }

    /// Where it listens, in the order in which that was asked for, with the ports that were chosen.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The first TCP address that it listens on.
    ///
    /// # Panics
    /// When it listens on Unix sockets only; see [`addresses`](ServerHandle::addresses).
    #[track_caller]
    pub fn local_addr(&self) -> SocketAddr {
        let tcp = |address: &Address| match address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        };
        match self.addresses.iter().find_map(tcp) {
            Some(address) => address,
            None => panic!("the server listens on no TCP address"),
        }
    }

    /// The cores that it was started on.
    pub fn cores(&self) -> Vec<CoreId> {
        self.cores.iter().map(|(core, _)| *core).collect()
    }

    /// Stops accepting, for good; the connections go on. Connections that wait in the kernel's backlog are reset: nothing of
    /// theirs has been served, and their clients may try elsewhere.
    pub fn stop(&self) {
        self.tell_all(|| Command::StopAccepting);
    }

    /// Ends the server in good order: stops accepting as [`stop`](ServerHandle::stop) does, and has every connection finish what it
    /// has begun and send what is queued. Connections that are still there after `limit` are dropped. Preambles are broken off at once.
    ///
    /// When it is called again, the earlier deadline stands for all. A core that had done with its last connection by then counts
    /// for nothing in the later call's figures.
    ///
    /// # Errors
    /// [`DrainTimeout`] says how many were dropped. They are gone, as after a drain that ends in time.
    ///
    /// # Cancel safety
    /// When the future is dropped after its first poll, the server ends all the same.
    pub async fn drain(&self, limit: Duration) -> Result<Drained, DrainTimeout> {
        let (mut drained, mut remaining) = (0, 0);
        for ended in self.ask_all(|done| Command::End { limit, done: Some(done) }).await {
            drained += ended.drained;
            remaining += ended.forced;
        }
        match remaining {
            0 => Ok(Drained { connections: drained }),
            _ => Err(DrainTimeout { remaining, drained }),
        }
    }

    /// Ends the server now: nothing more is sent on any connection. Waits until all is gone.
    ///
    /// # Cancel safety
    /// When the future is dropped after its first poll, the server ends all the same.
    pub async fn shutdown(&self) {
        // How many there were does not matter to who wants none.
        let _ = self.drain(Duration::ZERO).await;
    }

    /// Lets the server run without a handle, until its cores end.
    pub fn detach(mut self) {
        self.detached = true;
    }

    /// The counts and levels of each core.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn stats(&self) -> ServerStats {
        ServerStats { cores: self.ask_all(Command::Stats).await }
    }

    /// The connections that are open. Those of one core were so at the same time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connections(&self) -> Vec<ConnectionInfo> {
        self.ask_all(Command::Connections).await.into_iter().flatten().collect()
    }

    /// Drains one connection: it ends when it has finished what it has begun. False when there is none with that id.
    ///
    /// # Cancel safety
    /// When the future is dropped after its first poll, the connection ends all the same.
    pub async fn drain_connection(&self, id: ConnectionId) -> bool {
        self.close(id, false).await
    }

    /// Ends one connection now. False when there is none with that id.
    ///
    /// # Cancel safety
    /// When the future is dropped after its first poll, the connection ends all the same.
    pub async fn close_connection(&self, id: ConnectionId) -> bool {
        self.close(id, true).await
    }

    async fn close(&self, id: ConnectionId, at_once: bool) -> bool {
        let closed = self.ask_all(|done| Command::Close { id, at_once, done }).await;
        closed.contains(&true)
    }

    fn tell_all(&self, command: impl Fn() -> Command) {
        for commands in self.commands() {
            // Refused by a core that has ended.
            let _ = commands.send(command());
        }
    }

    /// Asks all cores at once; what has ended does not answer.
    async fn ask_all<T>(&self, question: impl Fn(oneshot::Sender<T>) -> Command) -> Vec<T> {
        let asked = self.commands().map(|commands| {
            let (done, answer) = oneshot::channel();
            let _ = commands.send(question(done));
            answer
        });
        let asked: Vec<_> = asked.collect();
        let mut answers = Vec::with_capacity(asked.len());
        for answer in asked {
            answers.extend(answer.await);
        }
        answers
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        if !self.detached {
            self.tell_all(|| Command::End { limit: Duration::ZERO, done: None });
        }
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle")
            .field("addresses", &self.addresses)
            .field("cores", &self.cores())
            .finish_non_exhaustive()
    }
}
