//! Sessions that take turns on a socket: each exchange is alone on it.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::error::TurnError;
use super::line::Line;
use super::members::Members;
use super::sockets::{Seat, Socket, Sockets};
use super::{closed_pool, open_lease};
use crate::pool::connection::Connection;
use crate::pool::connector::Connector;
use crate::pool::error::ExchangeError;
use crate::pool::framed::Call;
use crate::pool::lease::Lease;
use crate::pool::pools::Pool;
use crate::runtime::local::Local;
use crate::runtime::watch::WatchList;
use crate::runtime::{RawPid, Watch, context};

/// Opens sessions that take turns on the sockets of a pool below; see
/// [`leases_per_slot`](crate::pool::PoolBuilder::leases_per_slot).
pub struct Gated<C: Connector> {
    sockets: Pool<C>,
    sessions: usize,
}

impl<C: Connector> Gated<C> {
    pub(super) fn new(sockets: Pool<C>, sessions: usize) -> Gated<C> {
        Gated { sockets, sessions }
    }
}

impl<C: Connector> Connector for Gated<C> {
    type Connection = GatedSession<C>;

    async fn connect(&self) -> io::Result<GatedSession<C>> {
        let sockets = Sockets::of_pool(self.sockets.id());
        let open = async |local: &Rc<Local>| {
            let lease = open_lease(&self.sockets).await?;
            Ok(Gate::open(local, lease, self.sessions))
        };
        sockets.take_seat(self.sessions, open).await.map(|seat| GatedSession { seat })
    }

    async fn close(&self) {
        closed_pool(&self.sockets).await;
    }
}

impl<C: Connector> fmt::Debug for Gated<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gated")
            .field("sockets", &self.sockets)
            .field("sessions", &self.sessions)
            .finish_non_exhaustive()
    }
}

impl<C: Connector> Pool<Gated<C>> {
    /// The pool of the sockets that this pool's leases share: for its statistics, and to resize or refresh it.
    pub fn sockets(&self) -> &Pool<C> {
        &self.connector().sockets
    }
}

/// What the watcher is told: something has arrived on the idle socket.
const ARRIVED: u64 = 0;
/// The lower pool would have the socket back.
const LAST: u64 = 1;

/// One socket and those who want to use it.
struct Gate<C: Connector> {
    members: Members,
    /// There while nobody has the turn.
    lease: RefCell<Option<Lease<C>>>,
    /// Somebody has the turn, or has been granted it.
    taken: Cell<bool>,
    line: RefCell<Line>,
    watch: Rc<WatchList>,
    watcher: Cell<Option<RawPid>>,
}

impl<C: Connector> Gate<C> {
    fn open(local: &Rc<Local>, lease: Lease<C>, sessions: usize) -> Rc<Gate<C>> {
        let gate = Rc::new(Gate {
            members: Members::new(sessions),
            lease: RefCell::new(None),
            taken: Cell::new(false),
            line: RefCell::new(Line::new()),
            watch: WatchList::new(),
            watcher: Cell::new(None),
        });
        let watched = Rc::clone(&gate);
        let mut fired = Vec::new();
        let watcher = poll_fn(move |_| {
            watched.watch.take_fired(&mut fired);
            for token in fired.drain(..) {
                match token {
                    LAST => watched.members.wind_up(),
                    _ => watched.look(),
                }
            }
            if watched.members.is_closed() { Poll::Ready(()) } else { Poll::Pending }
        });
        let watcher = local.executor().spawn(watcher).pid();
        gate.watcher.set(Some(watcher));
        gate.watch.set_task(watcher);
        lease.hold(gate.watch.watch(LAST));
        gate.rest(lease);
        gate
    }

    /// The socket is idle: it is watched.
    fn rest(&self, mut lease: Lease<C>) {
        lease.watch(self.watch.watch(ARRIVED));
        *self.lease.borrow_mut() = Some(lease);
        if context::try_current().is_none() {
            // What was armed is to be submitted.
            self.wake_watcher();
        }
    }

    fn wake_watcher(&self) {
        if let Some(watcher) = self.watcher.get() {
            context::wake(watcher.into());
        }
    }

    /// Something has arrived, perhaps while the socket was idle.
    fn look(&self) {
        let broken = self.lease.borrow_mut().take_if(|lease| !lease.is_quiet());
        if let Some(mut lease) = broken {
            lease.mark_broken();
            self.condemn(lease);
        }
    }

    /// The socket is not used again.
    fn condemn(&self, lease: Lease<C>) {
        self.members.close();
        self.wake_watcher();
        while let Some(waker) = self.refuse_next() {
            waker.wake();
        }
        drop(lease);
    }

    fn refuse_next(&self) -> Option<std::task::Waker> {
        self.line.borrow_mut().refuse_next()
    }

    /// Takes the turn when its time has come, unless the socket broke meanwhile.
    fn begin(&self) -> Option<Turn<'_, C>> {
        self.look();
        let lease = self.lease.borrow_mut().take()?;
        Some(Turn { gate: self, lease: Some(lease) })
    }

    /// The turn goes to the next, if there is one.
    fn pass_on(&self, lease: Lease<C>) {
        let next = self.line.borrow_mut().grant_next();
        match next {
            Some(waker) => {
                *self.lease.borrow_mut() = Some(lease);
                waker.wake();
            }
            None => {
                self.taken.set(false);
                self.rest(lease);
            }
        }
    }
}

