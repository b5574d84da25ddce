//! Buffers that the connections of a core take turns with: one that is idle holds none, and one that is busy allocates
//! none.

use std::cell::RefCell;

use bytes::BytesMut;

/// The most buffers that are kept, and the largest of them in bytes: half a mebibyte for a core in all.
const KEPT: usize = 32;
const LARGEST: usize = 16 * 1024;
/// The least that is worth keeping.
const LEAST: usize = 64;

/// The spare buffers of a core.
#[derive(Default)]
pub(crate) struct Buffers(RefCell<Vec<BytesMut>>);

impl Buffers {
    /// An empty buffer, with memory if there was one to spare.
    #[inline]
    pub(super) fn take(&self) -> BytesMut {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Gives back an empty buffer.
    #[inline]
    pub(super) fn give(&self, mut buffer: BytesMut) {
        buffer.clear();
        // Frames were cut from its front. One of them that is still alive keeps their room.
        let has_room = buffer.capacity() >= LEAST || buffer.try_reclaim(LEAST);
        let mut spare = self.0.borrow_mut();
        if has_room && buffer.capacity() <= LARGEST && spare.len() < KEPT {
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
        assert_eq!(buffers.take().capacity(), 0);
        let mut used = BytesMut::with_capacity(100);
        used.extend_from_slice(b"used");
        buffers.give(used);
        let again = buffers.take();
        assert!(again.is_empty() && again.capacity() >= 100);
        buffers.give(BytesMut::with_capacity(LARGEST + 1));
        assert_eq!(buffers.take().capacity(), 0, "too large to be kept");
        for _ in 0..2 * KEPT {
            buffers.give(BytesMut::with_capacity(LEAST));
        }
        assert_eq!(buffers.0.borrow().len(), KEPT);
    }
}
