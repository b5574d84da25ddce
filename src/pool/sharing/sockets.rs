//! The sockets of one shared pool on one core, and the seats that sessions take on them.
//!
//! A session takes a free seat, or waits for one on a socket that is being opened, or opens a socket. So as many
//! sockets are opened as the sessions need, however many begin at the same time.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Waker;

use super::line::Line;
use super::members::Members;
use crate::runtime::context;
use crate::runtime::local::Local;

/// A socket that several sessions use.
pub(super) trait Socket: 'static {
    fn members(&self) -> &Members;

    /// The last session has gone: the socket goes back to where it came from.
    fn retire(self: &Rc<Self>);
}

/// There as long as somebody has a seat or wants one; the core only knows the way.
pub(super) struct Sockets<S> {
    key: u64,
    local: Rc<Local>,
    live: RefCell<Vec<Rc<S>>>,
    opening: RefCell<Opening>,
    /// The error of the latest open, and how many have failed.
    failure: RefCell<Option<Arc<io::Error>>>,
    failures: Cell<u64>,
}

struct Opening {
    /// Sockets being opened.
    sockets: usize,
    /// Sessions that take a seat on them, those that open them included.
    seats: usize,
    line: Line,
}

impl<S: Socket> Sockets<S> {
    /// Those of the pool with the given id on the current core.
    pub(super) fn of_pool(id: u64) -> Rc<Sockets<S>> {
        // The core's extensions are found by the ids of pools; no pool will ever have the complement of one.
        let key = !id;
        let local = context::current();
        let known = local.extension(key).and_then(|known| known.downcast::<Weak<Sockets<S>>>().ok());
        if let Some(sockets) = known.and_then(|known| known.upgrade()) {
            return sockets;
        }
        let sockets = Rc::new(Sockets {
            key,
            local: Rc::clone(&local),
            live: RefCell::new(Vec::new()),
            opening: RefCell::new(Opening { sockets: 0, seats: 0, line: Line::new() }),
            failure: RefCell::new(None),
            failures: Cell::new(0),
        });
        local.set_extension(key, Rc::new(Rc::downgrade(&sockets)));
        sockets
    }

    /// Takes a seat, on a socket of at most `limit`. `open` makes one on this core that nobody uses yet.
    pub(super) async fn take_seat(
        self: &Rc<Self>,
        limit: usize,
        open: impl AsyncFnOnce(&Rc<Local>) -> io::Result<Rc<S>>,
    ) -> io::Result<Seat<S>> {
        let failures = self.failures.get();
        loop {
            let room = self.live.borrow().iter().find(|socket| socket.members().has_room()).cloned();
            if let Some(socket) = room {
                return Ok(Seat::on(socket, self));
            }
            if self.failures.get() != failures && self.opening.borrow().sockets == 0 {
                // What this one waited for.
                if let Some(error) = self.failure.borrow().clone() {
                    return Err(io::Error::new(error.kind(), error));
                }
            }
            if !self.has_room_to_come(limit) {
                break;
            }
            let wait = Wait::begin(self);
            wait.until_changed().await;
        }
        let attempt = Attempt::begin(self);
        match open(&self.local).await {
            Ok(socket) => {
                self.live.borrow_mut().push(Rc::clone(&socket));
                let seat = Seat::on(socket, self);
                drop(attempt);
                Ok(seat)
            }
            Err(error) => {
                let error = Arc::new(error);
                self.failures.set(self.failures.get() + 1);
                *self.failure.borrow_mut() = Some(Arc::clone(&error));
                drop(attempt);
                Err(io::Error::new(error.kind(), error))
            }
        }
    }

    /// Whether a seat will be free on a socket that is being opened.
    fn has_room_to_come(&self, limit: usize) -> bool {
        let opening = self.opening.borrow();
        opening.seats < opening.sockets * limit
    }

    /// Everybody who waits looks again.
    fn changed(&self) {
        while let Some(waker) = self.next_waiting() {
            waker.wake();
        }
    }

    fn next_waiting(&self) -> Option<Waker> {
        self.opening.borrow_mut().line.grant_next()
    }
}

impl<S> Drop for Sockets<S> {
    fn drop(&mut self) {
        self.local.remove_extension(self.key);
    }
}

/// An open under way. Its end, of whatever kind, is told to those who wait.
struct Attempt<'a, S: Socket>(&'a Sockets<S>);

impl<'a, S: Socket> Attempt<'a, S> {
    fn begin(sockets: &'a Sockets<S>) -> Attempt<'a, S> {
        let mut opening = sockets.opening.borrow_mut();
        opening.sockets += 1;
        opening.seats += 1;
        Attempt(sockets)
    }
}

impl<S: Socket> Drop for Attempt<'_, S> {
    fn drop(&mut self) {
        let mut opening = self.0.opening.borrow_mut();
        opening.sockets -= 1;
        opening.seats -= 1;
        drop(opening);
        self.0.changed();
    }
}

/// A session that waits for a socket which is being opened.
struct Wait<'a, S: Socket> {
    sockets: &'a Sockets<S>,
    place: Cell<Option<u32>>,
}

impl<'a, S: Socket> Wait<'a, S> {
    fn begin(sockets: &'a Sockets<S>) -> Wait<'a, S> {
        sockets.opening.borrow_mut().seats += 1;
        Wait { sockets, place: Cell::new(None) }
    }

    async fn until_changed(&self) {
        poll_fn(|cx| {
            let mut opening = self.sockets.opening.borrow_mut();
            let place = match self.place.get() {
                Some(place) => place,
                None => opening.line.enter(cx.waker().clone()),
            };
            self.place.set(Some(place));
            let polled = opening.line.poll(place, cx.waker());
            if polled.is_ready() {
                self.place.set(None);
            }
            polled.map(drop)
        })
        .await;
    }
}

impl<S: Socket> Drop for Wait<'_, S> {
    fn drop(&mut self) {
        let mut opening = self.sockets.opening.borrow_mut();
        opening.seats -= 1;
        if let Some(place) = self.place.get() {
            opening.line.leave(place);
        }
    }
}

/// A session's place on a socket. Dropping it gives it up; the last one sends the socket back.
pub(super) struct Seat<S: Socket> {
    pub(super) socket: Rc<S>,
    sockets: Rc<Sockets<S>>,
    number: usize,
}

impl<S: Socket> Seat<S> {
    fn on(socket: Rc<S>, sockets: &Rc<Sockets<S>>) -> Seat<S> {
        let number = socket.members().join();
        Seat { socket, sockets: Rc::clone(sockets), number }
    }

    pub(super) fn arm(&self, watch: crate::runtime::Watch) {
        self.socket.members().arm(self.number, watch);
    }
}

impl<S: Socket> Drop for Seat<S> {
    fn drop(&mut self) {
        if self.socket.members().leave(self.number) {
            self.sockets.live.borrow_mut().retain(|socket| !Rc::ptr_eq(socket, &self.socket));
            self.socket.retire();
        }
    }
}
