//! TCP and Unix streams and listeners over the core's ring: owned buffers in, owned buffers out.
//!
//! A socket belongs to the core it was made on. Every future in here may be dropped at every await: what the kernel
//! still uses stays with the core's driver, and no descriptor or buffer is lost.
//!
//! Never: know what a pool is; enter the kernel for I/O by another way than the driver.

#[cfg(any(feature = "observer", feature = "service"))]
pub(crate) mod claim;
mod listener;
mod options;
mod reader;
mod readiness;
mod stream;
mod tcp;
mod unix;
mod writer;

#[cfg(feature = "framed")]
pub(crate) use crate::runtime::driver::POST_CAPACITY;
pub use crate::runtime::driver::buffers::PooledBuf;
pub use crate::runtime::driver::owned::{OwnedBuf, OwnedBufMut};
pub use listener::{TcpListener, UnixListener};
pub use options::{ListenerOptions, StreamOptions};
pub use reader::{ReadHalf, Received};
pub use readiness::{wait_readable, wait_readable_timeout, wait_writable, wait_writable_timeout};
pub use stream::{DetachedStream, Stream};
pub use tcp::TcpStream;
pub use unix::UnixStream;
pub use writer::WriteHalf;
