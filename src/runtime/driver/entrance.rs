//! The way into the kernel for one ring: by its index among its thread's registered rings, which spares a look-up on
//! every call, or by its descriptor where the kernel has no such thing.
//!
//! Written out here because the `io-uring` crate keeps that index in a value that borrows the ring, and lets go of it
//! with that value; the registration then serves nobody and keeps the closed ring alive until its thread ends.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::RawFd;

const REGISTER_RINGS: u32 = 20;
const UNREGISTER_RINGS: u32 = 21;
const ENTER_REGISTERED: u32 = 1 << 4;

/// The kernel's `struct io_uring_rsrc_update`.
#[repr(C)]
struct Update {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// Must be dropped on the thread that made it, before the ring is closed.
#[derive(Debug)]
pub(super) struct Entrance {
    fd: RawFd,
    registered: Option<u32>,
}

impl Entrance {
    /// The entrance to the ring behind `fd`, which stays open as long as this lives.
    pub(super) fn new(fd: RawFd) -> Entrance {
        // The kernel chooses the place when the offset is the highest number.
        let mut update = Update { offset: u32::MAX, reserved: 0, data: fd as u64 };
        let registered = (register(fd, REGISTER_RINGS, &mut update) == 1).then_some(update.offset);
        Entrance { fd, registered }
    }

    pub(super) fn is_registered(&self) -> bool {
        self.registered.is_some()
    }

    /// Enters the kernel; gives how many entries it took.
    ///
    /// # Safety
    /// `argument` is what `flags` announce, valid for the length of the call; what the staged entries point at stays
    /// valid until their completions.
    pub(super) unsafe fn enter<T>(
        &self,
        to_submit: u32,
        min_complete: u32,
        flags: u32,
        argument: Option<&T>,
    ) -> io::Result<usize> {
        let (ring, flags) = match self.registered {
            Some(index) => (index as RawFd, flags | ENTER_REGISTERED),
            None => (self.fd, flags),
        };
        let (pointer, len) = match argument {
            Some(argument) => (std::ptr::from_ref(argument), size_of::<T>()),
            None => (std::ptr::null(), 0),
        };
        // SAFETY: the caller answers for the argument and for the entries; the ring is open.
        let taken = unsafe {
            libc::syscall(libc::SYS_io_uring_enter, ring, to_submit, min_complete, flags, pointer, len)
        };
        usize::try_from(taken).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        if let Some(offset) = self.registered.take() {
            // Refused only if it is not registered, and then there is nothing to undo.
            register(self.fd, UNREGISTER_RINGS, &mut Update { offset, reserved: 0, data: 0 });
        }
    }
}

fn register(fd: RawFd, operation: u32, update: &mut Update) -> i64 {
    // SAFETY: both operations read and write one structure of this layout, which is alive.
    unsafe { libc::syscall(libc::SYS_io_uring_register, fd, operation, std::ptr::from_mut(update), 1_u32) }
}
