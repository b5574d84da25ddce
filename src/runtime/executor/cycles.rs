//! What each task costs: the CPU's time-stamp counter, read once for each poll. Without the feature `cycles` there is
//! nothing in here but names.
#![cfg_attr(feature = "cycles", allow(unsafe_code))]

#[cfg(feature = "cycles")]
use std::cell::Cell;

/// The ticks that one task has used.
#[derive(Default)]
pub(super) struct Cycles(#[cfg(feature = "cycles")] Cell<u64>);

/// Measures polls, each from the end of the one before.
#[derive(Default)]
pub(super) struct Meter(#[cfg(feature = "cycles")] Cell<u64>);

#[cfg(feature = "cycles")]
impl Cycles {
    pub(super) fn get(&self) -> u64 {
        self.0.get()
    }
}

#[cfg(feature = "cycles")]
impl Meter {
    /// What comes next is a poll.
    #[inline]
    pub(super) fn start(&self) {
        self.0.set(ticks());
    }

    /// A poll has ended: what has passed since the last one, or since the start, is the task's. The queue's share is in
    /// there; a reading before the poll would double the price.
    #[inline]
    pub(super) fn charge(&self, task: &Cycles) {
        let now = ticks();
        // Counters of two CPUs may differ a little where the thread is not pinned.
        task.0.set(task.0.get() + now.saturating_sub(self.0.replace(now)));
    }
}

#[cfg(all(feature = "cycles", target_arch = "x86_64"))]
fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, which touches no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(all(feature = "cycles", target_arch = "aarch64"))]
fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register that Linux lets user space read, and touches no memory.
    unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

#[cfg(not(feature = "cycles"))]
impl Cycles {
    pub(super) fn get(&self) -> u64 {
        0
    }
}

#[cfg(not(feature = "cycles"))]
impl Meter {
    pub(super) fn start(&self) {}

    pub(super) fn charge(&self, _task: &Cycles) {}
}
