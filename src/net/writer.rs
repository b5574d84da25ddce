//! The sending side of a stream.
//!
//! Small writes are *posted*: copied, done at once, and sent together with the core's next kernel entry, so that a
//! request and the wait for its reply cost one entry. Larger ones go out of the caller's own buffer, behind what was
//! posted.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::stream::Socket;
use crate::runtime::driver::op::Request;
use crate::runtime::driver::owned::{OwnedBuf, bytes};
use crate::runtime::driver::{POST_CAPACITY, PostKey, Posting};
use crate::runtime::op::{self, BufferOp, PlainOp};

/// State of the sending side.
#[derive(Debug, Default)]
pub(super) struct Writer {
    posted: Option<PostKey>,
}

impl Writer {
    /// Nothing stuck, nothing failed. What waits for the next kernel entry is neither.
    #[inline]
    pub(super) fn is_clean(&self, socket: &Socket) -> bool {
        self.posted.is_none_or(|key| socket.local.driver().posted_trouble(key).is_none())
    }

    pub(super) fn is_pending(&self, socket: &Socket) -> bool {
        self.posted.is_some_and(|key| socket.local.driver().posted_is_pending(key))
    }

    /// The error of an earlier posted write.
    pub(super) fn failure(&self, socket: &Socket) -> Option<io::Error> {
        let trouble = socket.local.driver().posted_trouble(self.posted?)?;
        (trouble.kind() != io::ErrorKind::WouldBlock).then_some(trouble)
    }

    /// Whether what was posted last failed before the kernel had taken a single byte of it.
    #[cfg(feature = "framed")]
    pub(super) fn is_unsent(&self, socket: &Socket) -> bool {
        self.posted.is_some_and(|key| socket.local.driver().posted_is_unsent(key))
    }

    /// The owner goes; what was posted is still sent.
    pub(super) fn disown(&mut self, socket: &Socket) {
        if let Some(key) = self.posted.take() {
            socket.local.driver().disown_posted(key);
        }
    }

    /// The owner throws the stream away; nothing more need be sent.
    pub(super) fn discard(&mut self, socket: &Socket) {
        if let Some(key) = self.posted.take() {
            socket.local.driver().discard_posted(key);
        }
    }
}

/// The sending side of a [`Stream`](super::Stream), borrowed by [`split`](super::Stream::split).
#[derive(Debug)]
pub struct WriteHalf<'a> {
    pub(super) socket: &'a Socket,
    pub(super) writer: &'a mut Writer,
}

