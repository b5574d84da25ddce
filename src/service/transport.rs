//! What carries the bytes of a connection.

use std::future::Future;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::ops::Deref;
use std::task::{Context, Poll};

use bytes::BytesMut;

use crate::net::{Received, TcpStream, UnixStream};

/// A byte stream under a connection: TCP and Unix streams, and whatever else gives and takes bytes.
///
/// # Examples
/// A peer that has said all it has to say, and keeps what it is answered:
/// ```
/// use std::cell::RefCell;
/// use std::io;
/// use std::rc::Rc;
/// use std::task::{Context, Poll};
///
/// use bytes::BytesMut;
/// use corelet::service::Transport;
///
/// struct Said {
///     words: Option<Vec<u8>>,
///     answers: Rc<RefCell<Vec<u8>>>,
/// }
///
/// impl Transport for Said {
///     type Received = Vec<u8>;
///
///     fn poll_receive(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Option<Vec<u8>>>> {
///         Poll::Ready(Ok(self.words.take()))
///     }
///
///     async fn send(&mut self, bytes: BytesMut) -> (io::Result<()>, BytesMut) {
///         self.answers.borrow_mut().extend_from_slice(&bytes);
///         (Ok(()), bytes)
///     }
///
///     async fn finish(&mut self, _: bool) -> io::Result<()> {
///         Ok(())
///     }
/// }
/// ```
pub trait Transport: 'static {
    /// Bytes that have arrived.
    type Received: Deref<Target = [u8]>;

    /// The next bytes that have arrived; none when the peer has ended its side. Wakes the task when there may be some, also
    /// when it is a send of its own that has brought them: it may not be asked again before.
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
    ///
    /// # Cancel safety
    /// A call that was dropped leaves open what was sent; [`abort`](Transport::abort) follows.
    fn finish(&mut self, end: bool) -> impl Future<Output = io::Result<()>>;

    /// Gives up what was sent off and has not left, so that a peer that does not read holds up nothing. Called once,
    /// before the drop, whatever has happened; after a [`finish`](Transport::finish) that was done nothing is left to give up.
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
