//! corelet: every request leases a connection from a pool, makes one exchange on it and gives it back.

use super::{Exchange, Load, MESSAGE, measure};
use crate::meter::Latency;
use crate::runtimes::corelet::{Corelet, core};
use anyhow::Result;
use corelet::pool::{Handle, Pool, TcpConnector};
use std::io;
use std::time::Duration;

struct Session {
    handle: Handle<TcpConnector>,
    request: Option<Vec<u8>>,
    reply: Option<Vec<u8>>,
}

impl Exchange for Session {
    async fn exchange(&mut self) -> io::Result<()> {
        let request = self.request.take().expect("put back by every exchange that succeeds");
        let mut reply = self.reply.take().expect("put back by every exchange that succeeds");
        reply.clear();
        let mut lease = self.handle.acquire().await.map_err(io::Error::other)?;
        let exchanged = lease
            .exchange(async move |stream| {
                let (sent, request) = stream.write_all(request).await;
                sent?;
                let (received, reply) = stream.read_exact(reply, MESSAGE).await;
                received.map(|()| (request, reply))
            })
            .await;
        let (request, reply) = exchanged.map_err(io::Error::other)?;
        (self.request, self.reply) = (Some(request), Some(reply));
        Ok(())
    }
}

pub fn run(load: &Load, slice: Duration) -> Result<Latency> {
    run_with(load, slice, Duration::ZERO)
}

/// The core looks at its queues for a while before it sleeps.
pub fn run_spinning(load: &Load, slice: Duration) -> Result<Latency> {
    run_with(load, slice, Duration::from_millis(1))
}

fn run_with(load: &Load, slice: Duration, busy_poll: Duration) -> Result<Latency> {
    core(|builder| builder.busy_poll(busy_poll))?.block_on(on_core(*load, slice))?
}

/// On the current core, whoever drives it.
pub async fn on_core(load: Load, slice: Duration) -> Result<Latency> {
    let pool = Pool::builder(TcpConnector::new(load.server))
        .slots_per_core(load.connections)
        .max_connecting(load.connections)
        .build(&corelet::runtime::handle())?;
    let session = pool.handle();
    // One lease for each connection at the same time, so that all of them are open.
    let mut leases = Vec::new();
    for _ in 0..load.connections {
        leases.push(session.acquire().await?);
    }
    drop(leases);
    let sessions = (0..load.connections)
        .map(|_| Session {
            handle: pool.handle(),
            request: Some(vec![7; MESSAGE]),
            reply: Some(Vec::with_capacity(MESSAGE)),
        })
        .collect();
    let measured = measure::<Corelet>(sessions, slice).await;
    drop(session);
    pool.close().await;
    measured
}
