//! Values and commands become bytes.

use bytes::{BufMut, BytesMut};
use tokio_util::codec::Encoder;

use super::decode::RespCodec;
use super::error::RespError;
use super::value::Value;

/// The most bytes of a number's line: a sign, 19 digits, its kind and CR LF.
const NUMBER_LINE: usize = 23;

impl Encoder<&Value> for RespCodec {
    type Error = RespError;

    /// # Errors
    /// [`RespError::LineEnd`], and [`RespError::TooDeep`] for arrays more than 255 deep. Nothing is appended to `dst`
    /// then.
    fn encode(&mut self, value: &Value, dst: &mut BytesMut) -> Result<(), RespError> {
        let before = dst.len();
        let encoded = put_value(value, dst, u8::MAX);
        if encoded.is_err() {
            dst.truncate(before);
        }
        encoded
    }
}

impl Encoder<Value> for RespCodec {
    type Error = RespError;

    fn encode(&mut self, value: Value, dst: &mut BytesMut) -> Result<(), RespError> {
        self.encode(&value, dst)
    }
}

/// A command, from its words.
impl<W: AsRef<[u8]>> Encoder<&[W]> for RespCodec {
    type Error = RespError;

    fn encode(&mut self, words: &[W], dst: &mut BytesMut) -> Result<(), RespError> {
        put_header(b'*', words.len(), dst);
        for word in words {
            put_bulk(word.as_ref(), dst);
        }
        Ok(())
    }
}

/// A command, from its words.
impl<W: AsRef<[u8]>, const N: usize> Encoder<[W; N]> for RespCodec {
    type Error = RespError;

    fn encode(&mut self, words: [W; N], dst: &mut BytesMut) -> Result<(), RespError> {
        self.encode(&words[..], dst)
    }
}

fn put_value(value: &Value, dst: &mut BytesMut, depth: u8) -> Result<(), RespError> {
    match value {
        Value::Simple(text) => put_text(b'+', text, dst)?,
        Value::Error(text) => put_text(b'-', text, dst)?,
        Value::Integer(number) => {
            dst.reserve(NUMBER_LINE);
            dst.put_u8(b':');
            if *number < 0 {
                dst.put_u8(b'-');
            }
            put_digits(number.unsigned_abs(), dst);
        }
        Value::Bulk(bytes) => put_bulk(bytes, dst),
        Value::Null => dst.extend_from_slice(b"$-1\r\n"),
        Value::NullArray => dst.extend_from_slice(b"*-1\r\n"),
        Value::Array(items) => {
            let depth = depth.checked_sub(1).ok_or(RespError::TooDeep { limit: u8::MAX })?;
            put_header(b'*', items.len(), dst);
            for item in items {
                put_value(item, dst, depth)?;
            }
        }
    }
    Ok(())
}

fn put_text(kind: u8, text: &[u8], dst: &mut BytesMut) -> Result<(), RespError> {
    if text.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
        return Err(RespError::LineEnd);
    }
    dst.reserve(text.len() + 3);
    dst.put_u8(kind);
    dst.put_slice(text);
    dst.put_slice(b"\r\n");
    Ok(())
}

fn put_bulk(bytes: &[u8], dst: &mut BytesMut) {
    dst.reserve(NUMBER_LINE + bytes.len() + 2);
    put_header(b'$', bytes.len(), dst);
    dst.put_slice(bytes);
    dst.put_slice(b"\r\n");
}

fn put_header(kind: u8, len: usize, dst: &mut BytesMut) {
    dst.reserve(NUMBER_LINE);
    dst.put_u8(kind);
    put_digits(len as u64, dst);
}

/// A number's digits, and the end of its line.
fn put_digits(mut number: u64, dst: &mut BytesMut) {
    let mut line = [0; 22];
    line[20..].copy_from_slice(b"\r\n");
    let mut start = 20;
    loop {
        start -= 1;
        line[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    dst.put_slice(&line[start..]);
}
