//! What a user says of a protocol: its codec, its routes, its hooks.

use std::fmt::Debug;
use std::hash::Hash;

use tokio_util::codec::{Decoder, Encoder};

use super::connection::{Connection, End};
use super::error::{BoxError, RequestError};

/// A framed protocol, from the server's side. One value of it serves all connections of a core.
///
/// # Hooks
/// All of them are called in the connection's own task, one after another: none is called while another of the same
/// connection runs, and [`set_label`](crate::actor::set_label) in one labels that task. They cannot wait; what they have to say to
/// the peer they push.
///
/// [`connected`](Protocol::connected) comes first and [`disconnected`](Protocol::disconnected) last, once each, whatever
/// ends the connection: the peer, a deadline, a panic, a shutdown, a stop of its task, the end of its core. Between them,
/// each request that was received has one [`command_ended`](Protocol::command_ended), also when it fails or is given
/// up, and each frame that is encoded one [`before_send`](Protocol::before_send) just before.
///
/// A hook or codec that panics ends its connection with [`End::Panicked`], and nothing else. What was encoded before still
/// goes out, in whole frames. [`id`](Protocol::id) and [`correlation`](Protocol::correlation) belong to the request, which
/// fails with [`RequestError::Panicked`].
///
/// # Examples
/// ```
/// use corelet::service::{BoxError, Connection, End, Protocol, RequestError, Verdict};
/// use tokio_util::codec::LinesCodec;
///
/// /// Lines whose first word is the command.
/// struct Commands;
///
/// impl Protocol for Commands {
///     type Codec = LinesCodec;
///     type Request = String;
///     type Response = String;
///     type Id = String;
///     type Session = ();
///
///     fn codec(&self) -> LinesCodec {
///         LinesCodec::new_with_max_length(1024)
///     }
///
///     fn session(&self) {}
///
///     fn id(&self, line: &String) -> Option<String> {
///         line.split_whitespace().next().map(str::to_owned)
///     }
///
///     fn failed(&self, error: &RequestError, _: &Connection<Commands>) -> Verdict<String> {
///         Verdict { reply: Some(format!("error: {error}")), close: false }
///     }
///
///     fn disconnected(&self, connection: &Connection<Commands>, end: &End) {
///         if !end.is_orderly() {
///             eprintln!("connection {}: {end}", connection.id());
///         }
///     }
/// }
/// ```
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

    /// The state of a new connection. Called in its own task, before `connected`.
    fn session(&self) -> Self::Session;

    /// The route of `request`, or none if it names none.
    fn id(&self, request: &Self::Request) -> Option<Self::Id>;

    /// What ties a response to its request, in protocols that have it.
    fn correlation(&self, _request: &Self::Request) -> Option<u64> {
        None
    }

    /// Marks `response` as one to the request with that `correlation`: each frame of a streamed one, the one behind the
    /// last, and what [`failed`](Protocol::failed) gives.
    fn correlate(&self, _response: &mut Self::Response, _correlation: u64) {}

    /// A connection begins. It may push, drain or shut down what has just begun.
    fn connected(&self, _connection: &Connection<Self>) {}

    /// The last look at a frame before it is encoded, be it a response or a push.
    fn before_send(&self, _frame: &mut Self::Response, _connection: &Connection<Self>) {}

    /// A request is done with: its last response frame is encoded, or it is given up, and its handler has been dropped.
    fn command_ended(&self, _connection: &Connection<Self>) {}

    /// The frame behind the last one of a streamed response, in protocols that have one. A stream that fails has what
    /// [`failed`](Protocol::failed) says in its place.
    fn stream_end(&self) -> Option<Self::Response> {
        None
    }

    /// What is answered to a request that has no ordinary response, or whose stream of frames broke off. By default the
    /// connection ends without a word.
    fn failed(&self, _error: &RequestError, _connection: &Connection<Self>) -> Verdict<Self::Response> {
        Verdict { reply: None, close: true }
    }

    /// The peer has sent bytes that are no frame, or a frame that is too long, and the connection is about to end with
    /// `end`: a last word, behind the answers to what came before. A peer that goes on sending gets it, too, unless it
    /// does so for long.
    fn malformed(&self, _end: &End, _connection: &Connection<Self>) -> Option<Self::Response> {
        None
    }

    /// A connection has ended: nothing more comes or goes, pushes are refused, handlers have been dropped.
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
