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
///
/// # Examples
/// A connector whose connections have been greeted:
///
/// ```
/// use std::{io, net::SocketAddr};
/// use corelet::{net::TcpStream, pool::Connector};
///
/// struct Greeting {
///     upstream: SocketAddr,
/// }
///
/// impl Connector for Greeting {
///     type Connection = TcpStream;
///
///     async fn connect(&self) -> io::Result<TcpStream> {
///         let mut stream = TcpStream::connect(self.upstream).await?;
///         stream.write_all("HELLO\n").await.0?;
///         let (result, answer) = stream.read_exact(Vec::with_capacity(3), 3).await;
///         result?;
///         if answer == b"OK\n" { Ok(stream) } else { Err(io::ErrorKind::InvalidData.into()) }
///     }
/// }
/// # use corelet::{pool::Pool, runtime::{Cores, Runtime, handle}};
/// # let server = std::net::TcpListener::bind(("127.0.0.1", 0))?;
/// # let upstream = server.local_addr()?;
/// # std::thread::spawn(move || {
/// #     use std::io::{Read, Write};
/// #     let (mut stream, _) = server.accept().unwrap();
/// #     stream.read_exact(&mut [0; 6]).unwrap();
/// #     stream.write_all(b"OK\n").unwrap();
/// #     stream.read(&mut [0]).unwrap();
/// # });
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// # runtime.block_on(move || async move {
/// #     let pool = Pool::builder(Greeting { upstream }).build(&handle()).unwrap();
/// #     assert!(pool.acquire().await.unwrap().is_clean());
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Connector: Send + Sync + 'static {
    /// What is opened.
    type Connection: Connection;

    /// Opens one connection on the current core, fit for its first exchange: a handshake belongs in here.
    fn connect(&self) -> impl Future<Output = io::Result<Self::Connection>>;

    /// Closes what the connector itself holds, such as a pool below it. [`Pool::close`](super::Pool::close) and
    /// [`Pool::drain`](super::Pool::drain) await it when all shards have ended. There is nothing to close by default.
    ///
    /// # Cancel safety
    /// It may be dropped at any await, and called more than once.
    fn close(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
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
