//! What happened in a simulation, in order: equal traces mean equal runs.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use rustc_hash::FxHasher;

/// Events kept for reading; the hash covers all that ever happened.
const KEPT: usize = 1 << 16;

/// One step of a simulated run. Cores go by their position, because their ids differ between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TraceEvent {
    /// The simulated time since the start.
    pub at: Duration,
    /// The position of the core, from zero.
    pub core: usize,
    /// What happened there.
    pub kind: TraceKind,
}

/// What a [`TraceEvent`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TraceKind {
    /// The core was turned; it has polled tasks so often since its start.
    Turned {
        /// Polls since the start.
        polls: u64,
    },
    /// An operation was submitted.
    Submitted {
        /// Its number in this simulation.
        operation: u64,
        /// Which operation.
        name: &'static str,
    },
    /// The end of an operation was asked for.
    CancelAsked {
        /// Its number in this simulation.
        operation: u64,
    },
    /// An operation completed.
    Completed {
        /// Its number in this simulation.
        operation: u64,
        /// A count, or a negated error number.
        result: i32,
        /// Further completions follow.
        more: bool,
    },
    /// The core was dropped in the middle of the run.
    Killed,
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} core {}: ", self.at, self.core)?;
        match self.kind {
            TraceKind::Turned { polls } => write!(f, "turned, {polls} polls so far"),
            TraceKind::Submitted { operation, name } => write!(f, "#{operation} {name}"),
            TraceKind::CancelAsked { operation } => write!(f, "#{operation} to be cancelled"),
            TraceKind::Completed { operation, result, more } => {
                write!(f, "#{operation} -> {result}{}", if more { ", more to come" } else { "" })
            }
            TraceKind::Killed => f.write_str("killed"),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    events: VecDeque<TraceEvent>,
}

impl Trace {
    pub(crate) fn record(&mut self, event: TraceEvent) {
        let mut hasher = FxHasher::default();
        (self.hash, event).hash(&mut hasher);
        self.hash = hasher.finish();
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn events(&self) -> Vec<TraceEvent> {
        self.events.iter().copied().collect()
    }
}
