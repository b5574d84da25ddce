//! A server that accepts on every core.

mod accept;
mod address;
mod builder;
mod error;
mod gate;
mod handle;
mod keeper;
mod preamble;
mod settings;
mod share;
mod stats;

pub use address::{Address, Peer};
pub use builder::Server;
pub use error::{DrainTimeout, PreambleError, StartError};
pub use handle::{Drained, ServerHandle};
pub use preamble::Opening;
pub use settings::WhenFull;
pub use stats::{ConnectionInfo, ServerCoreStats, ServerStats};
