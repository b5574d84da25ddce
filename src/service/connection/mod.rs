//! Connections: one actor each, which attends to shutdown, pushes, responses and requests, in this order.

mod actor;
mod attention;
mod limits;
mod response;
pub(crate) mod slot;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

pub(crate) use actor::serve_connection;
pub use actor::{End, serve};
pub use limits::Limits;

use super::app::Prepared;
use super::error::BoxError;
use super::protocol::Protocol;
use super::push::{PushHandle, PushQueues, PushSettings};

/// How far a connection's end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Open,
    /// No further request is taken; what has begun and what is queued goes out.
    Draining,
    /// Nothing more goes out.
    Dropping,
}

/// A connection, as its handlers and hooks know it: its state, its pushes, its end. Cheap to clone; stays on its core.
pub struct Connection<P: Protocol>(Rc<Inner<P>>);

struct Inner<P: Protocol> {
    app: Prepared<P>,
    session: P::Session,
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
            session: app.protocol().session(),
            phase: Cell::new(Phase::Open),
            waker: Cell::new(None),
            settings,
            handle: OnceCell::new(),
            queues: RefCell::new(None),
        }))
    }

    /// What the connection keeps of its own.
    pub fn session(&self) -> &P::Session {
        &self.0.session
    }

    /// The application that serves it.
    pub fn app(&self) -> &Prepared<P> {
        &self.0.app
    }

    /// A handle that pushes to this connection, from wherever.
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

    /// Ends the connection when what has begun and what is queued has gone out.
    pub fn drain(&self) {
        self.advance(Phase::Draining);
    }

    /// Ends the connection now: what is queued is dropped.
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
    fn register(&self, cx: &Context<'_>) {
        let kept = self.0.waker.take().filter(|kept| kept.will_wake(cx.waker()));
        self.0.waker.set(Some(kept.unwrap_or_else(|| cx.waker().clone())));
    }

    fn take_queues(&self) -> Option<PushQueues<P::Response>> {
        self.0.queues.borrow_mut().take()
    }
}

/// For errors of codecs.
pub(crate) type CodecError = BoxError;
