//! One core's share of a server: the application, and the connections that are open.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::BytesMut;
use slab::Slab;

use super::address::Peer;
use super::error::PreambleError;
use super::gate::{Gate, Place};
use super::preamble::{self, ErasedPreamble, Opening};
use super::settings::Settings;
use super::stats::{ConnectionInfo, Counters, ServerCoreStats, count};
use crate::actor::{self, Pid, request_stop};
use crate::net::TcpStream;
use crate::runtime::{CoreId, now, spawn, timeout};
use crate::service::app::Prepared;
use crate::service::connection::{Connection, ConnectionId, serve_connection};
use crate::service::protocol::Protocol;

pub(super) struct Share<P: Protocol> {
    pub(super) core: CoreId,
    /// Among the server's cores.
    pub(super) number: usize,
    pub(super) settings: Settings<P>,
    pub(super) gate: Arc<Gate>,
    pub(super) counters: Counters,
    app: Prepared<P>,
    guests: RefCell<Slab<Guest<P>>>,
    /// Nobody new is admitted, and who is past its preamble drains at once.
    draining: Cell<bool>,
    /// Waits for the last guest to go.
    emptied: Cell<Option<Waker>>,
    label: Arc<str>,
}

/// A connection that is open.
struct Guest<P: Protocol> {
    connection: Connection<P>,
    actor: Pid,
    peer: Peer,
    since: Instant,
    in_preamble: bool,
}

/// How a guest is told to go.
enum End<P: Protocol> {
    Connection(Connection<P>),
    /// It has not begun: there is nothing to finish, and its task does not look.
    Task(Pid),
}

impl<P: Protocol> End<P> {
    fn of(guest: &Guest<P>) -> End<P> {
        match guest.in_preamble {
            true => End::Task(guest.actor),
            false => End::Connection(guest.connection.clone()),
        }
    }

    fn drain(self) {
        match self {
            End::Connection(connection) => connection.drain(),
            End::Task(actor) => request_stop(actor),
        }
    }

    fn now(self) {
        match self {
            End::Connection(connection) => connection.shut_down(),
            End::Task(actor) => request_stop(actor),
        }
    }
}

impl<P: Protocol> Share<P> {
    pub(super) fn new(
        core: CoreId,
        number: usize,
        app: Prepared<P>,
        settings: Settings<P>,
        gate: Arc<Gate>,
    ) -> Rc<Share<P>> {
        let counters = Counters::default();
        counters.factory_calls.set(1);
        counters.transformations.set(app.transformations());
        Rc::new(Share {
            core,
            number,
            settings,
            gate,
            counters,
            app,
            guests: RefCell::default(),
            draining: Cell::new(false),
            emptied: Cell::new(None),
            label: "connection".into(),
        })
    }

    /// Serves a connection in a task of its own.
    pub(super) fn serve(self: &Rc<Self>, stream: TcpStream, peer: Peer, place: Place) {
        count(&self.counters.accepted);
        let key = self.guests.borrow().vacant_key();
        let seat = Seat { share: Rc::clone(self), key, _place: place };
        let connection = Connection::new(&self.app, self.settings.pushes.clone());
        let task = spawn(seat.attend(stream, peer, connection.clone()));
        let actor = task.pid().into();
        let guest = Guest { connection, actor, peer, since: now(), in_preamble: true };
        self.guests.borrow_mut().insert(guest);
        self.counters.open.set(self.counters.open.get() + 1);
        self.counters.in_preamble.set(self.counters.in_preamble.get() + 1);
        task.detach();
    }

    pub(super) fn stats(&self) -> ServerCoreStats {
        self.counters.read(self.core, self.app.counts())
    }

    pub(super) fn connections(&self) -> Vec<ConnectionInfo> {
        let guests = self.guests.borrow();
        let info = |guest: &Guest<P>| ConnectionInfo {
            id: guest.connection.id(),
            actor: guest.actor,
            peer: guest.peer,
            since: guest.since,
            in_preamble: guest.in_preamble,
        };
        guests.iter().map(|(_, guest)| info(guest)).collect()
    }

