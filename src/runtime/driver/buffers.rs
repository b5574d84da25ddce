//! The core's pool of receive buffers: one mapping, cut into equal buffers that the kernel takes from as data arrives.
//!
//! An idle connection with an armed receive pins no memory: the kernel picks a buffer only when there is data.
//! Rules: a buffer belongs to the kernel until a completion names it; then to the `PooledBuf` made from that
//! completion; then to the kernel again. The mapping outlives the ring and every `PooledBuf`.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

/// A private anonymous mapping, not inherited by a forked child.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize) -> io::Result<Mapping> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(base) = NonNull::new(base.cast::<u8>()) else {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        };
        let mapping = Mapping { base, len };
        // SAFETY: the range is exactly the mapping made above. A failure only means a forked child keeps a copy.
        unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTFORK) };
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own, and whoever drops it holds the last reference.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[derive(Debug)]
pub(crate) struct BufferPool {
    memory: Mapping,
    /// The entries the kernel takes buffers from; none in a simulation.
    ring: Option<Mapping>,
    free: RefCell<Vec<u16>>,
    size: usize,
    count: u16,
    tail: Cell<u16>,
    out: Cell<u16>,
}

impl BufferPool {
    /// `count` (a power of two, at most 32,768) buffers of `size` bytes. With `for_kernel` all of them lie ready in
    /// a ring to be registered; otherwise they are taken by [`take`](BufferPool::take).
    pub(crate) fn new(count: u16, size: usize, for_kernel: bool) -> io::Result<Rc<BufferPool>> {
        debug_assert!(count.is_power_of_two());
        let memory = Mapping::new(usize::from(count) * size)?;
        let ring = match for_kernel {
            true => Some(Mapping::new(usize::from(count) * size_of::<BufRingEntry>())?),
            false => None,
        };
        let pool = BufferPool {
            memory,
            ring,
            free: RefCell::new(Vec::new()),
            size,
            count,
            tail: Cell::new(0),
            out: Cell::new(count),
        };
        (0..count).for_each(|buffer| pool.give_back(buffer));
        Ok(Rc::new(pool))
    }

    pub(crate) fn ring_address(&self) -> Option<u64> {
        self.ring.as_ref().map(|ring| ring.base.as_ptr() as u64)
    }

    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    pub(crate) fn buffer_size(&self) -> usize {
        self.size
    }

    /// Buffers that are neither the kernel's nor free: zero when nothing is held.
    pub(crate) fn out(&self) -> u16 {
        self.out.get()
    }

    /// A completion named a buffer: it is the program's now.
    pub(crate) fn claimed(&self) {
        self.out.set(self.out.get() + 1);
    }

    /// Takes a buffer and copies `data` into it, as the kernel would. For the simulation.
    pub(crate) fn take(&self, data: &[u8]) -> Option<u16> {
        debug_assert!(self.ring.is_none() && data.len() <= self.size);
        let buffer = self.free.borrow_mut().pop()?;
        // SAFETY: a free buffer is nobody's, and `data` is at most its size.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.address(buffer).as_ptr(), data.len()) };
        Some(buffer)
    }

    fn address(&self, buffer: u16) -> NonNull<u8> {
        debug_assert!(buffer < self.count);
        // SAFETY: `buffer` is below `count`, so the offset stays inside the mapping.
        unsafe { self.memory.base.add(usize::from(buffer) * self.size) }
    }

    /// Gives a buffer back to the kernel.
    pub(crate) fn give_back(&self, buffer: u16) {
        self.out.set(self.out.get() - 1);
        let Some(ring) = &self.ring else {
            self.free.borrow_mut().push(buffer);
            return;
        };
        let entries = ring.base.as_ptr().cast::<BufRingEntry>();
        let tail = self.tail.get();
        // SAFETY: `tail` masked by the power of two `count` lies inside the ring mapping, which only this thread
        // writes; the kernel reads entries only below the tail published next. Address and length are the buffer's.
        unsafe {
            let entry = &mut *entries.add(usize::from(tail & (self.count - 1)));
            entry.set_addr(self.address(buffer).as_ptr() as u64);
            entry.set_len(self.size as u32);
            entry.set_bid(buffer);
        }
        self.tail.set(tail.wrapping_add(1));
        // SAFETY: the kernel's tail lies in the reserved field of the first entry; it is aligned, and shared with the
        // kernel only by atomic accesses.
        let published = unsafe { &*BufRingEntry::tail(entries).cast::<AtomicU16>() };
        published.store(self.tail.get(), Ordering::Release);
    }
}

/// Received bytes in a buffer of the core's pool, which it goes back to when this is dropped.
///
/// It stays on its core. Holding many of them starves the pool; receives then fall back to buffers of their own.
#[derive(Debug)]
pub struct PooledBuf {
    pool: Rc<BufferPool>,
    buffer: u16,
    start: u32,
    end: u32,
}

impl PooledBuf {
    /// Takes possession of the buffer that a completion named, with `len` received bytes.
    pub(crate) fn claim(pool: Rc<BufferPool>, buffer: u16, len: usize) -> PooledBuf {
        debug_assert!(len <= pool.size);
        PooledBuf { pool, buffer, start: 0, end: len as u32 }
    }

    /// Drops the first `count` bytes from view.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "cannot advance by {count} in {} bytes", self.len());
        self.start += count as u32;
    }
}

impl Deref for PooledBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer is this value's alone since its completion; the kernel wrote `end` bytes before that
        // (and the mapping was zeroed), writes no more, and the pool keeps the mapping while this value lives.
        unsafe {
            let base = self.pool.address(self.buffer).add(self.start as usize);
            std::slice::from_raw_parts(base.as_ptr(), (self.end - self.start) as usize)
        }
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        self.pool.give_back(self.buffer);
    }
}
