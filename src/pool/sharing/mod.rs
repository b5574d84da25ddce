//! Sockets that several leases share: a pool of sessions on top of a pool of sockets.
//!
//! The upper pool is an ordinary one whose connections are *sessions*, seats on a socket of the lower pool. So its
//! scheduler gives sessions the same order, bounds and deadlines as connections, and the lower one gives sockets theirs.
//!
//! Never: a session on another core than its socket; a task started by a lease or a call.

mod builder;
mod error;
mod gate;
mod line;
mod members;
mod order;
mod pipeline;
mod sockets;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::pin::Pin;

use super::connector::Connector;
use super::error::AcquireError;
use super::lease::Lease;
use super::pools::Pool;

pub use builder::{PipelinedBuilder, SharedBuilder};
pub use error::{PipelineError, SocketFailure, TurnError};
pub use gate::{Gated, GatedSession};
pub use pipeline::{ById, Identify, InOrder, Matching, Pipelined, PipelinedSession};

/// A socket of the lower pool.
async fn open_lease<C: Connector>(sockets: &Pool<C>) -> io::Result<Lease<C>> {
    sockets.acquire().await.map_err(|error| {
        let kind = match &error {
            AcquireError::Connect { source } => source.kind(),
            AcquireError::Timeout { .. } => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    })
}

/// Closes the lower pool. Boxed, because a pool's close contains its connector's, which may be this one.
fn closed_pool<C: Connector>(sockets: &Pool<C>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
    Box::pin(sockets.close())
}
