//! Bytes become values.
//!
//! A value's bytes stay in the buffer until all of them are there. What is known of them meanwhile is kept as tokens, so
//! that nothing is looked at twice; the tokens become a value when its last byte has come. Headers are the exception: the
//! one in front of a bulk string is read again with each piece of the string, but it is short.

use bytes::{Buf, Bytes, BytesMut};
use smallvec::SmallVec;
use tokio_util::codec::Decoder;

use super::error::RespError;
use super::value::Value;
use crate::service::codec::MAX_FRAME;

/// The most bytes of a number: a sign and 19 digits.
const MAX_NUMBER: usize = 20;
/// A codec keeps no more memory for tokens than for so many.
const KEPT_TOKENS: usize = 64;

/// RESP, decoded to [`Value`]s and encoded from these or from the words of a command.
///
/// It speaks for both sides: servers decode commands and encode replies, clients encode commands and decode replies. It
/// knows the second version of the protocol, which is what servers speak unless asked for the third, and no inline
/// commands.
///
/// The limits are those of what is received. Of a value that exceeds one, nothing is buffered behind the length that
/// announces it. Beside the buffer that it is given, and that holds one unfinished value at most, a codec holds at most 32
/// bytes for each of `max_items`.
///
/// After an error the bytes that caused it are still in the buffer, and another call gives the same error.
///
/// ```
/// use bytes::BytesMut;
/// use corelet::service::codec::{RespCodec, RespError, Value};
/// use tokio_util::codec::Decoder;
///
/// let (mut codec, mut wire) = (RespCodec::new().max_items(16), BytesMut::from("*2\r\n:1\r\n$5\r\nhel"));
/// assert_eq!(codec.decode(&mut wire)?, None);
/// wire.extend_from_slice(b"lo\r\n");
/// assert_eq!(codec.decode(&mut wire)?, Some(Value::Array(vec![Value::Integer(1), Value::bulk("hello")])));
///
/// wire.extend_from_slice(b"*1000000000\r\n");
/// assert!(matches!(codec.decode(&mut wire), Err(RespError::TooManyItems { limit: 16 })));
/// # Ok::<(), RespError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RespCodec {
    max_frame: usize,
    max_items: usize,
    max_depth: u8,
    scan: Scan,
}

impl Default for RespCodec {
    fn default() -> RespCodec {
        RespCodec { max_frame: MAX_FRAME, max_items: 4096, max_depth: 8, scan: Scan::default() }
    }
}

impl RespCodec {
    /// A codec with the default limits.
    pub fn new() -> RespCodec {
        RespCodec::default()
    }

    /// Accepts values of at most `bytes` on the wire, with all that is in them; [`MAX_FRAME`] by default, and never more
    /// than 4 GiB.
    ///
    /// A connection's [`Limits::max_frame`](crate::service::Limits::max_frame) has to be as large.
    pub fn max_frame(mut self, bytes: usize) -> RespCodec {
        self.max_frame = bytes.min(u32::MAX as usize);
        self
    }

    /// Accepts values made of at most `values`, arrays counted, at all depths together; 4096 by default, and at least 1.
    pub fn max_items(mut self, values: usize) -> RespCodec {
        self.max_items = values.max(1);
        self
    }

    /// Accepts arrays within arrays down to `arrays`; 8 by default. With 1, the items of an array are no arrays.
    pub fn max_depth(mut self, arrays: u8) -> RespCodec {
        self.max_depth = arrays;
        self
    }

    /// Goes on with the value at the front of `src`; true when all of it is there.
    fn advance(&mut self, src: &[u8]) -> Result<bool, RespError> {
        loop {
            let Some((&kind, rest)) = src[self.scan.at..].split_first() else { return Ok(false) };
            let token = match kind {
                b'+' | b'-' => self.text(kind, rest)?,
                b':' => self.number(rest)?.map(|(number, len)| (Token::Integer(number), len)),
                b'$' => self.bulk(rest)?,
                b'*' => self.array(rest)?,
                other => return Err(RespError::Kind(other)),
            };
            let Some((token, len)) = token else { return Ok(false) };
            self.scan.at += 1 + len;
            if self.scan.add(token) {
                return Ok(true);
            }
        }
    }

    /// How many bytes behind a kind are within the limit.
    fn room(&self) -> Result<usize, RespError> {
        self.max_frame.checked_sub(self.scan.at + 1).ok_or_else(|| self.too_long())
    }

