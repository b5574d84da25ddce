//! One client's dealings with the upstream: each request is an exchange over a leased connection.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use bytes::BytesMut;
use corelet::net::TcpStream;
use corelet::pool::{AcquireError, ExchangeError, Handle, Pool, TcpConnector};
use corelet::runtime::{CoreId, Elapsed, UnknownCore, timeout};
use corelet::service::codec::{RespCodec, RespError, Value};
use tokio_util::codec::{Decoder, Encoder};

use crate::front::MAX_LINE;

/// How long the upstream may take to answer. The wait for a connection has its own limit, the pool's acquire time-out.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(2);

/// Why a request gets an error for a reply.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The pool had no connection to give.
    #[error("{0}")]
    Acquire(#[from] AcquireError),
    #[error("{0}")]
    Exchange(#[from] ExchangeError<io::Error>),
    #[error("the upstream did not answer in time: {0}")]
    Slow(#[from] Elapsed),
}

/// What is kept for one client connection.
pub struct Session {
    /// Usually one, bound to this core's own shard. With several the requests take turns; those for another core's
    /// shard are forwarded there, and the connection comes over for the length of the lease.
    handles: Vec<Handle<TcpConnector>>,
    turn: Cell<usize>,
    /// Taken out for the length of an exchange; one that ends early leaves nothing behind.
    wire: Cell<Option<Box<Wire>>>,
}

impl Session {
    /// A session that leases from the shards of `cores` in turn. To be made on the core that uses it.
    pub fn new(pool: &Pool<TcpConnector>, cores: &[CoreId]) -> Result<Session, UnknownCore> {
        let handles = cores.iter().map(|core| pool.handle_on(*core)).collect::<Result<_, _>>()?;
        Ok(Session { handles, turn: Cell::default(), wire: Cell::default() })
    }

    /// Has the upstream execute `command`.
    pub async fn ask(&self, command: &[&[u8]]) -> Result<Value, Failure> {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        let mut lease = self.handles[turn % self.handles.len()].acquire().await?;
        // Whatever ends this early, an error, the time-out or the client's end, leaves the connection in an unknown
        // state. The lease knows, and closes it instead of giving it to the next request, which would otherwise read
        // this one's late reply.
        let mut wire = self.wire.take().unwrap_or_default();
        let exchange = lease.exchange(async |stream| wire.exchange(stream, command).await);
        let reply = timeout(EXCHANGE_LIMIT, exchange).await??;
        self.wire.set(Some(wire));
        Ok(reply)
    }
}

/// The upstream's protocol, and memory for what is sent and received, used again and again.
pub struct Wire {
    codec: RespCodec,
    sent: BytesMut,
    received: BytesMut,
}

impl Default for Wire {
    fn default() -> Wire {
        let codec = RespCodec::new().max_frame(MAX_LINE).max_items(1);
        Wire { codec, sent: BytesMut::new(), received: BytesMut::new() }
    }
}

impl Wire {
    /// Sends `command` and gives the upstream's reply.
    pub async fn exchange(&mut self, stream: &mut TcpStream, command: &[&[u8]]) -> io::Result<Value> {
        // The kernel may read the buffer while the task is parked, so it is handed over and comes back.
        let mut sent = std::mem::take(&mut self.sent);
        sent.clear();
        self.codec.encode(command, &mut sent).map_err(invalid)?;
        let written;
        (written, self.sent) = stream.write_all(sent).await;
        written?;
        loop {
            let Some(received) = stream.receive().await? else {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the upstream closed the connection",
                ));
            };
            self.received.extend_from_slice(&received);
            drop(received);
            match self.codec.decode(&mut self.received).map_err(invalid)? {
                None => {}
                Some(reply) if self.received.is_empty() => return Ok(reply),
                Some(_) => {
                    let text = "the upstream sent more than one reply";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
            }
        }
    }
}

fn invalid(error: RespError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
