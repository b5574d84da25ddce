//! What carries the bytes of a connection.

use std::future::Future;
use std::io;
use std::ops::Deref;

use bytes::BytesMut;

use crate::net::{Received, TcpStream, UnixStream};

/// A byte stream under a connection: TCP and Unix streams, and whatever else gives and takes bytes.
pub trait Transport: 'static {
    /// Bytes that have arrived.
    type Received: Deref<Target = [u8]>;

    /// Waits for bytes; none when the peer has ended its side.
    ///
    /// # Errors
    /// The transport's own.
    ///
    /// # Cancel safety
    /// Must be cancel safe: bytes that arrive meanwhile are given to the next call.
    fn receive(&mut self) -> impl Future<Output = io::Result<Option<Self::Received>>>;

    /// Sends all of `bytes` and gives the buffer back.
    ///
    /// # Errors
    /// The transport's own.
    ///
    /// # Cancel safety
    /// A send that was dropped may have sent a part; the connection is not used after that.
    fn send(&mut self, bytes: BytesMut) -> impl Future<Output = (io::Result<()>, BytesMut)>;

    /// Sends what is on its way and closes.
    fn close(self) -> impl Future<Output = ()>;
}

macro_rules! stream {
    ($stream:ty) => {
        impl Transport for $stream {
            type Received = Received;

            fn receive(&mut self) -> impl Future<Output = io::Result<Option<Received>>> {
                (**self).receive()
            }

            fn send(&mut self, bytes: BytesMut) -> impl Future<Output = (io::Result<()>, BytesMut)> {
                self.write_all(bytes)
            }

            async fn close(mut self) {
                // An error means that nobody is there to get it.
                let _ = self.flush().await;
            }
        }
    };
}

stream!(TcpStream);
stream!(UnixStream);
