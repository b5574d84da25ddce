//! A connected byte stream, TCP or Unix.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{Domain, SockAddr};

use super::reader::{ReadHalf, Reader, Received};
use super::writer::{WriteHalf, Writer};
use crate::runtime::driver::descriptor::{Descriptor, DetachedDescriptor};
use crate::runtime::driver::owned::{OwnedBuf, OwnedBufMut};
use crate::runtime::local::Local;
use crate::runtime::op::PlainOp;
use crate::runtime::watch::Watch;
use crate::runtime::{context, sleep, yield_now};

/// How often a close looks in successive turns for the end of what was in flight, and the pause between later looks.
const CLOSE_LOOKS: u32 = 8;
const CLOSE_PAUSE: Duration = Duration::from_micros(50);

/// What both sides of a stream share.
pub(super) struct Socket {
    pub(super) local: Rc<Local>,
    pub(super) descriptor: Descriptor,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket")
            .field("core", &self.local.id())
            .field("fd", &self.descriptor.number())
            .finish()
    }
}

/// A connected byte stream on the core that made it. [`TcpStream`](super::TcpStream) and
/// [`UnixStream`](super::UnixStream) are built on it and lend it.
///
/// # Drop
/// Cancels what is armed and closes the descriptor once the kernel is done with it; the peer then sees the end of the
/// stream. What was written before is still sent.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    reader: Reader,
    writer: Writer,
}

impl Stream {
    pub(super) fn new(local: &Rc<Local>, descriptor: Descriptor) -> Stream {
        Stream {
            socket: Socket { local: Rc::clone(local), descriptor },
            reader: Reader::default(),
            writer: Writer::default(),
        }
    }

    /// A stream that was on a core before.
    fn returned(local: &Rc<Local>, descriptor: Descriptor, travels: bool) -> Stream {
        let mut stream = Stream::new(local, descriptor);
        stream.reader.travels = travels;
        stream
    }

    pub(super) async fn connect(domain: Domain, address: SockAddr) -> io::Result<Stream> {
        let local = context::current();
        let descriptor = local.driver().open_stream(domain)?;
        let key = local.driver().start_connect(&descriptor, address);
        PlainOp::new(&local, key).await.into_result()?;
        Ok(Stream::new(&local, descriptor))
    }

    /// Gives `connect` at most `limit`.
    pub(super) async fn within<T>(
        limit: Duration,
        connect: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        match crate::runtime::timeout(limit, connect).await {
            Ok(result) => result,
            Err(elapsed) => Err(io::Error::new(io::ErrorKind::TimedOut, elapsed)),
        }
    }

    pub(super) fn descriptor(&self) -> &Descriptor {
        &self.socket.descriptor
    }

    pub(super) fn local_address(&self) -> io::Result<SockAddr> {
        self.socket.local.driver().local_address(&self.socket.descriptor)
    }

    pub(super) fn peer_address(&self) -> io::Result<SockAddr> {
        self.socket.local.driver().peer_address(&self.socket.descriptor)
    }

    /// Reads into the spare room of `buffer` and gives it back with the number of bytes; zero means that the peer has
    /// ended its side.
    ///
    /// # Errors
    /// The kernel's; `InvalidInput` when the buffer has no spare room; that of an earlier write that failed after it
    /// had been accepted.
    ///
    /// # Cancel safety
    /// Dropping the future drops the buffer, once the kernel is done with it. Bytes that arrive at that very moment
    /// can be lost, so a stream whose read was dropped should not be read again.
    pub fn read<B: OwnedBufMut>(&mut self, buffer: B) -> impl Future<Output = (io::Result<usize>, B)> {
        let Stream { socket, reader, writer } = self;
        ReadHalf { socket, reader }.read_behind(writer, buffer)
    }

    /// Reads exactly `count` bytes behind the contents of `buffer`, a vector with that much spare capacity, and gives it
    /// back. (A `Box<[u8]>`, which is filled from its start by each read, suits only if one read brings them all.)
    ///
    /// # Errors
    /// As for [`read`](Stream::read); `UnexpectedEof` when the peer ends its side before.
    ///
    /// # Cancel safety
    /// As for [`read`](Stream::read).
    pub async fn read_exact<B: OwnedBufMut>(&mut self, buffer: B, count: usize) -> (io::Result<()>, B) {
        if let Some(error) = self.writer.failure(&self.socket) {
            return (Err(error), buffer);
        }
        self.split().0.read_exact(buffer, count).await
    }

    /// Receives what comes next into a buffer of the core's pool; none when the peer has ended its side. While nothing
    /// comes, no memory is held. The receive stays armed between calls where the kernel can do that (multishot), unless that
    /// has held up the stream when it left a core before.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Cancel safety
    /// Cancel safe: what arrives meanwhile is given to the next call.
    pub fn receive(&mut self) -> impl Future<Output = io::Result<Option<Received>>> {
        poll_fn(|cx| self.poll_receive(cx))
    }

