//! Who is who: cores and tasks.

use std::fmt;

#[cfg(feature = "observer")]
use super::executor::waker::{MAX_CORES, MAX_TASKS};

/// A core of a runtime: one thread, one ring, one executor.
///
/// The id is unique among the live cores of the process; a runtime hands out its own by
/// [`RuntimeHandle::cores`](crate::runtime::RuntimeHandle::cores).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CoreId(pub(crate) u16);

impl CoreId {
    /// The id as a number, at most 1,023.
    pub fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Debug for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "core{}", self.0)
    }
}

impl fmt::Display for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A node of a system of several: one process with one runtime. Chosen by whoever runs them; zero where there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// Which life of a node it is: whoever starts nodes counts it up at each start, so that what was said of an earlier life is
/// not taken for this one. Zero where nobody counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation(pub u32);

/// The identity of a task: its core, its slot there, and the generation of that slot.
///
/// A slot is used again after its task ended, but with another generation: a stale identity never names the new task.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawPid {
    pub(crate) core: CoreId,
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl RawPid {
    /// An identity from elsewhere; none when no task can have it.
    #[cfg(feature = "observer")]
    pub(crate) fn checked(core: u32, index: u32, generation: u32) -> Option<RawPid> {
        let possible = (core as usize) < MAX_CORES && (index as usize) < MAX_TASKS;
        possible.then_some(RawPid { core: CoreId(core as u16), index, generation })
    }

    /// The core that the task lives on, for its whole life.
    pub fn core(self) -> CoreId {
        self.core
    }

    /// The slot in its core's task table.
    pub fn index(self) -> u32 {
        self.index
    }

    /// Counts the tasks ever spawned on cores of that id, modulo 2^32.
    pub fn generation(self) -> u32 {
        self.generation
    }
}

impl fmt::Debug for RawPid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}.{}.{}>", self.core.0, self.index, self.generation)
    }
}

impl fmt::Display for RawPid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
