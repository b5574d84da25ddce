//! Wakers that own nothing: the waker of a task *is* its identity, packed into the one word a raw waker carries.
//!
//! So a waker is cloned, woken and dropped on any thread, before and after its task, its core and its runtime have
//! ended, and never touches task memory: there is no reference count, nothing to leak and nothing to drop elsewhere.
//! A waker whose task is gone finds another generation and does nothing.
//!
//! Never: look at a task from here; waking goes through the current core or through a core's mailbox.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr;
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::runtime::context;
use crate::runtime::identity::{CoreId, RawPid};

const INDEX_BITS: u32 = 27;
const GENERATION_BITS: u32 = 27;
const CORE_BITS: u32 = 64 - INDEX_BITS - GENERATION_BITS;

/// One more than the largest core id, slot index and generation that a waker can carry.
pub(crate) const MAX_CORES: usize = 1 << CORE_BITS;
pub(crate) const MAX_TASKS: usize = 1 << INDEX_BITS;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

const _: () = assert!(usize::BITS == 64, "corelet packs a task's identity into one 64-bit word");

/// What a waker knows of its task: core, slot and generation in one word. The generation is cut to 27 bits: after 2^27
/// spawns a very old waker may hit the next tenant of its slot, which is a spurious wake and allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WakeTarget(usize);

impl WakeTarget {
    #[inline]
    pub(crate) fn core(self) -> CoreId {
        CoreId((self.0 >> (INDEX_BITS + GENERATION_BITS)) as u16)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 >> GENERATION_BITS & (MAX_TASKS - 1)
    }
}

impl From<RawPid> for WakeTarget {
    #[inline]
    fn from(pid: RawPid) -> WakeTarget {
        debug_assert!((pid.core.0 as usize) < MAX_CORES && (pid.index as usize) < MAX_TASKS);
        WakeTarget(
            (pid.core.0 as usize) << (INDEX_BITS + GENERATION_BITS)
                | (pid.index as usize) << GENERATION_BITS
                | (pid.generation & GENERATION_MASK) as usize,
        )
    }
}

/// The waker of a task. Dropping it would do nothing, so the drop is left out.
#[inline]
pub(crate) fn task_waker(target: WakeTarget) -> ManuallyDrop<Waker> {
    let word = ptr::without_provenance(target.0);
    // SAFETY: the functions of `VTABLE` uphold the contract of a raw waker: the data word is a plain number that is
    // never read through, so clone is a copy, drop is nothing, wake may be called from any thread at any time, and
    // all of them are safe to call on every bit pattern.
    ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(word, &VTABLE)) })
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |word| RawWaker::new(word, &VTABLE),
    |word| context::wake(WakeTarget(word.addr())),
    |word| context::wake(WakeTarget(word.addr())),
    |_| {},
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_identity_names_its_task_and_no_other() {
        for (core, index, generation) in
            [(0, 0, 0), (1023, (1 << 27) - 1, GENERATION_MASK), (7, 12345, 99), (512, 1, u32::MAX)]
        {
            let pid = RawPid { core: CoreId(core), index, generation };
            let target = WakeTarget::from(pid);
            assert_eq!((target.core().0, target.index()), (core, index as usize));
            assert_ne!(target, WakeTarget::from(RawPid { generation: generation.wrapping_add(1), ..pid }));
            assert_ne!(target, WakeTarget::from(RawPid { index: index ^ 1, ..pid }));
            assert_ne!(target, WakeTarget::from(RawPid { core: CoreId(core ^ 1), ..pid }));
        }
    }
}
