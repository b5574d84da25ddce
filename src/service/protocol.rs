//! What a user says of a protocol: its codec, its routes, its hooks.

use std::fmt::Debug;
use std::hash::Hash;

use tokio_util::codec::{Decoder, Encoder};

use super::connection::{Connection, End};
use super::error::{BoxError, RequestError};

/// A framed protocol, from the server's side. One value of it serves all connections of a core.
pub trait Protocol: Sized + 'static {
    /// Cuts bytes into requests and makes bytes of responses. Any codec of `tokio-util`'s traits.
    type Codec: Decoder<Item = Self::Request, Error: Into<BoxError>>
        + Encoder<Self::Response, Error: Into<BoxError>>
        + 'static;
    /// The frames that clients send.
    type Request: 'static;
    /// The frames that are sent to clients: responses and pushes.
    type Response: 'static;
    /// What chooses the route of a request.
    type Id: Eq + Hash + Debug + 'static;
    /// What a connection keeps of its own, made when it is accepted.
    type Session: 'static;

    /// A codec for a new connection.
    fn codec(&self) -> Self::Codec;

    /// The state of a new connection.
    fn session(&self) -> Self::Session;

    /// The route of `request`, or none if it names none.
    fn id(&self, request: &Self::Request) -> Option<Self::Id>;

    /// What ties a response to its request, in protocols that have it.
    fn correlation(&self, _request: &Self::Request) -> Option<u64> {
        None
    }

    /// Marks `response` as one to the request with that `correlation`.
    fn correlate(&self, _response: &mut Self::Response, _correlation: u64) {}

    /// A connection begins.
    fn connected(&self, _connection: &Connection<Self>) {}

    /// The last look at a frame before it is encoded, be it a response or a push.
    fn before_send(&self, _frame: &mut Self::Response, _connection: &Connection<Self>) {}

    /// A request is done with: its last response frame is on its way.
    fn command_ended(&self, _connection: &Connection<Self>) {}

    /// The frame behind the last one of a streamed response, in protocols that have one.
    fn stream_end(&self) -> Option<Self::Response> {
        None
    }

    /// What is answered to a request that has no ordinary response.
    fn failed(&self, _error: &RequestError, _connection: &Connection<Self>) -> Verdict<Self::Response> {
        Verdict { reply: None, close: true }
    }

    /// The peer has sent bytes that are no frame, or a frame that is too long, and the connection is about to end with
    /// `end`: a last word, behind the answers to what came before. A peer that goes on sending gets it, too, unless it
    /// does so for long.
    fn malformed(&self, _end: &End, _connection: &Connection<Self>) -> Option<Self::Response> {
        None
    }

    /// A connection has ended.
    fn disconnected(&self, _connection: &Connection<Self>, _end: &End) {}
}

/// What follows a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict<F> {
    /// Sent in the place of a response.
    pub reply: Option<F>,
    /// Ends the connection when that is sent.
    pub close: bool,
}
