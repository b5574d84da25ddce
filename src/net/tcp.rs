//! TCP streams.

use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use socket2::{Domain, SockAddr};

use super::options::StreamOptions;
use super::stream::{DetachedStream, Stream};

/// A TCP connection on the core that made it. Reads and writes are those of [`Stream`].
///
/// # Examples
/// ```
/// use corelet::net::TcpStream;
///
/// # use corelet::runtime::{Cores, Runtime};
/// # let server = std::net::TcpListener::bind(("127.0.0.1", 0))?;
/// # let address = server.local_addr()?;
/// # std::thread::spawn(move || {
/// #     let (mut stream, _) = server.accept().unwrap();
/// #     std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
/// # });
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// # runtime.block_on(move || async move {
/// // To a server that sends back what it gets. Buffers go in by value and come back.
/// let mut stream = TcpStream::connect(address).await?;
/// let (result, mut buffer) = stream.write_all(b"ping".to_vec()).await;
/// result?;
/// buffer.clear();
/// let (result, buffer) = stream.read_exact(buffer, 4).await;
/// result?;
/// assert_eq!(buffer, b"ping");
/// stream.close().await;
/// # std::io::Result::Ok(())
/// # })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TcpStream(pub(super) Stream);

impl TcpStream {
    /// Connects, with the default [options](StreamOptions).
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up and closes the socket.
    ///
    /// # Panics
    /// When not called on a core.
    pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream(Stream::connect(Domain::for_address(address), SockAddr::from(address)).await?);
        stream.set_options(&StreamOptions::default())?;
        Ok(stream)
    }

    /// Connects within `limit`.
    ///
    /// # Errors
    /// The kernel's, or `TimedOut`.
    ///
    /// # Cancel safety
    /// As for [`connect`](TcpStream::connect).
    ///
    /// # Panics
    /// When not called on a core.
    pub async fn connect_timeout(address: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
        Stream::within(limit, TcpStream::connect(address)).await
    }

    /// Sets options.
    ///
    /// # Errors
    /// The kernel's; `InvalidInput` for a linger time above zero.
    pub fn set_options(&self, options: &StreamOptions) -> io::Result<()> {
        options.apply(self.0.descriptor(), true)
    }

    /// The address on this side.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_address()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// The peer's address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_address()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// As [`Stream::detach`].
    ///
    /// # Errors
    /// Gives the stream back when an operation still uses it.
    pub fn detach(self) -> Result<DetachedStream, TcpStream> {
        self.0.detach().map_err(TcpStream)
    }

    /// As [`Stream::close`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream without waiting for it.
    pub async fn close(self) {
        self.0.close().await;
    }
}

impl From<Stream> for TcpStream {
    /// Trusts that the stream is a TCP connection; only the address methods would tell.
    fn from(stream: Stream) -> TcpStream {
        TcpStream(stream)
    }
}

impl Deref for TcpStream {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.0
    }
}

impl DerefMut for TcpStream {
    fn deref_mut(&mut self) -> &mut Stream {
        &mut self.0
    }
}
