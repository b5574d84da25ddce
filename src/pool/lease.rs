//! The right to use one connection, and the guarded use of it.

use std::fmt;
use std::rc::Rc;

use super::connector::Connector;
use super::error::ExchangeError;
use super::scheduler::SlotId;
use super::shard::Shard;
use crate::runtime::CoreId;

/// One connection, until it is dropped. Made by [`Handle::acquire`](super::Handle::acquire).
///
/// # Drop
/// Gives the connection back: to the next waiter, or to the idle ones. A connection whose last exchange did not end
/// well is closed instead, and only then does its slot become free. Dropping never waits, spawns or fails; it works
/// outside a turn of the core, after the pool was closed, and when its scheduler has failed.
pub struct Lease<C: Connector> {
    shard: Rc<Shard<C>>,
    /// The shard whose slot this is.
    home: usize,
    slot: SlotId,
    connection: Option<C::Connection>,
    /// Whether its receive is still armed from when it was idle.
    armed: bool,
    clean: bool,
}

impl<C: Connector> Lease<C> {
    #[inline]
    pub(super) fn new(
        shard: Rc<Shard<C>>,
        home: usize,
        slot: SlotId,
        connection: C::Connection,
        armed: bool,
    ) -> Lease<C> {
        Lease { shard, home, slot, connection: Some(connection), armed, clean: true }
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
        if !self.clean {
            return Err(ExchangeError::Dirty);
        }
        let Some(connection) = &mut self.connection else {
            unreachable!("the connection leaves with the lease")
        };
        self.armed = false;
        self.clean = false;
        let result = exchange(connection).await;
        self.clean = result.is_ok() && super::Connection::is_quiet(connection);
        result.map_err(ExchangeError::Failed)
    }

    /// Whether the connection is fit for another exchange as far as this lease has seen.
    pub fn is_clean(&self) -> bool {
        self.clean
    }

    /// The core whose shard the connection belongs to.
    pub fn home(&self) -> CoreId {
        self.shard.shared.links[self.home].core
    }
}

impl<C: Connector> Drop for Lease<C> {
    #[inline]
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if self.home == self.shard.index {
            self.shard.give_back(self.slot, connection, self.armed, self.clean);
        } else {
            self.shard.send_home(self.home, self.slot, connection, self.clean);
        }
    }
}

impl<C: Connector> fmt::Debug for Lease<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("home", &self.home())
            .field("slot", &self.slot)
            .field("clean", &self.clean)
            .finish_non_exhaustive()
    }
}
