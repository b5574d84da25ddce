//! A world with a real Redis: cores, a pool, and a load of clients that each check what they get.

#![allow(dead_code)]

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use corelet::pool::{AcquireError, Connector, Pool, PoolStats};
use corelet::runtime::{CoreId, RemoteJoinHandle, Runtime, RuntimeHandle, sleep, spawn};

use crate::common::{open_descriptors, wait_for};
use crate::redis::{Memory, Redis};
use crate::support::{self, PATIENCE, assert_settled, block_until, watched};

pub const SLOTS: usize = 3;
/// How long a request may wait for a connection, and how long for its reply.
#[derive(Clone, Copy)]
pub struct Limits {
    pub acquire: Duration,
    pub exchange: Duration,
}

impl Limits {
    /// For a load that meets a Redis in trouble. On a busy machine a request may run into them without any.
    pub const SHORT: Limits =
        Limits { acquire: Duration::from_millis(300), exchange: Duration::from_millis(100) };
    /// For requests that must succeed.
    pub const LONG: Limits = Limits { acquire: PATIENCE, exchange: PATIENCE };
}

/// How late either may end on a busy machine.
const SLACK: Duration = Duration::from_secs(10);

static TURN: Mutex<()> = Mutex::new(());

pub struct World<C: Connector> {
    pub redis: Redis,
    pub runtime: Runtime,
    pub pool: Pool<C>,
    pub cores: Vec<CoreId>,
    /// How many sockets the pool holds.
    sockets: fn(&Pool<C>) -> u64,
}

/// Who asks, with a name that nobody else has.
pub trait Asks<C: Connector>: Sized + 'static {
    fn new(pool: &Pool<C>, cores: &[CoreId], name: String) -> Self;

    /// Makes one request, and checks its reply and the time it took.
    fn ask(&mut self) -> impl Future<Output = Result<(), Failure>>;
}

/// Runs a test in a world of so many cores, with a pool of [`SLOTS`] sockets on each, and checks that nothing is left.
pub fn in_world<C: Connector>(
    cores: usize,
    build: fn(SocketAddr, &RuntimeHandle) -> Pool<C>,
    sockets: fn(&Pool<C>) -> u64,
    test: fn(&mut World<C>),
) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(redis) = Redis::start(Memory::Nothing) else { return };
    watched(move || {
        let base = open_descriptors();
        let runtime = support::runtime(cores);
        let pool = build(redis.address(), &runtime.handle());
        let cores = runtime.cores();
        let mut world = World { redis, runtime, pool, cores, sockets };
        test(&mut world);
        let World { redis, runtime, pool, .. } = world;
        wait_for(pool.close());
        let stats = wait_for(pool.stats());
        let (opens, failed) = (stats.sum(|shard| shard.opens), stats.sum(|shard| shard.connect_failures));
        assert_eq!(opens - failed, stats.sum(|shard| shard.closes.iter().sum()), "{stats:?}");
        // A pool knows the doorbells of its runtime's cores.
        drop((pool, runtime));
        block_until(|| redis.clients() == 0);
        block_until(|| open_descriptors() == base);
    });
}

impl<C: Connector> World<C> {
    pub fn stats(&self) -> PoolStats {
        wait_for(self.pool.stats())
    }

    /// Waits until nobody asks and nothing is under way; then every count must add up, and Redis see the connections
    /// that the pool says it has.
    pub fn settle(&self) {
        block_until(|| {
            let stats = self.stats();
            stats.sum(|shard| (shard.leased + shard.waiting + shard.opening + shard.closing) as u64) == 0
        });
        self.stats().shards.iter().for_each(assert_settled);
        assert!((self.sockets)(&self.pool) <= (SLOTS * self.cores.len()) as u64);
        // Its end of a closed connection may close a little later.
        block_until(|| self.redis.clients() as u64 == (self.sockets)(&self.pool));
    }

    /// Leases `count` connections of every shard at the same time.
    pub fn warm(&self, count: usize) {
        for core in &self.cores {
            let pool = self.pool.clone();
            let open = async move || {
                let handle = pool.handle();
                let mut leases = Vec::new();
                for _ in 0..count {
                    leases.push(handle.acquire_within(PATIENCE).await.unwrap());
                }
            };
            wait_for(self.runtime.spawn_on(*core, open).unwrap()).unwrap();
        }
    }

