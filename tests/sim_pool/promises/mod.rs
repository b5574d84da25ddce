//! Single promises about order, each kept under many interleavings: small scenes, where the worlds are large ones.

mod across_cores;
mod endings;
mod limits;
mod upstreams;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use corelet::net::{TcpListener, TcpStream};
use corelet::pool::{AcquireError, CloseReason, Lease, Pool, PoolBuilder, ShardStats, TcpConnector};
use corelet::runtime::{
    CoreId, Faults, RuntimeHandle, Simulation, core_stats, now, sleep, spawn, timeout, yield_now,
};
use futures_channel::oneshot;

use super::cut::Cut;
use super::random::Random;
use super::seeds;

const SEEDS: u64 = 60;
/// Longer than the simulated network takes for anything.
const SETTLED: Duration = Duration::from_millis(50);
/// Longer than anything here takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two cores unless told otherwise, and an upstream on the first.
struct Scene {
    random: Random,
    runtime: RuntimeHandle,
    cores: Vec<CoreId>,
    faults: Faults,
    address: SocketAddr,
}

impl Scene {
    fn pool(&self) -> PoolBuilder<TcpConnector> {
        Pool::builder(TcpConnector::new(self.address)).connect_timeout(Duration::from_secs(1))
    }

    async fn on_second<F, Fut>(&self, task: F) -> Fut::Output
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        self.runtime.spawn_on(self.cores[1], task).unwrap().await.unwrap()
    }
}

/// Plays the scene once for each seed, with an upstream that serves each connection by `serve`.
fn play<S, SFut, F, Fut>(serve: S, scene: F)
where
    S: Fn(TcpStream) -> SFut + Copy + 'static,
    SFut: Future<Output = ()> + 'static,
    F: Fn(Scene) -> Fut + Copy + 'static,
    Fut: Future<Output = ()> + 'static,
{
    play_on(2, serve, scene);
}

fn play_on<S, SFut, F, Fut>(count: usize, serve: S, scene: F)
where
    S: Fn(TcpStream) -> SFut + Copy + 'static,
    SFut: Future<Output = ()> + 'static,
    F: Fn(Scene) -> Fut + Copy + 'static,
    Fut: Future<Output = ()> + 'static,
{
    for seed in seeds(SEEDS) {
        let mut simulation = Simulation::new(seed, count);
        simulation.turn_limit(1_000_000);
        let (runtime, cores, faults) = (simulation.handle(), simulation.cores(), simulation.faults());
        let played = simulation.block_on(move || async move {
            let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.local_addr().unwrap();
            let server = spawn(async move {
                while let Ok(stream) = listener.accept().await {
                    spawn(serve(stream)).detach();
                }
            });
            scene(Scene { random: Random::new(seed), runtime, cores, faults, address }).await;
            drop(server);
        });
        played.and_then(|()| simulation.run_until_idle()).unwrap();
        for position in 0..count {
            let Some(stats) = simulation.stats(position) else { continue };
            let left = (stats.executor.live, stats.driver.in_flight, stats.driver.buffers_out);
            assert_eq!(left, (0, 0, 0), "seed {seed}: tasks, operations, buffers left on core {position}");
        }
    }
}

async fn echo(mut stream: TcpStream) {
    while let Ok(Some(received)) = stream.receive().await {
        if stream.write_all(received.to_vec()).await.0.is_err() {
            return;
        }
    }
}

/// Reads everything and answers nothing.
async fn keep_silent(mut stream: TcpStream) {
    while let Ok(Some(_)) = stream.receive().await {}
}

async fn ask(stream: &mut TcpStream, question: u64) -> io::Result<u64> {
    stream.write_all(question.to_le_bytes().to_vec()).await.0?;
    let answer = Vec::with_capacity(8);
    let (result, answer) = stream.read_exact(answer, 8).await;
    result?;
    Ok(u64::from_le_bytes(answer.try_into().unwrap()))
}

async fn works(lease: &mut Lease<TcpConnector>, question: u64) {
    let answer = lease.exchange(async |stream| ask(stream, question).await).await.unwrap();
    assert_eq!(answer, question, "a reply to somebody else's request");
}

async fn shard(pool: &Pool<TcpConnector>, index: usize) -> ShardStats {
    pool.stats().await.shards[index].clone()
}

/// Nothing is out and nobody waits, on either shard.
async fn assert_whole(pool: &Pool<TcpConnector>) {
    sleep(SETTLED).await;
    for shard in pool.stats().await.shards {
        assert_eq!((shard.leased, shard.waiting, shard.opening, shard.closing), (0, 0, 0, 0), "{shard:?}");
    }
}

async fn poll_once<F: Future + Unpin>(future: &mut F) {
    poll_fn(|cx| {
        assert!(Pin::new(&mut *future).poll(cx).is_pending(), "it should have to wait");
        std::task::Poll::Ready(())
    })
    .await;
}
