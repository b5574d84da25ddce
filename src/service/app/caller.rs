//! Calls to an application without a socket.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{FutureExt, StreamExt};

use super::prepared::{Outcome, Prepared};
use super::respond::Response;
use crate::service::connection::Connection;
use crate::service::connection::slot::FutureSlot;
use crate::service::error::RequestError;
use crate::service::protocol::Protocol;
use crate::service::push::{Priority, PushQueues, PushSettings};

/// Calls an application as one connection would, one request after the other, without a socket and without a codec: for
/// tests of handlers and middleware. Made by [`Prepared::caller`].
///
/// Requests take the way that they take in a service, through the same routes and the same middleware, and panics become
/// errors as they do there. What belongs to a real connection's actor is left out: the hooks of the protocol, its
/// [`failed`](Protocol::failed) included, are not called, and no frame is marked with a correlation.
///
/// # Drop
/// Drops the connection's session with it, unless somebody has a clone of the connection.
///
/// # Examples
/// ```
/// use std::cell::Cell;
/// use corelet::runtime::Runtime;
/// use corelet::service::app::{Frame, Session};
/// use corelet::service::{App, Protocol};
/// # use tokio_util::codec::LinesCodec;
///
/// struct Lines;
///
/// impl Protocol for Lines {
///     // ...
/// #   type Codec = LinesCodec;
/// #   type Request = String;
/// #   type Response = String;
/// #   type Id = ();
///     type Session = Cell<usize>;
/// #   fn codec(&self) -> LinesCodec { LinesCodec::new() }
/// #   fn session(&self) -> Cell<usize> { Cell::new(0) }
/// #   fn id(&self, _: &String) -> Option<()> { Some(()) }
/// }
///
/// /// The bytes so far.
/// async fn sum(total: Session<Lines>, Frame(line): Frame<String>) -> String {
///     total.set(total.get() + line.len());
///     total.get().to_string()
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// Runtime::builder().build()?.block_on(|| async {
///     let app = App::new(Lines).route((), sum).prepare().unwrap();
///     let mut caller = app.caller();
///     assert_eq!(caller.call("four".to_owned()).await.unwrap(), ["4"]);
///     assert_eq!(caller.call("three".to_owned()).await.unwrap(), ["9"]);
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct Caller<P: Protocol> {
    slot: FutureSlot<Outcome<P::Response>>,
    /// The place of the last request's.
    route: usize,
    queues: Option<PushQueues<P::Response>>,
    connection: Connection<P>,
}

impl<P: Protocol> Prepared<P> {
    /// A connection without a socket, with a session of its own.
    pub fn caller(&self) -> Caller<P> {
        let connection = Connection::new(self, PushSettings::default());
        Caller { slot: FutureSlot::new(), route: usize::MAX, queues: None, connection }
    }
}

impl<P: Protocol> Caller<P> {
    /// The connection, as handlers know it.
    pub fn connection(&self) -> &Connection<P> {
        &self.connection
    }

    /// All frames that answer `request`.
    ///
    /// # Errors
    /// Why it has no ordinary response, or why a stream of frames broke off.
    ///
    /// # Cancel safety
    /// Drops the handler where it is, as the end of a connection does.
    pub async fn call(&mut self, request: P::Request) -> Result<Vec<P::Response>, RequestError> {
        let mut frames = match self.respond(request).await? {
            Response::None => return Ok(Vec::new()),
            Response::One(frame) => return Ok(vec![frame]),
            Response::Stream(frames) => frames,
        };
        let mut all = Vec::new();
        let collect = async {
            while let Some(frame) = frames.next().await {
                all.push(frame?);
            }
            Ok(())
        };
        let collected = AssertUnwindSafe(collect).catch_unwind().await;
        self.located(collected.unwrap_or_else(|payload| Err(RequestError::from_panic(payload))))?;
        Ok(all)
    }

    /// What `request` comes to; a stream of frames has not begun, and the errors in it name no route.
    ///
    /// # Errors
    /// Why it has no ordinary response.
    ///
    /// # Cancel safety
    /// As [`call`](Caller::call).
    pub async fn respond(&mut self, request: P::Request) -> Outcome<P::Response> {
        let started = self.connection.app().start(request, &self.connection, &mut self.slot);
        self.route = started.route;
        started.result?;
        let answer = AssertUnwindSafe(Answer(&mut self.slot)).catch_unwind().await;
        self.located(answer.unwrap_or_else(|payload| Err(RequestError::from_panic(payload))))
    }

    /// An error says in which route it came to pass.
    fn located<T>(&self, result: Result<T, RequestError>) -> Result<T, RequestError> {
        result.map_err(|error| error.at(self.connection.app().route_name(self.route)))
    }

    /// What handlers have pushed to the connection meanwhile, in the order in which it would go out.
    pub fn pushed(&mut self) -> Vec<(Priority, P::Response)> {
        if self.queues.is_none() {
            self.queues = self.connection.take_queues();
        }
        let queues = self.queues.as_mut();
        queues.map_or(Vec::new(), |queues| std::iter::from_fn(|| queues.try_next()).collect())
    }
}

impl<P: Protocol> fmt::Debug for Caller<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

/// Waits for what is in the slot, and leaves it empty.
struct Answer<'a, F>(&'a mut FutureSlot<Outcome<F>>);

impl<F> Future for Answer<'_, F> {
    type Output = Outcome<F>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<F>> {
        self.0.poll(cx)
    }
}

impl<F> Drop for Answer<'_, F> {
    fn drop(&mut self) {
        self.0.clear();
    }
}
