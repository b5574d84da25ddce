//! What a test may make go wrong in the middle of a run.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::runtime::driver::sim::Door;
use crate::runtime::driver::sim::world::{SharedWorld, lock};

/// Makes a simulated world fail, from inside its tasks or between two calls; from
/// [`Simulation::faults`](super::Simulation::faults). Cheap to clone, and may be sent to other simulated cores.
#[derive(Clone)]
pub struct Faults {
    world: SharedWorld,
    cores: usize,
}

impl Faults {
    pub(super) fn new(world: &SharedWorld, cores: usize) -> Faults {
        Faults { world: Arc::clone(world), cores }
    }

    /// Breaks every connection that was made by way of `listener`: both sides can still read what had arrived, then
    /// get ECONNRESET. Gives how many there were.
    pub fn reset_connections(&self, listener: SocketAddr) -> usize {
        lock(&self.world).reset_connections(&listener.into())
    }

    /// The server hangs: connections to `listener` come about, and nobody accepts them any more. Gives the number of
    /// listeners at that address.
    pub fn silence(&self, listener: SocketAddr) -> usize {
        self.set_door(listener, Door::Silent)
    }

    /// The server's packets are lost: attempts to connect to `listener` get no answer at all, neither good nor bad.
    /// Connections that exist go on. Gives the number of listeners at that address.
    pub fn make_unreachable(&self, listener: SocketAddr) -> usize {
        self.set_door(listener, Door::Unreachable)
    }

    /// The server is well again; attempts that wait go on. Gives the number of listeners at that address.
    pub fn heal(&self, listener: SocketAddr) -> usize {
        self.set_door(listener, Door::Open)
    }

    /// Drops the core at this position before the next turn of any core.
    ///
    /// # Panics
    /// When there never was such a core.
    pub fn kill_core(&self, position: usize) {
        assert!(position < self.cores, "there is no core {position} among {}", self.cores);
        lock(&self.world).doom_core(position);
    }

    fn set_door(&self, listener: SocketAddr, door: Door) -> usize {
        lock(&self.world).set_door(&listener.into(), door)
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}
