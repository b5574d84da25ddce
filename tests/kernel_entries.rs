//! What a request and its reply cost in kernel entries.
#![allow(missing_docs, clippy::unwrap_used)]

#[cfg(feature = "framed")]
mod framed;
mod net_support;

use std::io::{Read, Write};
use std::net::SocketAddr;

use corelet::net::TcpStream;
use corelet::pool::{Pool, TcpConnector};
use corelet::runtime::core_stats;
use net_support::setups;

const EXCHANGES: u64 = 1000;

/// Sends everything back, on a thread of its own, so that it does not share the core's ring.
fn echo_server() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    stream.write_all(&buffer[..count]).unwrap();
                }
            });
        }
    });
    address
}

async fn request(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(&b"a request of thirty-two bytes..."[..]).await.0?;
    let mut reply = Vec::with_capacity(32);
    while reply.len() < 32 {
        let count;
        (count, reply) = stream.read(reply).await;
        if count? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

fn entries() -> u64 {
    core_stats().unwrap().driver.enters
}

#[track_caller]
fn assert_one_each(entries: u64) {
    let each = entries as f64 / EXCHANGES as f64;
    println!("{each} kernel entries for each exchange");
    assert!((0.98..=1.02).contains(&each), "{each} kernel entries for each exchange");
}

#[test]
fn a_leased_request_and_its_reply_cost_one_kernel_entry() {
    let runtime = setups::ordinary().build().unwrap();
    let handle = runtime.handle();
    runtime
        .block_on(move || async move {
            let pool =
                Pool::builder(TcpConnector::new(echo_server())).slots_per_core(1).build(&handle).unwrap();
            let session = pool.handle();
            let exchange = async || {
                let mut lease = session.acquire().await.unwrap();
                lease.exchange(async |stream| request(stream).await).await.unwrap();
            };
            for _ in 0..10 {
                exchange().await;
            }
            let before = entries();
            for _ in 0..EXCHANGES {
                exchange().await;
            }
            assert_one_each(entries() - before);
            assert_eq!(pool.stats().await.shards[0].opens, 1, "all on one connection");
            pool.close().await;
        })
        .unwrap();
}

#[cfg(feature = "framed")]
#[test]
fn a_framed_call_costs_one_kernel_entry() {
    use corelet::pool::FramedConnector;

    let runtime = setups::ordinary().build().unwrap();
    let handle = runtime.handle();
    runtime
        .block_on(move || async move {
            let connector = FramedConnector::new(TcpConnector::new(echo_server()), || framed::Frames);
            let pool = Pool::builder(connector).slots_per_core(1).build(&handle).unwrap();
            let session = pool.handle();
            let call = async |id| {
                let mut lease = session.acquire().await.unwrap();
                assert_eq!(lease.call(framed::frame(id)).await.unwrap(), framed::frame(id));
            };
            for id in 0..10 {
                call(id).await;
            }
            let before = entries();
            for id in 0..EXCHANGES {
                call(id).await;
            }
            assert_one_each(entries() - before);
            pool.close().await;
        })
        .unwrap();
}

/// The requests of one turn leave in one write, and their replies come in few receives.
#[cfg(feature = "framed")]
#[test]
fn pipelined_calls_of_one_turn_share_their_kernel_entry() {
    use corelet::pool::FramedConnector;
    use corelet::runtime::spawn;

    const CALLERS: u64 = 64;
    let runtime = setups::ordinary().build().unwrap();
    let handle = runtime.handle();
    runtime
        .block_on(move || async move {
            let connector = FramedConnector::new(TcpConnector::new(echo_server()), || framed::Frames);
            let pool = Pool::builder(connector)
                .slots_per_core(1)
                .leases_per_slot(CALLERS as usize)
                .pipelined()
                .build(&handle)
                .unwrap();
            let mut leases = Vec::new();
            for _ in 0..CALLERS {
                leases.push(pool.acquire().await.unwrap());
            }
            let before = entries();
            let callers: Vec<_> = leases
                .into_iter()
                .map(|mut lease| {
                    spawn(async move {
                        for id in 0..EXCHANGES {
                            assert_eq!(lease.call(framed::frame(id)).await.unwrap(), framed::frame(id));
                        }
                    })
                })
                .collect();
            for caller in callers {
                caller.await.unwrap();
            }
            let each = (entries() - before) as f64 / (CALLERS * EXCHANGES) as f64;
            println!("{each} kernel entries for each of {CALLERS} callers' calls");
            assert!(each < 0.25, "{each} kernel entries for each call");
            pool.close().await;
        })
        .unwrap();
}

#[test]
fn a_request_and_its_reply_on_a_stream_of_ones_own_cost_one_kernel_entry() {
    let runtime = setups::ordinary().build().unwrap();
    runtime
        .block_on(|| async {
            let mut stream = TcpStream::connect(echo_server()).await.unwrap();
            for _ in 0..10 {
                request(&mut stream).await.unwrap();
            }
            let before = entries();
            for _ in 0..EXCHANGES {
                request(&mut stream).await.unwrap();
            }
            assert_one_each(entries() - before);
        })
        .unwrap();
}

/// An idle core with an armed connection does not enter the kernel at all.
#[test]
fn an_idle_connection_costs_no_kernel_entry() {
    let runtime = setups::ordinary().build().unwrap();
    runtime
        .block_on(|| async {
            let mut stream = TcpStream::connect(echo_server()).await.unwrap();
            request(&mut stream).await.unwrap();
            assert!(net_support::poll_times(stream.receive(), 2).await.is_none());
            let before = entries();
            corelet::runtime::sleep(std::time::Duration::from_millis(100)).await;
            assert!(entries() - before <= 2, "{} entries while idle", entries() - before);
        })
        .unwrap();
}