    /// Ends the connection with that id; false when there is none.
    pub(super) fn close(&self, id: ConnectionId, at_once: bool) -> bool {
        let guests = self.guests.borrow();
        let found =
            guests.iter().find(|(_, guest)| guest.connection.id() == id).map(|(_, guest)| End::of(guest));
        drop(guests);
        let Some(end) = found else { return false };
        if at_once {
            end.now()
        } else {
            end.drain()
        }
        true
    }

    pub(super) fn open(&self) -> usize {
        self.guests.borrow().len()
    }

    /// Has all connections finish what they have begun, and none begin.
    pub(super) fn drain_all(&self) {
        self.draining.set(true);
        self.ends().into_iter().for_each(End::drain);
    }

    /// Has all connections end now.
    pub(super) fn end_all(&self) {
        self.ends().into_iter().for_each(End::now);
    }

    /// Drops the tasks of all connections that are left.
    pub(super) fn stop_all(&self) {
        let ids: Vec<Pid> = self.guests.borrow().iter().map(|(_, guest)| guest.actor).collect();
        ids.into_iter().for_each(request_stop);
    }

    /// Collected first: what they are told may run what users wrote.
    fn ends(&self) -> Vec<End<P>> {
        self.guests.borrow().iter().map(|(_, guest)| End::of(guest)).collect()
    }

    /// Waits until no connection is open.
    pub(super) fn poll_empty(&self, cx: &Context<'_>) -> Poll<()> {
        if self.guests.borrow().is_empty() {
            return Poll::Ready(());
        }
        self.emptied.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

/// The seat of a connection, kept by its task: when that ends, however it does, the connection is open no more.
struct Seat<P: Protocol> {
    share: Rc<Share<P>>,
    key: usize,
    _place: Place,
}

impl<P: Protocol> Seat<P> {
    async fn attend(self, stream: TcpStream, peer: Peer, connection: Connection<P>) {
        let share = &*self.share;
        // What shows labels is the observer; without it they would only be memory.
        if cfg!(feature = "observer") {
            actor::set_label(Arc::clone(&share.label));
        }
        let settings = &share.settings;
        let (stream, input) = match &settings.preamble {
            None => (stream, BytesMut::new()),
            Some(preamble) => {
                let Some((opening, session)) = self.greet(&**preamble, stream, peer).await else { return };
                connection.set_session(session);
                (opening.stream, opening.input)
            }
        };
        self.admit(&connection);
        serve_connection(stream, connection, settings.limits, input).await;
    }

    async fn greet(
        &self,
        preamble: &dyn ErasedPreamble<P>,
        stream: TcpStream,
        peer: Peer,
    ) -> Option<(Opening, P::Session)> {
        let settings = &self.share.settings;
        let (input, limit) = (BytesMut::new(), settings.preamble_limit);
        let mut opening = Opening { stream, input, peer, limit, received: 0 };
        let limit = settings.preamble_timeout;
        let greeted = timeout(limit, preamble.greet(&mut opening)).await;
        let outcome = greeted.unwrap_or(Err(PreambleError::TimedOut { limit }));
        if let Some(witness) = &settings.witness {
            preamble::tell(&**witness, peer, outcome.as_ref());
        }
        Some((opening, outcome.ok()?))
    }

    /// The connection is past its preamble.
    fn admit(&self, connection: &Connection<P>) {
        if let Some(guest) = self.share.guests.borrow_mut().get_mut(self.key) {
            guest.in_preamble = false;
        }
        let in_preamble = &self.share.counters.in_preamble;
        in_preamble.set(in_preamble.get() - 1);
        if self.share.draining.get() {
            connection.drain();
        }
    }
}

impl<P: Protocol> Drop for Seat<P> {
    fn drop(&mut self) {
        let share = &*self.share;
        let guest = share.guests.borrow_mut().try_remove(self.key);
        let counters = &share.counters;
        if guest.is_some_and(|guest| guest.in_preamble) {
            counters.in_preamble.set(counters.in_preamble.get() - 1);
            count(&counters.preambles_failed);
        }
        counters.open.set(counters.open.get() - 1);
        count(&counters.ended);
        if share.guests.borrow().is_empty()
            && let Some(waker) = share.emptied.take()
        {
            waker.wake();
        }
    }
}
