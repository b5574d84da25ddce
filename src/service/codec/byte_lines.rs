//! Lines of bytes, which need not be text.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memchr;
use tokio_util::codec::{Decoder, Encoder};

use super::MAX_LINE;

/// Bytes that are no line, or a line that is not to be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The peer sent so many bytes without a line end.
    #[error("a line of more than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// A line to be sent has a line end in it, or a CR at its end: the peer would read another one.
    #[error("a line cannot hold a line end")]
    LineEnd,
    /// The connection failed, or ended within a line.
    #[error("the connection failed")]
    Io(#[from] io::Error),
}

/// Lines of bytes, which end in LF or CR LF. They are sent with LF.
///
/// Unlike [`LinesCodec`](super::LinesCodec) it takes and gives bytes that are no UTF-8 and copies none of them; a line
/// that is too long is an error for good, as where the next begins is anybody's guess; and a line that the connection's
/// end cuts off is an error, not a line: half a command is none.
///
/// It holds at most the longest line and what was received along with it. A line shares its memory with what arrived
/// together with it; copy what is kept for long.
///
/// ```
/// use bytes::BytesMut;
/// use corelet::service::codec::{ByteLinesCodec, LineError};
/// use tokio_util::codec::{Decoder, Encoder};
///
/// let (mut codec, mut wire) = (ByteLinesCodec::new().max_line(8), BytesMut::new());
/// codec.encode(b"\xff one", &mut wire)?;
/// codec.encode("two", &mut wire)?;
/// assert_eq!(codec.decode(&mut wire)?.as_deref(), Some(&b"\xff one"[..]));
/// assert_eq!(codec.decode(&mut wire)?.as_deref(), Some(&b"two"[..]));
/// wire.extend_from_slice(b"far too long");
/// assert!(matches!(codec.decode(&mut wire), Err(LineError::TooLong { limit: 8 })));
/// # Ok::<(), LineError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ByteLinesCodec {
    max_line: usize,
    /// So many bytes at the front of the buffer are no line end.
    scanned: usize,
}

impl Default for ByteLinesCodec {
    fn default() -> ByteLinesCodec {
        ByteLinesCodec { max_line: MAX_LINE, scanned: 0 }
    }
}

impl ByteLinesCodec {
    /// Lines of at most [`MAX_LINE`] bytes.
    pub fn new() -> ByteLinesCodec {
        ByteLinesCodec::default()
    }

    /// Accepts lines of at most `bytes`, their ends not counted.
    pub fn max_line(mut self, bytes: usize) -> ByteLinesCodec {
        self.max_line = bytes;
        self
    }

    fn too_long(&mut self) -> LineError {
        self.scanned = 0;
        LineError::TooLong { limit: self.max_line }
    }
}

impl Decoder for ByteLinesCodec {
    type Item = Bytes;
    type Error = LineError;

    fn decode(&mut self, src: &mut BytesMut) -> Result<Option<Bytes>, LineError> {
        // Room for a CR as well. No more is looked at, so that it cannot matter how much has arrived already.
        let window = &src[..src.len().min(self.max_line.saturating_add(2))];
        // Another buffer than last time may be shorter.
        let scanned = self.scanned.min(window.len());
        let Some(end) = memchr(b'\n', &window[scanned..]) else {
            if window.strip_suffix(b"\r").unwrap_or(window).len() > self.max_line {
                return Err(self.too_long());
            }
            self.scanned = window.len();
            return Ok(None);
        };
        let line = &window[..scanned + end];
        let len = line.strip_suffix(b"\r").unwrap_or(line).len();
        if len > self.max_line {
            return Err(self.too_long());
        }
        let mut line = src.split_to(scanned + end + 1);
        self.scanned = 0;
        line.truncate(len);
        Ok(Some(line.freeze()))
    }
}

impl<L: AsRef<[u8]>> Encoder<L> for ByteLinesCodec {
    type Error = LineError;

    fn encode(&mut self, line: L, dst: &mut BytesMut) -> Result<(), LineError> {
        let line = line.as_ref();
        if line.contains(&b'\n') || line.ends_with(b"\r") {
            return Err(LineError::LineEnd);
        }
        dst.reserve(line.len() + 1);
        dst.put_slice(line);
        dst.put_u8(b'\n');
        Ok(())
    }
}
