//! What a snapshot holds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::actor::pid::Pid;
use crate::actor::process::Process;
use crate::runtime::executor::TaskView;
use crate::runtime::{CoreId, CoreStats, TaskState};

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
    /// Messages from elsewhere that found no actor, no receiver or no room here; see [`undelivered`](crate::actor::undelivered).
    pub undelivered: u64,
    /// Its live actors, by their slots. One that has ended is gone from here at once, whoever still holds its result.
    pub actors: Vec<ActorInfo>,
}

/// One actor: a live task, as it was between two of its polls.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActorInfo {
    /// Who it is.
    pub pid: Pid,
    /// Who spawned it; none when no task did. It may have ended since.
    pub parent: Option<Pid>,
    /// Whose child it is, if a supervisor looks after it.
    pub supervisor: Option<Pid>,
    /// Whether it runs, is ready to run, or waits.
    pub state: TaskState,
    /// The names by which it can be reached, in the order in which it got them.
    pub names: Vec<&'static str>,
    /// What it is called in lists, where it or its spawner said so: see [`set_label`](super::set_label).
    pub label: Option<Arc<str>>,
    /// Whether it receives the exits of linked actors as messages.
    pub traps_exits: bool,
    /// Messages in its mailboxes, the channels that its address leads to. What other channels hold is its own affair.
    pub mailbox: usize,
    /// How many monitors watch it.
    pub monitors: usize,
    /// How many actors it is linked to.
    pub links: usize,
    /// How many wait for its result: one, if somebody awaits its join handle.
    pub joiners: usize,
    /// How often it was polled.
    pub polls: u64,
    /// Of those, how often it spent its whole cooperative budget.
    pub overruns: u64,
    /// Messages that it has received, from whatever channel.
    pub messages_received: u64,
    /// The ticks of the CPU's time-stamp counter that went by in its polls, roughly. Counted with the feature `cycles`; zero
    /// without.
    pub cycles: u64,
}

impl ActorInfo {
    /// But for its names, which the runtime knows.
    pub(super) fn new(view: TaskView, process: Option<&Process>) -> ActorInfo {
        ActorInfo {
            pid: view.pid.into(),
            parent: view.parent.map(Pid::from),
            supervisor: process.and_then(Process::supervisor).map(Pid::from),
            state: view.state,
            names: Vec::new(),
            label: process.and_then(Process::label),
            traps_exits: process.is_some_and(Process::traps_exits),
            mailbox: process.map_or(0, Process::depth),
            monitors: process.map_or(0, Process::monitors),
            links: process.map_or(0, Process::links),
            joiners: view.joined.into(),
            polls: view.polls,
            overruns: view.overruns,
            messages_received: view.received,
            cycles: view.cycles,
        }
    }
}
