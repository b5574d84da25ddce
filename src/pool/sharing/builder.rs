//! How shared pools are built: one builder makes both pools.

use super::gate::Gated;
use crate::pool::config::PoolBuilder;
use crate::pool::connector::Connector;
use crate::pool::error::BuildError;
use crate::pool::pools::Pool;
use crate::runtime::RuntimeHandle;

/// Leases one shard may give at most, whatever sockets they are on.
const MAX_SESSIONS: usize = 1 << 16;

impl<C: Connector> PoolBuilder<C> {
    /// Has up to `leases` leases share each socket (1 to 65,536, and at most 65,536 in all on each core). The slots are
    /// then sockets, and all other settings of acquires are about leases: a shard gives up to slots times `leases` of
    /// them, in the order and under the bounds that were set, and opens another socket only when all seats on the others
    /// are taken.
    ///
    /// Leases and their sockets stay on their core. An acquire by a handle of another core is refused with
    /// [`AcquireError::OtherCore`](crate::pool::AcquireError::OtherCore).
    pub fn leases_per_slot(self, leases: usize) -> SharedBuilder<C> {
        SharedBuilder { builder: self, leases }
    }
}

/// Settings of a pool whose leases share sockets. Made by [`PoolBuilder::leases_per_slot`].
///
/// # Examples
/// Two sockets on each core, each of them for up to eight leases that take turns:
///
/// ```
/// use corelet::pool::{Pool, TcpConnector};
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
/// let pool = Pool::builder(TcpConnector::new(address)).slots_per_core(2).leases_per_slot(8).build(&handle())?;
/// let mut first = pool.acquire().await?;
/// let mut second = pool.acquire().await?;
/// for lease in [&mut first, &mut second] {
///     let reply = lease
///         .exchange_in_turn(async |stream| {
///             stream.write_all("ping").await.0?;
///             let (result, reply) = stream.read_exact(Vec::with_capacity(4), 4).await;
///             result.map(|()| reply)
///         })
///         .await?;
///     assert_eq!(reply, b"ping");
/// }
/// // Both on one socket.
/// assert_eq!(pool.sockets().stats().await.sum(|shard| shard.opens), 1);
/// drop((first, second));
/// pool.close().await;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// # })?.unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct SharedBuilder<C> {
    builder: PoolBuilder<C>,
    leases: usize,
}

impl<C: Connector> SharedBuilder<C> {
    /// Makes both pools, whose leases take turns on their sockets: each exchange is alone on its socket. It suits any
    /// protocol.
    ///
    /// # Errors
    /// [`BuildError`] for a setting out of range, or a runtime that has ended.
    pub fn build(self, runtime: &RuntimeHandle) -> Result<Pool<Gated<C>>, BuildError> {
        self.stack(runtime, Gated::new)
    }

    /// Makes the lower pool, and on top of it one of what `share` makes of it.
    pub(super) fn stack<U: Connector>(
        self,
        runtime: &RuntimeHandle,
        share: impl FnOnce(Pool<C>, usize) -> U,
    ) -> Result<Pool<U>, BuildError> {
        let SharedBuilder { builder, leases } = self;
        let sessions = builder.settings.slots.saturating_mul(leases);
        for (what, got) in [("leases_per_slot", leases), ("slots_per_core times leases_per_slot", sessions)] {
            if !(1..=MAX_SESSIONS).contains(&got) {
                return Err(BuildError::InvalidSetting { what, expected: "1 to 65,536", got });
            }
        }
        let mut settings = builder.settings.clone();
        settings.slots = sessions;
        // Sessions that begin together wait for the same socket.
        settings.max_connecting = settings.max_connecting.saturating_mul(leases);
        // A session may wait for a socket to be closed before another is opened, each in its own time.
        settings.connect_timeout = settings.connect_timeout.saturating_mul(2);
        let sockets = builder.no_acquire_timeout().max_waiters(MAX_SESSIONS).build(runtime)?;
        PoolBuilder { connector: share(sockets, leases), settings }.build(runtime)
    }
}
