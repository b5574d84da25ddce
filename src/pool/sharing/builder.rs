//! How shared pools are built: one builder makes both pools.

use std::marker::PhantomData;
use std::ops::DerefMut;
use std::time::Duration;

use tokio_util::codec::Decoder;

use super::gate::Gated;
use super::pipeline::{ById, InOrder, Matching, Pipelined, Settings};
use crate::net::Stream;
use crate::pool::config::{Affinity, PoolBuilder};
use crate::pool::connection::Connection;
use crate::pool::connector::Connector;
use crate::pool::error::BuildError;
use crate::pool::framed::{Correlated, FramedConnection};
use crate::pool::ledger::UNLIMITED;
use crate::pool::pools::Pool;
use crate::runtime::RuntimeHandle;

/// Leases one shard may give at most, whatever sockets they are on.
const MAX_SESSIONS: usize = 1 << 16;

impl<C: Connector> PoolBuilder<C> {
    /// Has up to `leases` leases share each socket (1 to 65,536, and at most 65,536 in all on each core). A shard gives
    /// up to slots times `leases` of them, and opens another socket only when all seats on the others are taken.
    ///
    /// - About sockets are then [`slots_per_core`](PoolBuilder::slots_per_core),
    ///   [`max_connections`](PoolBuilder::max_connections), [`max_lifetime`](PoolBuilder::max_lifetime), at the end of
    ///   which a socket is leased to nobody new, and the settings of connects. A socket with a session on it is not idle,
    ///   whatever the session does. Where another core goes without any socket, or has less than its share, one is given
    ///   up all the same: its sessions are leased to nobody new, and it goes when their present leases have ended.
    /// - About leases are those of acquires, and [`min_idle`](PoolBuilder::min_idle).
    ///   [`idle_timeout`](PoolBuilder::idle_timeout) is about either: a session that was idle for so long gives up its
    ///   seat, and a socket that had no session for as long is closed.
    ///
    /// Leases and their sockets stay on their core, whatever [`affinity`](PoolBuilder::affinity) says. An acquire by a handle of another core is refused with
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

    /// Has the leases of a socket use it at the same time: their requests go out back to back, and the replies come in
    /// the order of the requests.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use corelet::pool::{FramedConnector, Pool, TcpConnector};
    /// use corelet::runtime::{spawn, timeout};
    /// use tokio_util::codec::LinesCodec;
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
    /// // One socket for 64 leases, to a server that sends back what it gets.
    /// let connector = FramedConnector::new(TcpConnector::new(address), LinesCodec::new);
    /// let pool = Pool::builder(connector)
    ///     .slots_per_core(1)
    ///     .leases_per_slot(64)
    ///     .pipelined()
    ///     .reply_timeout(Duration::from_secs(1))
    ///     .build(&handle())?;
    ///
    /// let callers: Vec<_> = (0..64)
    ///     .map(|number| {
    ///         let pool = pool.clone();
    ///         spawn(async move {
    ///             let mut lease = pool.acquire().await.unwrap();
    ///             let request = format!("request {number}");
    ///             assert_eq!(lease.call(&request).await.unwrap(), request);
    ///         })
    ///     })
    ///     .collect();
    /// for caller in callers {
    ///     caller.await?;
    /// }
    ///
    /// // A caller that gives up harms nobody, not even its own lease.
    /// let mut lease = pool.acquire().await?;
    /// let _ = timeout(Duration::ZERO, lease.call("given up")).await;
    /// assert_eq!(lease.call("the next").await?, "the next");
    /// drop(lease);
    /// assert_eq!(pool.sockets().stats().await.sum(|shard| shard.opens), 1);
    /// pool.close().await;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # })?.unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pipelined(self) -> PipelinedBuilder<C, InOrder> {
        PipelinedBuilder::new(self)
    }

    /// As [`pipelined`](SharedBuilder::pipelined), for replies that come in any order and carry the id of their request.
    pub fn pipelined_by_id<S, K>(self) -> PipelinedBuilder<C, ById<<K::Item as Correlated>::Id>>
    where
        C: Connector<Connection = FramedConnection<S, K>>,
        K: Decoder<Item: Correlated>,
    {
        PipelinedBuilder::new(self)
    }

    /// Makes the lower pool, and on top of it one of what `share` makes of it.
    fn stack<U: Connector>(
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
        // These are about sockets, and the lower pool's.
        settings.max_connections = UNLIMITED;
        settings.keep.max_lifetime = None;
        settings.keep.check_interval = None;
        // Sessions that begin together wait for the same socket.
        settings.max_connecting = settings.max_connecting.saturating_mul(leases);
        // A session may wait for a socket to be closed before another is opened, each in its own time.
        settings.connect_timeout = settings.connect_timeout.saturating_mul(2);
        let PoolBuilder { connector, settings: mut below } = builder;
        // A socket stays where it is used, for as long as it is.
        below.affinity = Affinity::Local;
        below.detect_leaks = None;
        below.keep.min_idle = 0;
        // Those who wait for one are bounded, limited in time and judged by the pool of sessions.
        below.max_waiters = MAX_SESSIONS;
        below.acquire_timeout = None;
        below.service_time = None;
        below.shedding = None;
        below.warn_slow_acquires = None;
        let sockets = PoolBuilder { connector, settings: below }.build(runtime)?;
        PoolBuilder { connector: share(sockets, leases), settings }.build(runtime)
    }
}