impl<'a> WriteHalf<'a> {
    pub(super) fn write_some<B: OwnedBuf>(self, buffer: B) -> Write<'a, B> {
        Write { half: self, step: Step::Start(buffer), all: false }
    }

    pub(super) fn write_whole<B: OwnedBuf>(self, buffer: B) -> WriteAll<'a, B> {
        WriteAll(Write { half: self, step: Step::Start(buffer), all: true })
    }

    /// As [`Stream::write`](super::Stream::write).
    ///
    /// # Errors
    /// As there.
    pub fn write<B: OwnedBuf>(&mut self, buffer: B) -> impl Future<Output = (io::Result<usize>, B)> {
        self.reborrow().write_some(buffer)
    }

    /// As [`Stream::write_all`](super::Stream::write_all).
    ///
    /// # Errors
    /// As there.
    pub fn write_all<B: OwnedBuf>(&mut self, buffer: B) -> impl Future<Output = (io::Result<()>, B)> {
        self.reborrow().write_whole(buffer)
    }

    fn reborrow(&mut self) -> WriteHalf<'_> {
        WriteHalf { socket: self.socket, writer: self.writer }
    }

    /// Has `bytes`, of which there may be none but not more than are posted at a time, sent with the next kernel entry.
    fn poll_post(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        loop {
            let posting = self.socket.local.driver().post(self.writer.posted, &self.socket.descriptor, bytes);
            match posting {
                Posting::Taken(key) => {
                    self.writer.posted = Some(key);
                    return Poll::Ready(Ok(()));
                }
                Posting::Busy => ready!(self.poll_flush(cx))?,
                Posting::Failed(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn send<B: OwnedBuf>(&self, buffer: B, from: usize, all: bool) -> BufferOp<B> {
        op::send(&self.socket.local, &self.socket.descriptor, buffer, from, all)
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.writer.posted {
            Some(key) => self.socket.local.driver().poll_posted(key, cx.waker()),
            None => Poll::Ready(Ok(())),
        }
    }

    /// As [`Stream::write_vectored`](super::Stream::write_vectored).
    ///
    /// # Errors
    /// As there.
    pub async fn write_vectored<B: OwnedBuf>(&mut self, buffers: Vec<B>) -> (io::Result<usize>, Vec<B>) {
        match self.flush().await {
            Ok(()) => op::send_vectored(&self.socket.local, &self.socket.descriptor, buffers).await,
            Err(error) => (Err(error), buffers),
        }
    }

    /// As [`Stream::flush`](super::Stream::flush).
    ///
    /// # Errors
    /// As there.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// As [`Stream::shutdown`](super::Stream::shutdown).
    ///
    /// # Errors
    /// As there.
    pub async fn shutdown(&mut self, how: std::net::Shutdown) -> io::Result<()> {
        self.flush().await?;
        let how = match how {
            std::net::Shutdown::Read => libc::SHUT_RD,
            std::net::Shutdown::Write => libc::SHUT_WR,
            std::net::Shutdown::Both => libc::SHUT_RDWR,
        };
        let key = self.socket.local.driver().start_plain(&self.socket.descriptor, Request::Shutdown { how });
        PlainOp::new(&self.socket.local, key).await.into_result().map(drop)
    }
}

/// A write under way. Not an `async fn`, which would keep the buffer in several places: this is a part of the futures of
/// all who write.
pub(super) struct Write<'a, B: 'static> {
    half: WriteHalf<'a>,
    step: Step<B>,
    all: bool,
}

enum Step<B: 'static> {
    Start(B),
    Send(BufferOp<B>, usize),
    Done,
}

// The buffer is never pinned.
impl<B> Unpin for Write<'_, B> {}

impl<B: OwnedBuf> Future for Write<'_, B> {
    type Output = (io::Result<usize>, B);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Write { half, step, all } = self.get_mut();
        loop {
            match std::mem::replace(step, Step::Done) {
                Step::Start(buffer) => {
                    let len = buffer.init_len();
                    let posts = len <= POST_CAPACITY;
                    let polled = if posts { half.poll_post(bytes(&buffer), cx) } else { half.poll_flush(cx) };
                    match polled {
                        Poll::Pending => {
                            *step = Step::Start(buffer);
                            return Poll::Pending;
                        }
                        Poll::Ready(Err(error)) => return Poll::Ready((Err(error), buffer)),
                        Poll::Ready(Ok(())) if posts => return Poll::Ready((Ok(len), buffer)),
                        Poll::Ready(Ok(())) => *step = Step::Send(half.send(buffer, 0, *all), 0),
                    }
                }
                Step::Send(mut op, before) => {
                    let Poll::Ready((result, buffer)) = Pin::new(&mut op).poll(cx) else {
                        *step = Step::Send(op, before);
                        return Poll::Pending;
                    };
                    let sent = before + *result.as_ref().unwrap_or(&0);
                    match result {
                        Ok(0) if *all => return Poll::Ready((Err(io::ErrorKind::WriteZero.into()), buffer)),
                        Ok(_) if *all && sent < buffer.init_len() => {
                            *step = Step::Send(half.send(buffer, sent, true), sent);
                        }
                        result => return Poll::Ready((result.map(|_| sent), buffer)),
                    }
                }
                Step::Done => panic!("a write was polled after its end"),
            }
        }
    }
}

/// A [`Write`] of all.
pub(super) struct WriteAll<'a, B: 'static>(Write<'a, B>);

impl<B: OwnedBuf> Future for WriteAll<'_, B> {
    type Output = (io::Result<()>, B);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|(result, buffer)| (result.map(drop), buffer))
    }
}
