//! What a snapshot holds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::runtime::executor::TaskView;
use crate::runtime::{CoreId, CoreStats, RawPid, TaskState};

/// The version of what a [`Snapshot`] says. It moves on when a field changes its meaning; added fields leave it alone.
pub const SNAPSHOT_FORMAT: u32 = 1;

/// All actors of a runtime, core by core.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// [`SNAPSHOT_FORMAT`].
    pub format: u32,
    /// The cores that answered, in the runtime's order.
    pub cores: Vec<CoreSnapshot>,
    /// The cores that did not: they have ended, or were too busy to answer in time.
    pub missing: Vec<CoreId>,
}

impl Snapshot {
    /// All actors, core by core.
    pub fn actors(&self) -> impl Iterator<Item = &ActorInfo> {
        self.cores.iter().flat_map(|core| &core.actors)
    }
}

/// One core and its actors.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CoreSnapshot {
    /// Which core.
    pub core: CoreId,
    /// When it was looked at, on its clock.
    pub at: Instant,
    /// The CPU time that its thread has used. Over the time between two snapshots it says how busy the core is; a core
    /// that spins before it sleeps is busy then, too. None in a simulation, whose time is not the CPU's.
    pub cpu_time: Option<Duration>,
    /// The core's counts. Looking counts as well: as a mail, and as a task that is not among the actors.
    pub stats: CoreStats,
    /// Its live actors, by their slots. One that has ended is gone from here at once, whoever still holds its result.
    pub actors: Vec<ActorInfo>,
}

/// One actor: a live task, as it was between two of its polls.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActorInfo {
    /// Who it is.
    pub pid: RawPid,
    /// Who spawned it; none when no task did. It may have ended since.
    pub parent: Option<RawPid>,
    /// Whether it runs, is ready to run, or waits.
    pub state: TaskState,
    /// What it is called in lists, where somebody said so. Other than a name it leads nowhere and need not be unique.
    pub label: Option<Arc<str>>,
    /// How often it was polled.
    pub polls: u64,
    /// Of those, how often it spent its whole cooperative budget.
    pub overruns: u64,
    /// The ticks of the CPU's time-stamp counter that went by in its polls, roughly. Counted with the feature `cycles`; zero
    /// without.
    pub cycles: u64,
    /// How many wait for its result.
    pub joiners: u32,
}

impl ActorInfo {
    pub(super) fn new(view: TaskView) -> ActorInfo {
        ActorInfo {
            pid: view.pid,
            parent: view.parent,
            state: view.state,
            label: None,
            polls: view.polls,
            overruns: view.overruns,
            cycles: view.cycles,
            joiners: view.joined.into(),
        }
    }
}
