//! One side of a simulated connection: what has arrived there, and how it stands.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::task::Poll;

use socket2::SockAddr;

use super::network::Outcome;
use super::random::Random;

/// Bytes on their way in one direction of a connection, mostly.
const CAPACITY: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) local: SockAddr,
    pub(super) remote: SockAddr,
    /// The server's side.
    pub(super) accepted: bool,
    /// The other side, until it is closed.
    pub(super) peer: Option<RawFd>,
    pub(super) incoming: VecDeque<u8>,
    pub(super) capacity: usize,
    /// No more bytes will come in.
    pub(super) ended: bool,
    pub(super) reset: bool,
    pub(super) read_shut: bool,
    pub(super) write_shut: bool,
    /// Bytes went to a peer that had closed; its answer is known by now.
    pub(super) warned: bool,
}

impl Stream {
    pub(super) fn new(
        local: SockAddr,
        remote: SockAddr,
        peer: RawFd,
        accepted: bool,
        capacity: usize,
    ) -> Stream {
        Stream {
            local,
            remote,
            accepted,
            peer: Some(peer),
            incoming: VecDeque::new(),
            capacity,
            ended: false,
            reset: false,
            read_shut: false,
            write_shut: false,
            warned: false,
        }
    }

    /// What a receive of at most `max` bytes would get. An empty answer is the end of the stream.
    pub(super) fn peek(&self, max: usize) -> Outcome<Vec<u8>> {
        // A reset does not take back what had arrived before.
        if !self.incoming.is_empty() {
            return Poll::Ready(Ok(self.incoming.iter().take(max).copied().collect()));
        }
        match self.reset {
            true => Poll::Ready(Err(libc::ECONNRESET)),
            false if self.ended || self.read_shut => Poll::Ready(Ok(Vec::new())),
            false => Poll::Pending,
        }
    }

    pub(super) fn room(&self) -> usize {
        self.capacity - self.incoming.len()
    }
}

/// Some connections have little room, so that senders meet full buffers without megabytes of traffic.
pub(super) fn capacity(draw: &mut Random) -> usize {
    if draw.one_in(4) { 512 + draw.below(8192) } else { CAPACITY }
}
