//! Connections that speak in frames: a codec on a stream, and calls that send one frame and wait for one.
//!
//! A framed connection counts the replies that its requests call for, and so knows what a raw stream cannot: that a
//! reply is still to come. It is dirty until the last of them has been received.
//!
//! Never: know how many leases use a socket; that is `sharing`.

mod call;
mod connection;
mod connector;
mod error;

pub use call::{Call, Correlated};
pub use connection::{DetachedFramed, FramedConnection};
pub use connector::FramedConnector;
pub use error::FramedError;
