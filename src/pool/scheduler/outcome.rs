//! What goes into a transition and what comes out of it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::{SlotId, WaiterKey};

/// How far the shard has come. The order is that of severity: a later state is never left for an earlier one,
/// so `Failed` outranks `Closed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lifecycle {
    /// Acquires are admitted.
    Running,
    /// The pool was closed.
    Closed,
    /// The scheduler panicked.
    Failed,
}

/// What an acquire that has to wait brings along. It is asked for only then.
#[derive(Debug)]
pub(crate) struct Ticket<W> {
    /// Where the owner of the state sends the news. Opaque here.
    pub reply: W,
    /// How long it may wait, from the next [`start_clocks`](super::State::start_clocks) on; `None` waits for as
    /// long as it takes.
    pub timeout: Option<Duration>,
}

/// The right to use one slot's connection, and the connection.
#[derive(Debug)]
pub(crate) struct Grant<C> {
    /// What to name when the connection is given back.
    pub slot: SlotId,
    /// The connection itself.
    pub connection: C,
}

/// What became of an acquire at once.
#[derive(Debug)]
#[must_use = "a grant that is dropped leaks its slot"]
pub(crate) enum Admission<C> {
    /// An idle connection was there.
    Granted(Grant<C>),
    /// It waits. A [`Notice`] tells when there is something to take.
    Queued(WaiterKey),
    /// It was turned away and is not queued.
    Refused(Refusal),
}

/// What the owner of a waiter finds when it asks.
#[derive(Debug)]
#[must_use = "a grant that is dropped leaks its slot"]
pub(crate) enum Taken<C> {
    /// Still queued.
    Pending,
    /// A connection. The waiter is gone.
    Granted(Grant<C>),
    /// An error. The waiter is gone.
    Refused(Refusal),
    /// There is no such waiter: taken or cancelled before.
    Gone,
}

/// What became of an acquire that was offered to another shard and did not come back.
#[derive(Debug)]
pub(crate) enum Elsewhere<'a> {
    /// It has a connection of that shard.
    Served,
    /// Its caller has given up.
    Cancelled,
    /// It was refused meanwhile.
    Refused(&'a Refusal),
}

/// Why an acquire ends without a connection.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// The pool was closed.
    Closed,
    /// The shard's scheduler panicked.
    Failed,
    /// As many acquires wait as may wait.
    Saturated {
        /// The bound that was met.
        limit: usize,
    },
    /// The handle that asked is gone.
    Deregistered,
    /// The deadline came first.
    TimedOut {
        /// What it was waiting for.
        stage: Stage,
        /// From the start of the acquire to the refusal.
        waited: Duration,
        /// How many acquires were queued then, this one included.
        queued: usize,
        /// Why the latest open failed, if none has succeeded since.
        last_connect_error: Option<Arc<io::Error>>,
    },
    /// No connection could be opened and none is left that could become free.
    Connect(Arc<io::Error>),
}

impl Refusal {
    /// As it is for an acquire that had been elsewhere before, for so long.
    pub(crate) fn after(mut self, spent: Duration) -> Refusal {
        if let Refusal::TimedOut { waited, .. } = &mut self {
            *waited += spent;
        }
        self
    }
}

/// What a waiter was waiting for when its time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// For another lease to end: the slots that can be opened would all go to waiters before it.
    Waiting,
    /// For an open that was under way, in back-off or held back by the limit on simultaneous opens.
    Connecting,
    /// For another core, whose shard the handle is bound to or to which the acquire was offered.
    Forwarded,
}

/// Why a connection ends. The discriminant is the index into the counters by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// Found dead, or with bytes nobody asked for, while idle; or found unfit by the connector's `before_lease`.
    Broken,
    /// An exchange was dropped, failed or panicked; or the connector's `after_return` found the connection unfit after
    /// one.
    Dirty,
    /// The shard no longer runs.
    Shutdown,
    /// The core that held it has gone.
    Lost,
    /// Given up for a shard that had too few, or because the limit on all connections was lowered.
    Rebalanced,
    /// Idle for longer than the pool's `idle_timeout`.
    Idle,
    /// Older than the pool's `max_lifetime`.
    Expired,
    /// Its address is no longer among the connector's.
    Superseded,
    /// It failed its health check.
    Unhealthy,
    /// The pool was made smaller.
    Resized,
}

impl CloseReason {
    /// All reasons, in the order of the counters.
    pub const ALL: [CloseReason; 10] = [
        CloseReason::Broken,
        CloseReason::Dirty,
        CloseReason::Shutdown,
        CloseReason::Lost,
        CloseReason::Rebalanced,
        CloseReason::Idle,
        CloseReason::Expired,
        CloseReason::Superseded,
        CloseReason::Unhealthy,
        CloseReason::Resized,
    ];
    /// How many reasons there are.
    pub(crate) const COUNT: usize = CloseReason::ALL.len();

    /// One word for a table or a label.
    pub fn name(self) -> &'static str {
        match self {
            CloseReason::Broken => "broken",
            CloseReason::Dirty => "dirty",
            CloseReason::Shutdown => "shutdown",
            CloseReason::Lost => "lost",
            CloseReason::Rebalanced => "rebalanced",
            CloseReason::Idle => "idle",
            CloseReason::Expired => "expired",
            CloseReason::Superseded => "superseded",
            CloseReason::Unhealthy => "unhealthy",
            CloseReason::Resized => "resized",
        }
    }
}

/// The fate of one waiter is known and can be taken. There is one notice for each waiter at most, and none
/// for one that was cancelled or taken before it was polled.
#[derive(Debug)]
pub(crate) struct Notice<W> {
    /// What to take.
    pub waiter: WaiterKey,
    /// The reply address that came with the ticket.
    pub reply: W,
}
