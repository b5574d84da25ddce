//! What a server promises: where it listens, whom it admits, how it ends, and that none of its guests spoils it for the others.
#![cfg(feature = "service")]
#![allow(missing_docs, unsafe_code, clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod crowds;
mod descriptors;
mod ends;
mod fixture;
mod limits;
mod preambles;
mod simulated;
mod starts;
mod unix;
