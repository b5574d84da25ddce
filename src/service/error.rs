//! What can go wrong with a request, and with putting an application together.

use std::any::Any;
use std::fmt;

use crate::runtime::executor::{contain, panic_message};

/// Any error, as handlers give it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a request has no ordinary response.
///
/// Handlers and middleware that fail make one by [`failed`](RequestError::failed), or by `?` in a handler that gives a
/// `Result`; the application adds the name of the route.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The frame names no route.
    #[error("the frame does not say what it is")]
    NoRoute,
    /// No handler is registered for the frame's id, and there is no fallback.
    #[error("there is no route {id}")]
    UnknownRoute {
        /// The id, as `Debug` shows it; a long one is cut, for it comes from the peer.
        id: String,
    },
    /// An argument of the handler could not be made from the request.
    #[error("the request{} was rejected", At("to", .route))]
    Rejected {
        /// The route's id, as `Debug` shows it.
        route: Option<Box<str>>,
        /// By what.
        #[source]
        rejection: Rejection,
    },
    /// The handler or a middleware gave an error.
    #[error("the handler{} failed", At("of", .route))]
    Failed {
        /// The route's id, as `Debug` shows it.
        route: Option<Box<str>>,
        /// The error.
        source: BoxError,
    },
    /// The handler took longer than [`Limits::request_timeout`](crate::service::Limits::request_timeout) to begin its
    /// response.
    #[error("the handler did not answer within {after:?}")]
    TimedOut {
        /// The limit.
        after: std::time::Duration,
    },
    /// The handler, a middleware, an extractor or what the protocol says of requests panicked.
    #[error("the handler{} panicked: {message}", At("of", .route))]
    Panicked {
        /// The route's id, as `Debug` shows it. None when the panic came before the route was found.
        route: Option<Box<str>>,
        /// What it panicked with, if that was a text.
        message: String,
    },
}

/// A route's name behind a preposition, or nothing.
struct At<'a>(&'static str, &'a Option<Box<str>>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.as_ref().map_or(Ok(()), |route| write!(f, " {} {route}", self.0))
    }
}

impl RequestError {
    /// An error of a handler or a middleware.
    pub fn failed(source: impl Into<BoxError>) -> RequestError {
        RequestError::Failed { route: None, source: source.into() }
    }

    /// The id of the route whose handler failed, as `Debug` shows it.
    pub fn route(&self) -> Option<&str> {
        match self {
            RequestError::NoRoute | RequestError::UnknownRoute { .. } | RequestError::TimedOut { .. } => None,
            RequestError::Rejected { route, .. }
            | RequestError::Failed { route, .. }
            | RequestError::Panicked { route, .. } => route.as_deref(),
        }
    }

    /// Whether something panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self, RequestError::Panicked { .. })
    }

    /// Whether it was the request that named no handler.
    pub fn is_unrouted(&self) -> bool {
        matches!(self, RequestError::NoRoute | RequestError::UnknownRoute { .. })
    }

    /// What became of a panic's payload.
    pub(crate) fn from_panic(payload: Box<dyn Any + Send>) -> RequestError {
        let message = panic_message(&*payload).to_owned();
        contain("a panic's payload", || drop(payload));
        RequestError::Panicked { route: None, message }
    }

    /// The same, with the route it came to pass in.
    pub(crate) fn at(mut self, name: &str) -> RequestError {
        match &mut self {
            RequestError::NoRoute | RequestError::UnknownRoute { .. } | RequestError::TimedOut { .. } => {}
            RequestError::Rejected { route, .. }
            | RequestError::Failed { route, .. }
            | RequestError::Panicked { route, .. } => {
                route.get_or_insert_with(|| name.into());
            }
        }
        self
    }
}

impl From<Rejection> for RequestError {
    fn from(rejection: Rejection) -> RequestError {
        RequestError::Rejected { route: None, rejection }
    }
}

/// An extractor could not make its argument.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be had from the request")]
#[non_exhaustive]
pub struct Rejection {
    /// What was asked for: the name of a type.
    pub what: &'static str,
    /// Why.
    #[source]
    pub source: Option<BoxError>,
}

impl Rejection {
    /// There is no `what`.
    pub fn new(what: &'static str) -> Rejection {
        Rejection { what, source: None }
    }

    /// A `T` could not be made because of `source`.
    pub fn of<T>(source: impl Into<BoxError>) -> Rejection {
        Rejection { what: std::any::type_name::<T>(), source: Some(source.into()) }
    }
}

/// An application cannot be put together. Handlers are named as the compiler names their types.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// Two handlers for one id.
    #[error("the route {route} has two handlers: {first} and {second}")]
    DuplicateRoute {
        /// The id, as `Debug` shows it, or `fallback`.
        route: String,
        /// The one that came first.
        first: &'static str,
        /// The one that came second.
        second: &'static str,
    },
    /// Two values of one type, of which handlers could get only one.
    #[error("there are two values of {data}; share one, or give each a type of its own")]
    DuplicateData {
        /// The type.
        data: &'static str,
    },
    /// A handler or a middleware needs data that is not there.
    #[error(
        "{by} at the route {route} needs `Data<{data}>`, and the application has no `{data}`: give it one by `App::data`"
    )]
    MissingData {
        /// The id, as `Debug` shows it, or `fallback`.
        route: String,
        /// The handler or middleware.
        by: &'static str,
        /// The type.
        data: &'static str,
    },
    /// Two arguments of a handler take the request, of which there is one.
    #[error("{by} at the route {route} takes the request twice: as {first} and as {second}")]
    RequestTakenTwice {
        /// The id, as `Debug` shows it, or `fallback`.
        route: String,
        /// The handler.
        by: &'static str,
        /// The argument that gets it.
        first: &'static str,
        /// The argument that would not.
        second: &'static str,
    },
    /// What should have made the application gave an error.
    #[error("the application could not be made")]
    Factory(#[source] BoxError),
}
