//! The sockets of a simulation: byte queues between streams, listeners with their queues, addresses.
//!
//! Results are the kernel's: a count or an error number, `Pending` where a blocking call would wait. Nothing here knows
//! of operations, cores or time; whatever a change may have made possible is listed in `changed`.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::task::Poll;

use socket2::SockAddr;

use super::address::{covers, loopback};
use super::random::Random;
use super::stream::{Stream, capacity};

/// Numbers begin where no process has descriptors: one that reaches the kernel by mistake is refused.
const FIRST_NUMBER: RawFd = 1 << 20;
const FIRST_EPHEMERAL: u16 = 32_768;
/// Connections that wait to be accepted, for each listener.
const BACKLOG: usize = 128;
/// What a call on a socket comes to.
pub(super) type Outcome<T> = Poll<Result<T, i32>>;

/// How a listener treats those who connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Open,
    /// Connections come about, and nobody ever accepts them.
    Silent,
    /// Attempts to connect get no answer.
    Unreachable,
}

#[derive(Debug)]
enum Socket {
    Fresh,
    Listener(Listener),
    Stream(Stream),
}

#[derive(Debug)]
struct Listener {
    address: SockAddr,
    core: usize,
    queue: VecDeque<RawFd>,
    door: Door,
}

#[derive(Debug)]
pub(super) struct Network {
    sockets: BTreeMap<RawFd, Socket>,
    next_number: RawFd,
    next_port: u16,
    /// Sockets on which something may have become possible.
    pub(super) changed: Vec<RawFd>,
    /// A listener may take connections that it could not take before.
    pub(super) doors_changed: bool,
}

impl Network {
    pub(super) fn new() -> Network {
        Network {
            sockets: BTreeMap::new(),
            next_number: FIRST_NUMBER,
            next_port: FIRST_EPHEMERAL,
            changed: Vec::new(),
            doors_changed: false,
        }
    }

    pub(super) fn open(&mut self) -> RawFd {
        self.insert(Socket::Fresh)
    }

    /// Several cores may listen on one address, as with SO_REUSEPORT; one core only once.
    pub(super) fn listen(&mut self, core: usize, address: &SockAddr) -> Result<RawFd, i32> {
        let mut address = address.clone();
        if let Some(mut inet) = address.as_socket()
            && inet.port() == 0
        {
            inet.set_port(self.ephemeral_port());
            address = inet.into();
        }
        let taken = |socket: &Socket| matches!(socket, Socket::Listener(other) if other.core == core && other.address == address);
        if self.sockets.values().any(taken) {
            return Err(libc::EADDRINUSE);
        }
        Ok(self.insert(Socket::Listener(Listener {
            address,
            core,
            queue: VecDeque::new(),
            door: Door::Open,
        })))
    }

    pub(super) fn accept(&mut self, number: RawFd) -> Outcome<RawFd> {
        match self.sockets.get_mut(&number) {
            Some(Socket::Listener(listener)) if listener.door == Door::Silent => Poll::Pending,
            Some(Socket::Listener(listener)) => match listener.queue.pop_front() {
                Some(accepted) => {
                    self.doors_changed = true;
                    Poll::Ready(Ok(accepted))
                }
                None => Poll::Pending,
            },
            Some(_) => Poll::Ready(Err(libc::EINVAL)),
            None => Poll::Ready(Err(libc::EBADF)),
        }
    }

    pub(super) fn connect(&mut self, number: RawFd, to: &SockAddr, draw: &mut Random) -> Outcome<()> {
        match self.sockets.get(&number) {
            Some(Socket::Fresh) => {}
            Some(_) => return Poll::Ready(Err(libc::EISCONN)),
            None => return Poll::Ready(Err(libc::EBADF)),
        }
        let listeners: Vec<(RawFd, bool)> = self
            .sockets
            .iter()
            .filter_map(|(number, socket)| match socket {
                Socket::Listener(listener) if covers(&listener.address, to) => {
                    Some((*number, listener.door != Door::Unreachable && listener.queue.len() < BACKLOG))
                }
                _ => None,
            })
            .collect();
        if listeners.is_empty() {
            return Poll::Ready(Err(libc::ECONNREFUSED));
        }
        let open: Vec<RawFd> =
            listeners.into_iter().filter(|(_, open)| *open).map(|(number, _)| number).collect();
        if open.is_empty() {
            return Poll::Pending;
        }
        let listener = open[draw.below(open.len())];
        let local = self.ephemeral_address(to);
        let (there, back) = (capacity(draw), capacity(draw));
        let server = self.insert(Socket::Stream(Stream::new(to.clone(), local.clone(), number, true, there)));
        self.sockets.insert(number, Socket::Stream(Stream::new(local, to.clone(), server, false, back)));
        if let Some(Socket::Listener(listener)) = self.sockets.get_mut(&listener) {
            listener.queue.push_back(server);
        }
        self.changed.extend([listener, number]);
        Poll::Ready(Ok(()))
    }

