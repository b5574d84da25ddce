//! Threads pinned to a core, and what one thread has cost.
#![allow(unsafe_code)]

use anyhow::{Context, Result, anyhow, bail};
use core_affinity::CoreId;
use std::time::Duration;

/// Where the measured thread runs.
pub const CLIENT: usize = 0;
/// Where the other side runs: the echo server, the answering thread.
pub const SERVER: usize = 1;

/// Binds the current thread to `core`.
pub fn pin(core: usize) -> Result<()> {
    if !core_affinity::set_for_current(CoreId { id: core }) {
        bail!("cannot pin a thread to core {core}: the benches need cores {CLIENT} and {SERVER}");
    }
    Ok(())
}

/// Runs `work` on a fresh thread pinned to `core` and waits for it. A fresh thread, because several
/// runtimes keep thread-local state that must not leak from one round into the next.
pub fn on_core<T: Send>(core: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name(format!("core-{core}"))
            .spawn_scoped(scope, move || {
                pin(core)?;
                work()
            })
            .context("cannot start a thread")?;
        thread.join().map_err(|_| anyhow!("panicked"))?
    })
}

/// User plus system time of the current thread so far.
pub fn thread_cpu_time() -> Duration {
    // SAFETY: `rusage` is plain integers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a live, writable `rusage`, all that the call asks for.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    assert_eq!(outcome, 0, "getrusage(RUSAGE_THREAD) has no way to fail with a valid pointer");
    let part = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    part(usage.ru_utime) + part(usage.ru_stime)
}

/// Has the kernel end this process when its parent's main thread has ended, however it has.
pub fn end_with_parent() -> Result<()> {
    // SAFETY: with this option `prctl` takes a number, and touches no memory.
    let outcome = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if outcome != 0 {
        return Err(std::io::Error::last_os_error()).context("prctl(PR_SET_PDEATHSIG)");
    }
    Ok(())
}
