//! What a request of 64 bytes and its reply cost over loopback, each through a lease of its own. With the feature `framed`
//! also what it costs if a codec makes and reads the bytes: short rounds of both take turns, and
//! the difference is printed.
//!
//! The server is corelet's too, on the other core. It is measured along, so a figure shows whether a change helps, not
//! where corelet stands; for that `tools/peers` has a server that is the same for everyone.

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use corelet::net::{TcpListener, TcpStream};
use corelet::pool::{Handle, Pool, TcpConnector};
use corelet::runtime::{Core, Cores, Runtime, spawn};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use common::{Countdown, THERE, core, pin, settings, time_tasks, warm};

const MESSAGE: usize = 64;

/// Sends everything back; it ends when the runtime is dropped.
fn echo_server() -> (SocketAddr, Runtime) {
    // From a thread that is there already: from here, only this core is to be had.
    let build = || {
        pin(THERE);
        Runtime::builder().cores(Cores::Count(1)).build().unwrap()
    };
    let runtime = std::thread::spawn(build).join().unwrap();
    let listening = runtime.block_on(|| async {
        let mut listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        spawn(async move {
            while let Ok(stream) = listener.accept().await {
                spawn(echo(stream)).detach();
            }
        })
        .detach();
        address
    });
    (listening.unwrap(), runtime)
}

/// Until the client leaves, which is how every connection ends.
async fn echo(mut stream: TcpStream) {
    let mut buffer = Vec::with_capacity(MESSAGE);
    loop {
        buffer.clear();
        let received;
        (received, buffer) = stream.read(buffer).await;
        if !matches!(received, Ok(1..)) {
            return;
        }
        let sent;
        (sent, buffer) = stream.write_all(buffer).await;
        if sent.is_err() {
            return;
        }
    }
}

/// A handle whose shard has all its connections open.
struct World {
    handle: Rc<Handle<TcpConnector>>,
    core: Core,
    #[cfg_attr(not(feature = "framed"), allow(dead_code))]
    address: SocketAddr,
    _server: Runtime,
}

impl World {
    fn new(connections: usize, busy_poll: Duration) -> World {
        let (address, server) = echo_server();
        let mut core = core(busy_poll);
        let pool =
            Pool::builder(TcpConnector::new(address)).slots_per_core(connections).build(core.runtime());
        let pool = pool.unwrap();
        let opened = async move {
            let handle = pool.handle();
            warm(&handle, connections).await;
            Rc::new(handle)
        };
        World { handle: core.block_on(opened).unwrap(), core, address, _server: server }
    }
}

async fn exchanges(handle: Rc<Handle<TcpConnector>>, left: Rc<Countdown>) {
    let (mut request, mut reply) = (vec![7; MESSAGE], Vec::with_capacity(MESSAGE));
    while left.take() {
        reply.clear();
        let mut lease = handle.acquire().await.unwrap();
        let exchange = async move |stream: &mut TcpStream| {
            let (sent, request) = stream.write_all(request).await;
            sent?;
            let (received, reply) = stream.read_exact(reply, MESSAGE).await;
            received.map(|()| (request, reply))
        };
        (request, reply) = lease.exchange(exchange).await.unwrap();
    }
}

fn exchange(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("exchange/64_bytes");
    group.throughput(Throughput::Elements(1));
    let cases = [("sleeping", Duration::ZERO, 1), ("sleeping", Duration::ZERO, 16)];
    let spinning = [("spinning", Duration::from_millis(1), 1)];
    for (mode, busy_poll, connections) in cases.into_iter().chain(spinning) {
        let mut made = None;
        group.bench_function(format!("{mode}/connections_{connections}"), |bencher| {
            let world = made.get_or_insert_with(|| World::new(connections, busy_poll));
            bencher.iter_custom(|operations| {
                let handle = Rc::clone(&world.handle);
                let left = Countdown::new(operations);
                let measured = time_tasks(
                    (0..connections).map(move |_| exchanges(Rc::clone(&handle), Rc::clone(&left))),
                );
                world.core.block_on(measured).unwrap()
            });
        });
    }
}

#[cfg(feature = "framed")]
mod framed {
    use bytes::Bytes;
    use corelet::pool::FramedConnector;
    use criterion::Bencher;
    use tokio_util::codec::LengthDelimitedCodec;

    use super::*;

    /// Of this length are the frames, with four bytes in front.
    const FRAME: usize = MESSAGE - 4;
    /// Exchanges of one kind before it is the other's turn.
    const ROUND: u64 = 10;

    type Framed = FramedConnector<TcpConnector, fn() -> LengthDelimitedCodec>;

    async fn calls(handle: Rc<Handle<Framed>>, left: Rc<Countdown>) {
        let frame = Bytes::from_static(&[7; FRAME]);
        while left.take() {
            let mut lease = handle.acquire().await.unwrap();
            let reply = lease.call(frame.clone()).await.unwrap();
            assert_eq!(reply.len(), FRAME);
        }
    }

    pub fn beside_raw(criterion: &mut Criterion) {
        let (mut raw_rounds, mut framed_rounds) = (Vec::new(), Vec::new());
        criterion.bench_function(
            "exchange/64_bytes/sleeping/framed_beside_raw",
            |bencher: &mut Bencher<'_>| {
                let mut world = World::new(1, Duration::ZERO);
                let address = world.address;
                let framed =
                    FramedConnector::new(TcpConnector::new(address), LengthDelimitedCodec::new as fn() -> _);
                let pool = Pool::builder(framed).slots_per_core(1).build(world.core.runtime()).unwrap();
                let framed = async move {
                    let handle = Rc::new(pool.handle());
                    drop(handle.acquire().await.unwrap());
                    handle
                };
                let framed = world.core.block_on(framed).unwrap();
                bencher.iter_custom(|operations| {
                    let mut total = Duration::ZERO;
                    let mut left = operations;
                    while left > 0 {
                        let round = left.min(ROUND);
                        left -= round;
                        let (handle, countdown) = (Rc::clone(&world.handle), Countdown::new(round));
                        let raw = world.core.block_on(time_tasks([exchanges(handle, countdown)])).unwrap();
                        let (handle, countdown) = (Rc::clone(&framed), Countdown::new(round));
                        let called = world.core.block_on(time_tasks([calls(handle, countdown)])).unwrap();
                        if round == ROUND {
                            raw_rounds.push(raw.as_nanos() as f64 / round as f64);
                            framed_rounds.push(called.as_nanos() as f64 / round as f64);
                        }
                        total += called;
                    }
                    total
                });
            },
        );
        let at = |rounds: &mut Vec<f64>, part: f64| {
            rounds.sort_by(f64::total_cmp);
            rounds.get((rounds.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
        };
        for (what, part) in [("median", 0.5), ("quickest tenth", 0.1)] {
            let (framed, raw) = (at(&mut framed_rounds, part), at(&mut raw_rounds, part));
            let difference = framed - raw;
            println!(
                "{what} of the rounds: framed {framed:.0} ns, raw {raw:.0} ns, framed minus raw {difference:.0} ns"
            );
        }
    }
}

#[cfg(not(feature = "framed"))]
mod framed {
    pub fn beside_raw(_: &mut criterion::Criterion) {}
}

criterion_group! { name = benches; config = settings(); targets = exchange, framed::beside_raw }
criterion_main!(benches);
