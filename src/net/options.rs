//! Socket options.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::SockRef;

use crate::runtime::driver::descriptor::Descriptor;

/// Options of a stream, for [`TcpStream::set_options`](super::TcpStream::set_options) and the connectors. Fields that
/// are `None` are left as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Send small segments at once (`TCP_NODELAY`). On by default: requests are small and latency counts.
    pub nodelay: Option<bool>,
    /// Idle time before keep-alive probes are sent.
    pub keepalive: Option<Duration>,
    /// Size of the kernel's receive buffer, in bytes.
    pub receive_buffer: Option<usize>,
    /// Size of the kernel's send buffer, in bytes.
    pub send_buffer: Option<usize>,
    /// Zero has closing reset the connection and drop what was not delivered. Anything longer is refused, because
    /// closing would then hold up the whole core for that long; the kernel delivers in the background without it.
    pub linger: Option<Duration>,
}

impl Default for StreamOptions {
    fn default() -> StreamOptions {
        StreamOptions {
            nodelay: Some(true),
            keepalive: None,
            receive_buffer: None,
            send_buffer: None,
            linger: None,
        }
    }
}

impl StreamOptions {
    pub(super) fn apply(&self, descriptor: &Descriptor, tcp: bool) -> io::Result<()> {
        if self.linger.is_some_and(|time| !time.is_zero()) {
            let refused = "a linger time above zero would hold up the core when the stream is closed";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, refused));
        }
        let Some(fd) = descriptor.as_kernel() else { return Ok(()) };
        let fd = fd.as_fd();
        let socket = SockRef::from(&fd);
        if tcp {
            self.nodelay.map_or(Ok(()), |on| socket.set_tcp_nodelay(on))?;
            if let Some(time) = self.keepalive {
                socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(time))?;
            }
        }
        self.receive_buffer.map_or(Ok(()), |size| socket.set_recv_buffer_size(size))?;
        self.send_buffer.map_or(Ok(()), |size| socket.set_send_buffer_size(size))?;
        self.linger.map_or(Ok(()), |time| socket.set_linger(Some(time)))
    }
}

/// Options of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerOptions {
    /// How many connections may wait to be accepted; 1,024 by default.
    pub backlog: u32,
    /// Several listeners may bind the same address and share its connections (`SO_REUSEPORT`), such as one on each
    /// core. Off by default; TCP only.
    pub reuse_port: bool,
    /// Options of each accepted stream.
    pub stream: StreamOptions,
}

impl Default for ListenerOptions {
    fn default() -> ListenerOptions {
        ListenerOptions { backlog: 1024, reuse_port: false, stream: StreamOptions::default() }
    }
}
