//! Connections: one actor each, which attends to shutdown, pushes, responses and requests, in this order.
//!
//! A [`Server`](crate::service::Server) serves what it accepts; [`serve`] serves a transport of any kind, in the task that
//! awaits it. Either gives the connection what [`Limits`] say, ends it with an [`End`], and calls the hooks of its
//! [`Protocol`]. Handlers and hooks know it as a [`Connection`]: by an argument of that type, they push to it, drain it or
//! shut it down.
//!
//! # One at a time
//! Requests are answered in order, one at a time, each by one frame, none, or a stream of frames. While a handler runs, pushes
//! go out between, and so they do between the frames of a stream. While the peer does not read, no stream is polled, no request
//! begins and nothing is received.
//!
//! What goes next is decided before a handler is polled. So what a handler pushes before it gives its response goes out before
//! that if the handler waits in between, and behind it if it does not.
//!
//! # Ends
//! [`Connection::drain`] lets go out what has begun and what is queued; [`Connection::shut_down`] ends at once. A peer that ends
//! its side gets all its answers, the one that is being made included, and [`End::Closed`] follows; one that resets has its
//! handler dropped. What a connection has not delivered of its pushes is dropped, and counted in
//! [`Counts::pushes_dropped`](crate::service::Counts::pushes_dropped), and from then on handles refuse pushes and give them back.
//!
//! # Compared
//! With tokio and tokio-util one writes a task around a `Framed`, with a `select!` over the frames that come, a channel for what
//! others send, and a token for the shutdown. This is that task, written once: its order is fixed and bounded, its sends
//! can be given up, and its requests allocate nothing. Actix' `StreamHandler` on an actor's context handles frames as messages among
//! others, in order of arrival.
//!
//! Never: more than one task for a connection; anything armed for each request.
//!
//! # Examples
//! ```
//! use std::cell::RefCell;
//! use std::rc::Rc;
//!
//! use corelet::service::app::{Frame, Reply};
//! use corelet::service::push::PushSettings;
//! use corelet::service::{App, Connection, End, Limits, serve};
//! # use std::io;
//! # use std::task::{Context, Poll};
//! # use bytes::BytesMut;
//! # use corelet::runtime::{Cores, Runtime};
//! # use corelet::service::{Protocol, Transport};
//! # use tokio_util::codec::LinesCodec;
//! # struct Said { words: Option<Vec<u8>>, answers: Rc<RefCell<Vec<u8>>> }
//! # impl Transport for Said {
//! #     type Received = Vec<u8>;
//! #     fn poll_receive(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Option<Vec<u8>>>> {
//! #         Poll::Ready(Ok(self.words.take()))
//! #     }
//! #     async fn send(&mut self, bytes: BytesMut) -> (io::Result<()>, BytesMut) {
//! #         self.answers.borrow_mut().extend_from_slice(&bytes);
//! #         (Ok(()), bytes)
//! #     }
//! #     async fn finish(&mut self, _: bool) -> io::Result<()> { Ok(()) }
//! # }
//! # struct Lines;
//! # impl Protocol for Lines {
//! #     type Codec = LinesCodec;
//! #     type Request = String;
//! #     type Response = String;
//! #     type Id = String;
//! #     type Session = ();
//! #     fn codec(&self) -> LinesCodec { LinesCodec::new_with_max_length(1024) }
//! #     fn session(&self) {}
//! #     fn id(&self, line: &String) -> Option<String> { line.split(' ').next().map(str::to_owned) }
//! # }
//!
//! # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
//! # runtime.block_on(|| async {
//! // `Lines` and `Said` are the examples of `Protocol` and `Transport`.
//! let app = App::new(Lines)
//!     .route("echo".into(), async |Frame(line): Frame<String>| Reply(line))
//!     .route("quit".into(), async |connection: Connection<Lines>| connection.drain())
//!     .prepare()?;
//!
//! let answers = Rc::new(RefCell::new(Vec::new()));
//! let words = Some(b"echo hello\nquit\necho too late\n".to_vec());
//! let peer = Said { words, answers: Rc::clone(&answers) };
//! let end = serve(peer, &app, &Limits::default(), &PushSettings::default()).await;
//!
//! assert!(matches!(end, End::ShutDown));
//! assert_eq!(*answers.borrow(), b"echo hello\n");
//! assert_eq!(app.counts().requests, 2);
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! # })?.map_err(|error| error.to_string())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod actor;
mod attend;
mod attention;
pub(crate) mod buffers;
mod deadlines;
mod end;
mod limits;
mod memory;
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
use super::push::{PushHandle, PushQueues, PushSettings};

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
    settings: PushSettings<P::Response>,
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
    pub(crate) fn new(app: &Prepared<P>, settings: PushSettings<P::Response>) -> Connection<P> {
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
            let (handle, mut queues) = self.0.settings.build();
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
    pub(super) fn take_queues(&self) -> Option<PushQueues<P::Response>> {
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
