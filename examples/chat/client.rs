//! A client: lines out, lines in, over whatever stream.

use std::collections::VecDeque;
use std::io;
use std::ops::DerefMut;
use std::time::Duration;

use bytes::BytesMut;
use corelet::net::{Stream, TcpStream, UnixStream};
use corelet::runtime::timeout;
use corelet::service::codec::{self, LinesCodec};
use corelet::service::server::Address;
use tokio_util::codec::Decoder;

/// How long a line may be waited for. All of them are sure to come, so this only bounds a hang.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Client {
    stream: Box<dyn DerefMut<Target = Stream>>,
    codec: LinesCodec,
    received: BytesMut,
    /// Came before the answer that was waited for.
    before: VecDeque<String>,
}

impl Client {
    pub async fn connect(address: &Address) -> io::Result<Client> {
        let stream: Box<dyn DerefMut<Target = Stream>> = match address {
            Address::Tcp(address) => Box::new(TcpStream::connect(*address).await?),
            Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
            other => return Err(io::Error::other(format!("{other} is no address that is known here"))),
        };
        let (codec, received, before) = (codec::lines(), BytesMut::new(), VecDeque::new());
        Ok(Client { stream, codec, received, before })
    }

    pub async fn send(&mut self, line: &str) -> io::Result<()> {
        self.stream.write_all(format!("{line}\n").into_bytes()).await.0
    }

    /// The next line; none when the service has hung up.
    pub async fn line(&mut self) -> io::Result<Option<String>> {
        match self.before.pop_front() {
            Some(line) => Ok(Some(line)),
            None => self.receive().await,
        }
    }

    async fn receive(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(line) = self.codec.decode(&mut self.received).map_err(io::Error::other)? {
                return Ok(Some(line));
            }
            match timeout(PATIENCE, self.stream.receive()).await.map_err(io::Error::other)?? {
                Some(bytes) => self.received.extend_from_slice(&bytes),
                None => return Ok(None),
            }
        }
    }

    /// The next line that is no word of the house.
    pub async fn message(&mut self) -> io::Result<String> {
        loop {
            match self.line().await? {
                Some(line) if line.starts_with('*') => {}
                Some(line) => return Ok(line),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Joins a room, and says how many are there then.
    pub async fn join(&mut self, room: &str, name: &str) -> io::Result<u64> {
        self.send(&format!("/join {room} {name}")).await?;
        // What is pushed goes before answers.
        let answer = loop {
            match self.receive().await?.ok_or(io::ErrorKind::UnexpectedEof)? {
                line if line.starts_with(['+', '-']) => break line,
                pushed => self.before.push_back(pushed),
            }
        };
        let there = answer.strip_prefix("+ ").and_then(|number| number.parse().ok());
        there.ok_or_else(|| io::Error::other(format!("{name} was refused: {answer}")))
    }
}
