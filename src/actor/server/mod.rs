//! Servers: actors that own a state, answer calls and take casts, in the manner of Erlang's `gen_server`.
//!
//! For everything that several tasks use and one should own: the state needs no lock, since its server handles one message
//! at a time, and a client elsewhere has a [`ServerRef`]. What only passes messages on is better an actor with a
//! [mailbox](crate::actor::spawn_addr); what has states and legal transitions is better a state machine.
//!
//! # From where
//!
//! Servers are started in a task of a core, and live on that core; [`start_on`] starts them on another. Casts are sent from
//! every thread, calls from tasks of every core. Between tasks of one core neither allocates, locks or uses an atomic
//! operation, unless the mailbox is bounded.
//!
//! # Order
//!
//! What one client sends is handled in that order. Before each message a server looks, in this order, for: the end of an
//! actor that it [watches](Context::watcher); a [shutdown](ServerRef::shutdown); its [further
//! receivers](Builder::with_info); its mailbox.
//!
//! # Compared with Erlang/OTP
//!
//! The callbacks are `gen_server`'s, as `async` functions: one may await, and the server takes its next message when it has
//! returned. `{reply, ...}` is [`Reply::send`](crate::actor::Reply::send), and `{noreply, ...}` a slip that is kept. Messages
//! are typed, so there is no message that a server does not understand. A client needs no monitor to hear that its call
//! failed, and there is no time-out unless it asks for one. Three things are Rust's: a server also ends when nobody refers
//! to it any more; it does not keep whoever starts it waiting for `init`; and `terminate` is for ends in good order, as
//! destructors run at all ends.
//!
//! # Compared with tokio
//!
//! This is the task with an `mpsc` of commands that carry `oneshot`s, without the allocation of each `oneshot` and with an
//! end that is known.
//!
//! # Example
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use corelet::actor::server::{self, Context, Server};
//! use corelet::actor::{CallError, ExitReason, Reply};
//! use corelet::runtime::{Cores, Runtime};
//!
//! #[derive(Default)]
//! struct Counter {
//!     count: u64,
//! }
//!
//! enum Ask {
//!     Count,
//!     Never,
//! }
//!
//! impl Server for Counter {
//!     type Call = Ask;
//!     type Reply = u64;
//!     type Cast = u64;
//!     type Info = Infallible;
//!
//!     async fn handle_call(&mut self, ask: Ask, reply: Reply<u64>, _: &Context<Self>) {
//!         match ask {
//!             Ask::Count => reply.send(self.count),
//!             Ask::Never => drop(reply),
//!         }
//!     }
//!
//!     async fn handle_cast(&mut self, step: u64, _: &Context<Self>) {
//!         self.count += step;
//!     }
//! }
//!
//! let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
//! runtime.block_on(|| async {
//!     let counter = server::start(Counter::default());
//!     counter.cast(2).unwrap();
//!     counter.cast(3).unwrap();
//!     assert_eq!(counter.call_timeout(Ask::Count, Duration::from_secs(1)).await, Ok(5));
//!     assert_eq!(counter.call(Ask::Never).await, Err(CallError::NoReply));
//!     assert_eq!(counter.shutdown().await, ExitReason::Normal);
//!     assert_eq!(counter.call(Ask::Count).await, Err(CallError::Closed));
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Never: handle two messages at a time, look at a message before an older one of its sender, or keep a caller waiting for
//! a server that has ended.

mod behaviour;
mod builder;
mod child;
mod context;
mod named;
mod reference;
mod request;
mod serve;
mod shutdown;
mod watcher;

use std::future::ready;
use std::panic::resume_unwind;

pub use behaviour::Server;
pub use builder::Builder;
pub use child::child;
pub use context::Context;
pub use named::{Nameless, ServerName, call, call_timeout, cast, shutdown, whereis};
pub use reference::ServerRef;
pub use request::Request;
pub use watcher::Watcher;

use super::CallError;
use crate::runtime::{CoreId, RuntimeHandle, UnknownCore};

/// Starts a server on the current core, with a mailbox that has no bound. It ends with the last [`ServerRef`].
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn start<S: Server>(server: S) -> ServerRef<S> {
    build(server).start()
}

/// Begins a server that is more than [`start`] makes.
pub fn build<S: Server>(server: S) -> Builder<S> {
    Builder::new(server)
}

/// Starts a server on a chosen core, from any thread: `start` is called there, so the server itself need not be `Send`.
///
/// ```no_run
/// # use corelet::actor::server::{Server, ServerRef, self};
/// # use corelet::runtime::{CoreId, RuntimeHandle, UnknownCore};
/// # async fn example<Cache: Server + Default>(
/// #     runtime: RuntimeHandle,
/// #     core: CoreId,
/// # ) -> Result<ServerRef<Cache>, UnknownCore> {
/// server::start_on(&runtime, core, || server::build(Cache::default()).bounded(1024).start()).await
/// # }
/// ```
///
/// # Errors
/// [`UnknownCore`] when `core` is not of this runtime, or has ended.
///
/// # Cancel safety
/// When the future is dropped the server may have been started or not; a started one ends for want of references.
///
/// # Panics
/// When `start` does.
pub async fn start_on<T: Send + 'static>(
    runtime: &RuntimeHandle,
    core: CoreId,
    start: impl FnOnce() -> T + Send + 'static,
) -> Result<T, UnknownCore> {
    match runtime.spawn_on(core, || ready(start()))?.await {
        Ok(started) => Ok(started),
        Err(error) => match error.try_into_panic() {
            Ok(payload) => resume_unwind(payload),
            Err(_) => Err(UnknownCore { core }),
        },
    }
}
