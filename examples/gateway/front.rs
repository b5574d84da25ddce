//! The front, a service of lines: one request a line, one reply line each, in order.
//!
//! | request         | reply                          |
//! |-----------------|--------------------------------|
//! | `PING`          | `PONG`                         |
//! | `SET key value` | `OK`                           |
//! | `GET key`       | `VALUE ...`, or `NONE`         |
//! | `DEL key`       | `INTEGER n`: how many there were |
//!
//! Any of them can be answered by `ERROR ...`. A value runs to the end of its line, so it may hold spaces.

use bytes::{BufMut, Bytes, BytesMut};
use corelet::actor;
use corelet::pool::{Pool, TcpConnector};
use corelet::runtime::CoreId;
use corelet::service::app::{Extract, Incoming};
use corelet::service::codec::{ByteLinesCodec, Value};
use corelet::service::{App, Connection, End, Protocol, Rejection, RequestError, Verdict};

use crate::session::{Failure, Session};

/// The longest value that is accepted.
pub const MAX_VALUE: usize = 64 * 1024;
/// The longest line that either side accepts, its end not counted: a value with the words around it.
pub const MAX_LINE: usize = MAX_VALUE + 1024;

/// The application, to be made on the core that serves it. Its sessions lease from the shards of `shards` in turn.
pub fn app(pool: &Pool<TcpConnector>, shards: Vec<CoreId>) -> App<Front> {
    App::new(Front { pool: pool.clone(), shards })
        .route(Command::Ping, async |Words([]): Words<0>, client| ask(client, &[b"PING"]).await)
        .route(Command::Get, async |Words([key]): Words<1>, client| ask(client, &[b"GET", &key]).await)
        .route(Command::Set, async |Words([key, value]): Words<2>, client| {
            ask(client, &[b"SET", &key, &value]).await
        })
        .route(Command::Del, async |Words([key]): Words<1>, client| ask(client, &[b"DEL", &key]).await)
}

async fn ask(client: Connection<Front>, command: &[&[u8]]) -> Result<Bytes, Failure> {
    client.session().ask(command).await.map(render)
}

/// The protocol. One value of it serves all clients of a core.
pub struct Front {
    pool: Pool<TcpConnector>,
    shards: Vec<CoreId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    Ping,
    Get,
    Set,
    Del,
}

impl Protocol for Front {
    type Codec = ByteLinesCodec;
    type Request = Bytes;
    type Response = Bytes;
    type Id = Command;
    type Session = Session;

    fn codec(&self) -> ByteLinesCodec {
        ByteLinesCodec::new().max_line(MAX_LINE)
    }

    fn session(&self) -> Session {
        match Session::new(&self.pool, &self.shards) {
            Ok(session) => session,
            Err(error) => unreachable!("the shards are those of the pool's own runtime: {error}"),
        }
    }

    fn id(&self, line: &Bytes) -> Option<Command> {
        match line.split(|byte| *byte == b' ').next()? {
            b"PING" => Some(Command::Ping),
            b"GET" => Some(Command::Get),
            b"SET" => Some(Command::Set),
            b"DEL" => Some(Command::Del),
            _ => None,
        }
    }

    fn connected(&self, _: &Connection<Front>) {
        actor::set_label("session");
    }

    /// A request that fails costs its client nothing but an answer.
    fn failed(&self, error: &RequestError, _: &Connection<Front>) -> Verdict<Bytes> {
        let reply = match error {
            RequestError::NoRoute => format!("ERROR bad request: {}", BadRequest::Syntax),
            RequestError::Rejected { rejection: Rejection { source: Some(why), .. }, .. } => {
                format!("ERROR bad request: {why}")
            }
            RequestError::Failed { source: why, .. } => format!("ERROR {why}"),
            other => format!("ERROR {other}"),
        };
        Verdict { reply: Some(reply.into()), close: false }
    }

    /// Where the next line begins is then anybody's guess, so this is the end.
    fn malformed(&self, end: &End, _: &Connection<Front>) -> Option<Bytes> {
        match end {
            End::Decode(error) => Some(format!("ERROR {error}").into()),
            _ => None,
        }
    }
}

