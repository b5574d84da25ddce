//! A server that accepts on every core.

mod accept;
mod builder;
mod handle;

pub use builder::{Server, StartError};
pub use handle::ServerHandle;
