//! Process groups: actors that are found by what they are part of. Erlang's `pg`, within one runtime.
//!
//! An actor may join any number of groups, and is out of all of them when it has ended, whatever ended it; nobody has to
//! watch it. A group is there while it has members. Members are told in the order in which they joined.
//!
//! Groups say who belongs to them, and no more. [`pick`] takes members in turn, knowing nothing of their load, and
//! [`dispatch`] sends to the one picked; whoever needs other routing takes the [`members`] and routes.
//!
//! # From where
//!
//! On a core, by the functions of this module; from other threads by a [`Directory`](super::Directory). What is read is the
//! state at that moment, over all cores. To join and to leave are requests to the actor's own core: for an actor of the
//! calling core they have taken effect when the function returns, for another they are on their way, in order.
//!
//! # A group heals itself
//!
//! Whoever starts a worker again need not tell anybody: the one that has ended is gone from the group, and its successor
//! joins as it starts.
//!
//! ```
//! use corelet::actor::{self, Addressable, Pid, SendError, group};
//! use corelet::runtime::{Cores, Runtime};
//!
//! enum Worker {}
//! impl Addressable for Worker {
//!     type Msg = u32;
//! }
//!
//! fn start() -> Pid<Worker> {
//!     let worker = actor::spawn_addr::<Worker, _, _>(async |mut jobs| {
//!         while let Ok(job) = jobs.recv().await {
//!             assert!(job != 13, "unlucky on purpose");
//!         }
//!     });
//!     group::join("workers", worker);
//!     worker
//! }
//!
//! let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
//! runtime.block_on(|| async {
//!     assert_eq!(group::dispatch::<Worker>("workers", 1), Err(SendError::NoMember(1)));
//!     let (first, second) = (start(), start());
//!     assert_eq!(group::dispatch::<Worker>("workers", 1), Ok(first));
//!     assert_eq!(group::dispatch::<Worker>("workers", 13), Ok(second));
//!     actor::monitor(second).await;
//!     assert_eq!(group::members_as::<Worker>("workers"), [first]);
//!     let third = start();
//!     assert_eq!(group::members_as::<Worker>("workers"), [first, third]);
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A pool of workers over all cores
//!
//! ```no_run
//! # use corelet::actor::{self, Addressable, group};
//! # use corelet::runtime::{Runtime, current_core};
//! # enum Worker {}
//! # impl Addressable for Worker {
//! #     type Msg = String;
//! # }
//! # async fn work(_: String) {}
//! # let runtime = Runtime::builder().build()?;
//! // On every core a worker that serves all of them.
//! runtime.run(|| async {
//!     let worker = actor::spawn_addr::<Worker, _, _>(async |mut jobs| {
//!         while let Ok(job) = jobs.recv().await {
//!             work(job).await;
//!         }
//!     });
//!     group::join("workers", worker);
//!     // Anywhere, at any time:
//!     group::dispatch::<Worker>("workers", "a job".to_owned()).ok();
//!     actor::monitor(worker).await;
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::rc::Rc;

use super::pid::{Addressable, Pid};
use super::process::Process;
use super::registry::Tables;
use super::send::SendError;
use crate::runtime::local::Local;
use crate::runtime::mesh::{self, Letter};
use crate::runtime::{Incarnation, NodeId, RawPid, RuntimeHandle, context};

/// A member of a group: an actor in a life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Member {
    /// The node that the actor's runtime is.
    pub node: NodeId,
    /// Which life of that node.
    pub incarnation: Incarnation,
    /// The actor.
    pub pid: Pid,
}

/// Has an actor join a group; once, however often it is asked. One that has ended, or is of another runtime, does not.
///
/// # Panics
/// When not called on a core; other threads have the [`Directory`](super::Directory).
#[track_caller]
pub fn join(group: &str, pid: impl Into<RawPid>) {
    ask(context::current().runtime(), group, pid.into(), Change::Join);
}

