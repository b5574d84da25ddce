//! What the tests of framed and shared connections have in common: a codec of numbered frames, and servers for it.
#![allow(dead_code)]

use std::io::{self, Read, Write};
use std::net::TcpStream;

use bytes::{Buf, BufMut, BytesMut};
use corelet::pool::Correlated;
use tokio_util::codec::{Decoder, Encoder};

/// A request or a reply: sixteen bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub id: u64,
    pub value: u64,
}

pub const FRAME_SIZE: usize = 16;
/// A value that the codec refuses, both ways.
pub const REFUSED: u64 = u64::MAX;

pub fn frame(id: u64) -> Frame {
    Frame { id, value: id ^ 0x5555 }
}

impl Correlated for Frame {
    type Id = u64;

    fn correlation_id(&self) -> u64 {
        self.id
    }
}

/// Encodes and decodes frames. Allocates nothing.
#[derive(Debug, Default)]
pub struct Frames;

impl Encoder<Frame> for Frames {
    type Error = io::Error;

    fn encode(&mut self, frame: Frame, into: &mut BytesMut) -> io::Result<()> {
        into.reserve(FRAME_SIZE);
        into.put_u64_le(frame.id);
        if frame.value == REFUSED {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        into.put_u64_le(frame.value);
        Ok(())
    }
}

impl Decoder for Frames {
    type Item = Frame;
    type Error = io::Error;

    fn decode(&mut self, from: &mut BytesMut) -> io::Result<Option<Frame>> {
        if from.len() < FRAME_SIZE {
            return Ok(None);
        }
        let frame = Frame { id: from.get_u64_le(), value: from.get_u64_le() };
        if frame.value == REFUSED { Err(io::ErrorKind::InvalidData.into()) } else { Ok(Some(frame)) }
    }
}

pub fn read_frame(socket: &mut TcpStream) -> Option<Frame> {
    let mut bytes = [0; FRAME_SIZE];
    socket.read_exact(&mut bytes).ok()?;
    let mut bytes = &bytes[..];
    Some(Frame { id: bytes.get_u64_le(), value: bytes.get_u64_le() })
}

pub fn to_bytes(frame: Frame) -> [u8; FRAME_SIZE] {
    let mut bytes = [0; FRAME_SIZE];
    bytes[..8].copy_from_slice(&frame.id.to_le_bytes());
    bytes[8..].copy_from_slice(&frame.value.to_le_bytes());
    bytes
}

pub fn write_frame(socket: &mut TcpStream, frame: Frame) -> bool {
    socket.write_all(&to_bytes(frame)).is_ok()
}

/// Sends every frame back, as it comes.
pub fn echo_frames(mut socket: TcpStream, _: usize) {
    while let Some(frame) = read_frame(&mut socket) {
        if !write_frame(&mut socket, frame) {
            break;
        }
    }
}

/// Sends every frame back one byte at a time.
pub fn drip_frames(mut socket: TcpStream, _: usize) {
    while let Some(frame) = read_frame(&mut socket) {
        for byte in to_bytes(frame) {
            if socket.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::yield_now();
        }
    }
}
