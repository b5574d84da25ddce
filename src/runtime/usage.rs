//! What a core's thread has used of its CPU.
#![allow(unsafe_code)]

use std::time::Duration;

/// The CPU time of the calling thread since it began. The kernel keeps it anyway, so that a core needs no clock of its own
/// to tell how busy it is.
pub(crate) fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure it is given. It cannot fail: the clock exists since Linux 2.6.12.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
