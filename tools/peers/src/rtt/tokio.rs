//! tokio's `TcpStream`, on a current-thread runtime.

use super::{Exchange, Load, MESSAGE, measure};
use crate::meter::Latency;
use crate::runtimes::{Runtime, tokio::Tokio};
use anyhow::Result;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

struct Connection {
    stream: TcpStream,
    message: [u8; MESSAGE],
}

impl Exchange for Connection {
    async fn exchange(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.message).await?;
        self.stream.read_exact(&mut self.message).await?;
        Ok(())
    }
}

pub fn run(load: &Load, slice: Duration) -> Result<Latency> {
    let load = *load;
    Tokio::run(move || async move {
        let mut connections = Vec::with_capacity(load.connections);
        for _ in 0..load.connections {
            let stream = TcpStream::connect(load.server).await?;
            stream.set_nodelay(true)?;
            connections.push(Connection { stream, message: [7; MESSAGE] });
        }
        measure::<Tokio>(connections, slice).await
    })?
}
