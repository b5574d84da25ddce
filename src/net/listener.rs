//! Listeners: one multishot accept stays armed, unless it brings more connections than are taken.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use socket2::SockAddr;

use super::options::{ListenerOptions, StreamOptions};
use super::stream::Stream;
use super::tcp::TcpStream;
use super::unix::UnixStream;
use crate::runtime::context;
use crate::runtime::driver::descriptor::Descriptor;
use crate::runtime::driver::op::{OpKey, Request};
use crate::runtime::driver::socket::ListenOptions;
use crate::runtime::local::Local;
use crate::runtime::sleep_until;

const FIRST_BACKOFF: Duration = Duration::from_millis(5);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);

/// An accept that waits in the kernel.
#[derive(Clone, Copy)]
struct Armed {
    op: OpKey,
    multishot: bool,
}

/// What TCP and Unix listeners share.
struct Listener {
    local: Rc<Local>,
    descriptor: Descriptor,
    armed: Option<Armed>,
    /// How long to wait before arming again, after an error that would only come again.
    backoff: Duration,
    /// Not armed again before this time, however often the call that waits for it is dropped.
    retry_at: Option<Instant>,
    options: StreamOptions,
}

impl Listener {
    fn open(address: &SockAddr, options: ListenerOptions, mode: Option<u32>) -> io::Result<Listener> {
        let local = context::current();
        let listen = ListenOptions {
            backlog: options.backlog.min(i32::MAX as u32) as i32,
            reuse_port: options.reuse_port,
            mode,
        };
        let descriptor = local.driver().listen(address, listen)?;
        Ok(Listener {
            local,
            descriptor,
            armed: None,
            backoff: Duration::ZERO,
            retry_at: None,
            options: options.stream,
        })
    }

    fn local_address(&self) -> io::Result<SockAddr> {
        self.local.driver().local_address(&self.descriptor)
    }

    fn retry(&mut self) {
        self.backoff = Duration::ZERO;
        self.retry_at = None;
    }

