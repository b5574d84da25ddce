//! The right to use one connection, and the guarded use of it.

use std::fmt;
use std::rc::Rc;

use super::carrier::Carrier;
use super::connection::Connection;
use super::connector::Connector;
use super::error::ExchangeError;
use crate::runtime::CoreId;

/// One connection, until it is dropped. Made by [`Handle::acquire`](super::Handle::acquire).
///
/// # Drop
/// Gives the connection back: to the next waiter, or to the idle ones. A connection whose last exchange did not end
/// well is closed instead, and only then does its slot become free. Dropping never waits, spawns or fails; it works
/// outside a turn of the core, after the pool was closed, and when its scheduler has failed.
pub struct Lease<C: Connector>(Option<Box<Carrier<C>>>);

impl<C: Connector> Lease<C> {
    #[inline]
    pub(super) fn new(carrier: Box<Carrier<C>>) -> Lease<C> {
        debug_assert!(carrier.clean, "only clean connections are leased");
        Lease(Some(carrier))
    }

    #[inline]
    fn carrier(&self) -> &Carrier<C> {
        match &self.0 {
            Some(carrier) => carrier,
            None => unreachable!("the carrier leaves with the lease"),
        }
    }

    /// Uses the connection for one exchange, such as a request and its reply.
    ///
    /// The connection counts as dirty from here until `exchange` has returned `Ok` with nothing in flight and nothing
    /// unread. When the future is dropped, fails or panics, or leaves bytes unread, it stays dirty: this lease refuses
    /// further exchanges and the connection is closed when the lease is dropped. What this cannot see is a reply that
    /// has not arrived yet: `exchange` must read all that its requests call for.
    ///
    /// # Errors
    /// [`ExchangeError::Failed`] with the error of `exchange`; [`ExchangeError::Dirty`] when an earlier exchange left
    /// the connection dirty.
    ///
    /// # Cancel safety
    /// Dropping the future is safe: the connection is not used again.
    ///
    /// # Examples
    /// ```
    /// use corelet::pool::{ExchangeError, Pool, TcpConnector};
    ///
    /// # use corelet::runtime::{Cores, Runtime, handle};
    /// # let server = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    /// # let address = server.local_addr()?;
    /// # std::thread::spawn(move || {
    /// #     for stream in server.incoming() {
    /// #         let mut stream = stream.unwrap();
    /// #         std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
    /// #     }
    /// # });
    /// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
    /// # runtime.block_on(move || async move {
    /// // To a server that sends back what it gets.
    /// let pool = Pool::builder(TcpConnector::new(address)).build(&handle())?;
    /// let mut lease = pool.acquire().await?;
    /// let reply = lease
    ///     .exchange(async |stream| {
    ///         stream.write_all("ping").await.0?;
    ///         let (result, reply) = stream.read_exact(Vec::with_capacity(4), 4).await;
    ///         result.map(|()| reply)
    ///     })
    ///     .await?;
    /// assert_eq!(reply, b"ping");
    ///
    /// // An exchange that fails costs the connection: nobody knows what it left behind.
    /// let failed = lease.exchange(async |_| Err::<(), _>("changed my mind")).await;
    /// assert!(matches!(failed, Err(ExchangeError::Failed("changed my mind"))));
    /// assert!(!lease.is_clean());
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # })?.unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn exchange<T, E, F>(&mut self, exchange: F) -> Result<T, ExchangeError<E>>
    where
        F: AsyncFnOnce(&mut C::Connection) -> Result<T, E>,
    {
        let Some(carrier) = &mut self.0 else { unreachable!("the carrier leaves with the lease") };
        let Some(connection) = carrier.connection.as_mut().filter(|_| carrier.clean) else {
            return Err(ExchangeError::Dirty);
        };
        carrier.armed = false;
        carrier.clean = false;
        let result = exchange(connection).await;
        carrier.clean = result.is_ok() && connection.is_quiet();
        result.map_err(ExchangeError::Failed)
    }

    /// Uses a connection that keeps its uses apart itself, so that none of them can leave it dirty for the next.
    ///
    /// # Errors
    /// [`ExchangeError::Dirty`] when an earlier exchange left it dirty, [`ExchangeError::Failed`] with the error of
    /// `operation`.
    #[cfg(feature = "framed")]
    pub(super) async fn isolated<T, E, F>(&mut self, operation: F) -> Result<T, ExchangeError<E>>
    where
        F: AsyncFnOnce(&mut C::Connection) -> Result<T, E>,
    {
        let Some(carrier) = &mut self.0 else { unreachable!("the carrier leaves with the lease") };
        let Some(connection) = carrier.connection.as_mut().filter(|_| carrier.clean) else {
            return Err(ExchangeError::Dirty);
        };
        let result = operation(connection).await;
        // After a success it may be that the socket is only not to be leased again.
        if result.is_err() && !connection.is_quiet() {
            // Not by what this lease did with it: it counts as broken, as in `mark_broken`.
            carrier.armed = true;
            carrier.clean = false;
        }
        result.map_err(ExchangeError::Failed)
    }

    /// The connection, for whoever answers for what is done with it.
    #[cfg(feature = "framed")]
    pub(super) fn connection_mut(&mut self) -> Option<&mut C::Connection> {
        self.0.as_mut()?.connection.as_mut()
    }

    /// Nothing has arrived that nobody asked for, and nothing is in flight.
    #[cfg(feature = "framed")]
    pub(super) fn is_quiet(&self) -> bool {
        self.carrier().is_quiet()
    }

    /// Has `watch` told when something arrives while this lease is not used.
    #[cfg(feature = "framed")]
    pub(super) fn watch(&mut self, watch: crate::runtime::Watch) {
        let Some(carrier) = &mut self.0 else { unreachable!("the carrier leaves with the lease") };
        if let Some(connection) = &mut carrier.connection {
            connection.arm(watch);
            // The pool's own watch is void.
            carrier.armed = false;
        }
    }

    /// Has `watch` told when this lease is to be the connection's last, because it is too old, one too many or leads to
    /// the wrong place: for one who would keep the lease for long.
    #[cfg(feature = "framed")]
    pub(super) fn hold(&self, watch: crate::runtime::Watch) {
        let Carrier { shard, slot, .. } = self.carrier();
        shard.hold(*slot, watch);
    }

    /// The connection broke while nobody used it: it is closed, and counted so.
    #[cfg(feature = "framed")]
    pub(super) fn mark_broken(&mut self) {
        let Some(carrier) = &mut self.0 else { unreachable!("the carrier leaves with the lease") };
        carrier.armed = true;
        carrier.clean = false;
    }

    /// Whether the connection is fit for another exchange as far as this lease has seen.
    pub fn is_clean(&self) -> bool {
        self.carrier().clean
    }

    /// The core whose shard the connection belongs to.
    pub fn home(&self) -> CoreId {
        let Carrier { shard, home, .. } = self.carrier();
        shard.shared.links[*home].core
    }
}

impl<C: Connector> Drop for Lease<C> {
    #[inline]
    fn drop(&mut self) {
        let Some(carrier) = self.0.take() else { return };
        let shard = Rc::clone(&carrier.shard);
        if carrier.home == shard.index {
            shard.give_back(carrier);
        } else {
            shard.send_home(carrier);
        }
    }
}

impl<C: Connector> fmt::Debug for Lease<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("home", &self.home())
            .field("slot", &self.carrier().slot)
            .field("clean", &self.is_clean())
            .finish_non_exhaustive()
    }
}
