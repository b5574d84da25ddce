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
