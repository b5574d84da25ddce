//! The pool on real cores and real sockets.
#![allow(missing_docs, clippy::unwrap_used)]

use std::io;
use std::time::Duration;

use corelet::net::{TcpListener, TcpStream};
use corelet::pool::{AcquireError, Pool, TcpConnector};
use corelet::runtime::{Cores, Runtime, spawn};

async fn echo_server() -> std::net::SocketAddr {
    let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    spawn(async move {
        loop {
            let mut peer = listener.accept().await.unwrap();
            spawn(async move {
                while let Ok(Some(received)) = peer.receive().await {
                    if peer.write_all(received.to_vec()).await.0.is_err() {
                        break;
                    }
                }
            })
            .detach();
        }
    })
    .detach();
    address
}

async fn echo(stream: &mut TcpStream, text: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(text.to_vec()).await.0?;
    let mut reply = Vec::with_capacity(text.len());
    while reply.len() < text.len() {
        let count;
        (count, reply) = stream.read(reply).await;
        if count? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(reply)
}

#[test]
fn a_lease_carries_an_exchange_and_its_connection_is_used_again() {
    let runtime = Runtime::builder().cores(Cores::Count(1)).build().unwrap();
    let handle = runtime.handle();
    runtime
        .block_on(move || async move {
            let address = echo_server().await;
            let pool = Pool::builder(TcpConnector::new(address)).slots_per_core(2).build(&handle).unwrap();
            let session = pool.handle();
            for round in 0..100 {
                let text = format!("round {round}").into_bytes();
                let mut lease = session.acquire().await.unwrap();
                let reply = lease.exchange(async |stream| echo(stream, &text).await).await.unwrap();
                assert_eq!(reply, text);
            }
            let stats = pool.stats().await;
            assert_eq!((stats.shards[0].opens, stats.shards[0].acquires), (1, 100));
            pool.close().await;
            assert!(matches!(session.acquire().await, Err(AcquireError::Closed)));
        })
        .unwrap();
}

#[test]
fn a_handle_on_another_core_leases_that_cores_connections() {
    let runtime = Runtime::builder().cores(Cores::Count(2)).build().unwrap();
    let (handle, far) = (runtime.handle(), runtime.cores()[1]);
    runtime
        .block_on(move || async move {
            let address = echo_server().await;
            let pool = Pool::builder(TcpConnector::new(address))
                .slots_per_core(2)
                .acquire_timeout(Duration::from_secs(5))
                .build(&handle)
                .unwrap();
            let session = pool.handle_on(far).unwrap();
            for round in 0..100 {
                let text = format!("round {round}").into_bytes();
                let mut lease = session.acquire().await.unwrap();
                assert_eq!(lease.home(), far);
                let reply = lease.exchange(async |stream| echo(stream, &text).await).await.unwrap();
                assert_eq!(reply, text);
            }
            let stats = pool.stats().await;
            assert_eq!(stats.shards[0].forwards, 100);
            assert_eq!(
                (stats.shards[1].opens, stats.shards[1].acquires, stats.shards[1].lends),
                (1, 100, 100)
            );
            pool.close().await;
        })
        .unwrap();
}
