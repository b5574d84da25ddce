//! What a machine does, state by state.

use std::sync::Arc;

use super::Context;
use crate::actor::pid::Addressable;

/// A state machine, written by hand: Erlang's `gen_statem` behaviour. The implementing type is the machine's data, which it has in
/// every state; its [`Msg`](Addressable::Msg) are its events, casts and calls alike. [`machine!`](crate::machine) writes all of
/// this from a table.
///
/// The callbacks are plain functions: a step is taken whole or not at all. What takes long is the work of another actor, which
/// sends an event when it is done. A panic in a callback ends the machine with
/// [`ExitReason::Panicked`](crate::actor::ExitReason::Panicked).
///
/// Match on the pair of state and event, without a wildcard: then the compiler finds the pair that was forgotten.
///
/// # Example
/// See the [module](super).
pub trait Machine: Addressable + Sized {
    /// Where it can be.
    type State: 'static;
    /// Its time-outs, told apart by being equal; [`Infallible`](std::convert::Infallible) where there are none.
    type Timeout: PartialEq + 'static;
    /// What comes by the receivers that the machine was [built with](super::Builder::with_info), and of the actors that it
    /// [watches](Context::watch); [`Infallible`](std::convert::Infallible) where there are none.
    type Info: 'static;

    /// A state has been entered: at the start, where there is no previous one, and by every transition, also one that leads
    /// back to the same state; not when the machine stays.
    fn enter(&mut self, state: &Self::State, previous: Option<&Self::State>, cx: &mut Context<Self>) {
        let _ = (state, previous, cx);
    }

    /// Whether to put an event off until the state changes. It then comes again, before everything that waits in the mailbox,
    /// in the order of arrival, and may be put off once more. A call that is put off keeps its caller waiting.
    fn postpones(&self, state: &Self::State, event: &Self::Msg) -> bool {
        let _ = (state, event);
        false
    }

    /// Takes an event that is not [postponed](Machine::postpones).
    fn handle(&mut self, state: &Self::State, event: Self::Msg, cx: &mut Context<Self>) -> Next<Self::State>;

    /// Takes a time-out that was [set](Context).
    fn timeout(
        &mut self,
        state: &Self::State,
        timeout: Self::Timeout,
        cx: &mut Context<Self>,
    ) -> Next<Self::State>;

    /// Takes what comes otherwise than by the mailbox: a message from one of the receivers that the machine was [built
    /// with](super::Builder::with_info), or the end of an actor that it [watches](Context::watch). By default none is of interest:
    /// they go to [`on_unhandled`](Machine::on_unhandled).
    fn info(&mut self, state: &Self::State, info: Self::Info, cx: &mut Context<Self>) -> Next<Self::State> {
        let _ = cx;
        self.on_unhandled(state, info);
        Next::Stay
    }

    /// Hears of a message that is of no interest in this state, and drops it.
    fn on_unhandled(&mut self, state: &Self::State, info: Self::Info) {
        let _ = (state, info);
    }
}

/// Where a machine goes from here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a step that is not returned is not taken"]
pub enum Next<S> {
    /// A transition. The time-out of the state that is left is taken back, the new state is [entered](Machine::enter), and what
    /// was postponed comes again. All of this holds as well if it is the same state once more: Erlang's `repeat_state`.
    To(S),
    /// No transition: Erlang's `keep_state`.
    Stay,
    /// The machine ends, with [`ExitReason::Normal`](crate::actor::ExitReason::Normal). Calls that wait have failed.
    Stop,
    /// The machine ends, with [`ExitReason::Failed`](crate::actor::ExitReason::Failed) and this text.
    Fail(Arc<str>),
}

impl<S> Next<S> {
    /// The same step, its target in other words.
    pub fn map<T>(self, target: impl FnOnce(S) -> T) -> Next<T> {
        match self {
            Next::To(state) => Next::To(target(state)),
            Next::Stay => Next::Stay,
            Next::Stop => Next::Stop,
            Next::Fail(why) => Next::Fail(why),
        }
    }

    /// The machine ends, with [`ExitReason::Failed`](crate::actor::ExitReason::Failed) and this text.
    pub fn fail(why: impl Into<Arc<str>>) -> Next<S> {
        Next::Fail(why.into())
    }
}
