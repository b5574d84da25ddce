//! A client connection of the load generator: one request at a time, again and again after a failure.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use corelet::net::TcpStream;
use corelet::runtime::timeout;

use crate::lines::Lines;

/// How long a reply may take. The gateway's own limits, on acquires and exchanges, end well before.
const REPLY_LIMIT: Duration = Duration::from_secs(5);

/// A connection to the front, made when there is a request for it.
pub struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
    lines: Lines,
    /// Memory for requests, used again and again.
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Client {
        Client { address, stream: None, lines: Lines::default(), request: Vec::new(), reply: Vec::new() }
    }

    /// Sends one request line and gives the reply line. After an error the next request begins with a new connection:
    /// on the old one the reply to this request could still come.
    pub async fn request(&mut self, line: &str) -> io::Result<&[u8]> {
        // Taken out, and put back only after the reply, so that no early end leaves it behind.
        let stream = self.stream.take();
        let stream = match timeout(REPLY_LIMIT, self.exchange(stream, line)).await {
            Ok(result) => result?,
            Err(elapsed) => return Err(io::Error::new(io::ErrorKind::TimedOut, elapsed)),
        };
        self.stream = Some(stream);
        Ok(&self.reply)
    }

    async fn exchange(&mut self, stream: Option<TcpStream>, line: &str) -> io::Result<TcpStream> {
        let mut stream = match stream {
            Some(stream) => stream,
            None => {
                self.lines = Lines::default();
                TcpStream::connect(self.address).await?
            }
        };
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        request.extend_from_slice(line.as_bytes());
        request.push(b'\n');
        let (written, request) = stream.write_all(request).await;
        self.request = request;
        written?;
        loop {
            let Some(received) = stream.receive().await? else {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the gateway hung up"));
            };
            self.lines.push(&received);
            match self.lines.next_line() {
                Ok(None) => {}
                Ok(Some(reply)) => {
                    self.reply.clear();
                    self.reply.extend_from_slice(reply);
                    return Ok(stream);
                }
                Err(too_long) => return Err(io::Error::new(io::ErrorKind::InvalidData, too_long)),
            }
        }
    }
}
