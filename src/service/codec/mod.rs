//! Ready codecs: frames with a length in front, lines, and RESP, the protocol of Redis.
//!
//! They are codecs of `tokio-util`'s traits, as any other that a [`Protocol`](super::Protocol), a `Framed` of tokio's or a
//! framed pool may use. What they have in common, whatever the peer sends and however the network cuts it:
//!
//! - No input makes them panic, and none makes them hold more than a bound that their limits state.
//! - Any cutting of the same bytes gives the same frames and the same end.
//! - A frame that is too long is an error before it is buffered, not after.
//! - All bytes are looked at once. A long frame that arrives in many pieces costs as much as one that arrives whole.
//!
//! | codec | frames | a frame is at most | behind the last frame |
//! |---|---|---|---|
//! | [`length_delimited`] | `BytesMut` | [`MAX_FRAME`] | an unfinished one is an error |
//! | [`lines`] | `String` | [`MAX_LINE`] | an unfinished one is a frame |
//! | [`ByteLinesCodec`] | `Bytes` | [`MAX_LINE`], or as set | an unfinished one is an error |
//! | [`RespCodec`] | [`Value`] | [`MAX_FRAME`], or as set | an unfinished one is an error |
//!
//! [`LengthDelimitedCodec`] and [`LinesCodec`] are `tokio-util`'s own; those come without a bound, or with one of 8 MiB,
//! and here with one that fits a connection's [`Limits`](super::Limits).
//!
//! ```
//! use bytes::{Bytes, BytesMut};
//! use corelet::service::codec::{RespCodec, Value};
//! use tokio_util::codec::{Decoder, Encoder};
//!
//! let (mut codec, mut wire) = (RespCodec::new(), BytesMut::new());
//! codec.encode(["GET", "key"], &mut wire)?;
//! assert_eq!(wire, "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
//! let command = codec.decode(&mut wire)?;
//! assert_eq!(command, Some(Value::Array(vec![Value::bulk("GET"), Value::bulk("key")])));
//! # Ok::<(), corelet::service::codec::RespError>(())
//! ```
//!
//! Never: keep a frame's bytes anywhere but in the buffer they arrived in.

mod byte_lines;
mod resp;

pub use byte_lines::{ByteLinesCodec, LineError};
pub use resp::{RespCodec, RespError, Value};
pub use tokio_util::codec::{LengthDelimitedCodec, LinesCodec, LinesCodecError};

/// The longest frame that the codecs accept unless told otherwise, in bytes as they are sent: what a connection's
/// [`Limits::max_frame`](super::Limits::max_frame) is by default.
pub const MAX_FRAME: usize = 64 * 1024;

/// The longest line that the codecs accept unless told otherwise: with its end it is as long as [`MAX_FRAME`].
pub const MAX_LINE: usize = MAX_FRAME - 2;

/// Frames with their length in front, four bytes in network order, and at most [`MAX_FRAME`] bytes with it.
///
/// The room for a frame is made when its length has come. Other layouts and bounds by
/// [`LengthDelimitedCodec::builder`], whose own bound is 8 MiB: that is what every peer can make a connection hold by four
/// bytes.
///
/// ```
/// use bytes::{Bytes, BytesMut};
/// use corelet::service::codec::{self, MAX_FRAME};
/// use tokio_util::codec::{Decoder, Encoder};
///
/// let (mut codec, mut wire) = (codec::length_delimited(), BytesMut::new());
/// codec.encode(Bytes::from_static(b"ping"), &mut wire)?;
/// assert_eq!(wire, b"\0\0\0\x04ping"[..]);
/// assert_eq!(codec.decode(&mut wire)?.as_deref(), Some(&b"ping"[..]));
///
/// let mut huge = BytesMut::from(&u32::MAX.to_be_bytes()[..]);
/// assert!(codec.decode(&mut huge).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn length_delimited() -> LengthDelimitedCodec {
    // Its bound is for what is behind the length.
    LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME - 4).new_codec()
}

/// Lines of text, which end in LF or CR LF, of at most [`MAX_LINE`] bytes, a CR at the end included. They are sent with LF.
///
/// A line that is too long or no UTF-8 is an error once; the codec then goes on behind its end. Bytes that are no text,
/// and lines that should not be copied, are for [`ByteLinesCodec`].
///
/// ```
/// use bytes::BytesMut;
/// use corelet::service::codec;
/// use tokio_util::codec::Decoder;
///
/// let (mut codec, mut wire) = (codec::lines(), BytesMut::from("one\r\ntwo\nthr"));
/// assert_eq!(codec.decode(&mut wire)?.as_deref(), Some("one"));
/// assert_eq!(codec.decode(&mut wire)?.as_deref(), Some("two"));
/// assert_eq!(codec.decode(&mut wire)?, None);
/// # Ok::<(), codec::LinesCodecError>(())
/// ```
pub fn lines() -> LinesCodec {
    LinesCodec::new_with_max_length(MAX_LINE)
}