    /// What [`receive`](Stream::receive) gives, for those who poll: arms the receive if it is not, and wakes the task
    /// when something has come.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Received>>> {
        self.reader.poll_receive(&self.socket, cx)
    }

    /// Writes some of `buffer` and gives it back with the number of bytes accepted. Up to 4,096 bytes are copied and
    /// accepted at once; they leave with the core's next kernel entry, and should that fail, the next read or write
    /// says so. More go out of the buffer itself.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open how much was written.
    pub fn write<B: OwnedBuf>(&mut self, buffer: B) -> impl Future<Output = (io::Result<usize>, B)> {
        self.split().1.write_some(buffer)
    }

    /// Writes all of `buffer` and gives it back; see [`write`](Stream::write).
    ///
    /// # Errors
    /// The kernel's; how much was written is then unknown.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open how much was written.
    pub fn write_all<B: OwnedBuf>(&mut self, buffer: B) -> impl Future<Output = (io::Result<()>, B)> {
        self.split().1.write_whole(buffer)
    }

    /// Writes some of `buffers`, in order, in one call, and gives them back with the number of bytes written; of more
    /// than 1,024 buffers only the first ones are taken.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open how much was written.
    pub async fn write_vectored<B: OwnedBuf>(&mut self, buffers: Vec<B>) -> (io::Result<usize>, Vec<B>) {
        self.split().1.write_vectored(buffers).await
    }

    /// Waits until all that was written is with the kernel.
    ///
    /// # Errors
    /// The kernel's, of an earlier write.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.split().1.flush().await
    }

    /// Gives up what was written and has not left yet. A plain drop would keep trying to send it.
    #[cfg_attr(not(feature = "service"), allow(dead_code))]
    pub(crate) fn discard_unsent(&mut self) {
        self.writer.discard(&self.socket);
    }

    /// Ends one side or both, after what was written. The other side goes on.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether it was done.
    pub async fn shutdown(&mut self, how: std::net::Shutdown) -> io::Result<()> {
        self.split().1.shutdown(how).await
    }

    /// Lends both sides at once, to be used at the same time.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        let Stream { socket, reader, writer } = self;
        (ReadHalf { socket, reader }, WriteHalf { socket, writer })
    }

    /// Leaves a receive armed and has `watch` told when anything arrives: data, the peer's end, or an error. The
    /// armed receive holds no buffer, and the next read uses it.
    pub fn arm(&mut self, watch: Watch) {
        self.reader.arm(&self.socket, watch);
    }

    /// Nothing unread, no end seen, no write stuck or failed. Looks at what has been reaped; makes no system call.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.reader.is_quiet(&self.socket) && self.writer.is_clean(&self.socket)
    }

    /// Whether something has arrived and waits to be read: data, the peer's end or an error.
    #[cfg(feature = "framed")]
    pub(crate) fn has_arrived(&self) -> bool {
        !self.reader.is_quiet(&self.socket)
    }

    /// Whether the bytes posted last (by a write of up to [`POST_CAPACITY`]) failed with none of them taken by the
    /// kernel.
    #[cfg(feature = "framed")]
    pub(crate) fn is_unsent(&self) -> bool {
        self.writer.is_unsent(&self.socket)
    }

    /// Works towards a stream that no operation uses: sends what is posted and ends the armed receive.
    ///
    /// # Errors
    /// The kernel's.
    pub fn poll_quiesce(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.writer.is_pending(&self.socket) {
            let flushed = std::pin::pin!(self.split().1.flush()).poll(cx);
            match flushed {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        }
        self.reader.poll_disarm(&self.socket, cx)
    }

    /// Takes the stream off its core, so that it can travel to another one.
    ///
    /// # Errors
    /// Gives the stream back when an operation still uses it; see [`poll_quiesce`](Stream::poll_quiesce).
    pub fn detach(mut self) -> Result<DetachedStream, Stream> {
        let busy = self.reader.is_armed() || !self.is_quiet() || self.writer.is_pending(&self.socket);
        if busy {
            return Err(self);
        }
        self.writer.disown(&self.socket);
        let descriptor = self.socket.descriptor.clone();
        let local = Rc::clone(&self.socket.local);
        let travels = self.reader.travels;
        drop(self);
        match descriptor.into_owned() {
            Ok(descriptor) => Ok(DetachedStream { descriptor, travels }),
            Err(shared) => Err(Stream::returned(&local, shared, travels)),
        }
    }

    /// Closes the stream and waits until its descriptor is closed. Bytes that the peer's full buffers hold up are given
    /// up; a plain drop would keep trying to send them.
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream without waiting for it.
    pub async fn close(mut self) {
        self.writer.discard(&self.socket);
        // An error means that the receive has ended too.
        let _ = poll_fn(|cx| self.reader.poll_disarm(&self.socket, cx)).await;
        // What a dropped future left in flight has been cancelled; its end comes with one of the next turns. When it
        // takes longer, the core must not spin for it.
        for look in 0_u32.. {
            if self.socket.descriptor.is_unique() {
                return;
            }
            if look < CLOSE_LOOKS { yield_now().await } else { sleep(CLOSE_PAUSE).await }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reader.abandon(&self.socket);
        self.writer.disown(&self.socket);
    }
}

/// A stream between two cores: open, used by nobody. Made by [`Stream::detach`].
#[derive(Debug)]
pub struct DetachedStream {
    descriptor: DetachedDescriptor,
    travels: bool,
}

impl DetachedStream {
    /// Puts the stream on the current core.
    ///
    /// # Panics
    /// When not called on a core.
    #[track_caller]
    pub fn attach(self) -> Stream {
        Stream::returned(&context::current(), self.descriptor.attach(), self.travels)
    }
}
