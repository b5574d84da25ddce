//! One client's dealings with the upstream: each request is an exchange over a leased connection.

use std::io::{self, Write};
use std::time::Duration;

use corelet::net::TcpStream;
use corelet::pool::{AcquireError, ExchangeError, Handle, Pool, TcpConnector};
use corelet::runtime::{CoreId, Elapsed, UnknownCore, timeout};

use crate::front::{self, BadRequest, Request};
use crate::resp;

/// How long the upstream may take to answer. The wait for a connection has its own limit, the pool's acquire time-out.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(2);

/// Why a request gets an error for a reply.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("bad request: {0}")]
    BadRequest(#[from] BadRequest),
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
    turn: usize,
    /// Memory for the request and the reply on the wire, used again and again.
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Session {
    /// A session that leases from the shards of `cores` in turn. To be made on the core that uses it.
    pub fn new(pool: &Pool<TcpConnector>, cores: &[CoreId]) -> Result<Session, UnknownCore> {
        let handles = cores.iter().map(|core| pool.handle_on(*core)).collect::<Result<_, _>>()?;
        Ok(Session { handles, turn: 0, request: Vec::new(), reply: Vec::new() })
    }

    /// Answers one line with one line, put into `answer`.
    pub async fn answer(&mut self, line: &[u8], answer: &mut Vec<u8>) {
        answer.clear();
        if let Err(failure) = self.forward(line, answer).await {
            answer.clear();
            // Writing to a vector cannot fail.
            let _ = write!(answer, "ERROR {failure}");
        }
        answer.push(b'\n');
    }

    async fn forward(&mut self, line: &[u8], answer: &mut Vec<u8>) -> Result<(), Failure> {
        let request = Request::parse(line)?;
        let Session { handles, turn, request: wire, reply } = self;
        let handle = &handles[*turn % handles.len()];
        *turn = turn.wrapping_add(1);

        let mut lease = handle.acquire().await?;
        // Whatever ends this early, an error, the time-out or the client's end, leaves the connection in an unknown
        // state. The lease knows, and closes it instead of giving it to the next request, which would otherwise read
        // this one's late reply.
        let exchange = lease.exchange(async |stream| exchange(stream, &request, wire, reply, answer).await);
        timeout(EXCHANGE_LIMIT, exchange).await??;
        Ok(())
    }
}

/// Sends `request` and appends the upstream's reply, in the front's form, to `answer`. `wire` and `reply` lend their
/// memory.
pub async fn exchange(
    stream: &mut TcpStream,
    request: &Request<'_>,
    wire: &mut Vec<u8>,
    reply: &mut Vec<u8>,
    answer: &mut Vec<u8>,
) -> io::Result<()> {
    // The kernel reads and writes buffers while the task is parked, so they are handed over and come back.
    let mut sent = std::mem::take(wire);
    sent.clear();
    request.encode(&mut sent);
    let (written, sent) = stream.write_all(sent).await;
    *wire = sent;
    written?;

    let mut received = std::mem::take(reply);
    received.clear();
    loop {
        // At least this much room; the vector grows with the reply, which `resp` limits.
        received.reserve(512);
        let count;
        (count, received) = stream.read(received).await;
        if count? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the upstream closed the connection"));
        }
        match resp::decode(&received)? {
            None => {}
            Some((value, taken)) if taken == received.len() => {
                front::render(&value, answer);
                *reply = received;
                return Ok(());
            }
            Some(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the upstream sent more than one reply",
                ));
            }
        }
    }
}
