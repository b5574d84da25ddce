//! What handlers give.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};

use super::prepared::Outcome;
use crate::service::error::{BoxError, RequestError};
use crate::service::protocol::Protocol;

/// The frames that answer a request.
pub enum Response<F> {
    /// None at all.
    None,
    /// One.
    One(F),
    /// Any number, as they come. The protocol's [`stream_end`](Protocol::stream_end) follows the last.
    Stream(Pin<Box<dyn Stream<Item = Result<F, RequestError>>>>),
}

impl<F: fmt::Debug> fmt::Debug for Response<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Response::None => f.write_str("None"),
            Response::One(frame) => f.debug_tuple("One").field(frame).finish(),
            Response::Stream(_) => f.write_str("Stream(..)"),
        }
    }
}

/// How a type is a response: by an implementation of its own.
#[derive(Clone, Copy, Debug)]
pub struct AsResponse;

/// How a type is a response: as the protocol's response frame.
#[derive(Clone, Copy, Debug)]
pub struct AsFrame;

/// How a type is a response: by what is in it.
#[derive(Clone, Copy, Debug)]
pub struct ByContent<M>(PhantomData<M>);

/// What a handler can give.
///
/// `M` says in which way, and lets the protocol's response frame, which may be of any type, be a response as it is. The
/// compiler finds it out. Where it cannot, because that frame is an `Option`, say, [`Reply`] says that a frame is meant.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no response of `{P}`",
    label = "a handler cannot give this",
    note = "handlers give `()`, the protocol's response frame, `Reply`, `Frames`, `Streamed`, or an `Option` or `Result` of one of those",
    note = "the error of a `Result` is an error type, a `String` or a `&str`"
)]
pub trait Respond<P: Protocol, M = AsResponse> {
    /// Makes a response of it.
    ///
    /// # Errors
    /// What the handler gave as an error.
    fn respond(self) -> Outcome<P::Response>;
}

/// Nothing is answered.
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

/// One frame.
impl<F, P: Protocol<Response = F>> Respond<P, AsFrame> for F {
    #[inline]
    fn respond(self) -> Outcome<F> {
        Ok(Response::One(self))
    }
}

/// Nothing is answered where there is nothing.
impl<P: Protocol, R: Respond<P, M>, M> Respond<P, ByContent<M>> for Option<R> {
    fn respond(self) -> Outcome<P::Response> {
        self.map_or(Ok(Response::None), R::respond)
    }
}

/// The request fails with the error, of which [`RequestError`] keeps the sources. An error that is a `RequestError` stays the one it is.
impl<P: Protocol, R: Respond<P, M>, M, E: Into<BoxError>> Respond<P, ByContent<M>> for Result<R, E> {
    #[inline]
    fn respond(self) -> Outcome<P::Response> {
        self.map_err(failed)?.respond()
    }
}

/// Wraps `error`, unless it is what it would be wrapped into.
fn failed(error: impl Into<BoxError>) -> RequestError {
    error.into().downcast().map_or_else(RequestError::failed, |error| *error)
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<F>(pub F);

impl<P: Protocol> Respond<P> for Reply<P::Response> {
    #[inline]
    fn respond(self) -> Outcome<P::Response> {
        Ok(Response::One(self.0))
    }
}

/// The frames of a `Vec`, an array or any other iterator, one after the other. An iterator that computes them does so as they
/// are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames<I>(pub I);

impl<P, I> Respond<P> for Frames<I>
where
    P: Protocol,
    I: IntoIterator<Item = P::Response, IntoIter: 'static>,
{
    fn respond(self) -> Outcome<P::Response> {
        Ok(Response::Stream(Box::pin(stream::iter(self.0.into_iter().map(Ok)))))
    }
}

/// The frames of a stream, as they come; its first error ends the request.
#[derive(Clone, Copy, Debug)]
pub struct Streamed<S>(pub S);

impl<P, S, E> Respond<P> for Streamed<S>
where
    P: Protocol,
    S: Stream<Item = Result<P::Response, E>> + 'static,
    E: Into<BoxError>,
{
    fn respond(self) -> Outcome<P::Response> {
        Ok(Response::Stream(Box::pin(self.0.map(|frame| frame.map_err(failed)))))
    }
}
