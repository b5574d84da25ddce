//! Connections: one actor each, which attends to shutdown, pushes, responses and requests, in this order.

mod actor;
mod attend;
mod attention;
pub(crate) mod buffers;
mod deadlines;
mod end;
mod limits;
mod response;
pub(crate) mod slot;

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};

pub use actor::serve;
pub(crate) use actor::serve_connection;
pub use end::{End, EndReason};
pub use limits::Limits;

use super::app::Prepared;
use super::error::BoxError;
use super::protocol::Protocol;
use super::push::{PushBuilder, PushHandle, PushQueues};

/// Names a connection: of all that this process has served, on whatever core, no other has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

impl ConnectionId {
    fn next() -> ConnectionId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        ConnectionId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How far a connection's end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Open,
    /// No further request is taken; what has begun and what is queued goes out.
    Draining,
    /// Nothing more goes out, or all has ended.
    Dropping,
}

/// A connection, as its handlers and hooks know it: its state, its pushes, its end. Cheap to clone; stays on its core.
pub struct Connection<P: Protocol>(Rc<Inner<P>>);

struct Inner<P: Protocol> {
    app: Prepared<P>,
    id: ConnectionId,
    peer: Cell<Option<SocketAddr>>,
    /// Made in the connection's own task, where a panic ends only that.
    session: OnceCell<P::Session>,
    phase: Cell<Phase>,
    /// Of the actor, for changes of the phase.
    waker: Cell<Option<Waker>>,
    settings: PushBuilder,
    /// Made for the first who wants to push: most connections are never pushed to.
    handle: OnceCell<PushHandle<P::Response>>,
    /// On their way to the actor.
    queues: RefCell<Option<PushQueues<P::Response>>>,
}

impl<P: Protocol> Clone for Connection<P> {
    fn clone(&self) -> Connection<P> {
        Connection(Rc::clone(&self.0))
    }
}

impl<P: Protocol> Connection<P> {
    pub(crate) fn new(app: &Prepared<P>, settings: PushBuilder) -> Connection<P> {
        Connection(Rc::new(Inner {
            app: app.clone(),
            id: ConnectionId::next(),
            peer: Cell::new(None),
            session: OnceCell::new(),
            phase: Cell::new(Phase::Open),
            waker: Cell::new(None),
            settings,
            handle: OnceCell::new(),
            queues: RefCell::new(None),
        }))
    }

    /// Its name.
    pub fn id(&self) -> ConnectionId {
        self.0.id
    }

    /// Who is at the other end. None where that has no such address, as with Unix sockets, and before the connection
    /// has begun.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.peer.get()
    }

    /// What the connection keeps of its own.
    #[inline]
    pub fn session(&self) -> &P::Session {
        self.0.session.get_or_init(|| self.0.app.protocol().session())
    }

    /// Gives it a session other than the protocol's, before anybody has asked for that.
    pub(crate) fn set_session(&self, session: P::Session) {
        let set = self.0.session.set(session).is_ok();
        debug_assert!(set, "the session is set before it is asked for");
    }

    /// Whether it takes no further requests: it drains, is shut down, or has ended.
    pub fn is_ending(&self) -> bool {
        self.phase() != Phase::Open
    }

    /// The application that serves it.
    #[inline]
    pub fn app(&self) -> &Prepared<P> {
        &self.0.app
    }

    /// A handle that pushes to this connection, from wherever.
    ///
    /// Handles may be kept: once the connection ends they refuse what is pushed and give it back.
    pub fn push_handle(&self) -> PushHandle<P::Response> {
        let make = || {
            let (handle, mut queues) = self.0.settings.clone().build();
            if self.phase() != Phase::Open {
                queues.close();
            }
            *self.0.queues.borrow_mut() = Some(queues);
            self.wake();
            handle
        };
        self.0.handle.get_or_init(make).clone()
    }

    /// Ends the connection when what has begun and what is queued has gone out. No further request is taken and no
    /// further push.
    ///
    /// How long that takes is up to the handler and the peer; [`shut_down`](Connection::shut_down) ends it.
    pub fn drain(&self) {
        self.advance(Phase::Draining);
    }

    /// Ends the connection now, whatever it is doing: the handler is dropped, and so is what is queued or has not been
    /// sent.
    pub fn shut_down(&self) {
        self.advance(Phase::Dropping);
    }

    fn advance(&self, phase: Phase) {
        if self.0.phase.get() < phase {
            self.0.phase.set(phase);
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.0.phase.get()
    }

    /// Has changes of the phase wake the task.
    #[inline]
    fn register(&self, cx: &Context<'_>) {
        let kept = self.0.waker.take().filter(|kept| kept.will_wake(cx.waker()));
        self.0.waker.set(Some(kept.unwrap_or_else(|| cx.waker().clone())));
    }

    #[inline]
    fn take_queues(&self) -> Option<PushQueues<P::Response>> {
        self.0.handle.get()?;
        self.0.queues.borrow_mut().take()
    }
}

impl<P: Protocol> fmt::Debug for Connection<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("id", &self.0.id)
            .field("peer", &self.0.peer.get())
            .field("phase", &self.phase())
            .finish_non_exhaustive()
    }
}

/// For errors of codecs.
pub(crate) type CodecError = BoxError;
