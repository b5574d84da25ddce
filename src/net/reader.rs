//! The receiving side of a stream.
//!
//! Bytes reach the program by one of two ways: an *armed* receive, which waits in the kernel without a buffer and
//! takes one from the core's pool when data comes (so an idle stream pins no memory, and its owner hears of a peer's
//! close), or a direct receive into the caller's buffer. A read uses the armed receive when there is one.

use std::future::poll_fn;
use std::io;
use std::ops::Deref;
use std::task::{Context, Poll};

use super::stream::Socket;
use crate::runtime::driver::buffers::PooledBuf;
use crate::runtime::driver::op::{Completion, OpKey, Request};
use crate::runtime::driver::owned::{Limited, OwnedBufMut, fill};
use crate::runtime::op;
use crate::runtime::watch::Watch;

const READABLE: u32 = (libc::POLLIN | libc::POLLRDHUP) as u32;

/// A receive that waits in the kernel.
#[derive(Clone, Copy, Debug)]
enum Armed {
    /// Takes a buffer of the pool when data comes.
    Receive { op: OpKey, multishot: bool },
    /// Only says that there is something; for kernels without provided buffers.
    Poll { op: OpKey },
}

impl Armed {
    fn op(self) -> OpKey {
        match self {
            Armed::Receive { op, .. } | Armed::Poll { op } => op,
        }
    }
}

/// State of the receiving side.
#[derive(Debug, Default)]
pub(super) struct Reader {
    armed: Option<Armed>,
    /// Received, and not yet read to its end.
    unread: Option<PooledBuf>,
    ended: bool,
}

/// What an armed receive came to.
enum Arrival {
    /// `unread` holds data.
    Data,
    End,
    /// Ask the kernel directly.
    Nothing,
}

impl Reader {
    /// Leaves a receive armed and has `watch` told when something arrives. Nothing new is started when one is armed.
    #[inline]
    pub(super) fn arm(&mut self, socket: &Socket, watch: Watch) {
        if self.unread.is_some() || self.ended {
            return watch.notify();
        }
        let mut driver = socket.local.driver();
        let armed = match self.armed {
            Some(armed) => armed,
            None if driver.features().provided_buffers => {
                let request = Request::ReceivePooled { multishot: false, wait_first: true };
                Armed::Receive { op: driver.start_plain(&socket.descriptor, request), multishot: false }
            }
            None => {
                let request = Request::Poll { events: READABLE };
                Armed::Poll { op: driver.start_plain(&socket.descriptor, request) }
            }
        };
        self.armed = Some(armed);
        if driver.has_completion(armed.op()) {
            drop(driver);
            return watch.notify();
        }
        driver.watch(armed.op(), watch);
    }

    /// Nothing received, nothing ended: as far as this side has seen, the peer is silent and there.
    #[inline]
    pub(super) fn is_quiet(&self, socket: &Socket) -> bool {
        self.unread.is_none()
            && !self.ended
            && self.armed.is_none_or(|armed| !socket.local.driver().has_completion(armed.op()))
    }

    /// Takes in what the armed receive brought.
    fn accept(&mut self, socket: &Socket, armed: Armed, completion: Completion) -> io::Result<Arrival> {
        if !completion.more {
            self.armed = None;
        }
        let claimed = socket.local.driver().claim(completion);
        let count = match completion.into_result() {
            Ok(count) => count,
            Err(error) => match error.raw_os_error() {
                // No buffer was free, or a disarm that was given up ended it: a direct receive serves as well.
                Some(libc::ENOBUFS | libc::ECANCELED) => return Ok(Arrival::Nothing),
                _ => return Err(error),
            },
        };
        match (armed, claimed) {
            (Armed::Poll { .. }, _) => Ok(Arrival::Nothing),
            (Armed::Receive { .. }, Some(data)) if count > 0 => {
                self.unread = Some(data);
                Ok(Arrival::Data)
            }
            (Armed::Receive { .. }, _) => {
                self.ended = true;
                Ok(Arrival::End)
            }
        }
    }

