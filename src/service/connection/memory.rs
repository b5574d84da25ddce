//! What one connection holds of bytes: frames that are encoded, and the budget for those and for what has been received.

use bytes::BytesMut;
use tokio_util::codec::Encoder;

use super::End;
use super::attend::Core;
use super::buffers::ROOM;
use crate::service::protocol::Protocol;

impl<P: Protocol> Core<P> {
    #[inline]
    pub(super) fn encode(&mut self, mut frame: P::Response) {
        self.protocol(|protocol, connection| protocol.before_send(&mut frame, connection));
        if self.output.capacity() == 0 {
            self.output = self.buffer();
        }
        self.whole = self.output.len();
        match self.codec.encode(frame, &mut self.output) {
            Ok(()) if self.keep_to_budget() => {
                self.whole = self.output.len();
                self.counters().frames_out.add(1);
            }
            Ok(()) => self.output.truncate(self.whole),
            Err(error) => {
                self.output.truncate(self.whole);
                self.closing = Some(End::Encode(error.into()));
            }
        }
    }

    /// What the codec or a hook has left when it panicked. A frame that is half encoded does not go out.
    pub(super) fn broken(&mut self, message: String) {
        self.output.truncate(self.whole);
        self.closing = Some(End::Panicked { message });
    }

    /// False when the buffers hold more than they may, and the connection ends.
    #[inline]
    pub(super) fn keep_to_budget(&mut self) -> bool {
        let limit = self.limits.memory;
        self.input.capacity() + self.output.capacity() <= limit || self.shrink(limit)
    }

    #[cold]
    fn shrink(&mut self, limit: usize) -> bool {
        for buffer in [&mut self.input, &mut self.output] {
            *buffer = BytesMut::from(&buffer[..]);
        }
        let needed = self.input.len() + self.output.len();
        if needed > limit && self.closing.is_none() {
            self.closing = Some(End::OverBudget { needed, limit });
        }
        needed <= limit
    }

    /// A buffer that others have used before, unless that might be more than this connection may hold.
    #[inline]
    pub(super) fn buffer(&self) -> BytesMut {
        match self.shares_buffers() {
            true => self.connection.app().buffers().take(),
            false => BytesMut::new(),
        }
    }

    #[inline]
    fn shares_buffers(&self) -> bool {
        self.limits.memory >= 4 * ROOM
    }

    /// An idle connection holds no buffer. One whose request is still at work keeps that of which the request has a frame.
    #[inline]
    pub(super) fn give_back_buffers(&mut self) {
        let at_once = self.current.is_idle() || !self.shares_buffers();
        for buffer in [&mut self.input, &mut self.output] {
            // One that has been used up has no capacity either, and may have all of it again.
            if buffer.is_empty() {
                self.connection.app().buffers().give(buffer, at_once);
            }
        }
    }
}
