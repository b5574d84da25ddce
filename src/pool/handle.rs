//! A logical session with a pool, bound to one shard.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::config::Affinity;
use super::connection::Connection;
use super::connector::Connector;
use super::error::AcquireError;
use super::lease::Lease;
use super::pools::Users;
use super::remote::{Answer, Lent, RemoteGrant, Token};
use super::scheduler::{Admission, Asker, Elsewhere, HandleId, Patience, Rules, Shedding, Site, WaiterKey};
use super::shard::Shard;
use crate::runtime::CoreId;

/// A logical session with a pool, on the core that made it, bound to one shard: its affinity. Several acquires of one
/// handle may wait at the same time and are served in their order.
///
/// # Drop
/// Deregisters the handle. The pool ends when its last [`Pool`](super::Pool) and handle are gone.
pub struct Handle<C: Connector> {
    shard: Rc<Shard<C>>,
    home: usize,
    /// An idle connection of this core may be leased without asking anything else.
    plain: bool,
    id: HandleId,
    timeout: Option<Duration>,
    rules: Rules,
    /// Of `timeout`.
    patience: Patience,
    /// What its own shard has nothing for, it offers to another.
    spills: bool,
    _users: Arc<Users<C>>,
}

impl<C: Connector> Handle<C> {
    pub(super) fn new(shard: Rc<Shard<C>>, home: usize, users: Arc<Users<C>>) -> Handle<C> {
        let id = shard.shared.next_handle_id();
        let settings = &shard.shared.settings;
        let (timeout, shedding, affinity) = (settings.acquire_timeout, settings.shedding, settings.affinity);
        let plain = home == shard.index && settings.detect_leaks.is_none();
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
    /// [`AcquireError`] says why there is none.
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
        Acquire { handle: self, stage: Stage::New, site }
    }

    /// As [`acquire`](Handle::acquire), with a time limit of its own.
    #[inline]
    #[track_caller]
    pub fn acquire_within(&self, limit: Duration) -> Acquire<'_, C> {
        Acquire { handle: self, stage: Stage::Within(limit), site: Location::caller() }
    }

    /// Ends every acquire of this handle that waits with [`AcquireError::Deregistered`].
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

// With a tag of its own, and those first that the ways of an acquire without a wait ask about: each question is one
// comparison then.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Stage {
    New,
    /// New, with a time limit of its own.
    Within(Duration),
    Done,
    Waiting(WaiterKey),
    Forwarded(Token),
    /// Offered to another shard.
    Spilled(Token),
    /// Queued after it was declined there, when so much time had gone by.
    Returned(WaiterKey, Duration),
}

/// An acquire under way; made by [`Handle::acquire`].
#[must_use = "an acquire does nothing unless it is awaited"]
pub struct Acquire<'a, C: Connector> {
    handle: &'a Handle<C>,
    stage: Stage,
    site: Site,
}

