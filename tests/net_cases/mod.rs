//! The cases of the socket suite.
#![allow(missing_docs, clippy::unwrap_used)]

pub mod accepts;
pub mod back_pressure;
pub mod connects;
pub mod ends;
pub mod transfer;