/// Has an actor leave a group. Its other groups keep it.
///
/// # Panics
/// When not called on a core; other threads have the [`Directory`](super::Directory).
#[track_caller]
pub fn leave(group: &str, pid: impl Into<RawPid>) {
    ask(context::current().runtime(), group, pid.into(), Change::Leave);
}

/// The live members of a group, in the order in which they joined.
///
/// # Panics
/// When not called on a core; other threads have the [`Directory`](super::Directory).
#[track_caller]
pub fn members(group: &str) -> Vec<Member> {
    Tables::of(context::current().runtime()).members(group)
}

/// The live members of a group, taken for actors that understand what `A` does; see [`lookup_as`](super::lookup_as).
///
/// # Panics
/// When not called on a core; other threads have the [`Directory`](super::Directory).
#[track_caller]
pub fn members_as<A>(group: &str) -> Vec<Pid<A>> {
    members(group).into_iter().map(|member| Pid::new(member.pid.raw())).collect()
}

/// A live member of a group: they take turns, in the order in which they joined, over all who pick on whatever core.
///
/// # Panics
/// When not called on a core; other threads have the [`Directory`](super::Directory).
#[track_caller]
pub fn pick(group: &str) -> Option<Pid> {
    Tables::of(context::current().runtime()).pick(group)
}

/// As [`pick`], taken for an actor that understands what `A` does; see [`lookup_as`](super::lookup_as).
///
/// # Panics
/// When not called on a core; other threads have the [`Directory`](super::Directory).
#[track_caller]
pub fn pick_as<A>(group: &str) -> Option<Pid<A>> {
    pick(group).map(|pid| Pid::new(pid.raw()))
}

/// Sends to the member that [`pick`] gives, as [`send_to`](super::send_to) does, and says who it was. A member that ends just
/// now is passed over.
///
/// # Errors
/// Gives the message back: [`SendError::NoMember`] when the group has no live member, otherwise what the member picked has
/// refused it with. Another member is not tried then.
///
/// # Panics
/// When not called on a core; other threads have the [`Directory`](super::Directory).
#[track_caller]
pub fn dispatch<A: Addressable>(group: &str, message: A::Msg) -> Result<Pid<A>, SendError<A::Msg>> {
    Tables::of(context::current().runtime()).dispatch(group, message)
}

/// Removes the members that are of lives of `node` before this one from every group, and says how many memberships these
/// were: for whoever knows that such a life is over.
///
/// # Panics
/// When not called on a core; other threads have the [`Directory`](super::Directory).
#[track_caller]
pub fn sweep(node: NodeId, before: Incarnation) -> usize {
    Tables::of(context::current().runtime()).sweep(node, before)
}

/// What is asked of an actor's core.
#[derive(Clone, Copy)]
pub(super) enum Change {
    Join,
    Leave,
}

/// Has an actor of `runtime` join or leave: here and now, or on its own core, where it is known whether it lives.
pub(super) fn ask(runtime: &RuntimeHandle, group: &str, pid: RawPid, change: Change) {
    // An actor of another runtime has no place in these groups.
    if runtime.mailbox(pid.core()).is_err() {
        return;
    }
    match context::with(|local| (local.id() == pid.core()).then(|| Rc::clone(local))).flatten() {
        Some(local) => take_effect(&local, group, pid, change),
        // Refused by a core that has ended, and all its actors with it.
        None => drop(mesh::post(pid.core(), Request { group: group.into(), pid, change })),
    }
}

fn take_effect(local: &Rc<Local>, group: &str, pid: RawPid, change: Change) {
    let tables = Tables::of(local.runtime());
    match change {
        Change::Join => {
            if let Some(process) = Process::of(local, pid) {
                tables.join(group, pid, process.life());
            }
        }
        Change::Leave => tables.leave(group, pid),
    }
}

struct Request {
    group: Box<str>,
    pid: RawPid,
    change: Change,
}

impl Letter for Request {
    fn open(self: Box<Self>) {
        take_effect(&context::current(), &self.group, self.pid, self.change);
    }
}