    /// What a receive of at most `max` bytes would get. An empty answer is the end of the stream.
    pub(super) fn peek(&self, number: RawFd, max: usize) -> Outcome<Vec<u8>> {
        match self.stream(number, libc::ENOTCONN) {
            Ok(stream) => stream.peek(max),
            Err(errno) => Poll::Ready(Err(errno)),
        }
    }

    /// Takes out what [`peek`](Network::peek) gave.
    pub(super) fn consume(&mut self, number: RawFd, count: usize) {
        if let Ok(stream) = self.stream_mut(number, libc::ENOTCONN) {
            stream.incoming.drain(..count);
            let peer = stream.peer;
            self.changed.extend(peer);
        }
    }

    pub(super) fn send(&mut self, number: RawFd, bytes: &[u8], draw: &mut Random) -> Outcome<usize> {
        let stream = match self.stream_mut(number, libc::EPIPE) {
            Ok(stream) => stream,
            Err(errno) => return Poll::Ready(Err(errno)),
        };
        if stream.reset {
            return Poll::Ready(Err(libc::ECONNRESET));
        }
        if stream.write_shut {
            return Poll::Ready(Err(libc::EPIPE));
        }
        let Some(peer) = stream.peer else {
            // The first bytes to a peer that has closed may look sent: its answer is still under way.
            if stream.warned || draw.one_in(2) {
                return Poll::Ready(Err(libc::EPIPE));
            }
            stream.warned = true;
            return Poll::Ready(Ok(bytes.len()));
        };
        let Ok(receiver) = self.stream_mut(peer, libc::EPIPE) else { return Poll::Ready(Err(libc::EPIPE)) };
        if receiver.read_shut {
            return Poll::Ready(Ok(bytes.len()));
        }
        let count = bytes.len().min(receiver.room());
        if count == 0 && !bytes.is_empty() {
            return Poll::Pending;
        }
        receiver.incoming.extend(&bytes[..count]);
        self.changed.push(peer);
        Poll::Ready(Ok(count))
    }

    pub(super) fn shutdown(&mut self, number: RawFd, how: i32) -> Result<(), i32> {
        let stream = self.stream_mut(number, libc::ENOTCONN)?;
        if stream.reset {
            return Err(libc::ENOTCONN);
        }
        stream.read_shut |= how != libc::SHUT_WR;
        stream.write_shut |= how != libc::SHUT_RD;
        let peer = stream.peer;
        self.changed.push(number);
        if how != libc::SHUT_RD
            && let Some(peer) = peer
            && let Ok(receiver) = self.stream_mut(peer, libc::ENOTCONN)
        {
            receiver.ended = true;
            self.changed.push(peer);
        }
        Ok(())
    }

    /// The poll bits that hold now.
    pub(super) fn events(&self, number: RawFd) -> u32 {
        let bits = match self.sockets.get(&number) {
            None => libc::POLLNVAL,
            Some(Socket::Fresh) => libc::POLLOUT | libc::POLLHUP,
            Some(Socket::Listener(_)) if self.accept_is_ready(number) => libc::POLLIN,
            Some(Socket::Listener(_)) => 0,
            Some(Socket::Stream(stream)) => {
                let gone = stream.reset || stream.peer.is_none();
                let mut bits = 0;
                let readable = self.peek(number, 1).is_ready();
                bits |= if readable { libc::POLLIN } else { 0 };
                bits |= if self.send_is_ready(number) { libc::POLLOUT } else { 0 };
                bits |= if stream.ended || gone { libc::POLLRDHUP } else { 0 };
                let hung_up = stream.reset || (stream.ended && stream.write_shut);
                bits |= if hung_up { libc::POLLHUP } else { 0 };
                bits | if stream.reset { libc::POLLERR } else { 0 }
            }
        };
        bits as u32
    }

    pub(super) fn accept_is_ready(&self, number: RawFd) -> bool {
        match self.sockets.get(&number) {
            Some(Socket::Listener(listener)) => listener.door != Door::Silent && !listener.queue.is_empty(),
            _ => true,
        }
    }

