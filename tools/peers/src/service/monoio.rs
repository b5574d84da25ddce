//! monoio: what is received is sent, without frames.

use super::Announce;
use super::frames::answer_raw;
use crate::runtimes::{Runtime as _, monoio::Monoio};
use anyhow::Result;
use monoio::io::{AsyncReadRent as _, AsyncWriteRentExt as _};
use monoio::net::{TcpListener, TcpStream};
use std::net::{Ipv4Addr, SocketAddr};

/// Serves echoes on the calling thread, without end.
pub fn serve_echoes(announce: Announce) -> Result<()> {
    Monoio::run(move || async move {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        announce(listener.local_addr()?)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            monoio::spawn(echo(stream));
        }
    })?
}

async fn echo(mut stream: TcpStream) {
    let mut buffer = Vec::with_capacity(4096);
    loop {
        let (received, mut bytes) = stream.read(buffer).await;
        // An error is the end as well.
        if !received.is_ok_and(|length| length > 0) {
            return;
        }
        if let Some(answer) = answer_raw(&bytes) {
            bytes.clear();
            bytes.extend_from_slice(&answer);
        }
        let (sent, mut bytes) = stream.write_all(bytes).await;
        if sent.is_err() {
            return;
        }
        bytes.clear();
        buffer = bytes;
    }
}
