//! Addresses, mail, monitors and links for tasks: an actor kit in the manner of Erlang/OTP.
//!
//! Every task is an actor already: it has an identity, a place in a tree, a state and counters. What this module adds is
//! what others can do with that identity, on the same core and from any other: send to it ([`send_to`]), hear of its end
//! ([`monitor`]), share its fate ([`link`]), stop it ([`request_stop`]). A task that nobody addresses pays for none of it.
//!
//! # From where
//!
//! Sending, stopping and looking up work from every thread. What acts on the *calling* actor ([`link`], [`monitor`],
//! [`trap_exits`], [`install`]) works in a task only, and panics elsewhere.
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
mod exit;
mod kit;
mod link;
mod links;
mod monitor;
mod monitors;
mod pid;
mod process;
mod send;
pub mod server;
mod spawn;
pub mod supervisor;
mod watch;

pub use call::{Answer, CallError, Reply, call, call_timeout, reply};
pub use exit::{Down, Exit, ExitReason};
pub use link::{Exits, link, trap_exits, unlink};
pub use monitor::{Monitor, monitor};
pub use monitors::Monitors;
pub use pid::{Addressable, Erased, Incarnation, NodeId, Pid};
pub use send::{SendError, send_dyn, send_to, undelivered};
pub use spawn::{
    checkpoint, exit, install, myself, request_stop, spawn, spawn_addr, spawn_addr_on, spawn_link,
    spawn_monitor,
};
