//! Services that speak a framed protocol: a codec, routes, and a server that accepts on every core.
//!
//! A [`Protocol`] says what the frames are, an [`App`] where requests go, and a [`Server`] listens. Use it for whatever has
//! requests and answers, or pushes, over TCP or Unix sockets; for bytes that are no frames there is [`net`](crate::net), and for the other
//! side of a connection the pool. The guide, `docs/services.md` in the repository, goes through all of it, with recipes and a
//! comparison with tokio's `Framed`, actix and tower; a whole program is on the [front page](crate#a-tour).
//!
//! | module | has |
//! |---|---|
//! | [`codec`] | ready codecs; any other of `tokio-util`'s traits will do |
//! | [`app`] | routes, arguments of handlers, middleware, shared data; calls without a socket, for tests |
//! | [`connection`] | the actor of each connection, what it may use, how it ended |
//! | [`push`] | frames that nobody asked for, from any core |
//! | [`server`] | accepting, limits, preambles, the end |
//!
//! Servers are started and ended, and frames are pushed, from any core and any thread. Everything else stays on the core of its
//! connection, and need not be `Send`.
//!
//! Never: know what a pool is; hold anything that two cores share but push handles and what bounds a server's connections.

pub mod app;
pub mod codec;
pub mod connection;
mod counters;
mod error;
mod metrics;
mod protocol;
pub mod push;
pub mod server;
mod transport;

pub use app::{App, Prepared};
pub use connection::{Connection, ConnectionId, End, EndReason, Limits, serve};
pub use counters::Counts;
pub use error::{BoxError, PrepareError, Rejection, RequestError};
pub use metrics::{METRICS, Metric, MetricKind};
pub use protocol::{Protocol, Verdict};
pub use server::{Server, ServerHandle};
pub use transport::Transport;
