//! RESP, the protocol of Redis and of what is spoken to like Redis: its second version, for both sides.
//!
//! Never: allocate for a length because it was announced.

mod decode;
mod encode;
mod error;
mod value;

#[cfg(test)]
mod tests;

pub use decode::RespCodec;
pub use error::RespError;
pub use value::Value;
