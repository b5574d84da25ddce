//! What handlers give.

use std::pin::Pin;

use futures_util::{Stream, StreamExt};

use super::prepared::Outcome;
use crate::service::error::{BoxError, RequestError};
use crate::service::protocol::Protocol;

/// The frames that answer a request.
pub enum Response<F> {
    /// None at all.
    None,
    /// One.
    One(F),
    /// Any number, as they come.
    Stream(Pin<Box<dyn Stream<Item = Result<F, RequestError>>>>),
}

/// What a handler can give.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no response of `{P}`",
    label = "a handler cannot give this",
    note = "handlers give `()`, the protocol's response frame, an `Option` or `Result` of one of those, or `Streamed`"
)]
pub trait Respond<P: Protocol> {
    /// Makes a response of it.
    ///
    /// # Errors
    /// What the handler gave as an error.
    fn respond(self) -> Outcome<P::Response>;
}

impl<P: Protocol> Respond<P> for () {
    fn respond(self) -> Outcome<P::Response> {
        Ok(Response::None)
    }
}

impl<P: Protocol> Respond<P> for Response<P::Response> {
    fn respond(self) -> Outcome<P::Response> {
        Ok(self)
    }
}

impl<P: Protocol, R: Respond<P>> Respond<P> for Option<R> {
    fn respond(self) -> Outcome<P::Response> {
        self.map_or(Ok(Response::None), R::respond)
    }
}

impl<P: Protocol, R: Respond<P>, E: Into<BoxError>> Respond<P> for Result<R, E> {
    fn respond(self) -> Outcome<P::Response> {
        self.map_err(|error| RequestError::Failed(error.into()))?.respond()
    }
}

/// One frame.
pub struct Reply<F>(pub F);

impl<P: Protocol> Respond<P> for Reply<P::Response> {
    fn respond(self) -> Outcome<P::Response> {
        Ok(Response::One(self.0))
    }
}

/// A stream of frames.
pub struct Streamed<S>(pub S);

impl<P, S, E> Respond<P> for Streamed<S>
where
    P: Protocol,
    S: Stream<Item = Result<P::Response, E>> + 'static,
    E: Into<BoxError>,
{
    fn respond(self) -> Outcome<P::Response> {
        let frames = self.0.map(|frame| frame.map_err(|error| RequestError::Failed(error.into())));
        Ok(Response::Stream(Box::pin(frames)))
    }
}
