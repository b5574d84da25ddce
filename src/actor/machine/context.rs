//! What a callback of a machine may do beside saying where it goes.

use std::fmt;
use std::task::{self, Poll};
use std::time::Duration;

use super::Machine;
use super::timeouts::Timeouts;
use crate::actor::exit::Down;
use crate::actor::monitors::Monitors;
use crate::actor::pid::Pid;
use crate::runtime::RawPid;

/// Lent to each callback of a [`Machine`]: who it is, its time-outs, and whom it watches.
///
/// A time-out is set when the callback has returned, and fires once, [`timeout`](Machine::timeout) being called; never early.
/// What has fired comes before everything that waits in the mailbox. One that was set anew or taken back is never seen again,
/// also if its timer had fired already.
pub struct Context<M: Machine> {
    pid: Pid<M>,
    pub(super) timeouts: Timeouts<M::Timeout>,
    /// Made for the first watch.
    watches: Option<Box<Watches<M::Info>>>,
}

struct Watches<I> {
    monitors: Monitors,
    /// The bound is on [`Context::watch`], for machines that watch.
    inform: fn(Down) -> I,
}

impl<M: Machine> Context<M> {
    pub(super) fn new(pid: Pid<M>) -> Context<M> {
        Context { pid, timeouts: Timeouts::new(), watches: None }
    }

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

    /// Watches an actor, on whatever core: its [`Down`] comes once, as an [`info`](Machine::info), at once if it has ended
    /// already. Until then, watching the same actor again changes nothing, and gives false. Transitions leave watches alone.
    pub fn watch(&mut self, pid: impl Into<RawPid>) -> bool
    where
        M::Info: From<Down>,
    {
        let new = || Box::new(Watches { monitors: Monitors::new(), inform: M::Info::from });
        self.watches.get_or_insert_with(new).monitors.watch(pid)
    }

    /// Ends a watch: nothing of it comes any more, also if the actor has ended meanwhile. False when there was none.
    pub fn unwatch(&mut self, pid: impl Into<RawPid>) -> bool {
        self.watches.as_mut().is_some_and(|watches| watches.monitors.unwatch(pid))
    }

    /// The end of an actor that is watched.
    #[inline]
    pub(super) fn poll_down(&mut self, cx: &mut task::Context<'_>) -> Poll<M::Info> {
        match &mut self.watches {
            Some(watches) => watches.monitors.poll_recv(cx).map(watches.inform),
            None => Poll::Pending,
        }
    }
}

impl<M: Machine> fmt::Debug for Context<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("pid", &self.pid).finish_non_exhaustive()
    }
}
