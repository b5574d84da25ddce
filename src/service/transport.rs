//! What carries the bytes of a connection.

use std::future::Future;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::ops::Deref;
use std::task::{Context, Poll};

use bytes::BytesMut;

use crate::net::{Received, TcpStream, UnixStream};

/// A byte stream under a connection: TCP and Unix streams, and whatever else gives and takes bytes.
pub trait Transport: 'static {
    /// Bytes that have arrived.
    type Received: Deref<Target = [u8]>;

    /// The next bytes that have arrived; none when the peer has ended its side. Wakes the task when there may be some.
    ///
    /// # Errors
    /// The transport's own.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Self::Received>>>;

    /// Sends all of `bytes` and gives the buffer back. It may be done before they have left; what then goes wrong is
    /// told by a later call.
    ///
    /// # Errors
    /// The transport's own.
    ///
    /// # Cancel safety
    /// A send that was dropped may have sent a part; the connection sends nothing more after that.
    fn send(&mut self, bytes: BytesMut) -> impl Future<Output = (io::Result<()>, BytesMut)>;

    /// Sees what was sent off, so that a drop loses nothing. With `end`, the peer is told as well that nothing follows.
    ///
    /// # Errors
    /// The transport's own.
    fn finish(&mut self, end: bool) -> impl Future<Output = io::Result<()>>;

    /// Gives up what was sent off and has not left, so that a peer that does not read holds up nothing. What follows is
    /// the drop.
    fn abort(&mut self) {}

    /// Who is at the other end, if it has such an address.
    fn peer_addr(&self) -> Option<SocketAddr> {
        None
    }
}

macro_rules! stream {
    ($stream:ty, $peer:expr) => {
        impl Transport for $stream {
            type Received = Received;

            #[inline]
            fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Received>>> {
                (**self).poll_receive(cx)
            }

            #[inline]
            fn send(&mut self, bytes: BytesMut) -> impl Future<Output = (io::Result<()>, BytesMut)> {
                self.write_all(bytes)
            }

            async fn finish(&mut self, end: bool) -> io::Result<()> {
                match end {
                    true => self.shutdown(Shutdown::Write).await,
                    false => self.flush().await,
                }
            }

            fn abort(&mut self) {
                self.discard_unsent();
            }

            fn peer_addr(&self) -> Option<SocketAddr> {
                let peer: fn(&$stream) -> Option<SocketAddr> = $peer;
                peer(self)
            }
        }
    };
}

stream!(TcpStream, |stream| TcpStream::peer_addr(stream).ok());
stream!(UnixStream, |_| None);
