//! Framed calls allocate nothing but what their codec does.
#![cfg(feature = "framed")]
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

mod framed;
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use corelet::pool::{FramedConnector, Pool, TcpConnector};
use framed::{Frames, echo_frames, frame};
use support::{Upstream, on_cores};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: hands every call on to the system's allocator unchanged; the counter is a plain thread-local that needs no
// allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: likewise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: likewise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WARM_UP: u64 = 100;
const CALLS: u64 = 1000;

#[test]
fn a_framed_call_allocates_nothing_itself() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(echo_frames);
        let connector = FramedConnector::new(TcpConnector::new(upstream.address), || Frames);
        let pool = Pool::builder(connector).slots_per_core(1).build(&runtime).unwrap();
        let session = pool.handle();
        let mut before = 0;
        for id in 0..WARM_UP + CALLS {
            if id == WARM_UP {
                before = ALLOCATIONS.get();
            }
            let mut lease = session.acquire().await.unwrap();
            assert_eq!(lease.call(frame(id)).await.unwrap(), frame(id));
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "allocations in {CALLS} calls");
        pool.close().await;
    });
}