    /// Waits for the armed receive, which stays armed when the waiting is given up: no byte is lost.
    fn poll_armed(&mut self, socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<Arrival>> {
        if self.unread.is_some() {
            return Poll::Ready(Ok(Arrival::Data));
        }
        if self.ended {
            return Poll::Ready(Ok(Arrival::End));
        }
        let Some(armed) = self.armed else { return Poll::Ready(Ok(Arrival::Nothing)) };
        let polled = socket.local.driver().poll(armed.op(), cx.waker());
        match polled {
            Poll::Ready(completion) => Poll::Ready(self.accept(socket, armed, completion)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Ends the armed receive. Data that it still brings stays unread, and is where this stops: the rest may follow.
    pub(super) fn poll_disarm(&mut self, socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unread.is_none()
            && let Some(armed) = self.armed
        {
            let polled = {
                let mut driver = socket.local.driver();
                let polled = driver.poll(armed.op(), cx.waker());
                if polled.is_pending() {
                    driver.cancel(armed.op());
                }
                polled
            };
            let Poll::Ready(completion) = polled else { return Poll::Pending };
            self.accept(socket, armed, completion)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Drops what was received and not read.
    pub(super) fn forget_unread(&mut self) {
        self.unread = None;
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed.is_some()
    }

    /// Gives up what is armed.
    pub(super) fn abandon(&mut self, socket: &Socket) {
        if let Some(armed) = self.armed.take() {
            socket.local.driver().abandon(armed.op(), None);
        }
    }
}

/// The receiving side of a [`Stream`](super::Stream), borrowed by [`split`](super::Stream::split).
#[derive(Debug)]
pub struct ReadHalf<'a> {
    pub(super) socket: &'a Socket,
    pub(super) reader: &'a mut Reader,
}

impl ReadHalf<'_> {
    /// As [`Stream::read`](super::Stream::read).
    ///
    /// # Errors
    /// As there.
    pub async fn read<B: OwnedBufMut>(&mut self, mut buffer: B) -> (io::Result<usize>, B) {
        if buffer.spare().1 == 0 {
            let full =
                io::Error::new(io::ErrorKind::InvalidInput, "the buffer has no spare room to read into");
            return (Err(full), buffer);
        }
        match poll_fn(|cx| self.reader.poll_armed(self.socket, cx)).await {
            Ok(Arrival::Data) => (Ok(self.copy_unread(&mut buffer)), buffer),
            Ok(Arrival::End) => (Ok(0), buffer),
            Ok(Arrival::Nothing) => {
                let (result, buffer) = op::receive(&self.socket.local, &self.socket.descriptor, buffer).await;
                self.reader.ended |= matches!(result, Ok(0));
                (result, buffer)
            }
            Err(error) => (Err(error), buffer),
        }
    }

    /// As [`Stream::read_exact`](super::Stream::read_exact).
    ///
    /// # Errors
    /// As there.
    pub async fn read_exact<B: OwnedBufMut>(&mut self, mut buffer: B, count: usize) -> (io::Result<()>, B) {
        let room = buffer.spare().1;
        if room < count {
            let message = format!("the buffer has room for {room} bytes, and {count} are to be read");
            return (Err(io::Error::new(io::ErrorKind::InvalidInput, message)), buffer);
        }
        let mut left = count;
        while left > 0 {
            let limited = Limited { buffer, limit: left };
            let (result, limited) = self.read(limited).await;
            buffer = limited.buffer;
            match result {
                Ok(0) => return (Err(io::ErrorKind::UnexpectedEof.into()), buffer),
                Ok(read) => left -= read,
                Err(error) => return (Err(error), buffer),
            }
        }
        (Ok(()), buffer)
    }

    fn copy_unread<B: OwnedBufMut>(&mut self, buffer: &mut B) -> usize {
        let Some(unread) = &mut self.reader.unread else { return 0 };
        let count = fill(buffer, unread);
        unread.advance(count);
        if unread.is_empty() {
            self.reader.unread = None;
        }
        count
    }

    /// As [`Stream::receive`](super::Stream::receive).
    ///
    /// # Errors
    /// As there.
    pub async fn receive(&mut self) -> io::Result<Option<Received>> {
        loop {
            self.arm_multishot();
            match poll_fn(|cx| self.reader.poll_armed(self.socket, cx)).await {
                Ok(Arrival::Data) => return Ok(self.reader.unread.take().map(Received::Pooled)),
                Ok(Arrival::End) => return Ok(None),
                Ok(Arrival::Nothing) => {
                    // A direct receive: for want of a free buffer, or of provided buffers at all.
                    let buffer = Vec::with_capacity(4096);
                    let (result, buffer) =
                        op::receive(&self.socket.local, &self.socket.descriptor, buffer).await;
                    self.reader.ended |= matches!(result, Ok(0));
                    return Ok((result? > 0).then_some(Received::Owned(buffer)));
                }
                // A kernel without multishot receives: the next round asks for single ones.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    if !self.socket.local.driver().give_up_multishot() {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn arm_multishot(&mut self) {
        let reader = &mut *self.reader;
        let mut driver = self.socket.local.driver();
        let features = driver.features();
        if reader.armed.is_none() && reader.unread.is_none() && !reader.ended && features.provided_buffers {
            let multishot = features.multishot_receive;
            let request = Request::ReceivePooled { multishot, wait_first: false };
            let op = driver.start_plain(&self.socket.descriptor, request);
            reader.armed = Some(Armed::Receive { op, multishot });
        }
    }
}

/// Bytes received by [`Stream::receive`](super::Stream::receive).
#[derive(Debug)]
pub enum Received {
    /// In a buffer of the core's pool, which goes back when this is dropped.
    Pooled(PooledBuf),
    /// In a buffer of its own, because no pool buffer was free.
    Owned(Vec<u8>),
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Received::Pooled(buffer) => buffer,
            Received::Owned(buffer) => buffer,
        }
    }
}
