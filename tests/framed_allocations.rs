//! Framed calls allocate nothing but what their codec does.
#![cfg(feature = "framed")]
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

mod framed;
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use std::rc::Rc;

use corelet::pool::{Connector, FramedConnector, Pool, TcpConnector};
use corelet::runtime::spawn;
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

/// So many leases call at the same time; each task's first calls warm up.
async fn count<C, F>(pool: Pool<C>, call: F) -> u64
where
    C: Connector,
    F: AsyncFn(&mut corelet::pool::Lease<C>, u64) + 'static,
{
    let (call, start) = (Rc::new(call), Rc::new(Cell::new(None)));
    let mut tasks = Vec::new();
    for client in 0..16_u64 {
        let (session, call, start) = (pool.handle(), Rc::clone(&call), Rc::clone(&start));
        tasks.push(spawn(async move {
            for number in 0..WARM_UP + CALLS {
                if number == WARM_UP && client == 15 {
                    start.set(Some(ALLOCATIONS.get()));
                }
                let mut lease = session.acquire().await.unwrap();
                call(&mut lease, client << 32 | number).await;
            }
            ALLOCATIONS.get()
        }));
    }
    let mut end = u64::MAX;
    for task in tasks {
        end = end.min(task.await.unwrap());
    }
    pool.close().await;
    end - start.get().unwrap()
}

#[test]
fn pipelined_calls_allocate_nothing_themselves() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(echo_frames);
        let connector = || FramedConnector::new(TcpConnector::new(upstream.address), || Frames);
        let builder = || Pool::builder(connector()).slots_per_core(1).leases_per_slot(16);
        let call = async |lease: &mut corelet::pool::Lease<_>, id| {
            assert_eq!(lease.call(frame(id)).await.unwrap(), frame(id));
        };
        assert_eq!(count(builder().pipelined().build(&runtime).unwrap(), call).await, 0, "in order");
        let call = async |lease: &mut corelet::pool::Lease<_>, id| {
            assert_eq!(lease.call(frame(id)).await.unwrap(), frame(id));
        };
        assert_eq!(count(builder().pipelined_by_id().build(&runtime).unwrap(), call).await, 0, "by id");
        let call = async |lease: &mut corelet::pool::Lease<_>, id| {
            assert_eq!(lease.call(frame(id)).await.unwrap(), frame(id));
        };
        assert_eq!(count(builder().build(&runtime).unwrap(), call).await, 0, "in turn");
    });
}
