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
    /// Its turn would have come after its deadline, so it did not wait; see
    /// [`exact_admission`](super::PoolBuilder::exact_admission).
    #[error("{position} acquires would be served first, in {predicted_wait:?} at least: after the deadline")]
    #[non_exhaustive]
    WouldMissDeadline {
        /// How many acquires would have been served before it.
        position: usize,
        /// How long it would have waited at the present rate, at least.
        predicted_wait: Duration,
    },
    /// The handle's queue did not drain, and this acquire had to go; see [`shed`](super::PoolBuilder::shed).
    #[error("shed after {waited:?}: this handle asks for more than the shard can serve; slow down")]
    #[non_exhaustive]
    Shed {
        /// How long it had waited.
        waited: Duration,
    },
    /// The deadline came first.
    #[error("no connection within {waited:?}: {}", describe_wait(*.stage, *.queued, *.position, .last_connect_error))]
    #[non_exhaustive]
    Timeout {
        /// What the acquire was waiting for.
        stage: Stage,
        /// How long it had waited.
        waited: Duration,
        /// How many acquires were waiting at the shard that counted the deadline, this one included.
        queued: usize,
        /// How many of those would have been served before it, counted up to 4,096; zero when the acquire was forwarded,
        /// since only its home shard knows.
        position: usize,
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
            AcquireError::Saturated { .. }
                | AcquireError::WouldMissDeadline { .. }
                | AcquireError::Shed { .. }
                | AcquireError::Timeout { .. }
                | AcquireError::Connect { .. }
        )
    }

    /// Whether more was asked of the shard than it can serve: slowing down helps, and trying again at once does not.
    pub fn is_overload(&self) -> bool {
        match self {
            AcquireError::Saturated { .. }
            | AcquireError::WouldMissDeadline { .. }
            | AcquireError::Shed { .. } => true,
            AcquireError::Timeout { stage, .. } => matches!(stage, Stage::Waiting | Stage::Limited),
            _ => false,
        }
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

fn describe_wait(stage: Stage, queued: usize, position: usize, last: &Option<Arc<io::Error>>) -> String {
    let waiting = match stage {
        Stage::Waiting => "every slot was leased",
        Stage::Connecting => "a connection was still being opened",
        Stage::Limited => "the handle had as many leases as it may",
        Stage::Forwarded => "the acquire was with another core",
    };
    match last {
        Some(error) => {
            format!("{waiting}, {queued} waiting, {position} ahead, latest connect error: {error}")
        }
        None => format!("{waiting}, {queued} waiting, {position} ahead"),
    }
}

impl From<Refusal> for AcquireError {
    fn from(refusal: Refusal) -> AcquireError {
        match refusal {
            Refusal::Closed => AcquireError::Closed,
            Refusal::Failed => AcquireError::SchedulerFailed,
            Refusal::Saturated { limit } => AcquireError::Saturated { limit },
            Refusal::WouldMiss { position, predicted } => {
                AcquireError::WouldMissDeadline { position, predicted_wait: predicted }
            }
            Refusal::Shed { waited } => AcquireError::Shed { waited },
            Refusal::Deregistered => AcquireError::Deregistered,
            Refusal::TimedOut { stage, waited, queued, position, last_connect_error } => {
                AcquireError::Timeout { stage, waited, queued, position, last_connect_error }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Arc<io::Error> {
        Arc::new(io::ErrorKind::ConnectionRefused.into())
    }

    fn timeout(stage: Stage, last_connect_error: Option<Arc<io::Error>>) -> AcquireError {
        let waited = Duration::from_millis(5);
        AcquireError::Timeout { stage, waited, queued: 3, position: 2, last_connect_error }
    }

    /// Each error, and whether it may be tried again, the upstream is at fault, and more was asked than can be served.
    fn all() -> Vec<(AcquireError, [bool; 3])> {
        let wait = Duration::from_millis(7);
        vec![
            (AcquireError::Closed, [false, false, false]),
            (AcquireError::SchedulerFailed, [false, false, false]),
            (AcquireError::Deregistered, [false, false, false]),
            (AcquireError::Saturated { limit: 4 }, [true, false, true]),
            (AcquireError::WouldMissDeadline { position: 1, predicted_wait: wait }, [true, false, true]),
            (AcquireError::Shed { waited: wait }, [true, false, true]),
            (AcquireError::Connect { source: refused() }, [true, true, false]),
            (timeout(Stage::Waiting, None), [true, false, true]),
            (timeout(Stage::Limited, None), [true, false, true]),
            (timeout(Stage::Connecting, None), [true, false, false]),
            (timeout(Stage::Forwarded, None), [true, false, false]),
            (timeout(Stage::Connecting, Some(refused())), [true, true, false]),
        ]
    }

    #[test]
    fn each_error_says_whether_to_try_again_and_whose_fault_it_is() {
        for (error, expected) in all() {
            let said = [error.is_retryable(), error.is_connection_fault(), error.is_overload()];
            assert_eq!(said, expected, "{error:?}");
        }
    }

    #[test]
    fn a_pool_that_is_closed_or_failed_is_never_reported_as_a_broken_connection() {
        for refusal in [Refusal::Closed, Refusal::Failed] {
            let error = AcquireError::from(refusal);
            assert!(matches!(error, AcquireError::Closed | AcquireError::SchedulerFailed));
            assert!(std::error::Error::source(&error).is_none() && !error.is_retryable());
        }
    }

    #[test]
    fn errors_name_the_limit_the_time_and_the_cause() {
        let texts: Vec<String> = all().iter().map(|(error, _)| error.to_string()).collect();
        for words in ["4 acquires already wait", "1 acquires would be served first, in 7ms", "shed after 7ms"]
        {
            assert!(texts.iter().any(|text| text.contains(words)), "{words}: {texts:#?}");
        }
        let timed_out = timeout(Stage::Limited, Some(refused())).to_string();
        assert!(
            timed_out.contains("3 waiting, 2 ahead, latest connect error: connection refused"),
            "{timed_out}"
        );
        let connect = AcquireError::Connect { source: refused() };
        assert!(std::error::Error::source(&connect).is_some(), "keeps its cause");
    }

    #[test]
    fn an_exchanges_error_gives_its_own_back() {
        assert_eq!(ExchangeError::Failed(7).into_inner(), Some(7));
        assert_eq!(ExchangeError::<i32>::Dirty.into_inner(), None);
    }
}
