//! A client connection of the load generator: one request at a time, again and again after a failure.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use corelet::net::TcpStream;
use corelet::runtime::timeout;
use corelet::service::codec::ByteLinesCodec;
use tokio_util::codec::{Decoder, Encoder};

use crate::front::MAX_LINE;

/// How long a reply may take. The gateway's own limits, on acquires and exchanges, end well before.
const REPLY_LIMIT: Duration = Duration::from_secs(5);

/// A connection to the front, made when there is a request for it.
pub struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
    codec: ByteLinesCodec,
    received: BytesMut,
    /// Memory for requests, used again and again.
    request: BytesMut,
}

impl Client {
    pub fn new(address: SocketAddr) -> Client {
        let codec = ByteLinesCodec::new().max_line(MAX_LINE);
        Client { address, stream: None, codec, received: BytesMut::new(), request: BytesMut::new() }
    }

    /// Sends one request line and gives the reply line. After an error the next request begins with a new connection:
    /// on the old one the reply to this request could still come.
    pub async fn request(&mut self, line: &str) -> io::Result<Bytes> {
        // Taken out, and put back only after the reply, so that no early end leaves it behind.
        let stream = self.stream.take();
        let (stream, reply) = match timeout(REPLY_LIMIT, self.exchange(stream, line)).await {
            Ok(result) => result?,
            Err(elapsed) => return Err(io::Error::new(io::ErrorKind::TimedOut, elapsed)),
        };
        self.stream = Some(stream);
        Ok(reply)
    }

    async fn exchange(&mut self, stream: Option<TcpStream>, line: &str) -> io::Result<(TcpStream, Bytes)> {
        let mut stream = match stream {
            Some(stream) => stream,
            None => {
                *self = Client::new(self.address);
                TcpStream::connect(self.address).await?
            }
        };
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        self.codec.encode(line, &mut request).map_err(io::Error::other)?;
        let written;
        (written, self.request) = stream.write_all(request).await;
        written?;
        loop {
            let Some(received) = stream.receive().await? else {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the gateway hung up"));
            };
            self.received.extend_from_slice(&received);
            if let Some(reply) = self.codec.decode(&mut self.received).map_err(io::Error::other)? {
                return Ok((stream, reply));
            }
        }
    }
}
