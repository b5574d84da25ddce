//! A pool as its users on every thread see it.

use std::fmt;
use std::future::poll_fn;
use std::hash::{BuildHasher, BuildHasherDefault, Hash};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;
use rustc_hash::FxHasher;

use super::config::{PoolBuilder, Settings, check_slots};
use super::connector::Connector;
use super::error::{AcquireError, BuildError};
use super::handle::Handle;
use super::lease::Lease;
use super::ledger::UNLIMITED;
use super::remote::Command;
use super::scheduler::{Lifecycle, Refusal};
use super::shard::Shard;
use super::shared::{Refresh, Shared};
use super::stats::{OutstandingLease, PoolStats};
use crate::runtime::local::Local;
use crate::runtime::mesh::Mail;
use crate::runtime::{CoreId, Elapsed, RuntimeHandle, UnknownCore, context, timeout};

/// Connections to one upstream, in one shard per core. Cheap to clone; used from the cores of its runtime.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use corelet::pool::{Fairness, Pool, TcpConnector};
///
/// # use corelet::runtime::{Cores, Runtime, handle};
/// # let server = std::net::TcpListener::bind(("127.0.0.1", 0))?;
/// # let address = server.local_addr()?;
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// # runtime.block_on(move || async move {
/// let pool = Pool::builder(TcpConnector::new(address))
///     .slots_per_core(2)
///     .max_waiters(100)
///     .fairness(Fairness::RoundRobin)
///     .acquire_timeout(Duration::from_millis(500))
///     .build(&handle())?;
///
/// let lease = pool.acquire().await?;
/// assert!(lease.is_clean());
/// drop(lease);
///
/// let stats = pool.stats().await;
/// assert_eq!((stats.sum(|shard| shard.acquires), stats.sum(|shard| shard.opens)), (1, 1));
/// pool.close().await;
/// assert!(pool.acquire().await.is_err());
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// # })?.unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
/// # Drop
/// When the last pool and [`Handle`] are gone, every shard closes its connections and its actor ends; leases that are
/// still out stay usable until they are dropped.
pub struct Pool<C: Connector> {
    shared: Arc<Shared<C>>,
    users: Arc<Users<C>>,
}

/// Closes the pool when the last of its users is gone.
pub(super) struct Users<C: Connector>(Arc<Shared<C>>);

impl<C: Connector> Drop for Users<C> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The order to make a shard. Dropped where nobody carries it out, on a core that ends or is never started, it has the
/// shard count as ended.
struct Installation<C: Connector> {
    shared: Arc<Shared<C>>,
    shard: usize,
}

impl<C: Connector> Drop for Installation<C> {
    fn drop(&mut self) {
        // Whoever made the shard has taken its inbox.
        if let Some(inbox) = self.shared.take_inbox(self.shard) {
            drop(inbox);
            self.shared.publish(self.shard, Lifecycle::Closed);
            self.shared.actor_ended(self.shard, self.shared.last_stats(self.shard), 0);
        }
    }
}

impl<C: Connector> Pool<C> {
    /// The settings to start from.
    pub fn builder(connector: C) -> PoolBuilder<C> {
        PoolBuilder::new(connector)
    }

    pub(super) fn start(
        connector: C,
        settings: Settings,
        runtime: &RuntimeHandle,
    ) -> Result<Pool<C>, BuildError> {
        let shared = Shared::new(connector, settings, runtime);
        let users = Arc::new(Users(Arc::clone(&shared)));
        shared.connector.attached(Refresh::of(&shared));
        #[cfg(feature = "observer")]
        super::watched::register(&shared);
        for (shard, mailbox) in runtime.mailboxes().iter().enumerate() {
            let order = Installation { shared: Arc::clone(&shared), shard };
            let install = Mail::Run(Box::new(move || {
                Shard::of(&context::current(), &order.shared);
            }));
            mailbox.send(install).map_err(|_| BuildError::CoreEnded { core: mailbox.core() })?;
        }
        Ok(Pool { shared, users })
    }

