//! Referring to a server.

use std::fmt;
use std::time::Duration;

use super::request::Request;
use super::shutdown::shutdown;
use super::{CallError, Server};
use crate::actor::channel::Sender;
use crate::actor::exit::ExitReason;
use crate::actor::pid::Pid;
use crate::actor::{Answer, SendError, reply};
use crate::runtime::timeout;

/// Refers to a server, from any thread and any core. Cheap to clone.
///
/// Casts can be sent from every thread; an answer arrives on a core only, so calls are made by tasks of cores.
///
/// # Drop
/// With its last reference a server ends in good order, after what it was sent, unless it was built to
/// [outlive](super::Builder::outliving) them. Its [`Pid`] does not count.
pub struct ServerRef<S: Server> {
    inbox: Sender<Request<S>>,
    pid: Pid<S>,
}

impl<S: Server> ServerRef<S> {
    pub(super) fn new(inbox: Sender<Request<S>>, pid: Pid<S>) -> ServerRef<S> {
        ServerRef { inbox, pid }
    }

    /// Asks, and waits for the answer for as long as it takes. On the server's core nothing is allocated for it.
    ///
    /// # Errors
    /// See [`CallError`]; it is there at once when the server ends, however that happens. Never [`CallError::Timeout`].
    ///
    /// # Cancel safety
    /// Cancel safe in that nothing is left behind; the question is not taken back, and its answer goes to nobody.
    ///
    /// # Panics
    /// When not polled on a core.
    #[inline]
    pub async fn call(&self, call: S::Call) -> Result<S::Reply, CallError> {
        self.send_request(call)?.await
    }

    /// As [`call`](ServerRef::call), for at most `limit`. An answer that is there when the time is over counts.
    ///
    /// # Errors
    /// See [`CallError`].
    ///
    /// # Cancel safety
    /// As [`call`](ServerRef::call).
    ///
    /// # Panics
    /// When not polled on a core.
    pub async fn call_timeout(&self, call: S::Call, limit: Duration) -> Result<S::Reply, CallError> {
        timeout(limit, self.call(call)).await.unwrap_or(Err(CallError::Timeout))
    }

    /// Asks without waiting: the answer is awaited with what this returns, or not at all. Erlang's `send_request`.
    ///
    /// # Errors
    /// Gives the question back: [`SendError::Closed`] when the server has ended, [`SendError::Full`] when its mailbox is
    /// bounded and full.
    ///
    /// # Panics
    /// When not called on a core.
    #[inline]
    #[track_caller]
    pub fn send_request(&self, call: S::Call) -> Result<Answer<S::Reply>, SendError<S::Call>> {
        let (reply, answer) = reply();
        match self.inbox.send(Request::call(call, reply)) {
            Ok(()) => Ok(answer),
            Err(refused) => Err(refused.map(Request::into_call)),
        }
    }

    /// Tells, without waiting for anything.
    ///
    /// # Errors
    /// Gives the message back: [`SendError::Closed`] when the server has ended, [`SendError::Full`] when its mailbox is
    /// bounded and full.
    #[inline]
    pub fn cast(&self, cast: S::Cast) -> Result<(), SendError<S::Cast>> {
        self.inbox.send(Request::cast(cast)).map_err(|refused| refused.map(Request::into_cast))
    }

    /// The server's address.
    pub fn pid(&self) -> Pid<S> {
        self.pid
    }

    /// Whether the server has ended. False is only true for the moment.
    pub fn is_closed(&self) -> bool {
        self.inbox.is_closed()
    }

    /// Ends the server in good order: it finishes the callback that runs, leaves the rest of its mail, whose callers are told,
    /// runs [`terminate`](Server::terminate), and has ended when this returns. Gives the reason of its end, as a
    /// [monitor](crate::actor::monitor) would: [`ExitReason::Normal`], or what came first.
    ///
    /// There is no limit to how long a callback may take; after a [`timeout`] one may
    /// [`request_stop`](crate::actor::request_stop). A server that awaits its own shutdown waits for ever: it wants
    /// [`Context::stop`](super::Context::stop).
    ///
    /// # Cancel safety
    /// Cancel safe; the server ends all the same.
    ///
    /// # Panics
    /// When not polled on a core.
    pub async fn shutdown(&self) -> ExitReason {
        shutdown(self.pid.raw()).await
    }
}

impl<S: Server> Clone for ServerRef<S> {
    fn clone(&self) -> ServerRef<S> {
        ServerRef { inbox: self.inbox.clone(), pid: self.pid }
    }
}

impl<S: Server> fmt::Debug for ServerRef<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRef").field("pid", &self.pid).field("closed", &self.is_closed()).finish()
    }
}
