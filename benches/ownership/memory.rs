//! A protocol of numbers, and a transport that is only memory.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use corelet::service::{Connection, End, Protocol, RequestError, Transport, Verdict};
use tokio_util::codec::{Decoder, Encoder};

use crate::common::alloc;

/// Bytes of a frame.
pub const FRAME: usize = size_of::<u64>();

/// Numbers of eight bytes: as little as a codec can do.
pub struct NumberCodec;

impl Decoder for NumberCodec {
    type Item = u64;
    type Error = io::Error;

    #[inline]
    fn decode(&mut self, bytes: &mut BytesMut) -> io::Result<Option<u64>> {
        Ok((bytes.len() >= FRAME).then(|| bytes.get_u64()))
    }
}

impl Encoder<u64> for NumberCodec {
    type Error = io::Error;

    #[inline]
    fn encode(&mut self, number: u64, bytes: &mut BytesMut) -> io::Result<()> {
        bytes.put_u64(number);
        Ok(())
    }
}

/// What a scenario does at the hooks of a connection.
pub trait Hooks: Sized + 'static {
    type Session: 'static;

    fn session(&self) -> Self::Session;

    fn connected(&self, _connection: &Connection<Numeric<Self>>) {}

    #[inline]
    fn before_send(&self, _number: u64, _connection: &Connection<Numeric<Self>>) {}
}

/// No hooks, and nothing that a connection keeps.
pub struct NoHooks;

impl Hooks for NoHooks {
    type Session = ();

    fn session(&self) {}
}

/// Requests are numbers, which name their routes by their remainder; responses are numbers, too.
pub struct Numeric<H> {
    pub hooks: H,
    pub routes: u64,
    pub watch: Stopwatch,
}

impl<H: Hooks> Protocol for Numeric<H> {
    type Codec = NumberCodec;
    type Request = u64;
    type Response = u64;
    type Id = u64;
    type Session = H::Session;

    fn codec(&self) -> NumberCodec {
        NumberCodec
    }

    fn session(&self) -> H::Session {
        self.hooks.session()
    }

    #[inline]
    fn id(&self, request: &u64) -> Option<u64> {
        Some(request % self.routes)
    }

    fn connected(&self, connection: &Connection<Numeric<H>>) {
        self.hooks.connected(connection);
        self.watch.start();
    }

    #[inline]
    fn before_send(&self, frame: &mut u64, connection: &Connection<Numeric<H>>) {
        self.hooks.before_send(*frame, connection);
    }

    fn failed(&self, error: &RequestError, _: &Connection<Numeric<H>>) -> Verdict<u64> {
        panic!("a request of the bench failed: {error}");
    }

    fn disconnected(&self, _: &Connection<Numeric<H>>, _: &End) {
        self.watch.stop();
    }
}

/// Time and allocations between the hooks of a connection's begin and end, so that its set-up is not in them.
#[derive(Clone, Default)]
pub struct Stopwatch(Rc<Readings>);

#[derive(Default)]
struct Readings {
    begun: Cell<Option<(Instant, u64)>>,
    elapsed: Cell<Duration>,
    allocations: Cell<u64>,
}

impl Stopwatch {
    fn start(&self) {
        self.0.begun.set(Some((Instant::now(), alloc::on_this_thread())));
    }

    fn stop(&self) {
        let now = Instant::now();
        if let Some((begun, allocations)) = self.0.begun.take() {
            self.0.elapsed.set(self.0.elapsed.get() + (now - begun));
            let grown = alloc::on_this_thread() - allocations;
            self.0.allocations.set(self.0.allocations.get() + grown);
        }
    }

    /// In all connections so far.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed.get()
    }

    pub fn allocations(&self) -> u64 {
        self.0.allocations.get()
    }
}

/// Gives what it was made with, then the end; keeps what it is told to send.
pub struct Memory {
    incoming: Option<Bytes>,
    sent: Sent,
}

/// What was sent, in whole frames.
#[derive(Clone, Default)]
pub struct Sent(Rc<RefCell<Vec<u64>>>);

impl Sent {
    /// With room for so many frames, so that keeping them allocates nothing.
    pub fn with_room(frames: u64) -> Sent {
        Sent(Rc::new(RefCell::new(Vec::with_capacity(frames as usize))))
    }

    pub fn count(&self) -> u64 {
        self.0.borrow().len() as u64
    }

    pub fn take(&self) -> Vec<u64> {
        self.0.take()
    }

    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

impl Memory {
    pub fn new(incoming: Bytes, sent: &Sent) -> Memory {
        Memory { incoming: Some(incoming), sent: sent.clone() }
    }
}

/// So many requests, one after the other.
pub fn requests(count: u64) -> Bytes {
    let mut bytes = BytesMut::with_capacity(count as usize * FRAME);
    (0..count).for_each(|number| bytes.put_u64(number));
    bytes.freeze()
}

impl Transport for Memory {
    type Received = Bytes;

    #[inline]
    fn poll_receive(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        Poll::Ready(Ok(self.incoming.take().filter(|bytes| !bytes.is_empty())))
    }

    async fn send(&mut self, bytes: BytesMut) -> (io::Result<()>, BytesMut) {
        let mut sent = self.sent.0.borrow_mut();
        sent.extend(bytes.chunks_exact(FRAME).map(|frame| (&frame[..]).get_u64()));
        drop(sent);
        (Ok(()), bytes)
    }

    async fn finish(&mut self, _: bool) -> io::Result<()> {
        Ok(())
    }
}