    /// Runs `visit` on every core at the same time, for so many who ask there.
    pub fn on_each_core<A, F, Fut>(&self, clients: usize, visit: F)
    where
        A: Asks<C>,
        F: Fn(A) -> Fut + Send + Clone + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        self.start(clients, visit).into_iter().for_each(|run| wait_for(run).unwrap());
    }

    fn start<A, F, Fut>(&self, clients: usize, visit: F) -> Vec<RemoteJoinHandle<()>>
    where
        A: Asks<C>,
        F: Fn(A) -> Fut + Send + Clone + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let on = |core: &CoreId| {
            let (core, pool, cores, visit) = (*core, self.pool.clone(), self.cores.clone(), visit.clone());
            let work = async move || {
                let tasks: Vec<_> = (0..clients)
                    .map(|number| spawn(visit(A::new(&pool, &cores, format!("{core}:{number}")))))
                    .collect();
                for task in tasks {
                    if let Err(error) = task.await {
                        std::panic::resume_unwind(error.try_into_panic().unwrap());
                    }
                }
            };
            self.runtime.spawn_on(core, work).unwrap()
        };
        self.cores.iter().map(on).collect()
    }
}

/// How a request failed. A wrong reply is no failure, but a panic.
#[derive(Debug)]
pub enum Failure {
    Acquire(AcquireError),
    /// With what is known of the cause.
    Exchange(#[allow(dead_code, reason = "printed")] String),
}

/// Values that nobody else sends, ever.
pub struct Values {
    name: String,
    pub sequence: u64,
}

impl Values {
    pub fn new(name: String) -> Values {
        Values { name, sequence: 0 }
    }

    pub fn next(&mut self) -> String {
        self.sequence += 1;
        // Of different lengths, so that the cuts of the network differ.
        format!("{}:{}:{}", self.name, self.sequence, "x".repeat((self.sequence % 97) as usize))
    }
}

/// Bounds how long something took that had `limit`.
#[track_caller]
pub fn in_time(begun: Instant, limit: Duration) {
    let took = begun.elapsed();
    assert!(took < limit + SLACK, "{took:?} where {limit:?} was the limit");
}

#[derive(Default)]
pub struct Counts {
    pub answered: AtomicU64,
    pub failed: AtomicU64,
    acquires_failed: AtomicU64,
    stop: AtomicBool,
}

/// Clients on every core that ask until they are told to stop.
pub struct Load {
    counts: Arc<Counts>,
    runs: Vec<RemoteJoinHandle<()>>,
}

impl Load {
    pub fn start<C: Connector, A: Asks<C>>(world: &World<C>, clients: usize) -> Load {
        let counts = Arc::<Counts>::default();
        let theirs = Arc::clone(&counts);
        let runs = world.start(clients, move |client: A| ask_until_stopped(client, Arc::clone(&theirs)));
        Load { counts, runs }
    }

    /// Waits until so many more requests were answered, with nobody's help.
    pub fn answers_more(&self, count: u64) {
        let answered = self.counts.answered.load(Ordering::Relaxed);
        block_until(|| self.counts.answered.load(Ordering::Relaxed) >= answered + count);
    }

    pub fn failed(&self) -> u64 {
        self.counts.failed.load(Ordering::Relaxed)
    }

    pub fn acquires_failed(&self) -> u64 {
        self.counts.acquires_failed.load(Ordering::Relaxed)
    }

    pub fn exchanges_failed(&self) -> u64 {
        self.failed() - self.acquires_failed()
    }

    pub fn stop(self) -> Arc<Counts> {
        self.counts.stop.store(true, Ordering::Relaxed);
        // A client that got a wrong reply has panicked.
        self.runs.into_iter().for_each(|run| wait_for(run).unwrap());
        self.counts
    }
}

async fn ask_until_stopped<C: Connector>(mut client: impl Asks<C>, counts: Arc<Counts>) {
    while !counts.stop.load(Ordering::Relaxed) {
        match client.ask().await {
            Ok(()) => {
                counts.answered.fetch_add(1, Ordering::Relaxed);
            }
            Err(failure) => {
                assert!(
                    !matches!(
                        failure,
                        Failure::Acquire(AcquireError::Closed | AcquireError::SchedulerFailed)
                    ),
                    "{failure:?}"
                );
                if matches!(failure, Failure::Acquire(_)) {
                    counts.acquires_failed.fetch_add(1, Ordering::Relaxed);
                }
                counts.failed.fetch_add(1, Ordering::Relaxed);
                // Hammering on something broken helps nobody.
                sleep(Duration::from_millis(1)).await;
            }
        }
    }
}