    fn too_long(&self) -> RespError {
        RespError::TooLong { limit: self.max_frame }
    }

    /// A simple string or an error behind its kind, and how many bytes it takes.
    fn text(&mut self, kind: u8, rest: &[u8]) -> Result<Option<(Token, usize)>, RespError> {
        let most = self.room()?.checked_sub(2).ok_or_else(|| self.too_long())?;
        let len = match find_end(rest, self.scan.line, most)? {
            End::At(len) => len,
            End::NotBefore(scanned) if scanned > most => return Err(self.too_long()),
            End::NotBefore(scanned) => {
                self.scan.line = scanned;
                return Ok(None);
            }
        };
        self.scan.line = 0;
        let text = Span::new(self.scan.at + 1, len);
        let token = if kind == b'+' { Token::Simple(text) } else { Token::Error(text) };
        Ok(Some((token, len + 2)))
    }

    /// A number behind its kind, and how many bytes it takes.
    fn number(&self, rest: &[u8]) -> Result<Option<(i64, usize)>, RespError> {
        match find_end(rest, 0, MAX_NUMBER)? {
            End::At(len) if len + 2 > self.room()? => Err(self.too_long()),
            End::At(len) => Ok(Some((parse(&rest[..len])?, len + 2))),
            End::NotBefore(scanned) if scanned > MAX_NUMBER => Err(RespError::Number),
            End::NotBefore(_) => Ok(None),
        }
    }

    /// A length behind its kind, none for -1, and how many bytes it takes.
    fn length(&self, rest: &[u8]) -> Result<Option<(Option<u64>, usize)>, RespError> {
        let Some((number, len)) = self.number(rest)? else { return Ok(None) };
        match u64::try_from(number) {
            Ok(length) => Ok(Some((Some(length), len))),
            Err(_) if number == -1 => Ok(Some((None, len))),
            Err(_) => Err(RespError::Length(number)),
        }
    }

    fn bulk(&self, rest: &[u8]) -> Result<Option<(Token, usize)>, RespError> {
        let Some((length, header)) = self.length(rest)? else { return Ok(None) };
        let Some(length) = length else { return Ok(Some((Token::Null, header))) };
        // It is within the limit if it fits behind its header with CR LF.
        let most = self.room()?.checked_sub(header + 2);
        let Some(length) = usize::try_from(length).ok().filter(|length| Some(*length) <= most) else {
            return Err(self.too_long());
        };
        match rest[header..].split_at_checked(length).map(|(_, ending)| ending) {
            Some([b'\r', b'\n', ..]) => {}
            None | Some([] | [b'\r']) => return Ok(None),
            Some(_) => return Err(RespError::Ending),
        }
        Ok(Some((Token::Bulk(Span::new(self.scan.at + 1 + header, length)), header + length + 2)))
    }

    fn array(&mut self, rest: &[u8]) -> Result<Option<(Token, usize)>, RespError> {
        let Some((length, header)) = self.length(rest)? else { return Ok(None) };
        let Some(length) = length else { return Ok(Some((Token::NullArray, header))) };
        if self.scan.open.len() >= usize::from(self.max_depth) {
            return Err(RespError::TooDeep { limit: self.max_depth });
        }
        // The value itself is one, too.
        let left = self.max_items.saturating_sub(1 + self.scan.announced);
        match usize::try_from(length).ok().filter(|length| *length <= left) {
            Some(length) => {
                self.scan.announced += length;
                Ok(Some((Token::Array(length), header)))
            }
            None => Err(RespError::TooManyItems { limit: self.max_items }),
        }
    }
}

impl Decoder for RespCodec {
    type Item = Value;
    type Error = RespError;

    fn decode(&mut self, src: &mut BytesMut) -> Result<Option<Value>, RespError> {
        if src.len() < self.scan.at + self.scan.line {
            // These are not the bytes of the last call.
            self.scan.reset();
        }
        match self.advance(src) {
            Ok(false) => Ok(None),
            Ok(true) => {
                let frame = src.split_to(self.scan.at).freeze();
                let value = match *self.scan.tokens {
                    [Token::Bulk(bytes)] => Value::Bulk(bytes.alone(frame)),
                    [Token::Simple(text)] => Value::Simple(text.alone(frame)),
                    ref tokens => build(&frame, &mut tokens.iter()),
                };
                self.scan.reset();
                Ok(Some(value))
            }
            Err(error) => {
                self.scan.reset();
                Err(error)
            }
        }
    }
}

