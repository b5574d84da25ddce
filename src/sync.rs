//! The one seam that swaps std and loom: every atomic that takes part in a modelled protocol comes from here.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
#[cfg(all(not(loom), feature = "pool"))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU64};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence};
