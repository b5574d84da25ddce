//! How actors end, and how others hear of it.

use std::fmt;
use std::sync::Arc;

use super::pid::Pid;
use crate::runtime::RawPid;

/// Why an actor ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExitReason {
    /// Its future returned.
    Normal,
    /// It was asked to stop: by [`request_stop`](super::request_stop), by the drop of its join handle, or by its supervisor.
    /// Erlang's `shutdown`.
    Stopped,
    /// It panicked, with this text.
    Panicked(Arc<str>),
    /// It ended itself by [`exit`](super::exit), with this text.
    Failed(Arc<str>),
    /// Its core ended, and it with it.
    CoreEnded,
    /// There was no such actor any more when it was to be monitored or linked. Erlang's `noproc`.
    NoProcess,
}

impl ExitReason {
    /// Whether it ended otherwise than by returning. Linked actors follow such an exit, unless they trap exits.
    pub fn is_abnormal(&self) -> bool {
        *self != ExitReason::Normal
    }

    /// Whether it ended otherwise than by returning or by being stopped: what a supervisor calls a failure.
    pub fn is_failure(&self) -> bool {
        !matches!(self, ExitReason::Normal | ExitReason::Stopped)
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitReason::Normal => f.write_str("returned"),
            ExitReason::Stopped => f.write_str("was stopped"),
            ExitReason::Panicked(text) => write!(f, "panicked: {text}"),
            ExitReason::Failed(text) => write!(f, "failed: {text}"),
            ExitReason::CoreEnded => f.write_str("ended with its core"),
            ExitReason::NoProcess => f.write_str("did not exist"),
        }
    }
}

/// An actor that was monitored has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Down {
    /// Who ended.
    pub pid: Pid,
    /// Why.
    pub reason: ExitReason,
}

impl Down {
    pub(crate) fn new(pid: RawPid, reason: ExitReason) -> Down {
        Down { pid: pid.into(), reason }
    }
}

/// A linked actor has ended, as an actor that traps exits hears of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exit {
    /// Who ended.
    pub from: Pid,
    /// Why.
    pub reason: ExitReason,
}

impl Exit {
    pub(crate) fn new(from: RawPid, reason: ExitReason) -> Exit {
        Exit { from: from.into(), reason }
    }
}
