//! What the protocol's file imports: loom's atomics, with plain stores made exact.
//!
//! The language orders all writes to one atomic in one line, and an exchange takes the last of them. Loom 0.7 orders only
//! those writes that know of each other, so an exchange may take the place of a store that it should have seen overwritten.
//! A store that is itself an exchange knows of the write before it, which restores the line; for a relaxed store that no
//! release precedes but by fences, it makes nothing stronger.

pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

#[derive(Debug)]
pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

impl AtomicBool {
    pub(crate) fn new(value: bool) -> AtomicBool {
        AtomicBool(loom::sync::atomic::AtomicBool::new(value))
    }

    pub(crate) fn load(&self, ordering: Ordering) -> bool {
        self.0.load(ordering)
    }

    pub(crate) fn store(&self, value: bool, ordering: Ordering) {
        self.0.swap(value, ordering);
    }

    pub(crate) fn swap(&self, value: bool, ordering: Ordering) -> bool {
        self.0.swap(value, ordering)
    }
}

#[derive(Debug)]
pub(crate) struct AtomicU8(loom::sync::atomic::AtomicU8);

impl AtomicU8 {
    pub(crate) fn new(value: u8) -> AtomicU8 {
        AtomicU8(loom::sync::atomic::AtomicU8::new(value))
    }

    pub(crate) fn load(&self, ordering: Ordering) -> u8 {
        self.0.load(ordering)
    }

    pub(crate) fn store(&self, value: u8, ordering: Ordering) {
        self.0.swap(value, ordering);
    }

    pub(crate) fn swap(&self, value: u8, ordering: Ordering) -> u8 {
        self.0.swap(value, ordering)
    }

    pub(crate) fn compare_exchange(
        &self,
        current: u8,
        new: u8,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u8, u8> {
        self.0.compare_exchange(current, new, success, failure)
    }
}
