//! Where connections come from.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::addresses::Addresses;
use super::connection::Connection;
use super::scheduler::CloseReason;
use super::shared::Refresh;
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

    /// Prepares a connection that was just opened; for what users add to a connector that they did not write. Within
    /// the attempt's time limit.
    ///
    /// # Errors
    /// The attempt has then failed.
    fn after_connect(&self, connection: &mut Self::Connection) -> impl Future<Output = io::Result<()>> {
        let _ = connection;
        async { Ok(()) }
    }

    /// Whether an idle connection is fit for its next lease, or one that comes back for a waiter; one that is not is
    /// closed, and the next is tried. Not asked of a connection that was just opened.
    ///
    /// As [`Connection::is_quiet`], it is asked in the middle of the scheduler's decisions: it must not wait, make
    /// system calls or use the pool, and a panic in it fails the shard.
    #[inline]
    fn before_lease(&self, connection: &mut Self::Connection) -> bool {
        let _ = connection;
        true
    }

    /// Whether a connection is fit for further leases after one that has ended well. Asked on the core that had the
    /// lease, when the lease is dropped, so it must not wait. A panic in it costs the connection, and goes on in the
    /// task that drops the lease.
    #[inline]
    fn after_return(&self, connection: &mut Self::Connection) -> bool {
        let _ = connection;
        true
    }

    /// Says goodbye on a connection that the pool is about to close, within
    /// [`close_timeout`](super::PoolBuilder::close_timeout). Not called for connections that are lost, nor for those
    /// that are dropped because their core ends. A panic in it is contained.
    fn before_close(
        &self,
        connection: &mut Self::Connection,
        reason: CloseReason,
    ) -> impl Future<Output = ()> {
        let _ = (connection, reason);
        async {}
    }

    /// Checks a connection that has been idle for long; see [`health_check`](super::PoolBuilder::health_check). Nobody
    /// can lease it meanwhile. It must leave the connection quiet. A panic in it counts as a failed check.
    ///
    /// # Errors
    /// The connection is closed then.
    fn check(&self, connection: &mut Self::Connection) -> impl Future<Output = io::Result<()>> {
        let _ = connection;
        async { Ok(()) }
    }

    /// Whether a connection still leads to where new ones would. Asked of every connection after
    /// [`Pool::refresh`](super::Pool::refresh), of a leased one when its lease ends; one for which it does not hold is
    /// closed. As [`before_lease`](Connector::before_lease), it must not wait or use the pool.
    fn is_current(&self, connection: &Self::Connection) -> bool {
        let _ = connection;
        true
    }

    /// The connector now serves a pool, and gets the means to have it look at
    /// [`is_current`](Connector::is_current) again. Called once for each pool, when that is built.
    fn attached(&self, refresh: Refresh) {
        let _ = refresh;
    }

    /// Closes what the connector itself holds, such as a pool below it. [`Pool::close`](super::Pool::close) and
    /// [`Pool::drain`](super::Pool::drain) await it when all shards have ended. There is nothing to close by default.
    ///
    /// # Cancel safety
    /// It may be dropped at any await, and called more than once.
    fn close(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// How long one of several addresses is tried before the next one is.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Connects to a TCP peer at one or several addresses. Those take turns; one that cannot be reached falls to the next
/// within the same attempt. When the peer's name is resolved to other addresses, connections to those that are gone are
/// closed as superseded: idle ones at once, leased ones when their lease ends.
#[derive(Clone, Debug)]
pub struct TcpConnector {
    addresses: Addresses,
    attempt: Duration,
    options: StreamOptions,
}

impl TcpConnector {
    /// Connects to `address`, with the default [options](StreamOptions).
    pub fn new(address: SocketAddr) -> TcpConnector {
        TcpConnector::to(address.into())
    }

    /// Connects to these addresses in turn, with the default [options](StreamOptions).
    pub fn to(addresses: Addresses) -> TcpConnector {
        TcpConnector { addresses, attempt: ATTEMPT, options: StreamOptions::default() }
    }

    /// Sets the options of each connection.
    pub fn options(mut self, options: StreamOptions) -> TcpConnector {
        self.options = options;
        self
    }

    /// How long one address is tried when there is another one to try after it; 1 s by default. The last one has what
    /// is left of the pool's [`connect_timeout`](super::PoolBuilder::connect_timeout).
    pub fn attempt_timeout(mut self, limit: Duration) -> TcpConnector {
        self.attempt = limit;
        self
    }
}

impl Connector for TcpConnector {
    type Connection = TcpStream;

    async fn connect(&self) -> io::Result<TcpStream> {
        let known = self.addresses.get().await?;
        let first = self.addresses.turn();
        for tried in 1..known.len() {
            let address = known[(first.wrapping_add(tried - 1)) % known.len()];
            match TcpStream::connect_timeout(address, self.attempt).await {
                Ok(stream) => return self.set_up(stream),
                Err(error) => tracing::debug!(%address, %error, "an address cannot be reached"),
            }
        }
        let last = known[(first.wrapping_add(known.len() - 1)) % known.len()];
        match TcpStream::connect(last).await {
            Ok(stream) => self.set_up(stream),
            Err(error) => {
                // The peer may have moved.
                self.addresses.resolve_now();
                Err(error)
            }
        }
    }

    fn is_current(&self, connection: &TcpStream) -> bool {
        // A connection without a peer is broken, and none to keep.
        self.addresses.is_fixed() || connection.peer_addr().is_ok_and(|peer| self.addresses.is_current(peer))
    }

    fn attached(&self, refresh: Refresh) {
        if !self.addresses.is_fixed() {
            self.addresses.tell(refresh);
        }
    }
}

impl TcpConnector {
    fn set_up(&self, stream: TcpStream) -> io::Result<TcpStream> {
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
