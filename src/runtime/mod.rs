//! One core: executor, task identity, timers, ring driver, mesh; and the threads that drive cores.
//!
//! A core is a value with a [`turn`](Core::turn): run ready tasks, fire due timers, drain the mailbox, submit, reap. A
//! [`Runtime`] turns one per chosen core on a pinned thread; a service with a loop of its own turns a guest core itself.
//!
//! Never: know what a pool, an actor or a socket is.

mod builder;
pub(crate) mod context;
mod core;
mod current;
pub(crate) mod driver;
mod error;
pub(crate) mod executor;
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub mod host;
mod identity;
mod join;
pub(crate) mod local;
pub(crate) mod mesh;
pub(crate) mod op;
mod park;
mod runtime_handle;
mod simulation;
mod threads;
mod time;
pub(crate) mod timer;
pub(crate) mod usage;
pub(crate) mod watch;

pub use builder::{Cores, GuestCore, RuntimeBuilder};
pub use context::{core_stats, current_core, current_task, handle, spawn, yield_now};
pub use core::Core;
pub use driver::sim::trace::{TraceEvent, TraceKind};
pub use driver::{DriverStats, EnterCall, EnterHook, Features};
pub use error::StartError;
pub use executor::{ExecutorStats, TaskState};
pub use identity::{CoreId, Incarnation, NodeId, RawPid};
pub use join::{JoinError, JoinHandle, RemoteJoinHandle};
pub use local::CoreStats;
pub use runtime_handle::{RuntimeHandle, UnknownCore};
pub use simulation::{Faults, Simulation, SimulationError};
pub use threads::Runtime;
pub(crate) use time::far;
pub use time::{Elapsed, Interval, Sleep, Timeout, interval, now, sleep, sleep_until, timeout};
pub use watch::Watch;
