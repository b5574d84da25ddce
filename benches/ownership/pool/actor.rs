//! corelet's own pool.

use corelet::pool::{Fairness, Handle, Lease, Pool};
use corelet::runtime::RuntimeHandle;

use super::Subject;
use crate::common::{Numbers, numbers};

/// One scheduler a shard, which owns slots and waiters by value.
pub struct Actor(Pool<Numbers>);

impl Subject for Actor {
    const NAME: &'static str = "actor";
    const REFERENCE: bool = false;
    const TASKS_PER_LEASE: u64 = 0;

    fn allocations_added(_: usize) -> Option<u64> {
        Some(0)
    }

    type Handle = Handle<Numbers>;
    type Lease = Lease<Numbers>;

    fn new(runtime: &RuntimeHandle, slots: usize, fairness: Fairness) -> Actor {
        Actor(numbers(runtime, slots, fairness))
    }

    fn handle(&self) -> Handle<Numbers> {
        self.0.handle()
    }

    #[inline]
    async fn acquire(handle: &Handle<Numbers>) -> Lease<Numbers> {
        handle
            .acquire()
            .await
            .expect("the pool is open, and nobody limits its waiters to fewer than there are")
    }

    async fn capacity_waits(&self) -> u64 {
        self.0.stats().await.sum(|shard| shard.capacity_waits)
    }

    async fn scheduler_spawns(&self) -> u64 {
        self.0.stats().await.sum(|shard| shard.scheduler_spawns)
    }

    async fn close(self) {
        self.0.close().await;
    }
}
