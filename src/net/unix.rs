//! Unix streams.

use std::io;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, SockAddr};

use super::stream::{DetachedStream, Stream};

/// A Unix stream connection on the core that made it. Reads and writes are those of [`Stream`].
#[derive(Debug)]
pub struct UnixStream(pub(super) Stream);

impl UnixStream {
    /// Connects to the listener at `path`.
    ///
    /// # Errors
    /// The kernel's; `InvalidInput` when the path is too long for an address.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up and closes the socket.
    ///
    /// # Panics
    /// When not called on a core.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        Ok(UnixStream(Stream::connect(Domain::UNIX, SockAddr::unix(path)?).await?))
    }

    /// Connects within `limit`.
    ///
    /// # Errors
    /// The kernel's, or `TimedOut`.
    ///
    /// # Cancel safety
    /// As for [`connect`](UnixStream::connect).
    ///
    /// # Panics
    /// When not called on a core.
    pub async fn connect_timeout(path: impl AsRef<Path>, limit: Duration) -> io::Result<UnixStream> {
        Stream::within(limit, UnixStream::connect(path)).await
    }

    /// As [`Stream::detach`].
    ///
    /// # Errors
    /// Gives the stream back when an operation still uses it.
    pub fn detach(self) -> Result<DetachedStream, UnixStream> {
        self.0.detach().map_err(UnixStream)
    }

    /// As [`Stream::close`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream without waiting for it.
    pub async fn close(self) {
        self.0.close().await;
    }
}

impl From<Stream> for UnixStream {
    /// Trusts that the stream is a Unix connection.
    fn from(stream: Stream) -> UnixStream {
        UnixStream(stream)
    }
}

impl Deref for UnixStream {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.0
    }
}

impl DerefMut for UnixStream {
    fn deref_mut(&mut self) -> &mut Stream {
        &mut self.0
    }
}
