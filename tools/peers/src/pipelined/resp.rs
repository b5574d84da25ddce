//! As much of the Redis protocol as `ECHO` of a number needs.

use bytes::{Buf, BytesMut};
use std::io;
use tokio_util::codec::{Decoder, Encoder};

/// Digits of a number on the wire.
pub const DIGITS: usize = 16;

/// Encodes a number as a request to echo it, and decodes the reply.
pub struct Echo;

impl Encoder<u64> for Echo {
    type Error = io::Error;

    fn encode(&mut self, number: u64, to: &mut BytesMut) -> io::Result<()> {
        let mut digits = [0; DIGITS];
        write_digits(number, &mut digits);
        to.extend_from_slice(b"*2\r\n$4\r\nECHO\r\n$16\r\n");
        to.extend_from_slice(&digits);
        to.extend_from_slice(b"\r\n");
        Ok(())
    }
}

impl Decoder for Echo {
    type Item = u64;
    type Error = io::Error;

    fn decode(&mut self, from: &mut BytesMut) -> io::Result<Option<u64>> {
        const HEAD: &[u8] = b"$16\r\n";
        const LENGTH: usize = HEAD.len() + DIGITS + 2;
        let head = from.len().min(HEAD.len());
        if from[..head] != HEAD[..head] {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("not an echo: {from:?}")));
        }
        if from.len() < LENGTH {
            return Ok(None);
        }
        let number = read_digits(&from[HEAD.len()..HEAD.len() + DIGITS]);
        from.advance(LENGTH);
        number.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

pub fn write_digits(number: u64, digits: &mut [u8; DIGITS]) {
    for (index, digit) in digits.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * index) & 0xf) as usize];
    }
}

pub fn read_digits(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| Some(number << 4 | u64::from((*digit as char).to_digit(16)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_comes_back_from_any_two_pieces() {
        let mut wire = BytesMut::new();
        Echo.encode(0xfeed_0000_0000_0123, &mut wire).unwrap();
        assert_eq!(&wire[..], b"*2\r\n$4\r\nECHO\r\n$16\r\nfeed000000000123\r\n");
        let reply = b"$16\r\nfeed000000000123\r\n$16";
        for cut in 0..reply.len() {
            let mut from = BytesMut::from(&reply[..cut]);
            let early = Echo.decode(&mut from).unwrap();
            from.extend_from_slice(&reply[cut..]);
            let number = early.or_else(|| Echo.decode(&mut from).unwrap());
            assert_eq!(number, Some(0xfeed_0000_0000_0123), "cut at {cut}");
            assert_eq!(Echo.decode(&mut from).unwrap(), None);
        }
        assert!(Echo.decode(&mut BytesMut::from("-ERR no")).is_err());
    }
}