    /// A handle bound to the shard of the current core.
    ///
    /// # Panics
    /// When not called on a core of the pool's runtime.
    #[track_caller]
    pub fn handle(&self) -> Handle<C> {
        let shard = self.shard_here();
        let home = shard.index;
        Handle::new(shard, home, Arc::clone(&self.users))
    }

    /// A handle bound to the shard of `core`, for use on the current core. When that is another one, its acquires are
    /// forwarded there, and the connections it leases come over for the length of the lease; those of a pool whose
    /// connections do not [move](super::Connection::MOVES) are refused.
    ///
    /// # Errors
    /// [`UnknownCore`] when `core` is not of the pool's runtime.
    ///
    /// # Panics
    /// When not called on a core of the pool's runtime.
    #[track_caller]
    pub fn handle_on(&self, core: CoreId) -> Result<Handle<C>, UnknownCore> {
        let home = self.shared.shard_on(core).ok_or(UnknownCore { core })?;
        Ok(Handle::new(self.shard_here(), home, Arc::clone(&self.users)))
    }

    /// A handle bound to the shard that `key` hashes to, the same for equal keys on every core.
    ///
    /// # Panics
    /// When not called on a core of the pool's runtime.
    #[track_caller]
    pub fn handle_for<K: Hash + ?Sized>(&self, key: &K) -> Handle<C> {
        let hash = BuildHasherDefault::<FxHasher>::default().hash_one(key);
        let home = (hash % self.shared.links.len() as u64) as usize;
        Handle::new(self.shard_here(), home, Arc::clone(&self.users))
    }

    /// Leases a connection of the current core's shard by a handle of its own.
    ///
    /// # Errors
    /// [`AcquireError`] says why there is none.
    ///
    /// # Cancel safety
    /// As for [`Handle::acquire`].
    ///
    /// # Panics
    /// When not called on a core of the pool's runtime.
    #[track_caller]
    pub fn acquire(&self) -> impl Future<Output = Result<Lease<C>, AcquireError>> {
        let site = Location::caller();
        async move {
            let handle = self.handle();
            handle.acquire_from(site).await
        }
    }

    #[cfg(feature = "framed")]
    pub(super) fn connector(&self) -> &C {
        &self.shared.connector
    }

    #[track_caller]
    fn shard_here(&self) -> std::rc::Rc<Shard<C>> {
        let here: std::rc::Rc<Local> = context::current();
        match Shard::of(&here, &self.shared) {
            Some(shard) => shard,
            None => panic!("core {} is not of the runtime that this pool was built for", here.id()),
        }
    }

    /// The pool's id, unique in the process.
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// Closes the pool: every acquire that waits, and every later one, gets [`AcquireError::Closed`]; idle connections
    /// are closed. Done when every shard's actor has ended. Leases that are out stay usable until they are dropped.
    ///
    /// # Cancel safety
    /// The pool closes also when the future is dropped.
    pub async fn close(&self) {
        self.shared.close();
        poll_fn(|cx| self.shared.poll_ended(false, cx)).await;
        self.shared.connector.close().await;
    }

    /// As [`close`](Pool::close), and waits until all leases are dropped too, for at most `limit` in all.
    ///
    /// # Errors
    /// [`Elapsed`] when leases were still out.
    ///
    /// # Cancel safety
    /// The pool closes also when the future is dropped.
    ///
    /// # Panics
    /// When not called on a core.
    pub async fn drain(&self, limit: Duration) -> Result<(), Elapsed> {
        self.shared.close();
        let end = async {
            poll_fn(|cx| self.shared.poll_ended(true, cx)).await;
            self.shared.connector.close().await;
        };
        timeout(limit, end).await
    }

    /// Changes [`max_connections`](PoolBuilder::max_connections). When there are more connections than that, idle ones
    /// are closed, and others as their leases end; from now on their number does not rise before it is below the new
    /// limit.
    ///
    /// # Errors
    /// [`BuildError::InvalidSetting`] for a limit out of range.
    pub fn set_max_connections(&self, limit: usize) -> Result<(), BuildError> {
        if !(1..=UNLIMITED).contains(&limit) {
            let (what, expected) = ("max_connections", "1 to 1,073,741,824");
            return Err(BuildError::InvalidSetting { what, expected, got: limit });
        }
        self.shared.set_max_connections(limit);
        Ok(())
    }

