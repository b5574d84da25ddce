//! A pool whose leases share the ownership of all that is above them.

use std::sync::Arc;

use corelet::pool::Fairness;
use corelet::runtime::RuntimeHandle;

use super::Subject;

struct PoolNode {
    slots: Vec<Arc<SlotNode>>,
}

struct SlotNode {
    permits: Arc<PermitsNode>,
}

struct PermitsNode(usize);

/// `S` with a graph of shared references beside it, as deep as slots, permits and pool are. A lease clones its way up.
///
/// Only ownership differs: the pool that serves is `S` itself.
pub struct ClonedGraph<S> {
    pool: S,
    graph: Arc<PoolNode>,
}

pub struct GraphHandle<H> {
    handle: H,
    graph: Arc<PoolNode>,
}

/// Fields go in this order, so what is above goes last.
pub struct GraphLease<L> {
    _lease: L,
    _permits: Arc<PermitsNode>,
    _slot: Arc<SlotNode>,
    _pool: Arc<PoolNode>,
}

impl<S: Subject> Subject for ClonedGraph<S> {
    const NAME: &'static str = "cloned_graph";
    const REFERENCE: bool = true;
    const TASKS_PER_LEASE: u64 = S::TASKS_PER_LEASE;

    /// The pool's node and its table, and two nodes a slot.
    fn allocations_added(slots: usize) -> Option<u64> {
        S::allocations_added(slots).map(|added| added + 2 + 2 * slots as u64)
    }

    type Handle = GraphHandle<S::Handle>;
    type Lease = GraphLease<S::Lease>;

    fn new(runtime: &RuntimeHandle, slots: usize, fairness: Fairness) -> ClonedGraph<S> {
        let slot = |number| Arc::new(SlotNode { permits: Arc::new(PermitsNode(number)) });
        let graph = Arc::new(PoolNode { slots: (0..slots).map(slot).collect() });
        ClonedGraph { pool: S::new(runtime, slots, fairness), graph }
    }

    fn handle(&self) -> GraphHandle<S::Handle> {
        GraphHandle { handle: self.pool.handle(), graph: Arc::clone(&self.graph) }
    }

    #[inline]
    async fn acquire(handle: &GraphHandle<S::Handle>) -> GraphLease<S::Lease> {
        let lease = S::acquire(&handle.handle).await;
        let slot = Arc::clone(&handle.graph.slots[0]);
        GraphLease {
            _lease: lease,
            _permits: Arc::clone(&slot.permits),
            _slot: slot,
            _pool: Arc::clone(&handle.graph),
        }
    }

    async fn capacity_waits(&self) -> u64 {
        self.pool.capacity_waits().await
    }

    async fn scheduler_spawns(&self) -> u64 {
        self.pool.scheduler_spawns().await
    }

    async fn close(self) {
        self.pool.close().await;
    }
}
