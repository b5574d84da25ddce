//! Services that speak a framed protocol: a codec, routes, and a server that accepts on every core.
//!
//! Never: know what a pool is; hold anything that two cores share but the push handles and the counters of a server.

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