    pub(super) fn send_is_ready(&self, number: RawFd) -> bool {
        let Ok(stream) = self.stream(number, libc::EPIPE) else { return true };
        if stream.reset || stream.write_shut {
            return true;
        }
        let Some(peer) = stream.peer else { return true };
        self.stream(peer, libc::EPIPE).is_ok_and(|receiver| receiver.read_shut || receiver.room() > 0)
    }

    /// Unread bytes make it a reset, as the kernel does it; otherwise the peer sees the end after what was sent.
    pub(super) fn close(&mut self, number: RawFd) {
        match self.sockets.remove(&number) {
            None | Some(Socket::Fresh) => {}
            Some(Socket::Listener(listener)) => {
                listener.queue.into_iter().for_each(|waiting| {
                    self.reset(waiting);
                    self.close(waiting);
                });
                self.doors_changed = true;
            }
            Some(Socket::Stream(stream)) => {
                if let Some(peer) = stream.peer
                    && let Ok(other) = self.stream_mut(peer, libc::ENOTCONN)
                {
                    other.peer = None;
                    other.ended = true;
                    other.reset |= !stream.incoming.is_empty();
                    self.changed.push(peer);
                }
            }
        }
    }

    /// Breaks a connection on both sides.
    pub(super) fn reset(&mut self, number: RawFd) {
        let mut side = Some(number);
        for _ in 0..2 {
            let Some(current) = side else { return };
            let Ok(stream) = self.stream_mut(current, libc::ENOTCONN) else { return };
            stream.reset = true;
            side = stream.peer;
            self.changed.push(current);
        }
    }

    /// The server's side of every connection made by way of the listeners on `address`.
    pub(super) fn accepted_by(&self, address: &SockAddr) -> Vec<RawFd> {
        let of_it = |stream: &Stream| stream.accepted && covers(address, &stream.local);
        self.sockets
            .iter()
            .filter(|(_, socket)| matches!(socket, Socket::Stream(stream) if of_it(stream)))
            .map(|(number, _)| *number)
            .collect()
    }

    /// Sets the door of every listener on `address`; tells how many there are.
    pub(super) fn set_door(&mut self, address: &SockAddr, door: Door) -> usize {
        let mut found = 0;
        for (number, socket) in &mut self.sockets {
            if let Socket::Listener(listener) = socket
                && covers(&listener.address, address)
            {
                listener.door = door;
                found += 1;
                self.changed.push(*number);
            }
        }
        self.doors_changed = true;
        found
    }

    pub(super) fn local_address(&self, number: RawFd) -> Result<SockAddr, i32> {
        match self.sockets.get(&number) {
            Some(Socket::Fresh) => Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into()),
            Some(Socket::Listener(listener)) => Ok(listener.address.clone()),
            Some(Socket::Stream(stream)) => Ok(stream.local.clone()),
            None => Err(libc::EBADF),
        }
    }

    pub(super) fn peer_address(&self, number: RawFd) -> Result<SockAddr, i32> {
        self.stream(number, libc::ENOTCONN).map(|stream| stream.remote.clone())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.sockets.len()
    }

    fn insert(&mut self, socket: Socket) -> RawFd {
        // Numbers are not used again, so that an operation on a closed one cannot go unnoticed.
        let number = self.next_number;
        self.next_number += 1;
        self.sockets.insert(number, socket);
        number
    }

    fn ephemeral_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(FIRST_EPHEMERAL);
        port
    }

    /// A client's address for a connection to `to`; unnamed for a Unix socket.
    fn ephemeral_address(&mut self, to: &SockAddr) -> SockAddr {
        match to.as_socket() {
            Some(inet) => SocketAddr::new(loopback(inet.ip()), self.ephemeral_port()).into(),
            None => SockAddr::unix("").unwrap_or_else(|_| to.clone()),
        }
    }

    fn stream(&self, number: RawFd, otherwise: i32) -> Result<&Stream, i32> {
        match self.sockets.get(&number) {
            Some(Socket::Stream(stream)) => Ok(stream),
            Some(_) => Err(otherwise),
            None => Err(libc::EBADF),
        }
    }

    fn stream_mut(&mut self, number: RawFd, otherwise: i32) -> Result<&mut Stream, i32> {
        match self.sockets.get_mut(&number) {
            Some(Socket::Stream(stream)) => Ok(stream),
            Some(_) => Err(otherwise),
            None => Err(libc::EBADF),
        }
    }
}
