//! The pools of this process, for whoever looks into it from outside.
//!
//! Never: keep a pool open.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::connector::Connector;
use super::shared::Shared;
use super::stats::PoolStats;
use crate::runtime::CoreId;

/// A pool, whatever its connections are.
pub(crate) trait Watched: Send + Sync {
    /// Whether one of its shards is on this core.
    fn is_on(&self, core: CoreId) -> bool;
    fn id(&self) -> u64;
    fn connector(&self) -> &'static str;
    fn slots(&self) -> usize;
    fn is_closed(&self) -> bool;
    fn stats(&self) -> Pin<Box<dyn Future<Output = PoolStats> + '_>>;
}

/// Taken when a pool is built and when somebody looks, never while it is used.
static POOLS: Mutex<Vec<Weak<dyn Watched>>> = Mutex::new(Vec::new());

pub(super) fn register<C: Connector>(shared: &Arc<Shared<C>>) {
    let pool: Weak<Shared<C>> = Arc::downgrade(shared);
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    pools.retain(|pool| pool.strong_count() > 0);
    pools.push(pool);
}

/// The pools that have a shard on `core`, in the order in which they were built. What is dropped of them may be the last of
/// a pool, connector and all.
pub(crate) fn pools_on(core: CoreId) -> Vec<Arc<dyn Watched>> {
    let pools: Vec<_> = {
        let pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.iter().filter_map(Weak::upgrade).collect()
    };
    pools.into_iter().filter(|pool| pool.is_on(core)).collect()
}

impl<C: Connector> Watched for Shared<C> {
    fn is_on(&self, core: CoreId) -> bool {
        self.shard_on(core).is_some()
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn connector(&self) -> &'static str {
        std::any::type_name::<C>()
    }

    fn slots(&self) -> usize {
        Shared::slots(self)
    }

    fn is_closed(&self) -> bool {
        self.is_closing()
    }

    fn stats(&self) -> Pin<Box<dyn Future<Output = PoolStats> + '_>> {
        Box::pin(Shared::stats(self))
    }
}
