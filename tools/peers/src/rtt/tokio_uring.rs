//! tokio-uring's `TcpStream`, with one owned buffer going to and fro.

use super::{Exchange, Load, MESSAGE, measure, short};
use crate::meter::Latency;
use crate::runtimes::{Runtime, tokio_uring::TokioUring};
use anyhow::Result;
use std::io;
use std::time::Duration;
use tokio_uring::buf::BoundedBuf;
use tokio_uring::net::TcpStream;

struct Connection {
    stream: TcpStream,
    message: Vec<u8>,
}

impl Exchange for Connection {
    async fn exchange(&mut self) -> io::Result<()> {
        let (written, mut message) = self.stream.write_all(std::mem::take(&mut self.message)).await;
        written?;
        let mut received = 0;
        while received < MESSAGE {
            let (read, slice) = self.stream.read(message.slice(received..MESSAGE)).await;
            message = slice.into_inner();
            match read? {
                0 => return Err(short(received)),
                length => received += length,
            }
        }
        self.message = message;
        Ok(())
    }
}

pub fn run(load: &Load, slice: Duration) -> Result<Latency> {
    let load = *load;
    TokioUring::run(move || async move {
        let mut connections = Vec::with_capacity(load.connections);
        for _ in 0..load.connections {
            let stream = TcpStream::connect(load.server).await?;
            stream.set_nodelay(true)?;
            connections.push(Connection { stream, message: vec![7; MESSAGE] });
        }
        measure::<TokioUring>(connections, slice).await
    })?
}