    async fn accept(&mut self) -> io::Result<Stream> {
        loop {
            if let Some(time) = self.retry_at {
                sleep_until(time).await;
                self.retry_at = None;
            }
            let result = poll_fn(|cx| self.poll_accept(cx)).await;
            match result {
                Ok(descriptor) => {
                    self.backoff = Duration::ZERO;
                    return Ok(Stream::new(&self.local, descriptor));
                }
                // The peer was gone before it was accepted: nobody's fault, and no reason to wait.
                Err(error) if error.raw_os_error() == Some(libc::ECONNABORTED) => {}
                Err(error) => {
                    self.backoff = (self.backoff * 2).clamp(FIRST_BACKOFF, LONGEST_BACKOFF);
                    self.retry_at = Some(self.local.now() + self.backoff);
                    return Err(error);
                }
            }
        }
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Descriptor>> {
        let mut driver = self.local.driver();
        loop {
            let armed = *self.armed.get_or_insert_with(|| {
                let multishot = driver.features().multishot_accept;
                Armed { op: driver.start_plain(&self.descriptor, Request::Accept { multishot }), multishot }
            });
            let Poll::Ready(completion) = driver.poll(armed.op, cx.waker()) else { return Poll::Pending };
            if !completion.more {
                self.armed = None;
            }
            if armed.multishot && completion.result == -libc::EINVAL {
                // A kernel without multishot accepts: from now on there are only single ones.
                driver.give_up_multishot();
                continue;
            }
            if completion.result == -libc::ECANCELED && !driver.is_closed() {
                // It brought more than was asked for, and all of that has been taken.
                continue;
            }
            return Poll::Ready(completion.into_result().map(|_| driver.adopt(completion.result)));
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(armed) = self.armed.take() {
            self.local.driver().abandon(armed.op, None);
        }
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("fd", &self.descriptor.number()).finish_non_exhaustive()
    }
}

/// Accepts TCP connections on the core that made it.
///
/// # Examples
/// ```
/// use corelet::net::{TcpListener, TcpStream};
/// use corelet::runtime::spawn;
///
/// # use corelet::runtime::{Cores, Runtime};
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// # runtime.block_on(|| async {
/// let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
/// let address = listener.local_addr()?;
/// spawn(async move {
///     loop {
///         let Ok(mut stream) = listener.accept().await else { continue };
///         spawn(async move { stream.write_all("welcome").await }).detach();
///     }
/// })
/// .detach();
///
/// let mut stream = TcpStream::connect(address).await?;
/// let (result, greeting) = stream.read_exact(Vec::with_capacity(7), 7).await;
/// result?;
/// assert_eq!(greeting, b"welcome");
/// # std::io::Result::Ok(())
/// # })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
/// # Drop
/// Closes the listener; connections that were accepted by the kernel but not taken are closed.
#[derive(Debug)]
pub struct TcpListener(Listener);

impl TcpListener {
    /// Listens on `address`, with the default [options](ListenerOptions). Port zero chooses a free one; see
    /// [`local_addr`](TcpListener::local_addr).
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When not called on a core.
    #[track_caller]
    pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::bind_with(address, ListenerOptions::default())
    }

    /// Listens on `address` with `options`.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Panics
    /// When not called on a core.
    #[track_caller]
    pub fn bind_with(address: SocketAddr, options: ListenerOptions) -> io::Result<TcpListener> {
        Ok(TcpListener(Listener::open(&SockAddr::from(address), options, None)?))
    }

    /// The address listened on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_address()?.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Has the next accept after an error not wait: what was short is there again, as far as the caller knows.
    pub fn retry(&mut self) {
        self.0.retry();
    }

    /// The next connection.
    ///
    /// # Errors
    /// The kernel's, such as `EMFILE` when out of descriptors. The next call then first waits a little, from 5 ms up
    /// to a second, so that a loop which logs and goes on does not spin.
    ///
    /// # Cancel safety
    /// Cancel safe: a connection that arrives meanwhile is given to the next call.
    pub async fn accept(&mut self) -> io::Result<TcpStream> {
        let stream = TcpStream(self.0.accept().await?);
        stream.set_options(&self.0.options)?;
        Ok(stream)
    }
}

/// Accepts Unix stream connections on the core that made it.
///
/// # Drop
/// Closes the listener; the file at its path stays.
#[derive(Debug)]
pub struct UnixListener(Listener);

impl UnixListener {
    /// Listens at `path`, which must not exist.
    ///
    /// # Errors
    /// The kernel's; `InvalidInput` when the path is too long for an address.
    ///
    /// # Panics
    /// When not called on a core.
    #[track_caller]
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        UnixListener::open(path.as_ref(), None)
    }

    /// As [`bind`](UnixListener::bind), with `mode` for the file, less the umask: `0o600` lets only this user connect. The
    /// file is never there with another mode.
    ///
    /// # Errors
    /// As for [`bind`](UnixListener::bind).
    ///
    /// # Panics
    /// When not called on a core.
    #[track_caller]
    pub fn bind_with_mode(path: impl AsRef<Path>, mode: u32) -> io::Result<UnixListener> {
        UnixListener::open(path.as_ref(), Some(mode))
    }

    #[track_caller]
    fn open(path: &Path, mode: Option<u32>) -> io::Result<UnixListener> {
        let options = ListenerOptions {
            stream: StreamOptions { nodelay: None, ..StreamOptions::default() },
            ..ListenerOptions::default()
        };
        Ok(UnixListener(Listener::open(&SockAddr::unix(path)?, options, mode)?))
    }

    /// Has the next accept after an error not wait: what was short is there again, as far as the caller knows.
    pub fn retry(&mut self) {
        self.0.retry();
    }

    /// The next connection.
    ///
    /// # Errors
    /// As for [`TcpListener::accept`].
    ///
    /// # Cancel safety
    /// Cancel safe: a connection that arrives meanwhile is given to the next call.
    pub async fn accept(&mut self) -> io::Result<UnixStream> {
        Ok(UnixStream(self.0.accept().await?))
    }
}
