//! What can go wrong with a request.

/// Any error, as handlers give it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a request has no ordinary response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The frame names no route.
    #[error("the frame does not say what it is")]
    NoRoute,
    /// No handler is registered for the frame's id, and there is no fallback.
    #[error("there is no route {id}")]
    UnknownRoute {
        /// The id, as `Debug` shows it.
        id: String,
    },
    /// An argument of the handler could not be made from the request.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The handler or a middleware gave an error.
    #[error("the handler failed")]
    Failed(#[source] BoxError),
    /// The handler took longer than [`Limits::request_timeout`](crate::service::Limits::request_timeout) to begin its
    /// response.
    #[error("the handler did not answer within {after:?}")]
    TimedOut {
        /// The limit.
        after: std::time::Duration,
    },
    /// The handler or a middleware panicked.
    #[error("the handler panicked: {message}")]
    Panicked {
        /// What it panicked with, if that was a text.
        message: String,
    },
}

/// An extractor could not make its argument.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be had from the request")]
pub struct Rejection {
    /// What was asked for: the name of a type.
    pub what: &'static str,
    /// Why.
    #[source]
    pub source: Option<BoxError>,
}
