//! Connections that are counted from outside the pool, and attempts that fail in every way.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use corelet::net::{DetachedStream, TcpStream};
use corelet::pool::{Connection, Connector};
use corelet::runtime::{CoreId, Watch, current_core, sleep, yield_now};

use super::ledger::{Ledger, Mark};
use super::upstream::{REPLY, REPLY_SIZE, REQUEST_SIZE};

pub struct TrackedConnector {
    pub ledger: Ledger,
    pub address: SocketAddr,
    pub cores: Vec<CoreId>,
}

impl TrackedConnector {
    async fn try_connect(&self, mark: Mark) -> io::Result<Tracked> {
        let chances = self.ledger.plan.temper.connect_faults;
        if self.ledger.strikes(chances) {
            let (kind, pause) = {
                let random = &mut self.ledger.book().random;
                (random.below(8), random.up_to(Duration::from_millis(5)))
            };
            match kind {
                0..=3 => {}
                4 | 5 => sleep(pause).await,
                6 => std::future::pending().await,
                // Without the hook, which would print it.
                _ => std::panic::resume_unwind(Box::new("the connector panics, as drawn")),
            }
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let stream = TcpStream::connect(self.address).await?;
        self.ledger.book().shard_of.insert(stream.local_addr()?, mark.shard());
        let mut connection = Tracked { stream, mark };
        if self.ledger.plan.handshake {
            let tag = self.ledger.number();
            if connection.ask(&[tag]).await? != [tag] {
                self.ledger.fault("the reply to a handshake is not its own");
            }
        }
        Ok(connection)
    }
}

impl Connector for TrackedConnector {
    type Connection = Tracked;

    async fn connect(&self) -> io::Result<Tracked> {
        let shard = self.cores.iter().position(|core| Some(*core) == current_core());
        let Some(shard) = shard else {
            self.ledger.fault("a connection is opened on no core of the pool");
            return Err(io::ErrorKind::Other.into());
        };
        let mut failed = Failure(Some((&self.ledger, shard)));
        let result = self.try_connect(Mark::new(&self.ledger, shard)).await;
        if result.is_ok() {
            failed.0 = None;
        }
        result
    }

    async fn check(&self, connection: &mut Tracked) -> io::Result<()> {
        self.ledger.book().tally.checks += 1;
        let tag = self.ledger.number();
        match connection.ask(&[tag]).await? == [tag] {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn is_current(&self, connection: &Tracked) -> bool {
        connection.mark.id >= self.ledger.book().moved
    }
}

/// Counts an attempt that did not come to a connection, however it ended.
struct Failure<'a>(Option<(&'a Ledger, usize)>);

impl Drop for Failure<'_> {
    fn drop(&mut self) {
        if let Some((ledger, shard)) = self.0 {
            ledger.book().failed_attempts[shard] += 1;
        }
    }
}

/// A connection to the tagging upstream.
#[derive(Debug)]
pub struct Tracked {
    stream: TcpStream,
    // Dropped second: the slot counts as taken until the stream has gone.
    mark: Mark,
}

impl Tracked {
    pub fn id(&self) -> u64 {
        self.mark.id
    }

    /// Sends the tags as requests and reads as many replies; gives their tags.
    ///
    /// Bytes that are no reply are an error. A reply to somebody else looks like any other, and is for the caller to
    /// find out.
    pub async fn ask(&mut self, tags: &[u64]) -> io::Result<Vec<u64>> {
        let ledger = self.mark.ledger().clone();
        let (pooled, halves) = {
            let random = &mut ledger.book().random;
            (random.one_in(2), random.one_in(4))
        };
        let mut requests = Vec::with_capacity(tags.len() * REQUEST_SIZE);
        tags.iter().for_each(|tag| requests.extend(tag.to_le_bytes()));
        if halves {
            let rest = requests.split_off(3);
            self.stream.write_all(requests).await.0?;
            yield_now().await;
            self.stream.write_all(rest).await.0?;
        } else {
            self.stream.write_all(requests).await.0?;
        }
        let expected = tags.len() * REPLY_SIZE;
        let mut replies: Vec<u8> = Vec::with_capacity(expected);
        while replies.len() < expected {
            let before = replies.len();
            if pooled {
                if let Some(received) = self.stream.receive().await? {
                    replies.extend_from_slice(&received);
                }
            } else {
                let count;
                (count, replies) = self.stream.read(replies).await;
                count?;
            }
            if replies.len() == before {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        if replies.len() > expected || replies.chunks(REPLY_SIZE).any(|reply| reply[0] != REPLY) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let tag = |reply: &[u8]| reply[1..].iter().rev().fold(0, |tag, byte| tag << 8 | u64::from(*byte));
        Ok(replies.chunks(REPLY_SIZE).map(tag).collect())
    }
}

impl Connection for Tracked {
    type Detached = (DetachedStream, Mark);

    fn is_quiet(&self) -> bool {
        self.stream.is_quiet()
    }

    fn arm(&mut self, watch: Watch) {
        self.stream.arm(watch);
    }

    fn poll_quiesce(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.mark.ledger().strikes(self.mark.ledger().plan.temper.connection_faults) {
            return Poll::Ready(Err(io::ErrorKind::Other.into()));
        }
        Connection::poll_quiesce(&mut self.stream, cx)
    }

    fn detach(self) -> Result<Self::Detached, Self> {
        let Tracked { stream, mark } = self;
        match stream.detach() {
            Ok(detached) => Ok((detached, mark)),
            Err(stream) => Err(Tracked { stream, mark }),
        }
    }

    fn attach((detached, mark): Self::Detached) -> Self {
        Tracked { stream: TcpStream::from(detached.attach()), mark }
    }

    async fn close(self) {
        let Tracked { stream, mark } = self;
        let mut unfinished = Unfinished(Some(mark.ledger().clone()));
        if mark.ledger().strikes(mark.ledger().plan.temper.connection_faults) {
            let pause = mark.ledger().book().random.up_to(Duration::from_millis(10));
            sleep(pause).await;
        }
        stream.close().await;
        unfinished.0 = None;
        drop(mark);
    }
}

/// A close that was begun is seen through, unless its core ends.
struct Unfinished(Option<Ledger>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(ledger) = &self.0
            && ledger.book().killed.iter().all(Option::is_none)
        {
            ledger.fault("a connection's close is broken off");
        }
    }
}
