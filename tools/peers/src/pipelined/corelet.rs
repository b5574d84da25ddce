//! corelet: exclusive leases, and leases that share one socket.

use super::resp::Echo;
use crate::meter::{Meter, Throughput};
use crate::runtimes::{Runtime, corelet::Corelet};
use anyhow::{Context, Result, ensure};
use corelet::pool::{Call, Connector, FramedConnector, Pool, TcpConnector};
use corelet::runtime::spawn;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

pub fn exclusive(address: SocketAddr, callers: usize, slice: Duration) -> Result<Throughput> {
    Corelet::run(move || async move {
        let connector = FramedConnector::new(TcpConnector::new(address), || Echo);
        let pool = Pool::builder(connector)
            .slots_per_core(1)
            .build(&corelet::runtime::handle())
            .context("cannot build the pool")?;
        measure(pool, callers, slice).await
    })?
}

pub fn pipelined(address: SocketAddr, callers: usize, slice: Duration) -> Result<Throughput> {
    Corelet::run(move || async move {
        let connector = FramedConnector::new(TcpConnector::new(address), || Echo);
        let pool = Pool::builder(connector)
            .slots_per_core(1)
            .leases_per_slot(callers)
            .pipelined()
            .build(&corelet::runtime::handle())
            .context("cannot build the pool")?;
        measure(pool, callers, slice).await
    })?
}

async fn measure<C>(pool: Pool<C>, callers: usize, slice: Duration) -> Result<Throughput>
where
    C: Connector<Connection: Call<u64, Reply = u64, Error: Debug + Send + Sync + 'static>>,
{
    // Open before anything is measured.
    drop(pool.acquire().await?);
    let meter = Rc::new(Meter::new(slice));
    let tasks: Vec<_> = (0..callers as u64)
        .map(|caller| {
            let (session, meter) = (pool.handle(), Rc::clone(&meter));
            spawn(async move {
                let mut number = caller << 40;
                loop {
                    let mut lease = session.acquire().await?;
                    let reply = lease.call(number).await;
                    ensure!(reply.as_ref().is_ok_and(|reply| *reply == number), "{number} got {reply:?}");
                    drop(lease);
                    number += 1;
                    if !meter.add(1) {
                        return Ok(());
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    pool.close().await;
    meter.outcome().context("the callers ended before the slice was over")
}
