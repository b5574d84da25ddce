//! One pinned, single-threaded io_uring runtime per core, with a sharded connection pool.
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used))]

pub mod net;
pub mod pool;
pub mod runtime;
mod sync;
