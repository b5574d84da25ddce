//! The frames of all the cases: a length of four bytes and a body, 64 bytes together.

use crate::rtt::MESSAGE;
use crate::{alloc, cores};
use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio_util::codec::LengthDelimitedCodec;

const HEAD: usize = 4;
pub const BODY: usize = MESSAGE - HEAD;

/// Routes of an application.
pub const ROUTES: u16 = 32;
/// Middleware around each of them.
pub const MIDDLEWARE: u64 = 4;

/// In the place of a route, it asks the server for its own figures.
const FIGURES: u16 = 0xF1F1;

pub fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().length_field_length(HEAD).new_codec()
}

/// A body that `first` is the beginning of; so the route, where there are any.
pub fn body(first: u16) -> [u8; BODY] {
    let mut body = [7; BODY];
    body[..2].copy_from_slice(&first.to_be_bytes());
    body
}

/// The frame around `body`, as it goes over a socket.
pub fn on_the_wire(body: &[u8; BODY]) -> [u8; MESSAGE] {
    let mut frame = [0; MESSAGE];
    frame[..HEAD].copy_from_slice(&(BODY as u32).to_be_bytes());
    frame[HEAD..].copy_from_slice(body);
    frame
}

/// What a body begins with.
#[inline]
pub fn first(body: &[u8]) -> Option<u16> {
    body.first_chunk().map(|first| u16::from_be_bytes(*first))
}

thread_local! {
    static ANSWERED: Cell<u64> = const { Cell::new(0) };
}

/// What every framed echo server answers: the request itself, or the server's figures, if they are asked for.
#[inline]
pub fn answer(request: BytesMut) -> Bytes {
    ANSWERED.set(ANSWERED.get() + 1);
    if first(&request) == Some(FIGURES) { figures() } else { request.freeze() }
}

/// The same for servers that do not look for frames: what to answer instead of the `received` bytes, if anything.
#[inline]
pub fn answer_raw(received: &[u8]) -> Option<[u8; MESSAGE]> {
    ANSWERED.set(ANSWERED.get() + 1);
    if received.get(HEAD..).and_then(first) != Some(FIGURES) {
        return None;
    }
    figures().first_chunk().map(on_the_wire)
}

#[cold]
fn figures() -> Bytes {
    let figures = [ANSWERED.get(), alloc::on_this_thread(), cores::thread_cpu_time().as_nanos() as u64];
    let mut body = [0; BODY];
    for (place, figure) in body.chunks_exact_mut(8).zip(figures) {
        place.copy_from_slice(&figure.to_be_bytes());
    }
    Bytes::copy_from_slice(&body)
}

/// What the serving thread of a server has done so far.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub answered: u64,
    pub allocations: u64,
    pub cpu: Duration,
}

/// Asks a server for its figures.
pub struct Control(TcpStream);

impl Control {
    pub fn connect(server: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(server).context("cannot connect to the server under test")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self(stream))
    }

    pub fn figures(&mut self) -> Result<Figures> {
        let mut frame = on_the_wire(&body(FIGURES));
        self.0.write_all(&frame)?;
        self.0.read_exact(&mut frame).context("the server under test does not tell its figures")?;
        let mut figures = frame[HEAD..]
            .chunks_exact(8)
            .map(|figure| figure.iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte)));
        let mut next = || figures.next().context("too few figures");
        let figures = Figures { answered: next()?, allocations: next()?, cpu: Duration::from_nanos(next()?) };
        ensure!(figures.answered > 0, "the server under test has answered nothing, but this");
        Ok(figures)
    }
}
