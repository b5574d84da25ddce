//! Supervisors: actors that start other actors, and start them again when they fail.
//!
//! A supervisor has an ordered list of children. It starts them in that order, each when the one before has finished its
//! init, and stops them in the opposite order. When a child fails, the [`Strategy`] says whom to start again: the child, the
//! child and those after it, or all. When children fail too often ([`intensity`](SupervisorBuilder::intensity)), the
//! supervisor stops them all and fails itself: what a restart does not heal is for the level above. Supervisors are children of
//! supervisors, so that a service is a tree.
//!
//! # From where
//!
//! A supervisor runs on the core where it was started, its children on [whatever core](ChildSpec::on) they are given. A
//! [`SupervisorRef`] may be used on every core.
//!
//! # What is certain
//!
//! - Each end of a child is heard of once, whoever ends first, the child, its supervisor or their cores.
//! - No two lives of one child run at the same time.
//! - A child never outlives its supervisor by more than one poll. In good order
//!   ([`shutdown`](SupervisorRef::shutdown), or the supervisor's own supervisor) each child has ended before the one before
//!   it is told. A supervisor that is [stopped](crate::actor::request_stop) itself, or lost with its core, stops its children
//!   in that order too, but waits for none. If its own supervisor starts it again, its new children may find the old ones still
//!   ending, above all on other cores: a name that is still taken then fails the start, which is tried again.
//!
//! # Compared with Erlang/OTP
//!
//! Strategies, restart types, intensity, shutdown and the order of things are those of OTP's `supervisor`. There is no
//! `brutal_kill`, as every stop is one: a future is dropped, so its destructors run and it cannot refuse. What can delay it is
//! a poll that does not return; then the child is reported as overdue. Added are pauses between restarts
//! ([`backoff`](SupervisorBuilder::backoff)). A first start that fails, fails the supervisor's start; a restart that fails counts
//! as one more failure and is tried again.
//!
//! # Compared with tokio
//!
//! A `JoinSet` tells that a task has ended; what follows is the program's to write, for each task, and cancelling the set
//! waits for nobody.
//!
//! # Example
//!
//! ```
//! use corelet::actor::supervisor::{ChildRef, ChildSpec, Supervisor};
//! use corelet::actor::{self, Addressable, Reply};
//! use corelet::runtime::{Cores, Runtime, yield_now};
//!
//! enum Divider {}
//! impl Addressable for Divider {
//!     type Msg = (u64, u64, Reply<u64>);
//! }
//!
//! let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
//! runtime.block_on(|| async {
//!     let divider = ChildRef::<Divider>::new();
//!     let child = ChildSpec::addressed("divider", &divider, async |mut inbox| {
//!         while let Ok((a, b, reply)) = inbox.recv().await {
//!             reply.send(a / b);
//!         }
//!     });
//!     let supervisor = Supervisor::builder().child(child).start().await.unwrap();
//!
//!     let first = divider.pid().unwrap();
//!     assert!(actor::call(first, |reply| (1, 0, reply)).await.is_err(), "it panics");
//!     while divider.pid().is_none_or(|pid| pid == first) {
//!         yield_now().await;
//!     }
//!     assert_eq!(actor::call(divider.pid().unwrap(), |reply| (6, 3, reply)).await, Ok(2));
//!     supervisor.shutdown().await;
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Never: run two lives of a child at once, or decide anything outside `plan`.

mod builder;
mod handle;
mod launch;
mod nursery;
mod plan;
mod policy;
mod spec;

use std::future::Future;

pub use builder::SupervisorBuilder;
pub use handle::{ChildError, ChildInfo, ChildState, Request, SupervisorError, SupervisorRef};
pub use policy::{Restart, Shutdown, Strategy};
pub use spec::{ChildKind, ChildOutput, ChildRef, ChildSpec};

pub(super) use launch::Cradle;
pub(super) use spec::Start;

use self::handle::Order;
use self::launch::{Newborn, own};
use super::pid::{Addressable, Pid};
use super::process::Process;
use super::send::send_to;
use super::spawn::spawn;
use crate::runtime::context;

/// What a supervisor is as an address; see [`SupervisorRef`].
#[derive(Debug)]
pub enum Supervisor {}

impl Addressable for Supervisor {
    type Msg = Request;
}

impl Supervisor {
    /// The settings to start from: no children, one for one, three restarts in five seconds, no pauses.
    pub fn builder() -> SupervisorBuilder {
        SupervisorBuilder::new()
    }
}

/// Starts an actor on the current core as a [temporary](Restart::Temporary) child of a supervisor, on whatever core that is.
/// It runs at once, is listed under its pid, and is stopped with its siblings. When the supervisor has ended, so does the actor,
/// at its next scheduling point.
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn spawn_under<F: Future + 'static>(supervisor: SupervisorRef, future: F) -> Pid {
    let pid = spawn(future);
    own(&context::current(), pid.raw(), supervisor.pid(), None);
    // Dropped by a supervisor that has ended, and the actor is stopped.
    drop(send_to(supervisor.pid(), Request(Order::Adopt { child: Newborn::new(pid.raw()) })));
    pid
}

/// The supervisor of the calling actor, if it has one. An actor that traps exits knows by that which
/// [`Exit`](crate::actor::Exit) tells it to end.
pub fn my_supervisor() -> Option<SupervisorRef> {
    let local = context::try_current()?;
    let process = Process::find(&local, local.executor().current()?)??;
    process.supervisor().map(|supervisor| SupervisorRef::new(Pid::new(supervisor)))
}
