//! The receiving side of a stream.
//!
//! Bytes reach the program by one of two ways: an *armed* receive, which waits in the kernel without a buffer and
//! takes one from the core's pool when data comes (so an idle stream pins no memory, and its owner hears of a peer's
//! close), or a direct receive into the caller's buffer. A read uses the armed receive when there is one.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::stream::Socket;
use super::writer::Writer;
use crate::runtime::driver::buffers::PooledBuf;
use crate::runtime::driver::op::{OpKey, Request};
use crate::runtime::driver::owned::{Limited, OwnedBufMut, fill};
use crate::runtime::op::{self, ReceiveOp};
use crate::runtime::watch::Watch;

const READABLE: u32 = (libc::POLLIN | libc::POLLRDHUP) as u32;
/// Size of a buffer that stands in for one of the pool.
const OWN_BUFFER_SIZE: usize = 4096;

/// A receive that waits in the kernel.
enum Armed {
    /// Takes a buffer of the pool when data comes.
    Pooled { op: OpKey, multishot: bool },
    /// Only says that there is something; for kernels without provided buffers.
    Poll { op: OpKey },
    /// Into a buffer of its own, for want of one in the pool.
    Own(ReceiveOp<Vec<u8>>),
}

impl Armed {
    fn op(&self) -> Option<OpKey> {
        match self {
            Armed::Pooled { op, .. } | Armed::Poll { op } => Some(*op),
            Armed::Own(receive) => receive.key(),
        }
    }
}

