//! What can be wrong with RESP.

use std::io;

/// Bytes that are no RESP, more of it than is accepted, or a value that RESP cannot carry.
///
/// The connection that the bytes came from is of no further use: where the next value begins is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RespError {
    /// No value begins with this byte.
    #[error("a value cannot begin with byte {0:#04x}")]
    Kind(u8),
    /// CR LF is missing behind a line or a bulk string.
    #[error("a line or a string that does not end in CR LF")]
    Ending,
    /// An integer or a length that is none, or fits no `i64`.
    #[error("a number that is none")]
    Number,
    /// A length below -1.
    #[error("a length of {0}")]
    Length(i64),
    /// A value is longer than it may be, or has announced that it will be.
    #[error("a value of more than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// A value is made of more values than it may be, or has announced that it will be.
    #[error("a value made of more than {limit} values")]
    TooManyItems {
        /// The limit.
        limit: usize,
    },
    /// Arrays are deeper within each other than they may be.
    #[error("arrays that are more than {limit} deep")]
    TooDeep {
        /// The limit.
        limit: u8,
    },
    /// A simple string or an error to be sent has a CR or LF in it: the peer would read another value.
    #[error("a simple string or an error cannot hold a line end")]
    LineEnd,
    /// The connection failed, or ended within a value.
    #[error("the connection failed")]
    Io(#[from] io::Error),
}

impl RespError {
    /// Whether a limit of this side was exceeded by what may be good RESP.
    pub fn is_limit(&self) -> bool {
        matches!(self, RespError::TooLong { .. } | RespError::TooManyItems { .. } | RespError::TooDeep { .. })
    }
}
