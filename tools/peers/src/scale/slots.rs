//! Idle TCP connections to a listener that accepts and stays silent.

use super::Outcome;
use crate::alloc;
use crate::meter::Meter;
use crate::runtimes::{Runtime, corelet::Corelet, in_task};
use anyhow::{Context, Result};
use corelet::pool::{Pool, TcpConnector};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

pub fn run(n: usize, slice: Duration) -> Result<Outcome> {
    let server = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen")?;
    let address = server.local_addr()?;
    let accepting = std::thread::spawn(move || -> std::io::Result<Vec<_>> {
        (0..n).map(|_| server.accept().map(|(stream, _)| stream)).collect()
    });
    let outcome = Corelet::run(move || in_task::<Corelet, _>(measure(address, n, slice)))?;
    if outcome.is_ok() {
        let _streams = accepting.join().map_err(|_| anyhow::anyhow!("the listener panicked"))??;
    }
    outcome
}

async fn measure(address: SocketAddr, n: usize, slice: Duration) -> Result<Outcome> {
    const PER_TICK: u64 = 16;
    let before = alloc::held_by_this_thread();
    let pool = Pool::builder(TcpConnector::new(address))
        .slots_per_core(n)
        .max_connecting(32)
        .build(&corelet::runtime::handle())
        .context("cannot build the pool")?;
    let session = pool.handle();
    let mut leases = Vec::with_capacity(n);
    for _ in 0..n {
        leases.push(session.acquire().await?);
    }
    drop(leases);
    // Idle now, each with its receive armed.
    corelet::runtime::yield_now().await;
    let bytes = alloc::held_by_this_thread() - before;
    let meter = Meter::new(slice);
    while meter.add(PER_TICK) {
        for _ in 0..PER_TICK {
            drop(session.acquire().await?);
        }
    }
    let throughput = meter.outcome().context("the slice ended without an outcome")?;
    drop(session);
    pool.close().await;
    Ok(Outcome { throughput, bytes_per_item: bytes as f64 / n as f64 })
}
