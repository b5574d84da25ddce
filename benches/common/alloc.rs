//! Counts heap allocations of the current thread, and the bytes it holds.
//!
//! A plain thread-local counter, not a shared atomic: counting must not slow down the very operations
//! whose time is being measured, and a read-modify-write per allocation would.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Constant and without a destructor, so that touching it from inside the allocator neither
    // allocates nor registers anything.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// The system allocator with a counter in front.
pub struct Counting;

/// Allocations (and reallocations) made by this thread since it started.
pub fn on_this_thread() -> u64 {
    ALLOCATIONS.get()
}

/// Bytes asked for by this thread minus bytes it has given back; what the allocator adds to each block is not in it.
/// Only differences mean anything, for a block may have come from another thread.
pub fn held_by_this_thread() -> i64 {
    HELD.get()
}

fn count(gained: usize, lost: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    hold(gained, lost);
}

fn hold(gained: usize, lost: usize) {
    HELD.set(HELD.get() + gained as i64 - lost as i64);
}

// SAFETY: every method forwards its arguments unchanged to `System`, which upholds the contract; the
// counter neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `alloc`, which is also the contract of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size, layout.size());
        // SAFETY: as in `alloc`; `block` came from `System` because every path here does.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        hold(0, layout.size());
        // SAFETY: as in `realloc`.
        unsafe { System.dealloc(block, layout) }
    }
}
