//! The sharded connection pool: on each core a shard of slots and waiters with one scheduler actor.
//!
//! A handle on its shard's own core calls the scheduler's transitions directly; a handle on another core sends it a
//! command. The connection's I/O always runs on the core that holds the lease.
//!
//! Never: a lock, an atomic read-modify-write, an allocation, a system call or a look at the clock on the path of an
//! uncontended local acquire and release.

mod acquire;
mod actor;
mod addresses;
mod carrier;
mod config;
mod connection;
mod connector;
mod errands;
mod error;
mod event;
#[cfg(feature = "framed")]
mod framed;
mod handle;
mod histogram;
mod lease;
mod ledger;
mod metrics;
mod pools;
mod remote;
mod scheduler;
mod shard;
mod shared;
#[cfg(feature = "framed")]
mod sharing;
mod stats;
#[cfg(feature = "observer")]
pub(crate) mod watched;

pub use acquire::Acquire;
pub use addresses::{Addresses, Resolve};
pub use config::{Affinity, Fairness, PoolBuilder};
pub use connection::Connection;
pub use connector::{Connector, TcpConnector, UnixConnector};
pub use error::{AcquireError, BuildError, ExchangeError, Stage};
pub use event::{Event, EventKind};
#[cfg(feature = "framed")]
pub use framed::{Call, Correlated, DetachedFramed, FramedConnection, FramedConnector, FramedError};
pub use handle::Handle;
pub use histogram::WaitHistogram;
pub use lease::Lease;
pub use metrics::{METRICS, Metric, MetricKind};
pub use pools::Pool;
pub use scheduler::CloseReason;
pub use shared::Refresh;
#[cfg(feature = "framed")]
pub use sharing::{
    ById, Gated, GatedSession, Identify, InOrder, Matching, PipelineError, Pipelined, PipelinedBuilder,
    PipelinedSession, SharedBuilder, SocketFailure, TurnError,
};
pub use stats::{OutstandingLease, PoolStats, ShardStats};
