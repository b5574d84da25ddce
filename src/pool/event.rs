//! What a pool tells its observer.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::error::AcquireError;
use super::scheduler::CloseReason;
use crate::runtime::CoreId;
use crate::runtime::executor::{contain, panic_message};

/// Something has happened in a pool; told to the callback that was given to
/// [`PoolBuilder::on_event`](super::PoolBuilder::on_event).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// The pool's id.
    pub pool: u64,
    /// The core whose shard it happened in.
    pub core: CoreId,
    /// What happened.
    pub kind: EventKind,
}

/// What has happened in a shard of a pool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// A connection was opened.
    Opened,
    /// A connection could not be opened.
    ConnectFailed {
        /// Why.
        error: Arc<io::Error>,
    },
    /// A connection is being closed.
    Closed {
        /// Why.
        reason: CloseReason,
    },
    /// An acquire that found this core's connections taken was offered to another core.
    #[non_exhaustive]
    Spilled {
        /// The other core.
        to: CoreId,
    },
    /// An acquire ended without a lease.
    Refused {
        /// What its caller gets.
        error: AcquireError,
    },
    /// An acquire was served after a wait that the pool was told to warn of.
    #[non_exhaustive]
    SlowAcquire {
        /// The handle's id.
        handle: u64,
        /// Where in the program it was made.
        site: &'static Location<'static>,
        /// How long it waited.
        waited: Duration,
        /// How many acquires waited when it came.
        position: usize,
    },
    /// A lease has been out for longer than leases should be; told once for each.
    #[non_exhaustive]
    Leak {
        /// The handle's id.
        handle: u64,
        /// Where in the program it was acquired.
        site: &'static Location<'static>,
        /// How long it has been seen to be out, which may be a little less than it has been.
        age: Duration,
    },
    /// The shard's scheduler panicked; the shard grants nothing any more.
    SchedulerFailed,
}

/// The callback.
#[derive(Clone)]
pub(crate) struct Observer(pub(crate) Arc<dyn Fn(&Event) + Send + Sync>);

impl Observer {
    /// A panic in the callback is caught and logged: it must not fail a shard.
    pub(crate) fn tell(&self, event: &Event) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.0)(event))) {
            tracing::error!(panic = panic_message(&*panic), "a pool's observer panicked; contained");
            contain("the panic of a pool's observer", || drop(panic));
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
