//! What the pool's tests share: looks at the stats of shards, and an in-memory connection.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use corelet::pool::{Connection, Connector, Pool, PoolStats, ShardStats};
use corelet::runtime::{Watch, sleep};

use super::poll_until_at;

/// The stats of one shard.
pub async fn shard<C: Connector>(pool: &Pool<C>, index: usize) -> ShardStats {
    pool.stats().await.shards[index].clone()
}

/// The stats of one shard once all is quiet there, and not before other cores and its scheduler have heard of it; they
/// are as they must be then.
#[track_caller]
pub fn settled<C: Connector>(pool: &Pool<C>, index: usize) -> impl Future<Output = ShardStats> {
    let place = std::panic::Location::caller();
    async move {
        let mut stats = shard(pool, index).await;
        poll_until_at(place, async || {
            stats = shard(pool, index).await;
            (stats.leased, stats.waiting, stats.opening, stats.checking, stats.closing) == (0, 0, 0, 0, 0)
        })
        .await;
        assert_settled(&stats);
        stats
    }
}

/// The same of all shards.
#[track_caller]
pub fn all_settled<C: Connector>(pool: &Pool<C>) -> impl Future<Output = PoolStats> {
    let place = std::panic::Location::caller();
    async move {
        let mut stats = pool.stats().await;
        poll_until_at(place, async || {
            stats = pool.stats().await;
            let busy = |shard: &ShardStats| {
                shard.leased + shard.waiting + shard.opening + shard.checking + shard.closing
            };
            stats.shards.iter().map(busy).sum::<usize>() == 0
        })
        .await;
        stats.shards.iter().for_each(assert_settled);
        stats
    }
}

/// Every acquire's fate is known and every connection in its place: what must hold when all is quiet.
pub fn assert_settled(stats: &ShardStats) {
    assert_eq!((stats.leased, stats.waiting, stats.opening, stats.closing), (0, 0, 0, 0), "{stats:?}");
    let fates = stats.granted_immediately
        + stats.granted_after_wait
        + stats.cancelled
        + stats.timed_out
        + stats.saturated
        + stats.would_miss
        + stats.shed
        + stats.refused;
    assert_eq!(stats.acquires, fates, "every acquire has one fate: {stats:?}");
    let ended = stats.connect_failures + stats.closes.iter().sum::<u64>();
    assert_eq!(stats.opens, ended + stats.idle as u64, "every open has one end: {stats:?}");
}

/// How the in-memory connections of one connector behave, and what became of them.
#[derive(Default)]
pub struct Script {
    /// Connecting waits while this is set.
    pub hold_connects: AtomicBool,
    /// Connecting fails while this is set.
    pub fail_connects: AtomicBool,
    /// Connecting panics while this is set.
    pub panic_connects: AtomicBool,
    /// Closing waits while this is set.
    pub hold_closes: AtomicBool,
    /// Leaving the core waits while this is set; until then the connection counts as busy.
    pub hold_quiesce: AtomicBool,
    /// What makes a connection fit to leave its core fails while this is set.
    pub fail_quiesce: AtomicBool,
    /// `is_quiet` panics while this is set.
    pub panic_is_quiet: AtomicBool,
    /// `arm` panics while this is set.
    pub panic_arm: AtomicBool,
    /// `attach` panics while this is set.
    pub panic_attach: AtomicBool,
    /// `close` panics while this is set.
    pub panic_close: AtomicBool,
    pub connects: AtomicUsize,
    pub live: AtomicUsize,
    /// The most connections there have been at one time.
    pub peak: AtomicUsize,
}

pub fn set(flag: &AtomicBool, on: bool) {
    flag.store(on, Ordering::SeqCst);
}

impl Script {
    pub fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }

    pub fn connects(&self) -> usize {
        self.connects.load(Ordering::SeqCst)
    }

    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::SeqCst)
    }
}

async fn while_set(flag: &AtomicBool) {
    while flag.load(Ordering::SeqCst) {
        sleep(Duration::from_micros(100)).await;
    }
}

/// Opens in-memory connections.
#[derive(Clone, Default)]
pub struct Memory(pub Arc<Script>);

/// A connection without a socket.
pub struct MemoryConnection {
    pub number: usize,
    script: Arc<Script>,
    watch: Option<Watch>,
}

/// It between two cores.
pub struct MemoryDetached {
    number: usize,
    script: Arc<Script>,
}

impl MemoryConnection {
    fn live(number: usize, script: Arc<Script>) -> MemoryConnection {
        let live = script.live.fetch_add(1, Ordering::SeqCst) + 1;
        script.peak.fetch_max(live, Ordering::SeqCst);
        MemoryConnection { number, script, watch: None }
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        self.script.live.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for MemoryDetached {
    fn drop(&mut self) {
        self.script.live.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Connector for Memory {
    type Connection = MemoryConnection;

    async fn connect(&self) -> io::Result<MemoryConnection> {
        let script = &self.0;
        let number = script.connects.fetch_add(1, Ordering::SeqCst);
        while_set(&script.hold_connects).await;
        assert!(!script.panic_connects.load(Ordering::SeqCst), "connect panics on purpose");
        if script.fail_connects.load(Ordering::SeqCst) {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "refused on purpose"));
        }
        Ok(MemoryConnection::live(number, Arc::clone(script)))
    }
}

impl Connection for MemoryConnection {
    type Detached = MemoryDetached;

    fn is_quiet(&self) -> bool {
        assert!(!self.script.panic_is_quiet.load(Ordering::Relaxed), "is_quiet panics on purpose");
        true
    }

    fn arm(&mut self, watch: Watch) {
        assert!(!self.script.panic_arm.load(Ordering::Relaxed), "arm panics on purpose");
        self.watch = Some(watch);
    }

    fn poll_quiesce(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.script.hold_quiesce.load(Ordering::SeqCst) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.watch = None;
        match self.script.fail_quiesce.load(Ordering::SeqCst) {
            true => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            false => Poll::Ready(Ok(())),
        }
    }

    fn detach(self) -> Result<MemoryDetached, Self> {
        let script = &self.script;
        let busy = script.hold_quiesce.load(Ordering::SeqCst) || script.fail_quiesce.load(Ordering::SeqCst);
        if busy || self.watch.is_some() {
            return Err(self);
        }
        script.live.fetch_add(1, Ordering::SeqCst);
        Ok(MemoryDetached { number: self.number, script: Arc::clone(script) })
    }

    fn attach(detached: MemoryDetached) -> Self {
        assert!(!detached.script.panic_attach.load(Ordering::SeqCst), "attach panics on purpose");
        detached.script.live.fetch_add(1, Ordering::SeqCst);
        MemoryConnection { number: detached.number, script: Arc::clone(&detached.script), watch: None }
    }

    async fn close(self) {
        while_set(&self.script.hold_closes).await;
        assert!(!self.script.panic_close.load(Ordering::SeqCst), "close panics on purpose");
    }
}