    /// Gives every core so many slots from its next turn on (1 to 65,536). Where that is more, waiters are served from
    /// them at once. Where it is fewer, vacant slots go first, then the connections that were idle for longest; what is
    /// leased beyond that is closed when its lease ends, and no lease is broken.
    ///
    /// # Errors
    /// [`BuildError::InvalidSetting`] for a number out of range.
    pub fn resize(&self, slots_per_core: usize) -> Result<(), BuildError> {
        check_slots(slots_per_core)?;
        self.shared.resize(slots_per_core);
        Ok(())
    }

    /// Has every core ask the connector which of its connections are still [current](Connector::is_current). Of those
    /// that are not, the idle ones are closed, and leased ones when their lease ends.
    pub fn refresh(&self) {
        self.shared.refresh();
    }

    /// Opens connections on every core until each has [`min_idle`](PoolBuilder::min_idle) of them. The pool does so by
    /// itself as well; this says when it is done, or why it is not.
    ///
    /// # Errors
    /// The first connect error of any shard, as [`AcquireError::Connect`]; the pool goes on trying.
    /// [`AcquireError::Closed`] or [`AcquireError::SchedulerFailed`] when a shard has ended.
    ///
    /// # Cancel safety
    /// Cancel safe; connections are opened all the same.
    ///
    /// # Examples
    /// ```
    /// use corelet::pool::{Pool, TcpConnector};
    ///
    /// # use corelet::runtime::{Cores, Runtime, handle};
    /// # let server = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    /// # let address = server.local_addr()?;
    /// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
    /// # runtime.block_on(move || async move {
    /// let pool = Pool::builder(TcpConnector::new(address)).slots_per_core(4).min_idle(2).build(&handle())?;
    /// pool.prewarm().await?;
    /// assert!(pool.stats().await.shards.iter().all(|shard| shard.idle >= 2));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # })?.unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn prewarm(&self) -> Result<(), AcquireError> {
        let mut answers = Vec::new();
        for shard in 0..self.shared.links.len() {
            let (reply, answer) = oneshot::channel();
            self.shared.send(shard, Command::Prewarm { reply });
            answers.push(answer);
        }
        for (shard, answer) in answers.into_iter().enumerate() {
            match answer.await {
                Ok(warm) => warm.map_err(|source| AcquireError::Connect { source })?,
                Err(_) => return Err(self.shared.refusal(shard).unwrap_or(Refusal::Closed).into()),
            }
        }
        Ok(())
    }

    /// Whether the pool was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closing()
    }

    /// The leases that are out, and where in the program they were acquired: shard by shard, as each says at its next
    /// turn. Only pools that [detect leaks](PoolBuilder::detect_leaks) know them; for others, and for shards that have
    /// ended, there are none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn leases(&self) -> Vec<OutstandingLease> {
        let mut answers = Vec::new();
        for shard in 0..self.shared.links.len() {
            let (reply, answer) = oneshot::channel();
            self.shared.send(shard, Command::Leases { reply });
            answers.push(answer);
        }
        let mut leases = Vec::new();
        for answer in answers {
            leases.extend(answer.await.unwrap_or_default());
        }
        leases
    }

    /// What each shard has done and holds, as each says at its next turn; of an ended one, its last counts, with the
    /// leases that are still out now. The figures of one shard agree with each other; those of different shards are taken
    /// at slightly different times.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn stats(&self) -> PoolStats {
        self.shared.stats().await
    }
}

impl<C: Connector> Clone for Pool<C> {
    fn clone(&self) -> Pool<C> {
        Pool { shared: Arc::clone(&self.shared), users: Arc::clone(&self.users) }
    }
}

impl<C: Connector> fmt::Debug for Pool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("id", &self.id())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
