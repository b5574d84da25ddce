//! Where connections come from.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::connection::Connection;
use crate::net::{StreamOptions, TcpStream, UnixStream};

/// Opens the connections of a pool. One connector serves all shards, so it is shared between threads; the connections
/// themselves stay on the core that opened them.
///
/// The pool puts its own time limit on each attempt, and a panic in it counts as a failed attempt.
pub trait Connector: Send + Sync + 'static {
    /// What is opened.
    type Connection: Connection;

    /// Opens one connection on the current core, fit for its first exchange: a handshake belongs in here.
    fn connect(&self) -> impl Future<Output = io::Result<Self::Connection>>;
}

/// Connects to one TCP address.
#[derive(Clone, Debug)]
pub struct TcpConnector {
    address: SocketAddr,
    options: StreamOptions,
}

impl TcpConnector {
    /// Connects to `address`, with the default [options](StreamOptions).
    pub fn new(address: SocketAddr) -> TcpConnector {
        TcpConnector { address, options: StreamOptions::default() }
    }

    /// Sets the options of each connection.
    pub fn options(mut self, options: StreamOptions) -> TcpConnector {
        self.options = options;
        self
    }
}

impl Connector for TcpConnector {
    type Connection = TcpStream;

    async fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_options(&self.options)?;
        Ok(stream)
    }
}

/// Connects to one Unix socket.
#[derive(Clone, Debug)]
pub struct UnixConnector {
    path: PathBuf,
}

impl UnixConnector {
    /// Connects to the listener at `path`.
    pub fn new(path: impl Into<PathBuf>) -> UnixConnector {
        UnixConnector { path: path.into() }
    }
}

impl Connector for UnixConnector {
    type Connection = UnixStream;

    async fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(&self.path).await
    }
}
