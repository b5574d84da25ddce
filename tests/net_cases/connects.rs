//! Connecting: refused, timed out, and many at once.

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corelet::net::{ListenerOptions, TcpListener, TcpStream, UnixListener, UnixStream};
use corelet::runtime::{spawn, yield_now};

use crate::net_support::{Family, Random, fresh_path};

pub async fn a_connect_without_a_listener_is_refused() {
    for family in Family::all().into_iter().filter(|family| *family != Family::Unix) {
        let listener = TcpListener::bind(family.loopback()).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        crate::net_support::settled().await;
        let error = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
    let path = fresh_path();
    assert_eq!(UnixStream::connect(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
    drop(UnixListener::bind(&path).unwrap());
    crate::net_support::settled().await;
    assert_eq!(UnixStream::connect(&path).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    std::fs::remove_file(&path).unwrap();
}

pub async fn a_connect_to_a_full_backlog_times_out() {
    const LIMIT: Duration = Duration::from_millis(60);
    let options = ListenerOptions { backlog: 0, ..ListenerOptions::default() };
    let listener = TcpListener::bind_with(Family::V4.loopback(), options).unwrap();
    let address = listener.local_addr().unwrap();
    let mut connected = Vec::new();
    let error = loop {
        let begun = Instant::now();
        match TcpStream::connect_timeout(address, LIMIT).await {
            Ok(stream) => connected.push(stream),
            Err(error) => {
                assert!(begun.elapsed() >= LIMIT);
                break error;
            }
        }
        assert!(connected.len() < 10, "nobody accepts, and all are served");
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);

    // A Unix connect to a full backlog waits in another part of the kernel.
    let path = fresh_path();
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    crate::net_support::set_backlog(&listener, 0);
    let mut connected = Vec::new();
    let error = loop {
        match UnixStream::connect_timeout(&path, LIMIT).await {
            Ok(stream) => connected.push(stream),
            Err(error) => break error,
        }
        assert!(connected.len() < 10, "nobody accepts, and all are served");
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    std::fs::remove_file(&path).unwrap();
}

/// The address of each connect lives as long as the kernel reads it, whatever the allocator gives out meanwhile.
pub async fn many_connects_under_allocator_churn_succeed() {
    const EACH: usize = 120;
    for family in Family::all().into_iter().filter(|family| *family != Family::Unix) {
        let mut listener = TcpListener::bind(family.loopback()).unwrap();
        let address = listener.local_addr().unwrap();
        let over = Rc::new(());
        let churn = spawn({
            let over = Rc::downgrade(&over);
            async move {
                let mut random = Random::logged("allocations");
                let mut held: Vec<Vec<u8>> = Vec::new();
                while over.strong_count() > 0 {
                    for _ in 0..64 {
                        held.push(vec![0xa5; 1 + random.below(300) as usize]);
                        if held.len() > 200 {
                            held.swap_remove(random.below(200) as usize);
                        }
                    }
                    yield_now().await;
                }
            }
        });
        let connects: Vec<_> = (0..EACH)
            .map(|number| {
                spawn(async move {
                    if number % 3 == 0 {
                        yield_now().await;
                    }
                    let stream = TcpStream::connect(address).await.unwrap();
                    assert_eq!(stream.peer_addr().unwrap(), address);
                    stream
                })
            })
            .collect();
        for _ in 0..EACH {
            listener.accept().await.unwrap();
        }
        for connect in connects {
            connect.await.unwrap();
        }
        drop(over);
        churn.await.unwrap();
    }
}