impl<C: Connector> Socket for Gate<C> {
    fn members(&self) -> &Members {
        &self.members
    }

    fn retire(self: &Rc<Self>) {
        self.members.close();
        self.wake_watcher();
        let lease = self.lease.borrow_mut().take();
        drop(lease);
    }
}

/// A place in front of the gate.
struct Waiting<'a, C: Connector> {
    gate: &'a Gate<C>,
    place: Option<u32>,
}

impl<'a, C: Connector> Future for Waiting<'a, C> {
    type Output = Option<Turn<'a, C>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let gate = self.gate;
        if let Some(place) = self.place {
            let polled = gate.line.borrow_mut().poll(place, cx.waker());
            let Poll::Ready(granted) = polled else { return Poll::Pending };
            self.place = None;
            return Poll::Ready(if granted { gate.begin() } else { None });
        }
        if gate.members.is_closed() {
            return Poll::Ready(None);
        }
        if !gate.taken.replace(true) {
            return Poll::Ready(gate.begin());
        }
        self.place = Some(gate.line.borrow_mut().enter(cx.waker().clone()));
        Poll::Pending
    }
}

impl<C: Connector> Drop for Waiting<'_, C> {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let granted = self.gate.line.borrow_mut().leave(place);
        if granted {
            drop(self.gate.begin());
        }
    }
}

/// The turn: the socket is this one's alone.
struct Turn<'a, C: Connector> {
    gate: &'a Gate<C>,
    lease: Option<Lease<C>>,
}

impl<C: Connector> Drop for Turn<'_, C> {
    fn drop(&mut self) {
        let Some(mut lease) = self.lease.take() else { return };
        if lease.is_clean() && lease.is_quiet() {
            self.gate.pass_on(lease);
        } else {
            if lease.is_clean() {
                lease.mark_broken();
            }
            self.gate.condemn(lease);
        }
    }
}

/// One of several sessions on a socket, on which each exchange has its turn, first come first served.
///
/// It stays on its core: a lease of it from another core is refused with
/// [`AcquireError::OtherCore`](crate::pool::AcquireError::OtherCore).
///
/// # Drop
/// Gives up the session. The last one of a socket gives the socket back to its pool.
pub struct GatedSession<C: Connector> {
    seat: Seat<Gate<C>>,
}

impl<C: Connector> GatedSession<C> {
    /// Waits for the turn and uses the socket for one exchange, such as a request and its reply.
    ///
    /// An exchange that is dropped, fails, panics or leaves the socket dirty costs the socket: those who wait for their
    /// turn get [`TurnError::Condemned`], and all sessions on the socket are over.
    ///
    /// # Errors
    /// [`TurnError`].
    ///
    /// # Cancel safety
    /// Dropping the future before its turn costs nothing; dropping it later costs the socket.
    pub async fn exchange<T, E, F>(&mut self, exchange: F) -> Result<T, TurnError<E>>
    where
        F: AsyncFnOnce(&mut C::Connection) -> Result<T, E>,
    {
        let waiting = Waiting { gate: &self.seat.socket, place: None };
        let Some(mut turn) = waiting.await else { return Err(TurnError::Condemned) };
        let Some(lease) = &mut turn.lease else { unreachable!("the lease leaves with the turn") };
        lease.exchange(exchange).await.map_err(|error| match error {
            ExchangeError::Failed(error) => TurnError::Failed(error),
            ExchangeError::Dirty => TurnError::Condemned,
        })
    }
}

impl<C: Connector> Lease<Gated<C>> {
    /// Waits for the turn and uses the shared socket for one exchange; see [`GatedSession::exchange`].
    ///
    /// # Errors
    /// [`ExchangeError::Failed`] with a [`TurnError`]; [`ExchangeError::Dirty`] when the session is over.
    ///
    /// # Cancel safety
    /// Dropping the future before its turn costs nothing; dropping it later costs the socket.
    pub async fn exchange_in_turn<T, E, F>(&mut self, exchange: F) -> Result<T, ExchangeError<TurnError<E>>>
    where
        F: AsyncFnOnce(&mut C::Connection) -> Result<T, E>,
    {
        self.isolated(async |session| session.exchange(exchange).await).await
    }
}

impl<C, Request> Call<Request> for GatedSession<C>
where
    C: Connector,
    C::Connection: Call<Request>,
{
    type Reply = <C::Connection as Call<Request>>::Reply;
    type Error = TurnError<<C::Connection as Call<Request>>::Error>;
    const ISOLATED: bool = true;

    async fn call(&mut self, request: Request) -> Result<Self::Reply, Self::Error> {
        self.exchange(async |connection| connection.call(request).await).await
    }
}

impl<C: Connector> Connection for GatedSession<C> {
    type Detached = Infallible;
    const MOVES: bool = false;

    fn is_quiet(&self) -> bool {
        let gate = &self.seat.socket;
        gate.members.is_leasable() && gate.lease.borrow().as_ref().is_none_or(Lease::is_quiet)
    }

    fn arm(&mut self, watch: Watch) {
        self.seat.arm(watch);
    }

    fn poll_quiesce(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn detach(self) -> Result<Infallible, Self> {
        Err(self)
    }

    fn attach(detached: Infallible) -> Self {
        match detached {}
    }

    async fn close(self) {}
}

impl<C: Connector> fmt::Debug for GatedSession<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatedSession").field("quiet", &self.is_quiet()).finish_non_exhaustive()
    }
}
