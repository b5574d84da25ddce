//! What can go wrong with a pool, typed by operation.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::scheduler::Refusal;
pub use super::scheduler::Stage;

/// An acquire gave no lease.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The pool was closed, or its home core has ended.
    #[error("the pool is closed")]
    Closed,
    /// The scheduler of the home shard panicked; the other shards go on. The panic was logged with the pool's id.
    #[error("the shard's scheduler has failed (its panic was logged); this shard grants nothing any more")]
    SchedulerFailed,
    /// As many acquires wait at the home shard as may wait.
    #[error("{limit} acquires already wait at this shard, its `max_waiters`; slow down or add slots")]
    Saturated {
        /// The bound.
        limit: usize,
    },
    /// The deadline came first.
    #[error("no connection within {waited:?}: {}", describe_wait(*.stage, *.queued, .last_connect_error))]
    #[non_exhaustive]
    Timeout {
        /// What the acquire was waiting for.
        stage: Stage,
        /// How long it had waited.
        waited: Duration,
        /// How many acquires were waiting at the shard that counted the deadline, this one included.
        queued: usize,
        /// Why the latest attempt to connect had failed, if none has succeeded since.
        last_connect_error: Option<Arc<io::Error>>,
    },
    /// No connection could be opened, and none is left that could become free.
    #[error("no connection could be opened: {source}")]
    Connect {
        /// The connector's error.
        source: Arc<io::Error>,
    },
    /// The handle was deregistered.
    #[error("the handle was deregistered")]
    Deregistered,
    /// The handle is bound to another core's shard, and the pool's connections do not
    /// [move](super::Connection::MOVES) between cores.
    #[error("connections of this pool stay on their core; use a handle bound to the core it is used on")]
    OtherCore,
}

impl AcquireError {
    /// Whether the same acquire may succeed later: the pool works, but had nothing to give in time.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            AcquireError::Saturated { .. } | AcquireError::Timeout { .. } | AcquireError::Connect { .. }
        )
    }

    /// Whether the upstream, rather than the pool or its load, is at fault.
    pub fn is_connection_fault(&self) -> bool {
        match self {
            AcquireError::Connect { .. } => true,
            AcquireError::Timeout { last_connect_error, .. } => last_connect_error.is_some(),
            _ => false,
        }
    }
}

fn describe_wait(stage: Stage, queued: usize, last: &Option<Arc<io::Error>>) -> String {
    let waiting = match stage {
        Stage::Waiting => "every slot was leased",
        Stage::Connecting => "a connection was still being opened",
        Stage::Forwarded => "the acquire was with another core",
    };
    match last {
        Some(error) => format!("{waiting}, {queued} waiting, latest connect error: {error}"),
        None => format!("{waiting}, {queued} waiting"),
    }
}

impl From<Refusal> for AcquireError {
    fn from(refusal: Refusal) -> AcquireError {
        match refusal {
            Refusal::Closed => AcquireError::Closed,
            Refusal::Failed => AcquireError::SchedulerFailed,
            Refusal::Saturated { limit } => AcquireError::Saturated { limit },
            Refusal::Deregistered => AcquireError::Deregistered,
            Refusal::TimedOut { stage, waited, queued, last_connect_error } => {
                AcquireError::Timeout { stage, waited, queued, last_connect_error }
            }
            Refusal::Connect(source) => AcquireError::Connect { source },
        }
    }
}

/// An exchange gave no result. The connection is discarded.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExchangeError<E> {
    /// An earlier exchange on this lease failed, was dropped or left bytes unread: drop the lease and acquire another.
    Dirty,
    /// What the exchange itself returned.
    Failed(E),
}

impl<E> ExchangeError<E> {
    /// The exchange's own error, if it ran.
    pub fn into_inner(self) -> Option<E> {
        match self {
            ExchangeError::Dirty => None,
            ExchangeError::Failed(error) => Some(error),
        }
    }
}

impl<E: fmt::Display> fmt::Display for ExchangeError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExchangeError::Dirty => {
                f.write_str("an earlier exchange left the connection dirty; acquire another lease")
            }
            ExchangeError::Failed(error) => write!(f, "the exchange failed: {error}"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for ExchangeError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ExchangeError::Dirty => None,
            ExchangeError::Failed(error) => Some(error),
        }
    }
}

/// A pool could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A setting is out of range.
    #[error("{what} must be {expected}, but was {got}")]
    InvalidSetting {
        /// Which setting.
        what: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it was.
        got: usize,
    },
    /// A core of the runtime has ended.
    #[error("core {core} has ended; build pools while the runtime runs")]
    CoreEnded {
        /// The core.
        core: crate::runtime::CoreId,
    },
}
