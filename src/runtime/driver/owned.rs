//! Buffers that the kernel may use while an operation is in flight: owned, and stable in memory.
#![allow(unsafe_code)]

/// A buffer that is written out by an operation. Operations take it by value and give it back with their result.
///
/// # Safety
/// As long as the value is neither dropped nor used by a method that takes it mutably, `stable_ptr` must give the
/// same address, also after the value itself has moved, and the `init_len` bytes from there must be initialised.
/// Leaking the value must keep them valid for ever.
pub unsafe trait OwnedBuf: 'static {
    /// Where the bytes lie.
    fn stable_ptr(&self) -> *const u8;
    /// How many initialised bytes there are.
    fn init_len(&self) -> usize;
}

/// A buffer that an operation reads into: received bytes go to its spare room.
///
/// For a `Vec<u8>` they are appended behind its contents, up to its capacity; a `Box<[u8]>` is filled from its start.
///
/// # Safety
/// As for [`OwnedBuf`], for the `spare().1` bytes at `spare().0`, which must be valid for writes.
pub unsafe trait OwnedBufMut: OwnedBuf {
    /// Start and length of the room that may be written.
    fn spare(&mut self) -> (*mut u8, usize);

    /// Counts the first `count` bytes of the spare room as contents.
    ///
    /// # Safety
    /// They have been written, and `count` is at most the length of `spare`.
    unsafe fn advance(&mut self, count: usize);
}

// SAFETY: a vector's heap block does not move unless the vector is used mutably; a leaked vector is never freed.
unsafe impl OwnedBuf for Vec<u8> {
    fn stable_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn init_len(&self) -> usize {
        self.len()
    }
}

// SAFETY: as above; the spare capacity belongs to the same block.
unsafe impl OwnedBufMut for Vec<u8> {
    fn spare(&mut self) -> (*mut u8, usize) {
        let spare = self.spare_capacity_mut();
        (spare.as_mut_ptr().cast(), spare.len())
    }

    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: the caller says that `count` bytes of the spare capacity are written.
        unsafe { self.set_len(self.len() + count) }
    }
}

// SAFETY: a box's heap block never moves; a leaked box is never freed.
unsafe impl OwnedBuf for Box<[u8]> {
    fn stable_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn init_len(&self) -> usize {
        self.len()
    }
}

// SAFETY: as above; all of it may be overwritten, and stays initialised.
unsafe impl OwnedBufMut for Box<[u8]> {
    fn spare(&mut self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.len())
    }

    unsafe fn advance(&mut self, _count: usize) {}
}

// SAFETY: a static never moves.
unsafe impl OwnedBuf for &'static [u8] {
    fn stable_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn init_len(&self) -> usize {
        self.len()
    }
}

// SAFETY: a static never moves.
unsafe impl OwnedBuf for &'static str {
    fn stable_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn init_len(&self) -> usize {
        self.len()
    }
}

// SAFETY: as for the vector below the string.
unsafe impl OwnedBuf for String {
    fn stable_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn init_len(&self) -> usize {
        self.len()
    }
}

#[cfg(any(feature = "framed", feature = "service"))]
// SAFETY: the bytes lie in a heap block that moving the handle does not move; only methods that take it mutably make it
// another one, and a leaked handle never frees it.
unsafe impl OwnedBuf for bytes::BytesMut {
    fn stable_ptr(&self) -> *const u8 {
        self.as_ptr()
    }

    fn init_len(&self) -> usize {
        self.len()
    }
}

#[cfg(any(feature = "framed", feature = "service"))]
// SAFETY: as above; the spare capacity belongs to this handle alone, whoever else shares the block.
unsafe impl OwnedBufMut for bytes::BytesMut {
    fn spare(&mut self) -> (*mut u8, usize) {
        let spare = self.spare_capacity_mut();
        (spare.as_mut_ptr().cast(), spare.len())
    }

    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: the caller says that `count` bytes of the spare capacity are written.
        unsafe { self.set_len(self.len() + count) }
    }
}

/// A buffer of which only part of the spare room may be used. For buffers that grow; see [`OwnedBufMut`].
pub(crate) struct Limited<B> {
    pub(crate) buffer: B,
    pub(crate) limit: usize,
}

// SAFETY: everything is the inner buffer's, which moves no memory when it is moved itself.
unsafe impl<B: OwnedBuf> OwnedBuf for Limited<B> {
    fn stable_ptr(&self) -> *const u8 {
        self.buffer.stable_ptr()
    }

    fn init_len(&self) -> usize {
        self.buffer.init_len()
    }
}

// SAFETY: a shorter part of the inner buffer's spare room is as valid as the whole of it.
unsafe impl<B: OwnedBufMut> OwnedBufMut for Limited<B> {
    fn spare(&mut self) -> (*mut u8, usize) {
        let (spare, len) = self.buffer.spare();
        (spare, len.min(self.limit))
    }

    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.buffer.advance(count) }
    }
}

/// The initialised bytes of a buffer.
pub(crate) fn bytes<B: OwnedBuf>(buffer: &B) -> &[u8] {
    // SAFETY: the trait promises `init_len` initialised bytes at `stable_ptr`, valid while `buffer` is borrowed.
    unsafe { std::slice::from_raw_parts(buffer.stable_ptr(), buffer.init_len()) }
}

/// Copies as much of `from` as fits into the spare room of `buffer`; returns how much that was.
pub(crate) fn fill<B: OwnedBufMut>(buffer: &mut B, from: &[u8]) -> usize {
    let (spare, len) = buffer.spare();
    let count = len.min(from.len());
    // SAFETY: `spare` is valid for `len` writes, and a unique borrow of `buffer` is held, so `from` cannot overlap;
    // exactly the `count` bytes that are then counted were written.
    unsafe {
        std::ptr::copy_nonoverlapping(from.as_ptr(), spare, count);
        buffer.advance(count);
    }
    count
}
