//! The life of a machine as a value: what each thing that happens does to its state, its backlog and its time-outs.
//!
//! Never: wait, look at a clock, or know where events come from.

use std::sync::Arc;
use std::task::{self, Poll};

use super::backlog::Backlog;
use super::context::Context;
use super::timeouts::{Order, TimeoutId};
use super::{Machine, Next};
use crate::actor::pid::Pid;

pub(super) struct Engine<M: Machine> {
    machine: M,
    state: M::State,
    backlog: Backlog<M::Msg>,
    cx: Context<M>,
}

/// What a thing that happened came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Transitioned,
    Stayed,
    /// It waits for another state.
    Postponed,
    Stopped,
    Failed(Arc<str>),
}

impl<M: Machine> Engine<M> {
    /// A machine that has entered its first state.
    pub(super) fn start(machine: M, state: M::State, pid: Pid<M>) -> Engine<M> {
        let mut engine = Engine { machine, state, backlog: Backlog::new(), cx: Context::new(pid) };
        engine.machine.enter(&engine.state, None, &mut engine.cx);
        engine
    }

    /// Something was sent. Not while anything postponed is [due](Engine::has_due).
    pub(super) fn event(&mut self, event: M::Msg) -> Step {
        debug_assert!(!self.backlog.has_due(), "what was postponed goes first");
        self.look_at(event)
    }

    /// Looks again at the oldest postponed event that is due; none when none is.
    pub(super) fn replay(&mut self) -> Option<Step> {
        let event = self.backlog.take_due()?;
        Some(self.look_at(event))
    }

    /// Whether events that were postponed are to be looked at before anything is taken in.
    pub(super) fn has_due(&self) -> bool {
        self.backlog.has_due()
    }

    /// A timer has fired; none when it is stale.
    pub(super) fn fired(&mut self, id: TimeoutId) -> Option<Step> {
        let timeout = self.cx.timeouts.fire(id)?;
        let next = self.machine.timeout(&self.state, timeout, &mut self.cx);
        Some(self.follow(next))
    }

    /// Something came by another way than the mailbox.
    pub(super) fn info(&mut self, info: M::Info) -> Step {
        let next = self.machine.info(&self.state, info, &mut self.cx);
        self.follow(next)
    }

    /// The end of an actor that it watches, which it is to be [informed](Engine::info) of.
    #[inline]
    pub(super) fn poll_down(&mut self, cx: &mut task::Context<'_>) -> Poll<M::Info> {
        self.cx.poll_down(cx)
    }

    /// What is to be done to the timers since this was last called.
    pub(super) fn take_orders(&mut self) -> impl Iterator<Item = Order> + '_ {
        self.cx.timeouts.take_orders()
    }

    fn look_at(&mut self, event: M::Msg) -> Step {
        // Asked beforehand, of a borrowed event: so a handler gets what is its own, and nothing need be cloned or given back.
        if self.machine.postpones(&self.state, &event) {
            self.backlog.keep(event);
            return Step::Postponed;
        }
        let next = self.machine.handle(&self.state, event, &mut self.cx);
        self.follow(next)
    }

    fn follow(&mut self, next: Next<M::State>) -> Step {
        match next {
            Next::To(state) => {
                let left = std::mem::replace(&mut self.state, state);
                self.cx.timeouts.reset_state();
                self.backlog.restart();
                self.machine.enter(&self.state, Some(&left), &mut self.cx);
                Step::Transitioned
            }
            Next::Stay => Step::Stayed,
            Next::Stop => Step::Stopped,
            Next::Fail(why) => Step::Failed(why),
        }
    }
}

#[cfg(test)]
mod tests;
