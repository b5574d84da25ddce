//! An uncontended local acquire and release costs no task, no allocation and no kernel entry.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use corelet::pool::{Connector, Handle, Pool, TcpConnector};
use corelet::runtime::{CoreStats, core_stats, sleep};
use support::{Memory, Upstream, assert_settled, on_cores, shard};

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

const ROUNDS: u64 = 100_000;

/// A task's budget makes it yield now and then; rounds between two yields are within one poll.
const ROUNDS_PER_POLL: u64 = 100;

struct Cost {
    spawned: u64,
    allocations: u64,
    enters: u64,
    submitted: u64,
}

fn cost(before: &CoreStats, allocations: u64) -> Cost {
    let now = core_stats().unwrap();
    Cost {
        spawned: now.executor.spawned - before.executor.spawned,
        allocations: ALLOCATIONS.get() - allocations,
        enters: now.driver.enters - before.driver.enters,
        submitted: now.driver.submitted - before.driver.submitted,
    }
}

/// Acquires and releases; nothing else that could allocate or enter the kernel happens in between.
async fn churn<C: Connector>(handle: &Handle<C>) -> Cost {
    let (before, allocations) = (core_stats().unwrap(), ALLOCATIONS.get());
    for round in 0..ROUNDS {
        drop(handle.acquire().await.unwrap());
        if round % ROUNDS_PER_POLL == 0 {
            corelet::runtime::yield_now().await;
        }
    }
    cost(&before, allocations)
}

async fn check<C: Connector>(pool: &Pool<C>) {
    let handle = pool.handle();
    drop(handle.acquire().await.unwrap());
    // The connection becomes idle, and its receive is armed, before anything is counted.
    let before = shard(pool, 0).await;
    // The other core, which was asked too, may have rung this one's doorbell: until a sleep brings no completion.
    let mut seen = 0;
    support::poll_until(async || {
        sleep(Duration::from_millis(1)).await;
        let completions = core_stats().unwrap().driver.completions;
        std::mem::replace(&mut seen, completions) == completions
    })
    .await;
    // And if it rings late, it does so once.
    let mut cost = churn(&handle).await;
    let mut rounds = ROUNDS;
    if (cost.enters, cost.submitted) != (0, 0) {
        cost = churn(&handle).await;
        rounds += ROUNDS;
    }
    assert_eq!((cost.spawned, cost.allocations), (0, 0), "tasks, allocations");
    assert_eq!((cost.enters, cost.submitted), (0, 0), "kernel entries, entries submitted");
    let stats = pool.stats().await;
    let here = &stats.shards[0];
    assert_eq!(here.acquires - before.acquires, rounds);
    assert_eq!(here.granted_immediately - before.granted_immediately, rounds);
    assert_eq!((here.capacity_waits, here.opens), (before.capacity_waits, 1));
    assert!(stats.shards.iter().all(|shard| shard.scheduler_spawns == 1), "{stats:?}");
    assert_settled(here);
}

#[test]
fn churn_of_a_trivial_connection_costs_no_task_no_allocation_and_no_kernel_entry() {
    on_cores(2, async move |runtime, _| {
        let pool = Pool::builder(Memory::default()).build(&runtime).unwrap();
        check(&pool).await;
        pool.close().await;
    });
}

#[test]
fn churn_of_an_idle_tcp_connection_costs_no_task_no_allocation_and_no_kernel_entry() {
    let upstream = Upstream::echo();
    let address = upstream.address;
    on_cores(2, async move |runtime, _| {
        let pool = Pool::builder(TcpConnector::new(address)).build(&runtime).unwrap();
        check(&pool).await;
        pool.close().await;
    });
}

#[test]
fn an_acquire_that_waits_and_one_that_is_forwarded_start_no_task() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        let far = pool.handle_on(cores[1]).unwrap();
        let near = pool.handle();
        drop((near.acquire().await.unwrap(), far.acquire().await.unwrap()));
        let spawned = core_stats().unwrap().executor.spawned;
        for _ in 0..200 {
            drop(far.acquire().await.unwrap());
            let lease = near.acquire().await.unwrap();
            let mut waiting = near.acquire();
            assert!(support::poll_once(&mut waiting).await.is_pending());
            drop(lease);
            drop(waiting.await.unwrap());
        }
        assert_eq!(core_stats().unwrap().executor.spawned, spawned);
        let stats = pool.stats().await;
        assert_eq!((stats.shards[0].capacity_waits, stats.shards[0].scheduler_spawns), (201, 1));
        assert_eq!(stats.shards[1].scheduler_spawns, 1);
        pool.close().await;
    });
}
