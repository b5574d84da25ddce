//! What the pool needs to know of a connection.

use std::io;
use std::task::{Context, Poll};

use crate::net::{DetachedStream, Stream, TcpStream, UnixStream};
use crate::runtime::Watch;

/// A pooled connection. It lives on one core at a time and moves between cores by value.
///
/// [`TcpStream`] and [`UnixStream`] are connections; a type that wraps one of them passes each method on to it.
pub trait Connection: Sized + 'static {
    /// The connection between two cores, used by nobody.
    type Detached: Send + 'static;

    /// Whether it can leave its core. Of a pool whose connections cannot, only handles of the shard's own core get
    /// leases; others are refused with [`AcquireError::OtherCore`](super::AcquireError::OtherCore).
    const MOVES: bool = true;

    /// Nothing unread, nothing in flight, no end or error seen: fit for the next exchange. Asked before each lease and
    /// after each exchange, so it must not wait or make system calls; and asked in the middle of the scheduler's
    /// decisions, so it must not use the pool. A panic in it can fail the shard.
    fn is_quiet(&self) -> bool;

    /// The connection becomes idle: keep an eye on it, and call [`Watch::notify`] when anything arrives. Called again
    /// after each lease that used the connection; an earlier watch is then void. As for
    /// [`is_quiet`](Connection::is_quiet), it must not use the pool, and a panic in it can fail the shard.
    fn arm(&mut self, watch: Watch);

    /// Ends what is in flight, so that the connection can leave its core.
    ///
    /// # Errors
    /// When the connection is not fit for further use.
    fn poll_quiesce(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Takes the connection off its core.
    ///
    /// # Errors
    /// Gives it back when something is in flight or unread: after a
    /// [`poll_quiesce`](Connection::poll_quiesce) that means it is unfit.
    fn detach(self) -> Result<Self::Detached, Self>;

    /// Puts the connection on the current core.
    fn attach(detached: Self::Detached) -> Self;

    /// Closes the connection; done when the peer has been told and no resource is left.
    fn close(self) -> impl Future<Output = ()>;
}

/// Both kinds of stream are connections in the same way.
macro_rules! stream_connection {
    ($stream:ident) => {
        impl Connection for $stream {
            type Detached = DetachedStream;

            #[inline]
            fn is_quiet(&self) -> bool {
                Stream::is_quiet(self)
            }

            #[inline]
            fn arm(&mut self, watch: Watch) {
                Stream::arm(self, watch);
            }

            fn poll_quiesce(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Stream::poll_quiesce(self, cx)
            }

            fn detach(self) -> Result<DetachedStream, Self> {
                $stream::detach(self)
            }

            fn attach(detached: DetachedStream) -> Self {
                $stream::from(detached.attach())
            }

            async fn close(self) {
                $stream::close(self).await;
            }
        }
    };
}

stream_connection!(TcpStream);
stream_connection!(UnixStream);
