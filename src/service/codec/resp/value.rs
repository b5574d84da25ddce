//! A value of RESP.

use bytes::Bytes;

/// A value of RESP: a command, which is an array of bulk strings, or a reply.
///
/// What was decoded shares the memory of all that arrived together with it, so a clone is cheap, and a small part that is
/// kept for long keeps a whole receive buffer. Copy such parts ([`Bytes::copy_from_slice`]).
///
/// ```
/// use corelet::service::codec::Value;
///
/// let command = Value::Array(vec![Value::bulk("GET"), Value::bulk("key")]);
/// let words: Vec<_> = command.items().iter().filter_map(Value::as_bytes).collect();
/// let reply = match words[..] {
///     [b"GET", key] => Value::bulk(key.to_vec()),
///     _ => Value::error("ERR unknown command"),
/// };
/// assert_eq!(reply.as_bytes(), Some(&b"key"[..]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// A short text without line ends, such as `OK`.
    Simple(Bytes),
    /// What a failed command is answered with: a text without line ends, whose first word says what kind it is.
    Error(Bytes),
    /// A number.
    Integer(i64),
    /// Bytes of any kind.
    Bulk(Bytes),
    /// In the place of a bulk string that is not there.
    Null,
    /// In the place of an array that is not there.
    NullArray,
    /// Values, which may be arrays.
    Array(Vec<Value>),
}

impl Value {
    /// A simple string.
    pub fn simple(text: impl Into<Bytes>) -> Value {
        Value::Simple(text.into())
    }

    /// An error. Line ends in `text` become spaces, so that it may tell of what a peer has sent.
    pub fn error(text: impl Into<String>) -> Value {
        let text = text.into();
        let one_line = if text.contains(['\r', '\n']) { text.replace(['\r', '\n'], " ") } else { text };
        Value::Error(one_line.into())
    }

    /// A bulk string.
    pub fn bulk(bytes: impl Into<Bytes>) -> Value {
        Value::Bulk(bytes.into())
    }

    /// The bytes of a simple string, an error or a bulk string.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(bytes) | Value::Error(bytes) | Value::Bulk(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// What is in an array; nothing if this is none.
    pub fn items(&self) -> &[Value] {
        match self {
            Value::Array(items) => items,
            _ => &[],
        }
    }

    /// Whether it stands in the place of a string or an array that is not there.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null | Value::NullArray)
    }
}
