//! Addresses, mail, monitors and links for tasks: an actor kit in the manner of Erlang/OTP.
//!
//! Every task is an actor already: it has an identity, a place in a tree, a state and counters. What this module adds is
//! what others can do with that identity, on the same core and from any other: send to it ([`send_to`]), now or later
//! ([`send_after`]), hear of its end ([`monitor`]), share its fate ([`link`]), stop it ([`request_stop`]); and find it, by a
//! name ([`register`]) or as a member of a [`group`]. A task that nobody addresses pays for none of it.
//!
//! # From where
//!
//! Sending to a pid, stopping and cancelling timers work from every thread. What has to come back, be looked up or be watched
//! ([`call`], [`monitor`], [`whereis`], [`send_after`], groups) works on a core; for names and groups, other threads have the
//! [`Directory`]. What acts on the *calling* actor ([`link`], [`trap_exits`], [`install`], [`register`]) works in a task only.
//! Elsewhere these panic.
//!
//! # Compared with Erlang/OTP
//!
//! The terms and the guarantees are Erlang's: signals from one actor to another arrive in the order in which they were sent;
//! a monitor gives exactly one [`Down`]; exit signals are never lost. Two things are Rust's. Messages are typed: a
//! [`Pid<A>`](Pid) says what its actor understands. And an actor is a future: a stop drops it at its next scheduling point,
//! so its destructors run, but code between two awaits is never interrupted.
//!
//! # Compared with tokio
//!
//! A mailbox is a channel whose receiver lives on one core: sending on that core moves the message and nothing else, with no
//! lock and no atomic operation. A task's panic is not only in its join handle: it reaches whoever monitors it or is linked to it.
//!
//! # Example
//!
//! ```
//! use corelet::actor::{self, Addressable, ExitReason};
//! use corelet::runtime::{Cores, Runtime};
//!
//! struct Greeter;
//! impl Addressable for Greeter {
//!     type Msg = &'static str;
//! }
//!
//! let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
//! runtime.block_on(|| async {
//!     let greeter = actor::spawn_addr::<Greeter, _, _>(async |mut inbox| {
//!         while let Ok(name) = inbox.recv().await {
//!             if name == "nobody" {
//!                 break;
//!             }
//!             println!("hello, {name}");
//!         }
//!     });
//!     let end = actor::monitor(greeter);
//!     actor::send_to(greeter, "world").unwrap();
//!     actor::send_to(greeter, "nobody").unwrap();
//!     assert_eq!(end.await.reason, ExitReason::Normal);
//!     assert!(actor::send_to(greeter, "too late").is_err());
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Never: run a user's code while a core's cell is borrowed, drop an exit signal, or make a sender wait for another core.

mod call;
pub mod channel;
mod desk;
mod exit;
pub mod group;
mod infos;
mod introspect;
pub(crate) mod kit;
mod link;
mod links;
pub mod machine;
mod monitor;
mod monitors;
mod mutex;
mod name;
mod pid;
mod process;
mod registry;
mod select;
mod send;
pub mod server;
mod spawn;
pub mod supervisor;
mod timer;
mod watch;

pub use call::{Answer, CallError, Reply, call, call_timeout, reply};
pub use exit::{Down, Exit, ExitReason};
#[cfg(any(feature = "pool", feature = "observer"))]
pub(crate) use introspect::label;
pub use introspect::{
    ActorInfo, CoreSnapshot, SNAPSHOT_FORMAT, Snapshot, Tree, TreeNode, Unanswered, actor_info, set_label,
    snapshot, snapshot_of, tree, tree_from,
};
pub use link::{Exits, link, trap_exits, unlink};
pub use monitor::{Monitor, monitor};
pub use monitors::Monitors;
pub use mutex::{Lock, Mutex, MutexGuard};
pub use name::{
    Name, RegisterError, call_named, lookup_as, register, register_pid, send, unregister, whereis,
};
pub use pid::{Addressable, Erased, Pid};
pub use registry::Directory;
pub use select::{Arm, Arms, select, select_timeout};
pub use send::{SendError, send_dyn, send_to, undelivered};
pub use spawn::{
    checkpoint, exit, install, myself, request_stop, spawn, spawn_addr, spawn_addr_on, spawn_link,
    spawn_monitor,
};
pub use timer::{
    CancelTimer, TimerId, cancel_timer, clear_timers, send_after, send_after_dyn, send_after_named,
};

pub use crate::runtime::{Incarnation, NodeId};