/// A line that is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    #[error("expected PING, GET key, SET key value or DEL key")]
    Syntax,
    #[error("a value of more than {MAX_VALUE} bytes")]
    LongValue,
}

/// What is behind the command in a line: a key, and perhaps a value.
pub struct Words<const N: usize>(pub [Bytes; N]);

impl<const N: usize> Words<N> {
    pub fn parse(line: &Bytes) -> Result<Words<N>, BadRequest> {
        let mut rest = line.splitn(3, |byte| *byte == b' ').skip(1);
        let mut words = [const { Bytes::new() }; N];
        for word in &mut words {
            *word = line.slice_ref(rest.next().ok_or(BadRequest::Syntax)?);
        }
        match &words[..] {
            _ if rest.next().is_some() => Err(BadRequest::Syntax),
            [key, ..] if key.is_empty() => Err(BadRequest::Syntax),
            [_, value] if value.len() > MAX_VALUE => Err(BadRequest::LongValue),
            _ => Ok(Words(words)),
        }
    }
}

impl<const N: usize> Extract<Front> for Words<N> {
    fn extract(incoming: &mut Incoming<Front>) -> Result<Words<N>, Rejection> {
        let line = incoming.request().ok_or(Rejection::new("the line"))?;
        Words::parse(line).map_err(Rejection::of::<Words<N>>)
    }
}

/// The front's form of an upstream's reply.
pub fn render(reply: Value) -> Bytes {
    match reply {
        Value::Simple(text) => text,
        Value::Error(text) => with_word(b"ERROR ", &text),
        Value::Integer(number) => format!("INTEGER {number}").into(),
        // Another client of the upstream may have stored what does not fit into a line. Sent as it is, the rest of the
        // value would pass for the replies to the client's next requests.
        Value::Bulk(value) if value.contains(&b'\n') || value.ends_with(b"\r") => {
            Bytes::from_static(b"ERROR the value holds a line end")
        }
        Value::Bulk(value) => with_word(b"VALUE ", &value),
        Value::Null | Value::NullArray => Bytes::from_static(b"NONE"),
        Value::Array(_) => Bytes::from_static(b"ERROR the upstream answered with an array"),
    }
}

fn with_word(word: &[u8], rest: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(word.len() + rest.len());
    line.put_slice(word);
    line.put_slice(rest);
    line.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<const N: usize>(line: &'static str) -> Result<[Bytes; N], BadRequest> {
        Words::parse(&Bytes::from(line)).map(|Words(words)| words)
    }

    #[test]
    fn requests_are_told_from_what_is_none() {
        assert_eq!(parse::<0>("PING"), Ok([]));
        assert_eq!(parse::<1>("GET k"), Ok(["k".into()]));
        assert_eq!(parse::<2>("SET k a b"), Ok(["k".into(), "a b".into()]));
        assert_eq!(parse::<2>("SET k "), Ok(["k".into(), "".into()]));
        assert_eq!(parse::<0>("PING PING"), Err(BadRequest::Syntax));
        for bad in ["GET", "GET ", "GET a b", "DEL"] {
            assert_eq!(parse::<1>(bad), Err(BadRequest::Syntax), "{bad:?}");
        }
        for bad in ["SET k", "SET  v", "SET"] {
            assert_eq!(parse::<2>(bad), Err(BadRequest::Syntax), "{bad:?}");
        }
        let long = Bytes::from(format!("SET k {}", "v".repeat(MAX_VALUE + 1)));
        assert_eq!(Words::<2>::parse(&long).map(|_| ()), Err(BadRequest::LongValue));
    }

    #[test]
    fn a_value_with_a_line_end_cannot_pass_for_two_replies() {
        for value in ["a\nOK", "a\r"] {
            let reply = render(Value::bulk(value));
            assert!(reply.starts_with(b"ERROR ") && !reply.contains(&b'\n'));
        }
    }
}
