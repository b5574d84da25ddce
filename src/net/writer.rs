//! The sending side of a stream.
//!
//! Small writes are *posted*: copied, done at once, and sent together with the core's next kernel entry, so that a
//! request and the wait for its reply cost one entry. Larger ones go out of the caller's own buffer, behind what was
//! posted.

use std::future::poll_fn;
use std::io;

use super::stream::Socket;
use crate::runtime::driver::op::Request;
use crate::runtime::driver::owned::{OwnedBuf, bytes};
use crate::runtime::driver::{POST_CAPACITY, PostKey, Posting};
use crate::runtime::op::{self, PlainOp};

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

impl WriteHalf<'_> {
    /// As [`Stream::write`](super::Stream::write).
    ///
    /// # Errors
    /// As there.
    pub async fn write<B: OwnedBuf>(&mut self, buffer: B) -> (io::Result<usize>, B) {
        self.send(buffer, false).await
    }

    /// As [`Stream::write_all`](super::Stream::write_all).
    ///
    /// # Errors
    /// As there.
    pub async fn write_all<B: OwnedBuf>(&mut self, mut buffer: B) -> (io::Result<()>, B) {
        let len = buffer.init_len();
        let mut sent = 0;
        if len <= POST_CAPACITY {
            let (result, buffer) = self.send(buffer, true).await;
            return (result.map(drop), buffer);
        }
        if let Err(error) = self.flush().await {
            return (Err(error), buffer);
        }
        while sent < len {
            let result;
            (result, buffer) =
                op::send(&self.socket.local, &self.socket.descriptor, buffer, sent, true).await;
            match result {
                Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), buffer),
                Ok(count) => sent += count,
                Err(error) => return (Err(error), buffer),
            }
        }
        (Ok(()), buffer)
    }

    async fn send<B: OwnedBuf>(&mut self, buffer: B, all: bool) -> (io::Result<usize>, B) {
        let len = buffer.init_len();
        if len <= POST_CAPACITY {
            let posted = self.post(bytes(&buffer)).await;
            return (posted.map(|()| len), buffer);
        }
        match self.flush().await {
            Ok(()) => op::send(&self.socket.local, &self.socket.descriptor, buffer, 0, all).await,
            Err(error) => (Err(error), buffer),
        }
    }

    async fn post(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        loop {
            let posting = self.socket.local.driver().post(self.writer.posted, &self.socket.descriptor, bytes);
            match posting {
                Posting::Taken(key) => {
                    self.writer.posted = Some(key);
                    return Ok(());
                }
                Posting::Busy => self.flush().await?,
                Posting::Failed(error) => return Err(error),
            }
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
        match self.writer.posted {
            Some(key) => poll_fn(|cx| self.socket.local.driver().poll_posted(key, cx.waker())).await,
            None => Ok(()),
        }
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