/// State of the receiving side.
#[derive(Default)]
pub(super) struct Reader {
    armed: Option<Armed>,
    /// Received, and not yet read to its end. Several when the armed receive was ended with some more to come.
    unread: VecDeque<Received>,
    /// The last receive left bytes in the kernel.
    rest: bool,
    ended: bool,
    /// The stream has had to wait for the end of a receive that stays armed before it could leave its core. It may have to
    /// leave again, so that it receives one at a time from now on.
    pub(super) travels: bool,
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
        if !self.unread.is_empty() || self.ended {
            return watch.notify();
        }
        let mut driver = socket.local.driver();
        let pooled = driver.features().provided_buffers;
        let armed = self.armed.get_or_insert_with(|| match pooled {
            true => {
                let request = Request::ReceivePooled { multishot: false, wait_first: true };
                Armed::Pooled { op: driver.start_patiently(&socket.descriptor, request), multishot: false }
            }
            false => {
                let request = Request::Poll { events: READABLE };
                Armed::Poll { op: driver.start_patiently(&socket.descriptor, request) }
            }
        });
        match armed.op() {
            Some(op) if !driver.has_completion(op) => driver.watch(op, watch),
            _ => {
                drop(driver);
                watch.notify();
            }
        }
    }

    /// Nothing received, nothing ended: as far as this side has seen, the peer is silent and there.
    #[inline]
    pub(super) fn is_quiet(&self, socket: &Socket) -> bool {
        let arrived = |op| socket.local.driver().has_completion(op);
        self.unread.is_empty()
            && !self.rest
            && !self.ended
            && !self.armed.as_ref().and_then(Armed::op).is_some_and(arrived)
    }

    /// Waits for what is armed, which stays armed when the waiting is given up: no byte is lost.
    fn poll_armed(&mut self, socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<Arrival>> {
        if !self.unread.is_empty() {
            return Poll::Ready(Ok(Arrival::Data));
        }
        if self.ended {
            return Poll::Ready(Ok(Arrival::End));
        }
        self.poll_arrival(socket, cx)
    }

    /// The next bytes, by a receive that stays armed where the kernel can do that and the stream stays on its core.
    pub(super) fn poll_receive(
        &mut self,
        socket: &Socket,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Received>>> {
        loop {
            self.arm_multishot(socket);
            match ready!(self.poll_armed(socket, cx))? {
                Arrival::Data => return Poll::Ready(Ok(self.unread.pop_front())),
                Arrival::End => return Poll::Ready(Ok(None)),
                // For want of a free buffer, or of provided buffers at all. It stays when the waiting is given up.
                Arrival::Nothing => {
                    let buffer = Vec::with_capacity(OWN_BUFFER_SIZE);
                    let receive = op::receive(&socket.local, &socket.descriptor, buffer);
                    self.armed = Some(Armed::Own(receive));
                }
            }
        }
    }

    fn arm_multishot(&mut self, socket: &Socket) {
        if self.armed.is_some() || !self.unread.is_empty() || self.ended {
            return;
        }
        let mut driver = socket.local.driver();
        let features = driver.features();
        if features.provided_buffers {
            let multishot = features.multishot_receive && !self.travels;
            let request = Request::ReceivePooled { multishot, wait_first: false };
            let op = driver.start_plain(&socket.descriptor, request);
            self.armed = Some(Armed::Pooled { op, multishot });
        }
    }

    /// Takes in the next thing that the armed receive brings.
    fn poll_arrival(&mut self, socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<Arrival>> {
        let Some(armed) = &mut self.armed else { return Poll::Ready(Ok(Arrival::Nothing)) };
        let (op, multishot) = match armed {
            Armed::Own(receive) => {
                let Poll::Ready((result, buffer)) = Pin::new(&mut *receive).poll(cx) else {
                    return Poll::Pending;
                };
                self.rest = receive.has_rest();
                self.armed = None;
                return Poll::Ready(result.map(|count| self.keep(count, Received::Owned(buffer))));
            }
            Armed::Pooled { op, multishot } => (*op, Some(*multishot)),
            Armed::Poll { op } => (*op, None),
        };
        let mut driver = socket.local.driver();
        let Poll::Ready(completion) = driver.poll(op, cx.waker()) else { return Poll::Pending };
        if !completion.more {
            self.armed = None;
        }
        self.rest = completion.rest;
        let claimed = driver.claim(completion);
        let arrival = match (completion.into_result(), multishot, claimed) {
            (Ok(_), None, _) => Arrival::Nothing,
            (Ok(count), Some(_), Some(data)) => self.keep(count, Received::Pooled(data)),
            (Ok(_), Some(_), None) => {
                self.ended = true;
                Arrival::End
            }
            (Err(error), Some(multishot), _) => match error.raw_os_error() {
                // No buffer was free: one of the caller's own serves as well.
                Some(libc::ENOBUFS) => Arrival::Nothing,
                // It brought more than was received, and all of that has been taken; or it was ended for a departure that
                // was given up.
                Some(libc::ECANCELED) => Arrival::Nothing,
                // A kernel without multishot receives: from now on there are only single ones.
                Some(libc::EINVAL) if multishot => {
                    driver.give_up_multishot();
                    Arrival::Nothing
                }
                _ => return Poll::Ready(Err(error)),
            },
            (Err(error), None, _) => return Poll::Ready(Err(error)),
        };
        Poll::Ready(Ok(arrival))
    }

    fn keep(&mut self, count: usize, received: Received) -> Arrival {
        if count == 0 {
            self.ended = true;
            return Arrival::End;
        }
        self.unread.push_back(received);
        Arrival::Data
    }

    /// Ends the armed receive. Data that it still brings stays unread, and is where this stops: the rest may follow.
    pub(super) fn poll_disarm(&mut self, socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(op) = self.armed.as_ref().and_then(Armed::op) {
            let Poll::Ready(arrival) = self.poll_arrival(socket, cx) else {
                socket.local.driver().cancel(op);
                self.travels |= matches!(self.armed, Some(Armed::Pooled { multishot: true, .. }));
                return Poll::Pending;
            };
            match arrival {
                Err(error) if error.raw_os_error() != Some(libc::ECANCELED) => {
                    return Poll::Ready(Err(error));
                }
                _ => {}
            }
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed.is_some()
    }

    /// Gives up what is armed.
    pub(super) fn abandon(&mut self, socket: &Socket) {
        match self.armed.take() {
            Some(Armed::Pooled { op, .. } | Armed::Poll { op }) => socket.local.driver().abandon(op, None),
            Some(Armed::Own(receive)) => drop(receive),
            None => {}
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("armed", &self.is_armed())
            .field("unread", &self.unread.len())
            .field("ended", &self.ended)
            .finish()
    }
}

/// The receiving side of a [`Stream`](super::Stream), borrowed by [`split`](super::Stream::split).
#[derive(Debug)]
pub struct ReadHalf<'a> {
    pub(super) socket: &'a Socket,
    pub(super) reader: &'a mut Reader,
}

impl<'a> ReadHalf<'a> {
    /// As [`Stream::read`](super::Stream::read).
    ///
    /// # Errors
    /// As there.
    pub fn read<B: OwnedBufMut>(&mut self, buffer: B) -> impl Future<Output = (io::Result<usize>, B)> {
        let half = ReadHalf { socket: self.socket, reader: self.reader };
        Read { half, step: Step::Start(buffer, None) }
    }

    /// A read that tells of a write by `writer` that has failed.
    pub(super) fn read_behind<B: OwnedBufMut>(self, writer: &'a Writer, buffer: B) -> Read<'a, B> {
        Read { half: self, step: Step::Start(buffer, Some(writer)) }
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
        let Some(unread) = self.reader.unread.front_mut() else { return 0 };
        let count = fill(buffer, unread);
        match unread {
            Received::Pooled(data) => data.advance(count),
            Received::Owned(data) => drop(data.drain(..count)),
        }
        if unread.is_empty() {
            self.reader.unread.pop_front();
        }
        count
    }

    /// As [`Stream::receive`](super::Stream::receive).
    ///
    /// # Errors
    /// As there.
    pub fn receive(&mut self) -> impl Future<Output = io::Result<Option<Received>>> {
        poll_fn(|cx| self.reader.poll_receive(self.socket, cx))
    }
}

/// A read under way. Not an `async fn`, which would keep the buffer in several places: this is a part of the futures of all
/// who read.
pub(super) struct Read<'a, B: OwnedBufMut> {
    half: ReadHalf<'a>,
    step: Step<'a, B>,
}

enum Step<'a, B: OwnedBufMut> {
    /// With the writer whose failure has yet to be looked for.
    Start(B, Option<&'a Writer>),
    Receive(ReceiveOp<B>),
    Done,
}

// The buffer is never pinned.
impl<B: OwnedBufMut> Unpin for Read<'_, B> {}

impl<B: OwnedBufMut> Future for Read<'_, B> {
    type Output = (io::Result<usize>, B);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Read { half, step } = self.get_mut();
        loop {
            if let Step::Receive(receive) = step {
                let (result, buffer) = ready!(Pin::new(&mut *receive).poll(cx));
                half.reader.rest = receive.has_rest();
                half.reader.ended |= matches!(result, Ok(0));
                *step = Step::Done;
                return Poll::Ready((result, buffer));
            }
            match std::mem::replace(step, Step::Done) {
                Step::Start(mut buffer, writer) => {
                    if let Some(failure) = writer.and_then(|writer| writer.failure(half.socket)) {
                        return Poll::Ready((Err(failure), buffer));
                    }
                    if buffer.spare().1 == 0 {
                        let full = "the buffer has no spare room to read into";
                        let full = io::Error::new(io::ErrorKind::InvalidInput, full);
                        return Poll::Ready((Err(full), buffer));
                    }
                    match half.reader.poll_armed(half.socket, cx) {
                        Poll::Pending => {
                            *step = Step::Start(buffer, None);
                            return Poll::Pending;
                        }
                        Poll::Ready(Ok(Arrival::Data)) => {
                            return Poll::Ready((Ok(half.copy_unread(&mut buffer)), buffer));
                        }
                        Poll::Ready(Ok(Arrival::End)) => return Poll::Ready((Ok(0), buffer)),
                        Poll::Ready(Err(error)) => return Poll::Ready((Err(error), buffer)),
                        Poll::Ready(Ok(Arrival::Nothing)) => {
                            let socket = half.socket;
                            *step = Step::Receive(op::receive(&socket.local, &socket.descriptor, buffer));
                        }
                    }
                }
                Step::Receive(_) | Step::Done => panic!("a read was polled after its end"),
            }
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
