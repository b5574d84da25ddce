//! A world with a real Redis: cores, a pool, and a load of clients that each check what they get.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use corelet::net::Stream;
use corelet::pool::{AcquireError, Handle, Pool, PoolStats, TcpConnector};
use corelet::runtime::{CoreId, RemoteJoinHandle, Runtime, sleep, spawn, timeout};

use crate::common::{open_descriptors, wait_for};
use crate::redis::{Memory, Redis};
use crate::support::{self, assert_settled, block_until, watched};

pub const SLOTS: usize = 3;
/// How long a request may wait for a connection, and how long for its reply.
pub const ACQUIRE_LIMIT: Duration = Duration::from_millis(300);
pub const EXCHANGE_LIMIT: Duration = Duration::from_millis(100);
/// How late either may end on a busy machine.
const SLACK: Duration = Duration::from_secs(3);

static TURN: Mutex<()> = Mutex::new(());

pub struct World {
    pub redis: Redis,
    pub runtime: Runtime,
    pub pool: Pool<TcpConnector>,
    pub cores: Vec<CoreId>,
}

/// Runs a test in a world of so many cores, and checks that nothing is left of it.
pub fn in_world(cores: usize, test: fn(&mut World)) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(redis) = Redis::start(Memory::Nothing) else { return };
    watched(move || {
        let base = open_descriptors();
        let runtime = support::runtime(cores);
        let pool = Pool::builder(TcpConnector::new(redis.address()))
            .slots_per_core(SLOTS)
            .acquire_timeout(ACQUIRE_LIMIT)
            .build(&runtime.handle())
            .unwrap();
        let cores = runtime.cores();
        let mut world = World { redis, runtime, pool, cores };
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

impl World {
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
        let stats = self.stats();
        stats.shards.iter().for_each(assert_settled);
        let idle = stats.sum(|shard| shard.idle as u64) as usize;
        assert!(idle <= SLOTS * self.cores.len(), "{stats:?}");
        // Its end of a closed connection may close a little later.
        block_until(|| self.redis.clients() == idle);
    }

    /// Opens every connection of every shard.
    pub fn warm(&self) {
        for core in &self.cores {
            let pool = self.pool.clone();
            let open = async move || {
                let handle = pool.handle();
                let mut leases = Vec::new();
                for _ in 0..SLOTS {
                    leases.push(handle.acquire().await.unwrap());
                }
            };
            wait_for(self.runtime.spawn_on(*core, open).unwrap()).unwrap();
        }
        assert_eq!(self.stats().sum(|shard| shard.idle as u64) as usize, SLOTS * self.cores.len());
    }

    /// Runs `visit` on every core at the same time, several times over each.
    pub fn on_each_core<F, Fut>(&self, visit: F)
    where
        F: Fn(Client) -> Fut + Send + Clone + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let runs: Vec<_> = self.start(SLOTS + 1, visit);
        runs.into_iter().for_each(|run| wait_for(run).unwrap());
    }

    fn start<F, Fut>(&self, clients: usize, visit: F) -> Vec<RemoteJoinHandle<()>>
    where
        F: Fn(Client) -> Fut + Send + Clone + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let on = |core: &CoreId| {
            let (core, pool, shards, visit) = (*core, self.pool.clone(), self.cores.clone(), visit.clone());
            let work = async move || {
                let tasks: Vec<_> = (0..clients)
                    .map(|number| {
                        let handles = shards.iter().map(|shard| pool.handle_on(*shard).unwrap()).collect();
                        let client = Client { name: format!("{core}:{number}"), handles, sequence: 0 };
                        spawn(visit(client))
                    })
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

/// One that asks, with the shards of all cores in turn.
pub struct Client {
    name: String,
    handles: Vec<Handle<TcpConnector>>,
    sequence: u64,
}

/// How a request failed. A wrong reply is no failure, but a panic.
#[derive(Debug)]
pub enum Failure {
    Acquire(AcquireError),
    /// With what is known of the cause.
    Exchange(#[allow(dead_code, reason = "printed")] String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Client {
    /// One that nobody else sends, ever.
    pub fn value(&mut self) -> String {
        self.sequence += 1;
        // Of different lengths, so that the cuts of the network differ.
        format!("{}:{}:{}", self.name, self.sequence, "x".repeat((self.sequence % 97) as usize))
    }

    pub fn handle(&self) -> &Handle<TcpConnector> {
        &self.handles[self.sequence as usize % self.handles.len()]
    }

    /// Makes one request, or a pair that belongs together, and checks the reply and the time it took.
    pub async fn ask(&mut self) -> Result<(), Failure> {
        let value = self.value();
        let handle = self.handle();
        let begun = Instant::now();
        let acquired = handle.acquire_within(ACQUIRE_LIMIT).await;
        assert!(begun.elapsed() < ACQUIRE_LIMIT + SLACK, "an acquire took {:?}", begun.elapsed());
        let mut lease = acquired.map_err(Failure::Acquire)?;

        let begun = Instant::now();
        let pair = self.sequence.is_multiple_of(4);
        let exchange = lease.exchange(async |stream| {
            if !pair {
                return request(stream, &["ECHO", &value]).await;
            }
            let stored = request(stream, &["SET", &value, &value]).await?;
            assert_eq!(stored, b"OK", "the reply to a SET of {value}");
            request(stream, &["GET", &value]).await
        });
        let exchanged = timeout(EXCHANGE_LIMIT, exchange).await;
        assert!(begun.elapsed() < EXCHANGE_LIMIT + SLACK, "an exchange took {:?}", begun.elapsed());
        let reply = match exchanged {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => return Err(Failure::Exchange(error.to_string())),
            Err(late) => return Err(Failure::Exchange(late.to_string())),
        };
        // A connection that outlived its server would be needed to find the value gone.
        assert_eq!(String::from_utf8_lossy(&reply), value, "a reply of another request");
        Ok(())
    }
}

/// Sends one command and reads its reply, of which it gives the text.
pub async fn request(stream: &mut Stream, words: &[&str]) -> io::Result<Vec<u8>> {
    let mut wire = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| wire += &format!("${}\r\n{word}\r\n", word.len()));
    stream.write_all(wire).await.0?;
    let mut received = Vec::with_capacity(512);
    loop {
        received.reserve(64);
        let count;
        (count, received) = stream.read(received).await;
        if count? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some((text, taken)) = reply(&received) {
            assert_eq!(taken, received.len(), "more than one reply to {words:?}");
            return Ok(text.to_vec());
        }
    }
}

/// The text of a reply, a simple or a bulk string, and its length on the wire; none when its end is not there yet.
fn reply(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (head, body) = (&bytes[1..line], line + 2);
    match bytes[0] {
        b'+' => Some((head, body)),
        b'$' => {
            let length: usize = std::str::from_utf8(head).unwrap().parse().expect("a string that is there");
            let text = bytes.get(body..body + length)?;
            let ending = bytes.get(body + length..body + length + 2)?;
            assert_eq!(ending, b"\r\n");
            Some((text, body + length + 2))
        }
        _ => panic!("not what was asked for: {}", String::from_utf8_lossy(bytes)),
    }
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
    pub fn start(world: &World, clients: usize) -> Load {
        let counts = Arc::<Counts>::default();
        let theirs = Arc::clone(&counts);
        let runs = world.start(clients, move |client| ask_until_stopped(client, Arc::clone(&theirs)));
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

async fn ask_until_stopped(mut client: Client, counts: Arc<Counts>) {
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
                    "{failure}"
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
