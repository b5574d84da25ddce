//! Waiting until a descriptor that is not corelet's can be read or written.
//!
//! For descriptors that other libraries own: of a database client, an eventfd, a pipe, a signalfd. The streams in here
//! need no such thing: [`Stream::receive`](super::Stream::receive) waits without holding memory.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::runtime::op::PlainOp;
use crate::runtime::{context, timeout};

const READABLE: u32 = (libc::POLLIN | libc::POLLRDHUP) as u32;
const WRITABLE: u32 = libc::POLLOUT as u32;

/// Waits until reading from `fd` would not block: there is data or a connection, its end, or an error.
///
/// Each wait is an operation of its own on the core's ring: any number of tasks may wait for one descriptor, and when one
/// of them is stopped or gives up, the others notice nothing. Nothing is registered between waits, and the descriptor need
/// not be non-blocking.
///
/// # Errors
/// The kernel's: `EBADF` for a number that is no open descriptor. `Unsupported` in a
/// [`Simulation`](crate::runtime::Simulation), which has no kernel to ask.
///
/// # Cancel safety
/// Cancel safe: nothing is taken from the descriptor. The kernel's poll is cancelled, and until that is done it may keep
/// the open file behind the descriptor alive, for about a turn.
///
/// # Panics
/// When not polled on a core.
///
/// # Examples
/// ```
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
///
/// use corelet::net::wait_readable;
/// use corelet::runtime::{Cores, Runtime, sleep, spawn};
///
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// let (mut here, mut there) = UnixStream::pair()?;
/// let byte = runtime.block_on(|| async move {
///     spawn(async move { there.write_all(b"!") }).detach();
///     wait_readable(&here).await?;
///     let mut byte = [0];
///     here.read_exact(&mut byte)?;
///     std::io::Result::Ok(byte[0])
/// })??;
/// assert_eq!(byte, b'!');
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn wait_readable(fd: impl AsFd) -> io::Result<()> {
    wait(fd.as_fd(), READABLE).await
}

/// Waits until writing to `fd` would not block: there is room, or an error to be had.
///
/// # Errors
/// As for [`wait_readable`].
///
/// # Cancel safety
/// As for [`wait_readable`].
///
/// # Panics
/// When not polled on a core.
pub async fn wait_writable(fd: impl AsFd) -> io::Result<()> {
    wait(fd.as_fd(), WRITABLE).await
}

/// As [`wait_readable`], for at most `limit`. Readiness that is reported together with
/// the deadline counts.
///
/// # Errors
/// `TimedOut` when the time is over; otherwise as for [`wait_readable`].
///
/// # Cancel safety
/// As for [`wait_readable`].
///
/// # Panics
/// When not polled on a core.
pub async fn wait_readable_timeout(fd: impl AsFd, limit: Duration) -> io::Result<()> {
    within(limit, wait_readable(fd)).await
}

/// As [`wait_writable`], for at most `limit`. Readiness that is reported together with
/// the deadline counts.
///
/// # Errors
/// `TimedOut` when the time is over; otherwise as for [`wait_readable`].
///
/// # Cancel safety
/// As for [`wait_readable`].
///
/// # Panics
/// When not polled on a core.
pub async fn wait_writable_timeout(fd: impl AsFd, limit: Duration) -> io::Result<()> {
    within(limit, wait_writable(fd)).await
}

async fn wait(fd: BorrowedFd<'_>, events: u32) -> io::Result<()> {
    let local = context::current();
    let key = local.driver().start_poll(fd, events);
    PlainOp::new(&local, key).await.into_result().map(drop)
}

async fn within(limit: Duration, wait: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    match timeout(limit, wait).await {
        Ok(ready) => ready,
        Err(elapsed) => Err(io::Error::new(io::ErrorKind::TimedOut, elapsed)),
    }
}
