//! The simulated backend: sockets, time and the moods of the kernel, all of them drawn from one seed.
//!
//! Cores of one simulation share a [`World`](world::World); each has a [`SimPort`], which is to it what its ring is to
//! a real core. The simulation may do whatever the kernel may do, and does the rare things often: short sends and
//! receives, multishot operations that end early, cancels that come too late, buffers that are full.
//!
//! Never: enter the kernel, block, or decide anything by what differs between two runs.

mod address;
mod network;
mod port;
pub(crate) mod random;
mod stream;
pub(crate) mod trace;
pub(crate) mod world;

use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;

pub(crate) use network::Door;
pub(crate) use port::SimPort;
use world::{SharedWorld, lock};

/// A simulated descriptor. It may move to another core, as a kernel's descriptor may.
///
/// # Drop
/// Closes it: the peer sees the end of the stream after the bytes already sent.
pub(crate) struct SimDescriptor {
    world: SharedWorld,
    number: RawFd,
}

impl SimDescriptor {
    fn new(world: &SharedWorld, number: RawFd) -> SimDescriptor {
        SimDescriptor { world: Arc::clone(world), number }
    }

    pub(crate) fn number(&self) -> RawFd {
        self.number
    }
}

impl Drop for SimDescriptor {
    fn drop(&mut self) {
        lock(&self.world).network(|network, _| network.close(self.number));
    }
}

impl fmt::Debug for SimDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDescriptor({})", self.number)
    }
}

#[cfg(test)]
mod tests;
