//! Streams and listeners over the ring.
#![allow(missing_docs, clippy::unwrap_used)]

use corelet::net::{TcpListener, TcpStream};
use corelet::runtime::{Cores, Runtime, spawn};

fn on_a_core<F, Fut>(test: F)
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let runtime = Runtime::builder().cores(Cores::Count(1)).build().unwrap();
    runtime.block_on(test).unwrap();
}

#[test]
fn bytes_come_back_from_an_echo() {
    on_a_core(|| async {
        let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        spawn(async move {
            let mut peer = listener.accept().await.unwrap();
            while let Some(received) = peer.receive().await.unwrap() {
                let (result, _) = peer.write_all(received.to_vec()).await;
                result.unwrap();
            }
        })
        .detach();
        let mut stream = TcpStream::connect(address).await.unwrap();
        for len in [1, 64, 4096, 4097, 100_000] {
            let sent: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let (result, sent) = stream.write_all(sent).await;
            result.unwrap();
            let mut got = Vec::with_capacity(len);
            while got.len() < len {
                let (count, back) = stream.read(got).await;
                assert_ne!(count.unwrap(), 0);
                got = back;
            }
            assert_eq!(got, sent);
        }
        stream.shutdown(std::net::Shutdown::Write).await.unwrap();
        assert_eq!(stream.read(Vec::with_capacity(1)).await.0.unwrap(), 0);
    });
}

#[test]
fn small_writes_to_a_peer_that_does_not_read_wait_and_then_arrive_in_order() {
    on_a_core(|| async {
        let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut peer = listener.accept().await.unwrap();
        const TOTAL: usize = 20_000_000;
        let writer = spawn(async move {
            let mut next = 0_usize;
            while next < TOTAL {
                let len = (1 + next % 3000).min(TOTAL - next);
                let chunk: Vec<u8> = (next..next + len).map(|i| (i % 251) as u8).collect();
                stream.write_all(chunk).await.0.unwrap();
                next += len;
            }
        });
        corelet::runtime::sleep(std::time::Duration::from_millis(50)).await;
        assert!(!writer.is_finished(), "the peer's buffers held everything; choose more");
        let mut seen = 0_usize;
        while seen < TOTAL {
            let (count, buffer) = peer.read(Vec::with_capacity(65536)).await;
            assert_ne!(count.unwrap(), 0);
            for byte in buffer {
                assert_eq!(byte, (seen % 251) as u8, "at {seen}");
                seen += 1;
            }
        }
        writer.await.unwrap();
    });
}
