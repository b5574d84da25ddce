//! State machines: actors whose behaviour depends on where they are, in the manner of Erlang's `gen_statem`.
//!
//! For protocols, connections, devices, whatever has a handful of states, and events that mean one thing here and another
//! there. What has a state but no states is a server. Two forms do the same:
//!
//! - [`machine!`](crate::machine) writes a machine from a table, and has the compiler find what is wrong with it;
//! - [`Machine`] is the trait behind it, for what does not fit a table.
//!
//! # From where
//!
//! Machines are started in a task of a core, or [on another core](crate::runtime::RuntimeHandle::spawn_on), and live there. A
//! machine's [`Pid`] is its address, for [`send_to`](super::send_to) and [`call`](super::call) on every core. It lives until it
//! stops itself or is stopped.
//!
//! # What happens when
//!
//! One thing at a time, each to its end. After a transition the events that were postponed are looked at again, the oldest
//! first; before each thing that is taken in, all of them have been. Then a machine looks, in this order, for: time-outs that have
//! fired, the ends of actors that it [watches](Context::watch), its [further receivers](Builder::with_info), its mailbox. What one sender sends is handled in that order, unless it
//! is postponed.
//!
//! # Compared with Erlang/OTP
//!
//! | `gen_statem` | here |
//! |---|---|
//! | `callback_mode() -> handle_event_function` | [`Machine::handle`], a match on state and event |
//! | `state_enter` | [`Machine::enter`] |
//! | `{next_state, S, Data}`, `repeat_state` | [`Next::To`], always a transition, also to the same state |
//! | `keep_state` | [`Next::Stay`] |
//! | `postpone` | [`Machine::postpones`], asked before the handler is called, so that this may have the event by value |
//! | `{reply, From, R}` | [`Reply::send`](super::Reply::send), on the slip that came with the event |
//! | `state_timeout`, `{timeout, Name}` | [`Context::set_state_timeout`], [`Context::set_timeout`] |
//! | `info` | [`Machine::info`], by [`Builder::with_info`] and [`Context::watch`]; what is of no interest is dropped |
//! | an unknown event crashes the machine | it does not compile |
//!
//! There is no event time-out (set one and take it back), no `next_event`, and no call that waits inside a handler.
//!
//! # Compared with tokio
//!
//! This is the loop around a `select!` with a `match` in it, without the ways to get it wrong: the pair that was forgotten, the
//! timer that fires into the wrong state, the message that has to wait and is answered never.
//!
//! # Example
//!
//! A turnstile, by hand. The [table](crate::machine#example) of it is shorter.
//!
//! ```
//! use std::time::Duration;
//!
//! use corelet::actor::machine::{self, Context, Machine, Next};
//! use corelet::actor::{self, Addressable, Reply};
//! use corelet::runtime::{Cores, Runtime};
//!
//! #[derive(Debug)]
//! enum State {
//!     Locked,
//!     Free,
//! }
//!
//! enum Event {
//!     Coin,
//!     Push(Reply<u64>),
//! }
//!
//! #[derive(PartialEq)]
//! struct Relock;
//!
//! #[derive(Default)]
//! struct Turnstile {
//!     passed: u64,
//! }
//!
//! impl Addressable for Turnstile {
//!     type Msg = Event;
//! }
//!
//! impl Machine for Turnstile {
//!     type State = State;
//!     type Timeout = Relock;
//!     type Info = std::convert::Infallible;
//!
//!     fn enter(&mut self, state: &State, _: Option<&State>, cx: &mut Context<Self>) {
//!         if let State::Free = state {
//!             cx.set_state_timeout(Duration::from_secs(10), Relock);
//!         }
//!     }
//!
//!     fn postpones(&self, state: &State, event: &Event) -> bool {
//!         matches!((state, event), (State::Locked, Event::Push(_)))
//!     }
//!
//!     fn handle(&mut self, state: &State, event: Event, _: &mut Context<Self>) -> Next<State> {
//!         match (state, event) {
//!             (State::Locked, Event::Coin) => Next::To(State::Free),
//!             (State::Locked, Event::Push(_)) => unreachable!("it is postponed"),
//!             (State::Free, Event::Coin) => Next::Stay,
//!             (State::Free, Event::Push(reply)) => {
//!                 self.passed += 1;
//!                 reply.send(self.passed);
//!                 Next::To(State::Locked)
//!             }
//!         }
//!     }
//!
//!     fn timeout(&mut self, state: &State, Relock: Relock, _: &mut Context<Self>) -> Next<State> {
//!         match state {
//!             State::Locked => Next::Stay,
//!             State::Free => Next::To(State::Locked),
//!         }
//!     }
//! }
//!
//! let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
//! runtime.block_on(|| async {
//!     let turnstile = machine::start(Turnstile::default(), State::Locked);
//!     // Pushes against a locked turnstile, which gives way when a coin comes.
//!     let (reply, passed) = actor::reply();
//!     actor::send_to(turnstile, Event::Push(reply)).unwrap();
//!     actor::send_to(turnstile, Event::Coin).unwrap();
//!     assert_eq!(passed.await, Ok(1));
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Never: lose a postponed event or let another overtake it, let a time-out fire that was taken back, or wait in a handler.

mod backlog;
mod behaviour;
mod builder;
mod context;
mod engine;
mod macros;
mod run;
mod timeouts;

pub use behaviour::{Machine, Next};
pub use builder::Builder;
pub use context::Context;

use super::channel::Receiver;
use super::infos::Infos;
use super::pid::Pid;

/// Starts a machine on the current core, detached, with a mailbox that has no bound. It lives until it is stopped or stops itself.
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn start<M: Machine>(machine: M, initial: M::State) -> Pid<M> {
    build(machine, initial).start()
}

/// Begins a machine that is more than [`start`] makes.
pub fn build<M: Machine>(machine: M, initial: M::State) -> Builder<M> {
    Builder::new(machine, initial)
}

/// The life of a machine, for an actor that has its mailbox already: one that is [supervised](super::supervisor), or was started
/// by [`spawn_addr`](super::spawn_addr).
///
/// ```
/// use corelet::actor::machine::{self, Machine};
/// use corelet::actor::supervisor::{ChildRef, ChildSpec};
///
/// /// A machine that is started again when it fails, in the state that it began with.
/// fn child<M: Machine + Default>(place: &ChildRef<M>) -> ChildSpec
/// where
///     M::State: Default,
/// {
///     ChildSpec::addressed("machine", place, async |inbox| {
///         machine::run(M::default(), M::State::default(), inbox).await
///     })
/// }
/// ```
///
/// # Cancel safety
/// Dropping it ends the machine, and fails the calls that wait.
///
/// # Panics
/// When not polled in a task of a core.
pub async fn run<M: Machine>(machine: M, initial: M::State, inbox: Receiver<M::Msg>) {
    run::live(machine, initial, Infos::new(), inbox).await;
}
