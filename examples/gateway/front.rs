//! The front protocol: one request a line, one reply line each, in order.
//!
//! | request         | reply                          |
//! |-----------------|--------------------------------|
//! | `PING`          | `PONG`                         |
//! | `SET key value` | `OK`                           |
//! | `GET key`       | `VALUE ...`, or `NONE`         |
//! | `DEL key`       | `INTEGER n`: how many there were |
//!
//! Any of them can be answered by `ERROR ...`. A value runs to the end of its line, so it may hold spaces.

use std::io::Write;

use crate::resp::{self, Value};

/// What a client asks for, borrowed from its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    Ping,
    Get { key: &'a [u8] },
    Set { key: &'a [u8], value: &'a [u8] },
    Del { key: &'a [u8] },
}

/// A line that is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    #[error("expected PING, GET key, SET key value or DEL key")]
    Syntax,
    #[error("a value of more than {} bytes", resp::MAX_BULK)]
    LongValue,
}

impl<'a> Request<'a> {
    pub fn parse(line: &'a [u8]) -> Result<Request<'a>, BadRequest> {
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let request = match (words.next(), words.next(), words.next()) {
            (Some(b"PING"), None, None) => Request::Ping,
            (Some(b"GET"), Some(key), None) => Request::Get { key },
            (Some(b"SET"), Some(key), Some(value)) => Request::Set { key, value },
            (Some(b"DEL"), Some(key), None) => Request::Del { key },
            _ => return Err(BadRequest::Syntax),
        };
        match request {
            Request::Get { key: b"" } | Request::Set { key: b"", .. } | Request::Del { key: b"" } => {
                Err(BadRequest::Syntax)
            }
            Request::Set { value, .. } if value.len() > resp::MAX_BULK => Err(BadRequest::LongValue),
            request => Ok(request),
        }
    }

    /// Appends the upstream's form of the request to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Request::Ping => resp::encode_command(&[b"PING"], out),
            Request::Get { key } => resp::encode_command(&[b"GET", key], out),
            Request::Set { key, value } => resp::encode_command(&[b"SET", key, value], out),
            Request::Del { key } => resp::encode_command(&[b"DEL", key], out),
        }
    }
}

/// Appends the front's form of an upstream's reply to `out`, without the line end.
pub fn render(reply: &Value<'_>, out: &mut Vec<u8>) {
    match reply {
        Value::Simple(text) => out.extend_from_slice(text),
        Value::Error(text) => {
            out.extend_from_slice(b"ERROR ");
            out.extend_from_slice(text);
        }
        Value::Integer(number) => {
            // Writing to a vector cannot fail.
            let _ = write!(out, "INTEGER {number}");
        }
        // Another client of the upstream may have stored what does not fit into a line. Sent as it is, the rest of the
        // value would pass for the replies to the client's next requests.
        Value::Bulk(value) if value.contains(&b'\n') => {
            out.extend_from_slice(b"ERROR the value holds a line end");
        }
        Value::Bulk(value) => {
            out.extend_from_slice(b"VALUE ");
            out.extend_from_slice(value);
        }
        Value::Null => out.extend_from_slice(b"NONE"),
        Value::Array(_) => out.extend_from_slice(b"ERROR the upstream answered with an array"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_from_what_is_none() {
        assert_eq!(Request::parse(b"PING"), Ok(Request::Ping));
        assert_eq!(Request::parse(b"GET k"), Ok(Request::Get { key: b"k" }));
        assert_eq!(Request::parse(b"SET k a b"), Ok(Request::Set { key: b"k", value: b"a b" }));
        assert_eq!(Request::parse(b"SET k "), Ok(Request::Set { key: b"k", value: b"" }));
        for bad in ["", "PING PING", "GET", "GET ", "GET a b", "SET k", "SET  v", "get k", "DEL"] {
            assert_eq!(Request::parse(bad.as_bytes()), Err(BadRequest::Syntax), "{bad:?}");
        }
    }

    #[test]
    fn a_value_with_a_line_end_cannot_pass_for_two_replies() {
        let mut out = Vec::new();
        render(&Value::Bulk(b"a\nOK"), &mut out);
        assert!(out.starts_with(b"ERROR ") && !out.contains(&b'\n'));
    }
}
