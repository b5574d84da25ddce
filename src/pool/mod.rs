//! The sharded connection pool.

mod config;
mod scheduler;

pub use config::Fairness;
