//! What ownership costs: each design beside the one that it took the place of, driven by the same scenario.
//!
//! A scope is a folder or a file with one trait, its subjects, and two kinds of scenario. One *counts*: so many operations,
//! after which allocations, tasks and calls are known exactly and are asserted. The other *times*, and asserts nothing
//! about time. The references, which are what came before, live here and nowhere else.
//!
//! Never: conclude a count from a time; open a socket, except to see connections arrive (`startup`).
// Each of the bench and its tests uses a part of it.
#![allow(dead_code)]

pub mod connection;
pub mod counts;
pub mod latency;
pub mod machine;
pub mod memory;
pub mod pool;
pub mod push;
pub mod report;
pub mod samples;
pub mod startup;

use crate::common::alloc::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
