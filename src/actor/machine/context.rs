//! What a callback of a machine may do beside saying where it goes.

use std::fmt;
use std::time::Duration;

use super::Machine;
use super::timeouts::Timeouts;
use crate::actor::pid::Pid;

/// Lent to each callback of a [`Machine`]: who it is, and its time-outs.
///
/// A time-out is set when the callback has returned, and fires once, [`timeout`](Machine::timeout) being called; never early.
/// What has fired comes before everything that waits in the mailbox. One that was set anew or taken back is never seen again,
/// also if its timer had fired already.
pub struct Context<'a, M: Machine> {
    pub(super) pid: Pid<M>,
    pub(super) timeouts: &'a mut Timeouts<M::Timeout>,
}

impl<M: Machine> Context<'_, M> {
    /// The machine's address.
    pub fn pid(&self) -> Pid<M> {
        self.pid
    }

    /// Sets the time-out of the present state: Erlang's `state_timeout`. There is one, so this replaces the one that is set.
    /// Every transition takes it back, before [`enter`](Machine::enter), where a state sets its own.
    pub fn set_state_timeout(&mut self, after: Duration, timeout: M::Timeout) {
        self.timeouts.set_state(after, timeout);
    }

    /// Takes the time-out of the present state back; false when none is set.
    pub fn cancel_state_timeout(&mut self) -> bool {
        self.timeouts.reset_state()
    }

    /// Sets a time-out that transitions leave alone: Erlang's `{timeout, Name}`. There may be several, by different values; this
    /// replaces an equal one.
    pub fn set_timeout(&mut self, after: Duration, timeout: M::Timeout) {
        self.timeouts.set_named(after, timeout);
    }

    /// Takes such a time-out back; false when it is not set.
    pub fn cancel_timeout(&mut self, timeout: &M::Timeout) -> bool {
        self.timeouts.cancel_named(timeout)
    }
}

impl<M: Machine> fmt::Debug for Context<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("pid", &self.pid).finish_non_exhaustive()
    }
}
