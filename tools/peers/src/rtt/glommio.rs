//! glommio's `TcpStream`, by the `futures` I/O traits it implements.

use super::{Exchange, Load, MESSAGE, measure};
use crate::meter::Latency;
use crate::runtimes::{Runtime, glommio::Glommio};
use anyhow::{Result, anyhow};
use futures::{AsyncReadExt, AsyncWriteExt};
use glommio::net::TcpStream;
use std::io;
use std::time::Duration;

struct Connection {
    stream: TcpStream,
    message: [u8; MESSAGE],
}

impl Exchange for Connection {
    async fn exchange(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.message).await?;
        self.stream.read_exact(&mut self.message).await
    }
}

pub fn run(load: &Load, slice: Duration) -> Result<Latency> {
    let load = *load;
    Glommio::run(move || async move {
        let mut connections = Vec::with_capacity(load.connections);
        for _ in 0..load.connections {
            let connected = TcpStream::connect(load.server).await;
            let stream = connected.map_err(|error| anyhow!("cannot connect: {error}"))?;
            stream.set_nodelay(true).map_err(|error| anyhow!("cannot set TCP_NODELAY: {error}"))?;
            connections.push(Connection { stream, message: [7; MESSAGE] });
        }
        measure::<Glommio>(connections, slice).await
    })?
}