/// What is known of the value at the front of the buffer.
#[derive(Clone, Debug, Default)]
struct Scan {
    /// All in front of it has become tokens.
    at: usize,
    /// So many bytes behind the kind at `at` hold no line end.
    line: usize,
    tokens: Vec<Token>,
    /// The arrays around `at`, and how many items each still lacks.
    open: SmallVec<[usize; 4]>,
    /// The items of all arrays so far, those that are to come as well.
    announced: usize,
}

impl Scan {
    /// Takes the next token; true when the value is complete.
    fn add(&mut self, token: Token) -> bool {
        self.tokens.push(token);
        if let Token::Array(items @ 1..) = token {
            self.open.push(items);
            return false;
        }
        while let Some(lacking) = self.open.last_mut() {
            *lacking -= 1;
            if *lacking > 0 {
                return false;
            }
            self.open.pop();
        }
        true
    }

    fn reset(&mut self) {
        self.at = 0;
        self.line = 0;
        self.announced = 0;
        self.open.clear();
        self.tokens.clear();
        self.tokens.shrink_to(KEPT_TOKENS);
    }
}

/// A value without its items.
#[derive(Clone, Copy, Debug)]
enum Token {
    Simple(Span),
    Error(Span),
    Integer(i64),
    Bulk(Span),
    Null,
    NullArray,
    Array(usize),
}

/// A part of a frame. No frame is longer than 4 GiB.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    len: u32,
}

impl Span {
    fn new(start: usize, len: usize) -> Span {
        Span { start: start as u32, len: len as u32 }
    }

    fn of(self, frame: &Bytes) -> Bytes {
        let start = self.start as usize;
        frame.slice(start..start + self.len as usize)
    }

    /// The same without a further owner of the memory, whose count is atomic.
    fn alone(self, mut frame: Bytes) -> Bytes {
        frame.advance(self.start as usize);
        frame.truncate(self.len as usize);
        frame
    }
}

/// Makes the next value of the tokens. Recursion is as deep as the arrays are, which is limited.
fn build(frame: &Bytes, tokens: &mut std::slice::Iter<'_, Token>) -> Value {
    match tokens.next() {
        Some(Token::Simple(text)) => Value::Simple(text.of(frame)),
        Some(Token::Error(text)) => Value::Error(text.of(frame)),
        Some(Token::Integer(number)) => Value::Integer(*number),
        Some(Token::Bulk(bytes)) => Value::Bulk(bytes.of(frame)),
        Some(Token::Null) => Value::Null,
        Some(Token::NullArray) => Value::NullArray,
        // They are all there, so this is no trust in an announced length.
        Some(Token::Array(items)) => Value::Array((0..*items).map(|_| build(frame, tokens)).collect()),
        None => unreachable!("arrays are complete when they are built"),
    }
}

/// Where a line ends.
enum End {
    /// It is so long, and CR LF follows.
    At(usize),
    /// So many bytes are looked at, and it goes on.
    NotBefore(usize),
}

/// Looks for the end of a line of at most `most` bytes, behind the `scanned` ones that are known to hold none. Further
/// bytes are not looked at, so that it cannot matter how much has arrived already.
fn find_end(rest: &[u8], scanned: usize, most: usize) -> Result<End, RespError> {
    let window = &rest[..rest.len().min(most.saturating_add(1))];
    // These may not be the bytes of the last call.
    let scanned = scanned.min(window.len());
    let Some(end) = window[scanned..].iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return Ok(End::NotBefore(window.len()));
    };
    match rest[scanned + end..] {
        [b'\r', b'\n', ..] => Ok(End::At(scanned + end)),
        [b'\r'] => Ok(End::NotBefore(scanned + end)),
        _ => Err(RespError::Ending),
    }
}

/// A number in decimal, perhaps with a sign.
fn parse(line: &[u8]) -> Result<i64, RespError> {
    // So many digits fit whatever they are. They are nearly always lengths, and short.
    const SAFE: usize = 18;
    if (1..=SAFE).contains(&line.len()) && line.iter().all(u8::is_ascii_digit) {
        return Ok(line.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')));
    }
    let digits = std::str::from_utf8(line).map_err(|_| RespError::Number)?;
    digits.parse().map_err(|_| RespError::Number)
}