impl<C: Connector> Acquire<'_, C> {
    /// How many acquires are served before this one, as the queue stands: others may leave it, and under round robin
    /// others may come before. Who is held back by a [limit](Handle::limited) comes after all who are not. `None` when
    /// it does not wait: it was not polled yet, has been decided, or waits at another core, whose queue cannot be seen
    /// from here.
    ///
    /// Takes a step for each of those before it, and under round robin one for each handle that waits.
    pub fn position(&self) -> Option<usize> {
        match self.stage {
            Stage::Waiting(waiter) | Stage::Returned(waiter, _) => self.handle.shard.position(waiter),
            _ => None,
        }
    }

    /// Whatever is not an acquire that an idle connection of this core serves.
    #[inline(never)]
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<Lease<C>, AcquireError>> {
        let (timeout, patience) = match self.stage {
            Stage::Waiting(waiter) => match self.handle.shard.collect(waiter) {
                Some(carrier) => {
                    self.stage = Stage::Done;
                    return Poll::Ready(Ok(Lease::new(carrier)));
                }
                None => return self.proceed(cx),
            },
            Stage::New => (self.handle.timeout, self.handle.patience),
            Stage::Within(limit) => (Some(limit), Patience::of(Some(limit))),
            _ => return self.proceed(cx),
        };
        if !self.handle.shard.local.executor().spend_budget() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.begin(timeout, patience, cx)
    }

    fn begin(
        &mut self,
        timeout: Option<Duration>,
        patience: Patience,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Lease<C>, AcquireError>> {
        let Handle { shard, home, spills, .. } = self.handle;
        let asker = self.asker(patience);
        if *home != shard.index {
            return self.forward(asker, timeout, cx);
        }
        if *spills && let Some(token) = shard.spill(&asker, timeout, cx) {
            self.stage = Stage::Spilled(token);
            return Poll::Pending;
        }
        self.ask_home(&asker, timeout, None, cx)
    }

    fn asker(&self, patience: Patience) -> Asker {
        let Handle { id, rules, .. } = self.handle;
        Asker { handle: *id, site: self.site, patience, rules: *rules }
    }

    /// Asks the shard of this core, after `spent` with another one.
    #[inline(always)]
    fn ask_home(
        &mut self,
        asker: &Asker,
        timeout: Option<Duration>,
        spent: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Lease<C>, AcquireError>> {
        match self.handle.shard.acquire(asker, timeout, cx) {
            Admission::Granted(grant) => {
                debug_assert_eq!(grant.slot, grant.connection.slot, "a carrier knows its slot");
                self.stage = Stage::Done;
                Poll::Ready(Ok(Lease::new(grant.connection)))
            }
            Admission::Queued(waiter) => {
                self.stage = spent.map_or(Stage::Waiting(waiter), |spent| Stage::Returned(waiter, spent));
                Poll::Pending
            }
            Admission::Refused(refusal) => {
                self.stage = Stage::Done;
                Poll::Ready(Err(refusal.into()))
            }
        }
    }

    fn forward(
        &mut self,
        asker: Asker,
        timeout: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Lease<C>, AcquireError>> {
        if !C::Connection::MOVES {
            self.stage = Stage::Done;
            return Poll::Ready(Err(AcquireError::OtherCore));
        }
        let Handle { shard, home, .. } = self.handle;
        match shard.forward(*home, asker, timeout, cx) {
            Ok(token) => {
                self.stage = Stage::Forwarded(token);
                Poll::Pending
            }
            Err(refusal) => {
                self.stage = Stage::Done;
                Poll::Ready(Err(refusal.into()))
            }
        }
    }

    fn proceed(&mut self, cx: &mut Context<'_>) -> Poll<Result<Lease<C>, AcquireError>> {
        let Handle { shard, .. } = self.handle;
        let polled = match self.stage {
            Stage::Waiting(waiter) => shard.poll_waiter(waiter, cx).map_ok(Lease::new),
            Stage::Returned(waiter, spent) => {
                shard.poll_waiter(waiter, cx).map_ok(Lease::new).map_err(|refusal| refusal.after(spent))
            }
            Stage::Forwarded(token) => match shard.poll_forward(token, cx) {
                Poll::Ready(Answer::Granted(grant)) => Poll::Ready(Ok(self.receive(grant))),
                Poll::Ready(Answer::Refused(refusal)) => Poll::Ready(Err(refusal)),
                Poll::Ready(Answer::Declined { .. }) => unreachable!("only what was spilled is declined"),
                Poll::Pending => Poll::Pending,
            },
            Stage::Spilled(token) => match shard.poll_forward(token, cx) {
                Poll::Ready(Answer::Granted(grant)) => {
                    // First, for attaching may panic.
                    self.stage = Stage::Done;
                    shard.count_spill(Elsewhere::Served);
                    Poll::Ready(Ok(self.receive(grant)))
                }
                Poll::Ready(Answer::Refused(refusal)) => {
                    shard.count_spill(Elsewhere::Refused(&refusal));
                    Poll::Ready(Err(refusal))
                }
                Poll::Ready(Answer::Declined { since, timeout }) => {
                    self.stage = Stage::Done;
                    let now = shard.local.now();
                    let spent = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
                    let left = timeout.map(|limit| limit.saturating_sub(spent));
                    return self.ask_home(&self.asker(Patience::of(left)), left, Some(spent), cx);
                }
                Poll::Pending => Poll::Pending,
            },
            Stage::New | Stage::Within(_) | Stage::Done => panic!("an acquire was polled after its end"),
        };
        if polled.is_ready() {
            self.stage = Stage::Done;
        }
        polled.map_err(AcquireError::from)
    }

    // Apart, so that dropping an acquire that has ended is a comparison.
    #[cold]
    #[inline(never)]
    fn give_up(&mut self) {
        match self.stage {
            Stage::New | Stage::Within(_) | Stage::Done => {}
            Stage::Waiting(waiter) | Stage::Returned(waiter, _) => self.handle.shard.cancel_waiter(waiter),
            Stage::Forwarded(token) => self.handle.shard.cancel_forward(token),
            Stage::Spilled(token) => {
                self.handle.shard.cancel_forward(token);
                self.handle.shard.count_spill(Elsewhere::Cancelled);
            }
        }
    }

    /// A connection has come from another core.
    fn receive(&self, grant: RemoteGrant<Lent<C>>) -> Lease<C> {
        let Handle { shard, .. } = self.handle;
        let Lent { connection, loan } = grant.connection;
        let connection = C::Connection::attach(connection);
        // From here on the lease sends it home.
        shard.keep_reference(loan.settled());
        Lease::new(shard.load(grant.home, grant.slot, connection))
    }
}

impl<C: Connector> Future for Acquire<'_, C> {
    type Output = Result<Lease<C>, AcquireError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Handle { shard, plain, .. } = self.handle;
        if matches!(self.stage, Stage::New | Stage::Within(_))
            && *plain
            && shard.local.executor().spend_budget()
            && let Some(carrier) = shard.acquire_idle()
        {
            self.stage = Stage::Done;
            return Poll::Ready(Ok(Lease::new(carrier)));
        }
        self.advance(cx)
    }
}

impl<C: Connector> Drop for Acquire<'_, C> {
    #[inline(always)]
    fn drop(&mut self) {
        if !matches!(self.stage, Stage::New | Stage::Within(_) | Stage::Done) {
            self.give_up();
        }
    }
}
