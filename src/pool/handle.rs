//! A logical session with a pool, bound to one shard.

use std::fmt;
use std::num::NonZeroU32;
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::Acquire;
use super::config::Affinity;
use super::connection::Connection;
use super::connector::Connector;
use super::pools::Users;
use super::scheduler::{HandleId, Patience, Rules, Shedding, Site};
use super::shard::Shard;
use crate::runtime::CoreId;

/// A logical session with a pool, on the core that made it, bound to one shard: its affinity. Several acquires of one
/// handle may wait at the same time and are served in their order.
///
/// # Drop
/// Deregisters the handle. The pool ends when its last [`Pool`](super::Pool) and handle are gone.
pub struct Handle<C: Connector> {
    pub(super) shard: Rc<Shard<C>>,
    pub(super) home: usize,
    /// An idle connection of this core may be leased without asking anything else.
    pub(super) plain: bool,
    pub(super) id: HandleId,
    pub(super) timeout: Option<Duration>,
    pub(super) rules: Rules,
    /// Of `timeout`.
    pub(super) patience: Patience,
    /// What its own shard has nothing for, it offers to another.
    pub(super) spills: bool,
    _users: Arc<Users<C>>,
}

impl<C: Connector> Handle<C> {
    pub(super) fn new(shard: Rc<Shard<C>>, home: usize, users: Arc<Users<C>>) -> Handle<C> {
        let id = shard.shared.next_handle_id();
        let settings = &shard.shared.settings;
        let (timeout, shedding, affinity) = (settings.acquire_timeout, settings.shedding, settings.affinity);
        let plain = home == shard.index;
        let (rules, patience) = (Rules { limit: None, shedding }, Patience::of(timeout));
        let spills = false;
        let handle = Handle { shard, home, plain, id, timeout, rules, patience, spills, _users: users };
        handle.with_affinity(affinity)
    }

    /// Limits this handle to so many leases at the same time (at least 1). A further acquire waits until one of them
    /// ends, while others are served; then it goes to the end of the queue, or takes its handle's next turn. Its
    /// deadline counts from the start, and so does its place in the bound of the queue. Acquires of the handle are
    /// served in their order.
    ///
    /// Leases that the handle has already are not counted. A handle with a limit does not
    /// [spill](super::Affinity::Spill).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use corelet::pool::{AcquireError, Pool, Stage, TcpConnector};
    ///
    /// # use corelet::runtime::{Cores, Runtime, handle};
    /// # let server = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    /// # let address = server.local_addr()?;
    /// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
    /// # runtime.block_on(move || async move {
    /// let pool = Pool::builder(TcpConnector::new(address)).slots_per_core(2).build(&handle())?;
    /// let tenant = pool.handle().limited(1);
    /// let lease = tenant.acquire().await?;
    ///
    /// // There is another slot, but not for this tenant.
    /// let second = tenant.acquire_within(Duration::from_millis(2)).await;
    /// assert!(matches!(second, Err(AcquireError::Timeout { stage: Stage::Limited, .. })));
    /// assert!(pool.acquire().await.is_ok());
    ///
    /// drop(lease);
    /// assert!(tenant.acquire().await.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # })?.unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn limited(mut self, leases: usize) -> Handle<C> {
        let leases = u32::try_from(leases).unwrap_or(u32::MAX);
        self.rules.limit = Some(NonZeroU32::new(leases).unwrap_or(NonZeroU32::MIN));
        self.plain = false;
        // What another shard serves, this one could not count.
        self.spills = false;
        self
    }

    /// Sheds acquires of this handle when they do not get served in time, as
    /// [`PoolBuilder::shed`](super::PoolBuilder::shed) does for all handles.
    #[must_use]
    pub fn shedding(mut self, target: Duration, interval: Duration) -> Handle<C> {
        self.rules.shedding = Some(Shedding::new(target, interval));
        self
    }

    /// The handle's id, unique in the pool; it is what events and the log call it by.
    pub fn id(&self) -> u64 {
        self.id.0
    }

    /// Has acquires of this handle served where `affinity` says, instead of where the pool's setting does.
    ///
    /// # Examples
    /// ```
    /// use corelet::pool::{Affinity, Pool, TcpConnector};
    ///
    /// # use corelet::runtime::{Cores, Runtime, handle};
    /// # let server = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    /// # let address = server.local_addr()?;
    /// # let runtime = Runtime::builder().cores(Cores::Count(2)).pinned(false).build()?;
    /// # runtime.block_on(move || async move {
    /// let pool = Pool::builder(TcpConnector::new(address)).slots_per_core(1).build(&handle())?;
    /// let other = handle().cores()[1];
    /// drop(pool.handle_on(other)?.acquire().await?);
    ///
    /// // Its own core's only connection is taken, and the other core's is idle.
    /// let session = pool.handle().with_affinity(Affinity::Spill);
    /// let near = session.acquire().await?;
    /// let far = session.acquire().await?;
    /// # drop((near, far));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # })?.unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the handle is given back"]
    pub fn with_affinity(mut self, affinity: Affinity) -> Handle<C> {
        let shared = &self.shard.shared;
        self.spills = affinity == Affinity::Spill
            && self.rules.limit.is_none()
            && self.home == self.shard.index
            && shared.links.len() > 1
            && C::Connection::MOVES;
        if self.spills {
            shared.want_hints();
        }
        self
    }

    /// Leases a connection of the home shard, within the pool's acquire time-out.
    ///
    /// # Errors
    /// [`AcquireError`](super::AcquireError) says why there is none.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue, or a connection that was already granted, at once.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use corelet::pool::{AcquireError, Pool, TcpConnector};
    ///
    /// # use corelet::runtime::{Cores, Runtime, handle};
    /// # let server = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    /// # let address = server.local_addr()?;
    /// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
    /// # runtime.block_on(move || async move {
    /// let pool = Pool::builder(TcpConnector::new(address)).slots_per_core(1).build(&handle())?;
    /// let session = pool.handle();
    /// let lease = session.acquire().await?;
    ///
    /// // The only slot is taken.
    /// let late = session.acquire_within(Duration::from_millis(2)).await;
    /// assert!(matches!(late, Err(AcquireError::Timeout { .. })));
    ///
    /// drop(lease);
    /// assert!(session.acquire().await.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # })?.unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn acquire(&self) -> Acquire<'_, C> {
        self.acquire_from(Location::caller())
    }

    #[inline]
    pub(super) fn acquire_from(&self, site: Site) -> Acquire<'_, C> {
        Acquire::new(self, None, site)
    }

    /// As [`acquire`](Handle::acquire), with a time limit of its own.
    #[inline]
    #[track_caller]
    pub fn acquire_within(&self, limit: Duration) -> Acquire<'_, C> {
        Acquire::new(self, Some(limit), Location::caller())
    }

    /// Ends every acquire of this handle that waits with
    /// [`AcquireError::Deregistered`](super::AcquireError::Deregistered).
    pub fn deregister(&self) {
        self.shard.deregister(self.home, self.id);
    }

    /// The core whose shard the handle is bound to.
    pub fn home(&self) -> CoreId {
        self.shard.shared.links[self.home].core
    }
}

impl<C: Connector> Drop for Handle<C> {
    fn drop(&mut self) {
        self.deregister();
    }
}

impl<C: Connector> fmt::Debug for Handle<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("id", &self.id.0).field("home", &self.home()).finish_non_exhaustive()
    }
}