/// Settings of a pool whose leases use their sockets at the same time. Made by [`SharedBuilder::pipelined`] and
/// [`SharedBuilder::pipelined_by_id`]; `M` is how replies find their requests.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct PipelinedBuilder<C, M> {
    shared: SharedBuilder<C>,
    max_outstanding: usize,
    max_unsent_bytes: usize,
    reply_timeout: Option<Duration>,
    matching: PhantomData<fn() -> M>,
}

impl<C, M> PipelinedBuilder<C, M> {
    fn new(shared: SharedBuilder<C>) -> PipelinedBuilder<C, M> {
        PipelinedBuilder {
            shared,
            max_outstanding: 1024,
            max_unsent_bytes: 256 * 1024,
            reply_timeout: None,
            matching: PhantomData,
        }
    }

    /// Fails a socket, with all requests that are on it, when its oldest reply has not come for so long. No limit by
    /// default: then only the callers' own time limits end the wait for a peer that does not answer, and their requests
    /// stay on the socket.
    pub fn reply_timeout(mut self, limit: Duration) -> Self {
        self.reply_timeout = Some(limit);
        self
    }

    /// Requests without their reply that one socket may have, those whose callers have given up included (1 to
    /// 16,777,216; 1,024 by default). Further calls wait, first come first served.
    pub fn max_outstanding(mut self, requests: usize) -> Self {
        self.max_outstanding = requests;
        self
    }

    /// Bytes that may wait to be sent on one socket before further calls wait (at least 1; 262,144 by default). The
    /// request that reaches the limit may exceed it.
    pub fn max_unsent_bytes(mut self, bytes: usize) -> Self {
        self.max_unsent_bytes = bytes;
        self
    }

    /// Makes both pools.
    ///
    /// # Errors
    /// [`BuildError`] for a setting out of range, or a runtime that has ended.
    pub fn build<S, K>(self, runtime: &RuntimeHandle) -> Result<Pool<Pipelined<C, M>>, BuildError>
    where
        C: Connector<Connection = FramedConnection<S, K>>,
        S: Connection + DerefMut<Target = Stream>,
        K: Decoder + Send + 'static,
        M: Matching<K::Item>,
    {
        let PipelinedBuilder { shared, max_outstanding, max_unsent_bytes, reply_timeout, .. } = self;
        let ranges = [
            ("max_outstanding", max_outstanding, 1 << 24, "1 to 16,777,216"),
            ("max_unsent_bytes", max_unsent_bytes, usize::MAX, "at least 1"),
        ];
        for (what, got, most, expected) in ranges {
            if !(1..=most).contains(&got) {
                return Err(BuildError::InvalidSetting { what, expected, got });
            }
        }
        shared.stack(runtime, |sockets, sessions| {
            let settings = Settings { sessions, max_outstanding, max_unsent_bytes, reply_timeout };
            Pipelined::new(sockets, settings)
        })
    }
}
