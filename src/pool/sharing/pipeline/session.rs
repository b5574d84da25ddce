//! Pipelined sessions, and where they come from.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::ops::DerefMut;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio_util::codec::{Decoder, Encoder};

use super::matching::{Identify, Matching};
use super::pipe::{Pipe, Settings};
use super::task::serve;
use crate::net::Stream;
use crate::pool::connection::Connection;
use crate::pool::connector::Connector;
use crate::pool::framed::{Call, FramedConnection};
use crate::pool::lease::Lease;
use crate::pool::pools::Pool;
use crate::pool::sharing::error::PipelineError;
use crate::pool::sharing::sockets::{Seat, Socket, Sockets};
use crate::pool::sharing::{closed_pool, open_lease};
use crate::runtime::Watch;
use crate::runtime::local::Local;

/// Opens sessions that use the sockets of a pool below at the same time; see
/// [`SharedBuilder::pipelined`](crate::pool::SharedBuilder::pipelined). `M` is how replies find their requests.
pub struct Pipelined<C: Connector, M> {
    sockets: Pool<C>,
    settings: Settings,
    matching: PhantomData<fn() -> M>,
}

impl<C: Connector, M> Pipelined<C, M> {
    pub(in crate::pool::sharing) fn new(sockets: Pool<C>, settings: Settings) -> Pipelined<C, M> {
        Pipelined { sockets, settings, matching: PhantomData }
    }
}

impl<C, S, K, M> Connector for Pipelined<C, M>
where
    C: Connector<Connection = FramedConnection<S, K>>,
    S: Connection + DerefMut<Target = Stream>,
    K: Decoder + Send + 'static,
    M: Matching<K::Item>,
{
    type Connection = PipelinedSession<K, M>;

    async fn connect(&self) -> io::Result<PipelinedSession<K, M>> {
        let sockets = Sockets::of_pool(self.sockets.id());
        let open = async |local: &Rc<Local>| {
            let lease = open_lease(&self.sockets).await?;
            Ok(start(local, lease, &self.settings))
        };
        sockets.take_seat(self.settings.sessions, open).await.map(|seat| PipelinedSession { seat })
    }

    async fn close(&self) {
        closed_pool(&self.sockets).await;
    }
}

/// Starts the task of a socket.
fn start<C, S, K, M>(local: &Rc<Local>, mut lease: Lease<C>, settings: &Settings) -> Rc<Pipe<K, M>>
where
    C: Connector<Connection = FramedConnection<S, K>>,
    S: Connection + DerefMut<Target = Stream>,
    K: Decoder + Send + 'static,
    M: Matching<K::Item>,
{
    let codec = lease.connection_mut().and_then(FramedConnection::lend_codec);
    let pipe = Pipe::new(local, codec, settings);
    lease.hold(pipe.watch.watch(0));
    let task = local.executor().spawn(serve(lease, Rc::clone(&pipe))).pid();
    pipe.set_task(task);
    pipe
}

impl<C: Connector, M> fmt::Debug for Pipelined<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipelined")
            .field("sockets", &self.sockets)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl<C: Connector, M> Pool<Pipelined<C, M>>
where
    Pipelined<C, M>: Connector,
{
    /// The pool of the sockets that this pool's leases share: for its statistics, and to resize or refresh it.
    pub fn sockets(&self) -> &Pool<C> {
        &self.connector().sockets
    }
}

/// One of several sessions on a socket, whose calls are on their way at the same time.
///
/// It stays on its core: a lease of it from another core is refused with
/// [`AcquireError::OtherCore`](crate::pool::AcquireError::OtherCore).
///
/// # Drop
/// Gives up the session. The last one of a socket gives the socket back to its pool.
pub struct PipelinedSession<K: Decoder + 'static, M: Matching<K::Item>> {
    seat: Seat<Pipe<K, M>>,
}

impl<K, M> PipelinedSession<K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    /// Sends a request, together with what the other sessions send in this turn, and waits for its reply. While the
    /// socket has as many requests or unsent bytes as it may have, it first waits for its turn.
    ///
    /// # Errors
    /// [`PipelineError`], which says whether the request may have been sent.
    ///
    /// # Cancel safety
    /// Dropping the future is safe: the reply is dropped when it comes, and session and socket go on.
    pub async fn call<Request>(
        &mut self,
        request: Request,
    ) -> Result<K::Item, PipelineError<<K as Decoder>::Error>>
    where
        K: Encoder<Request, Error = <K as Decoder>::Error>,
        M: Identify<Request, K::Item>,
    {
        self.seat.socket.call(request).await
    }
}

impl<K, M, Request> Call<Request> for PipelinedSession<K, M>
where
    K: Encoder<Request, Error = <K as Decoder>::Error> + Decoder + 'static,
    M: Identify<Request, K::Item>,
{
    type Reply = K::Item;
    type Error = PipelineError<<K as Decoder>::Error>;
    const ISOLATED: bool = true;

    async fn call(&mut self, request: Request) -> Result<Self::Reply, Self::Error> {
        PipelinedSession::call(self, request).await
    }
}

impl<K, M> Connection for PipelinedSession<K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    type Detached = Infallible;
    const MOVES: bool = false;

    #[inline]
    fn is_quiet(&self) -> bool {
        self.seat.socket.members().is_leasable()
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

    async fn close(self) {
        let pipe = Rc::clone(&self.seat.socket);
        drop(self);
        if pipe.is_retired() {
            poll_fn(|cx| pipe.poll_ended(cx)).await;
        }
    }
}

impl<K, M> fmt::Debug for PipelinedSession<K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelinedSession").field("quiet", &self.is_quiet()).finish_non_exhaustive()
    }
}
