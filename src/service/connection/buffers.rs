//! Buffers that the connections of a core take turns with: one that is idle holds none, and one that is busy allocates
//! none.

use std::cell::RefCell;

use bytes::BytesMut;

/// What a buffer has room for at least: what the core's pool receives and the driver sends at one time.
pub(super) const ROOM: usize = 4096;
/// The most buffers that are kept, and the largest of them in bytes: half a mebibyte for a core in all.
const KEPT: usize = 32;
const LARGEST: usize = 16 * 1024;

/// The spare buffers of a core.
#[derive(Default)]
pub(crate) struct Buffers(RefCell<Vec<BytesMut>>);

impl Buffers {
    /// An empty buffer with room.
    #[inline]
    pub(super) fn take(&self) -> BytesMut {
        let spare = self.0.borrow_mut().pop();
        spare.unwrap_or_else(|| BytesMut::with_capacity(ROOM))
    }

    /// Takes an empty buffer back, and leaves none. While a frame that was cut from its front is alive, and all of its room
    /// with it, it is left as it is, since a new one would have to be allocated in its place; with `at_once` it is let go of
    /// even then.
    #[inline]
    pub(super) fn give(&self, buffer: &mut BytesMut, at_once: bool) {
        buffer.clear();
        // What is left of its room says nothing of the whole.
        let too_large = buffer.try_reclaim(LARGEST + 1);
        let roomy = buffer.try_reclaim(ROOM);
        if !roomy && !at_once {
            return;
        }
        let buffer = std::mem::take(buffer);
        let mut spare = self.0.borrow_mut();
        if roomy && !too_large && spare.len() < KEPT {
            spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty_and_only_so_many_are_kept() {
        let buffers = Buffers::default();
        let mut used = buffers.take();
        used.extend_from_slice(&[b'x'; ROOM]);
        let frame = used.split_to(ROOM - 1);
        let place = frame.as_ptr();
        buffers.give(&mut used, false);
        assert!(buffers.0.borrow().is_empty() && used.capacity() > 0, "a frame of it is alive");
        drop(frame);
        buffers.give(&mut used, false);
        assert_eq!(used.capacity(), 0);
        let again = buffers.take();
        assert!(again.is_empty() && again.capacity() >= ROOM && again.as_ptr() == place);
        for _ in 0..2 * KEPT {
            buffers.give(&mut BytesMut::with_capacity(ROOM), true);
        }
        assert_eq!(buffers.0.borrow().len(), KEPT);
    }

    #[test]
    fn a_buffer_that_is_too_large_or_partly_in_use_is_not_kept() {
        let buffers = Buffers::default();
        buffers.give(&mut BytesMut::with_capacity(LARGEST + 1), false);
        buffers.give(&mut BytesMut::with_capacity(ROOM - 1), true);
        let mut used = buffers.take();
        used.extend_from_slice(b"a frame");
        let kept = used.split_to(7);
        buffers.give(&mut used, true);
        assert!(buffers.0.borrow().is_empty() && used.capacity() == 0);
        drop(kept);
    }

    #[test]
    fn what_is_left_of_a_buffer_does_not_hide_how_large_it_is() {
        let buffers = Buffers::default();
        let mut used = BytesMut::with_capacity(4 * LARGEST);
        used.resize(4 * LARGEST - ROOM, b'x');
        drop(used.split());
        assert_eq!(used.capacity(), ROOM);
        buffers.give(&mut used, true);
        assert!(buffers.0.borrow().is_empty());
        // And one that is used up to its last byte is as good as any.
        let mut used = buffers.take();
        used.resize(ROOM, b'x');
        drop(used.split());
        assert_eq!(used.capacity(), 0);
        buffers.give(&mut used, true);
        assert_eq!(buffers.0.borrow().len(), 1);
    }
}
