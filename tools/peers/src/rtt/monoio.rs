//! monoio's `TcpStream`, with one owned buffer going to and fro.

use super::{Exchange, Load, MESSAGE, measure};
use crate::meter::Latency;
use crate::runtimes::{Runtime, monoio::Monoio};
use anyhow::Result;
use monoio::io::{AsyncReadRentExt, AsyncWriteRentExt};
use monoio::net::TcpStream;
use std::io;
use std::time::Duration;

struct Connection {
    stream: TcpStream,
    message: Option<Box<[u8; MESSAGE]>>,
}

impl Exchange for Connection {
    async fn exchange(&mut self) -> io::Result<()> {
        let message = self.message.take().expect("put back by every exchange that succeeds");
        let (written, message) = self.stream.write_all(message).await;
        written?;
        let (read, message) = self.stream.read_exact(message).await;
        read?;
        self.message = Some(message);
        Ok(())
    }
}

pub fn run(load: &Load, slice: Duration) -> Result<Latency> {
    let load = *load;
    Monoio::run(move || async move {
        let mut connections = Vec::with_capacity(load.connections);
        for _ in 0..load.connections {
            let stream = TcpStream::connect_addr(load.server).await?;
            stream.set_nodelay(true)?;
            connections.push(Connection { stream, message: Some(Box::new([7; MESSAGE])) });
        }
        measure::<Monoio>(connections, slice).await
    })?
}
