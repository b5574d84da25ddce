//! A child as the plan sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::actor::supervisor::policy::{Restart, Shutdown};

/// What became of a child that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::actor::supervisor) enum Fate {
    /// It will be started again.
    Again,
    /// It stays down.
    Down,
    /// It left the list.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::actor::supervisor) enum State {
    Down,
    /// Down until then.
    Waiting(Instant),
    Starting,
    /// Since then.
    Up(Instant),
    /// And when that has taken too long.
    Stopping(Stage, Option<Instant>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::actor::supervisor) enum Stage {
    Told,
    Forced,
    Overdue,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(in crate::actor::supervisor) struct Child {
    pub(in crate::actor::supervisor) id: Arc<str>,
    pub(super) restart: Restart,
    pub(super) shutdown: Shutdown,
    pub(in crate::actor::supervisor) state: State,
    /// It should run.
    pub(super) wanted: bool,
    /// Has been up.
    pub(super) born: bool,
    /// Somebody waits for this start: it is not tried again.
    pub(super) asked: bool,
    /// Leaves the list when it is down.
    pub(super) leaves: bool,
    /// What its next pause starts from, after a failure.
    pub(super) pause: Option<Duration>,
    pub(in crate::actor::supervisor) restarts: u32,
}
