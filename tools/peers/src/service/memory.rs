//! The other side of a connection without a socket: bytes to receive, and a place where all that is sent ends.

use super::frames::{BODY, on_the_wire};
use crate::rtt::MESSAGE;
use anyhow::{Result, ensure};
use bytes::BytesMut;
use corelet::service::Transport;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Counts what is sent, and keeps it if it is told to.
#[derive(Default)]
pub struct Sink {
    bytes: Cell<usize>,
    kept: RefCell<Option<Vec<u8>>>,
    awaited: Cell<usize>,
    waiting: Cell<Option<Waker>>,
    /// How often a connection has read to the end of its input.
    ends: Cell<u64>,
}

impl Sink {
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// From now on, until [`kept`](Self::kept).
    pub fn keep(&self) {
        *self.kept.borrow_mut() = Some(Vec::new());
    }

    /// The bodies of the frames that were sent meanwhile.
    pub fn kept(&self) -> Result<Vec<[u8; BODY]>> {
        let bytes = self.kept.take().unwrap_or_default();
        let (frames, rest) = bytes.as_chunks::<MESSAGE>();
        ensure!(rest.is_empty(), "{} bytes are no frame", rest.len());
        let mut bodies = Vec::new();
        for frame in frames {
            let body = frame.last_chunk::<BODY>().copied().unwrap_or([0; BODY]);
            ensure!(*frame == on_the_wire(&body), "a frame has a wrong head: {frame:?}");
            bodies.push(body);
        }
        Ok(bodies)
    }

    pub fn ends(&self) -> u64 {
        self.ends.get()
    }

    /// How many bytes have been sent.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Waits until so many bytes have been sent.
    pub async fn reached(&self, bytes: usize) {
        self.awaited.set(bytes);
        poll_fn(|cx| {
            if self.bytes.get() >= bytes {
                return Poll::Ready(());
            }
            self.waiting.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    fn swallow(&self, bytes: &[u8]) {
        self.bytes.set(self.bytes.get() + bytes.len());
        if let Some(kept) = self.kept.borrow_mut().as_mut() {
            kept.extend_from_slice(bytes);
        }
        if self.bytes.get() >= self.awaited.get()
            && let Some(waiting) = self.waiting.take()
        {
            waiting.wake();
        }
    }
}

/// What arrives.
pub enum Input {
    /// Nothing, ever.
    Silence,
    /// These bytes, and then the end.
    Bytes(Vec<u8>),
}

/// One connection's transport.
pub struct Memory {
    input: Input,
    sink: Rc<Sink>,
}

impl Memory {
    pub fn new(input: Input, sink: &Rc<Sink>) -> Self {
        Self { input, sink: sink.clone() }
    }

    /// What has arrived; none at the end.
    fn arrived(&mut self) -> Poll<Option<Vec<u8>>> {
        let Input::Bytes(bytes) = &mut self.input else { return Poll::Pending };
        let bytes = std::mem::take(bytes);
        if bytes.is_empty() {
            self.sink.ends.set(self.sink.ends.get() + 1);
            return Poll::Ready(None);
        }
        Poll::Ready(Some(bytes))
    }
}

impl Transport for Memory {
    type Received = Vec<u8>;

    fn poll_receive(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Option<Vec<u8>>>> {
        self.arrived().map(Ok)
    }

    async fn send(&mut self, bytes: BytesMut) -> (io::Result<()>, BytesMut) {
        self.sink.swallow(&bytes);
        (Ok(()), bytes)
    }

    async fn finish(&mut self, _: bool) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Memory {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.arrived().map(|arrived| {
            let mut bytes = arrived.unwrap_or_default();
            let fits = bytes.len().min(buffer.remaining());
            buffer.put_slice(&bytes[..fits]);
            if fits < bytes.len() {
                self.input = Input::Bytes(bytes.split_off(fits));
            }
            Ok(())
        })
    }
}

impl AsyncWrite for Memory {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.sink.swallow(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
