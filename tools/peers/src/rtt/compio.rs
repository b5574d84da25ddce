//! compio's `TcpStream`. The message is a plain array: compio keeps it inside the operation.

use super::{Exchange, Load, MESSAGE, measure};
use crate::meter::Latency;
use crate::runtimes::{Runtime, compio::Compio};
use anyhow::Result;
use compio::BufResult;
use compio::io::{AsyncReadExt, AsyncWriteExt};
use compio::net::TcpStream;
use std::io;
use std::time::Duration;

struct Connection {
    stream: TcpStream,
    message: [u8; MESSAGE],
}

impl Exchange for Connection {
    async fn exchange(&mut self) -> io::Result<()> {
        let BufResult(written, message) = self.stream.write_all(self.message).await;
        written?;
        let BufResult(read, message) = self.stream.read_exact(message).await;
        read?;
        self.message = message;
        Ok(())
    }
}

pub fn run(load: &Load, slice: Duration) -> Result<Latency> {
    let load = *load;
    Compio::run(move || async move {
        let mut connections = Vec::with_capacity(load.connections);
        for _ in 0..load.connections {
            let stream = TcpStream::connect(load.server).await?;
            stream.set_nodelay(true)?;
            connections.push(Connection { stream, message: [7; MESSAGE] });
        }
        measure::<Compio>(connections, slice).await
    })?
}
