//! What a callback knows of its server.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::task::{self, Poll};

use super::Server;
use super::watcher::{DownArm, Watcher};
use crate::actor::exit::Down;
use crate::actor::pid::Pid;
use crate::actor::process::Process;
use crate::actor::spawn::own_process;

/// Lent to each callback of a [`Server`]: who it is, and how it stops and watches.
pub struct Context<S: Server> {
    process: Rc<Process>,
    stops: Cell<bool>,
    /// Made for the first watcher.
    downs: Cell<Option<Box<DownArm>>>,
    server: PhantomData<fn() -> S>,
}

impl<S: Server> Context<S> {
    /// That of the calling task.
    pub(super) fn of_this_task() -> Context<S> {
        let (_, process) = own_process();
        Context { process, stops: Cell::new(false), downs: Cell::new(None), server: PhantomData }
    }

    /// The server's address. It does not keep the server running.
    pub fn pid(&self) -> Pid<S> {
        Pid::new(self.process.pid())
    }

    /// Ends the server in good order when the callback has returned: Erlang's `{stop, normal, State}`.
    pub fn stop(&self) {
        self.stops.set(true);
    }

    /// Adds and ends watches over other actors, whose ends then come to [`handle_down`](Server::handle_down).
    pub fn watcher(&self) -> Watcher {
        let downs = self.downs.take().unwrap_or_else(|| Box::new(DownArm::new()));
        let watcher = downs.watcher();
        self.downs.set(Some(downs));
        watcher
    }

    /// The server has stopped itself.
    #[inline]
    pub(super) fn stops(&self) -> bool {
        self.stops.get()
    }

    /// Somebody else wants it to end.
    #[inline]
    pub(super) fn is_asked_to_end(&self) -> bool {
        self.process.is_asked_to_end()
    }

    /// Ready when there is an end to be taken.
    #[inline]
    pub(super) fn poll_down(&self, cx: &mut task::Context<'_>) -> Poll<()> {
        let Some(mut downs) = self.downs.take() else { return Poll::Pending };
        if downs.is_over() {
            return Poll::Pending;
        }
        let polled = downs.poll(cx);
        self.downs.set(Some(downs));
        polled
    }

    /// The end that [`poll_down`](Context::poll_down) has found.
    pub(super) fn take_down(&self) -> Option<Down> {
        let mut downs = self.downs.take()?;
        let down = downs.take();
        self.downs.set(Some(downs));
        down
    }
}

impl<S: Server> fmt::Debug for Context<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("pid", &self.pid()).field("stops", &self.stops.get()).finish()
    }
}
