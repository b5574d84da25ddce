//! The upstream's protocol: as much of RESP, the Redis protocol, as a gateway needs.
//!
//! [`decode`] looks at the bytes received so far and either takes one value off their front or asks for more. It keeps
//! no state between calls, so it cannot matter how the network cut the bytes into pieces. Every length is checked
//! against a limit before anything waits for that many bytes: an upstream cannot make the gateway hoard memory.
//!
//! Never: panic, whatever the input.

use std::io::{self, Write};

/// The longest bulk string that is accepted.
pub const MAX_BULK: usize = 64 * 1024;
/// The longest line: a simple string, an error or a number.
pub const MAX_LINE: usize = 1024;
/// The most elements of an array; the longest command, `SET key value`, has three.
pub const MAX_ITEMS: usize = 8;

/// One value, borrowed from the bytes it was decoded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Integer(i64),
    Bulk(&'a [u8]),
    Null,
    /// Commands are arrays of bulk strings; other arrays are not accepted.
    Array(Vec<&'a [u8]>),
}

/// Bytes that are no RESP, or more of it than is accepted. The connection they came from is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("a value cannot begin with byte {0:#04x}")]
    Kind(u8),
    #[error("a line of more than {MAX_LINE} bytes")]
    LongLine,
    #[error("a line or string that does not end in CR LF")]
    Ending,
    #[error("a number that is none")]
    Number,
    #[error("a string of {0} bytes, where {MAX_BULK} are accepted")]
    LongBulk(i64),
    #[error("an array of {0} elements, where {MAX_ITEMS} are accepted")]
    LongArray(i64),
}

impl From<Malformed> for io::Error {
    fn from(malformed: Malformed) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, malformed)
    }
}

/// Takes one value off the front of `input`: the value and how many bytes it took, or `None` when its end has not
/// arrived yet.
pub fn decode(input: &[u8]) -> Result<Option<(Value<'_>, usize)>, Malformed> {
    let mut cursor = Cursor { rest: input };
    let value = cursor.value()?;
    let taken = input.len() - cursor.rest.len();
    Ok(value.map(|value| (value, taken)))
}

/// What is left of the input. A method that gives `None` has run out of bytes.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn value(&mut self) -> Result<Option<Value<'a>>, Malformed> {
        let Some((&kind, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        match kind {
            b'+' => Ok(self.line()?.map(Value::Simple)),
            b'-' => Ok(self.line()?.map(Value::Error)),
            b':' => Ok(self.number()?.map(Value::Integer)),
            b'$' => Ok(self.bulk()?.map(|bulk| bulk.map_or(Value::Null, Value::Bulk))),
            b'*' => self.array(),
            other => Err(Malformed::Kind(other)),
        }
    }

    /// The bytes up to CR LF.
    fn line(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let window = &self.rest[..self.rest.len().min(MAX_LINE + 1)];
        let Some(end) = window.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
            return if window.len() > MAX_LINE { Err(Malformed::LongLine) } else { Ok(None) };
        };
        let (line, ending) = self.rest.split_at(end);
        match ending {
            [b'\r', b'\n', rest @ ..] => self.rest = rest,
            [b'\r'] => return Ok(None),
            _ => return Err(Malformed::Ending),
        }
        Ok(Some(line))
    }

    fn number(&mut self) -> Result<Option<i64>, Malformed> {
        let Some(line) = self.line()? else { return Ok(None) };
        let number = std::str::from_utf8(line).ok().and_then(|digits| digits.parse().ok());
        number.map(Some).ok_or(Malformed::Number)
    }

    /// A bulk string behind its `$`. The inner `None` is RESP's null.
    fn bulk(&mut self) -> Result<Option<Option<&'a [u8]>>, Malformed> {
        let Some(announced) = self.number()? else { return Ok(None) };
        if announced == -1 {
            return Ok(Some(None));
        }
        let fits = usize::try_from(announced).ok().filter(|len| *len <= MAX_BULK);
        let len = fits.ok_or(Malformed::LongBulk(announced))?;
        let Some((bulk, ending)) = self.rest.split_at_checked(len) else { return Ok(None) };
        match ending {
            [b'\r', b'\n', rest @ ..] => self.rest = rest,
            [] | [b'\r'] => return Ok(None),
            _ => return Err(Malformed::Ending),
        }
        Ok(Some(Some(bulk)))
    }

    /// An array of bulk strings behind its `*`.
    fn array(&mut self) -> Result<Option<Value<'a>>, Malformed> {
        let Some(announced) = self.number()? else { return Ok(None) };
        if announced == -1 {
            return Ok(Some(Value::Null));
        }
        let fits = usize::try_from(announced).ok().filter(|len| *len <= MAX_ITEMS);
        let len = fits.ok_or(Malformed::LongArray(announced))?;
        let mut items = Vec::with_capacity(len);
        for _ in 0..len {
            match self.rest.split_first() {
                None => return Ok(None),
                Some((b'$', rest)) => self.rest = rest,
                Some((&other, _)) => return Err(Malformed::Kind(other)),
            }
            match self.bulk()? {
                None => return Ok(None),
                Some(None) => return Err(Malformed::LongBulk(-1)),
                Some(Some(item)) => items.push(item),
            }
        }
        Ok(Some(Value::Array(items)))
    }
}

/// Appends a command, an array of bulk strings, to `out`.
pub fn encode_command(parts: &[&[u8]], out: &mut Vec<u8>) {
    append(out, format_args!("*{}\r\n", parts.len()));
    for part in parts {
        encode(&Value::Bulk(part), out);
    }
}

/// Appends a reply to `out`.
pub fn encode(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Simple(text) => append_line(b'+', text, out),
        Value::Error(text) => append_line(b'-', text, out),
        Value::Integer(number) => append(out, format_args!(":{number}\r\n")),
        Value::Bulk(bytes) => {
            append(out, format_args!("${}\r\n", bytes.len()));
            out.extend_from_slice(bytes);
            out.extend_from_slice(b"\r\n");
        }
        Value::Null => out.extend_from_slice(b"$-1\r\n"),
        Value::Array(items) => encode_command(items, out),
    }
}

fn append_line(kind: u8, text: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(text);
    out.extend_from_slice(b"\r\n");
}

fn append(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a vector cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
#[path = "resp_tests.rs"]
mod tests;
