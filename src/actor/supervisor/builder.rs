//! Putting a supervisor together.

use std::time::Duration;

use super::handle::{SupervisorError, SupervisorRef};
use super::policy::{Backoff, Intensity, Policy, Strategy};
use super::spec::ChildSpec;
use super::{Supervisor, nursery};
use crate::actor::process::Process;
use crate::actor::spawn::{own_process, spawn_addr};
use crate::actor::{call, link, request_stop};
use crate::runtime::{RawPid, context};

/// The settings of a supervisor, and its first children.
#[derive(Debug)]
#[must_use = "a supervisor does nothing until it is started"]
pub struct SupervisorBuilder {
    pub(super) policy: Policy,
    pub(super) children: Vec<ChildSpec>,
}

impl SupervisorBuilder {
    pub(super) fn new() -> SupervisorBuilder {
        let policy = Policy {
            strategy: Strategy::default(),
            intensity: Intensity { restarts: 3, within: Duration::from_secs(5) },
            backoff: Backoff { initial: Duration::ZERO, max: Duration::ZERO },
        };
        SupervisorBuilder { policy, children: Vec::new() }
    }

    /// Whom to restart when a child fails; the child alone, by default.
    pub fn strategy(mut self, strategy: Strategy) -> SupervisorBuilder {
        self.policy.strategy = strategy;
        self
    }

    /// How many restarts within how long are allowed, of all children together; three in five seconds by default. With one
    /// more the supervisor gives up: it stops its children and fails itself, so that whoever supervises it may try with a
    /// fresh one.
    pub fn intensity(mut self, restarts: u32, within: Duration) -> SupervisorBuilder {
        self.policy.intensity = Intensity { restarts, within };
        self
    }

    /// How long a child stays down after a failure: by default not at all. The pause doubles with each failure, up to `max`,
    /// and begins anew when the child was up for as long as the [intensity](SupervisorBuilder::intensity) looks back. Half of
    /// each pause is random.
    ///
    /// The pauses count in that time: with long ones a child may fail for ever without the supervisor's giving up.
    pub fn backoff(mut self, initial: Duration, max: Duration) -> SupervisorBuilder {
        self.policy.backoff = Backoff { initial, max: max.max(initial) };
        self
    }

    /// A further child. Children are started in the order in which they are added, each when the one before has started, and
    /// stopped in the opposite order.
    pub fn child(mut self, child: ChildSpec) -> SupervisorBuilder {
        self.children.push(child);
        self
    }

    /// Starts the supervisor on the current core, and waits until all children have started.
    ///
    /// # Errors
    /// [`SupervisorError`]. The children that had started have been stopped by then.
    ///
    /// # Cancel safety
    /// When the future is dropped before it is ready, the supervisor is stopped, and its children with it.
    ///
    /// # Panics
    /// When not called on a core.
    pub async fn start(self) -> Result<SupervisorRef, SupervisorError> {
        self.start_by(None).await
    }

    /// As [`start`](SupervisorBuilder::start), with the supervisor linked to the calling actor: it shuts down in good order
    /// when the caller ends, in whatever way, and the caller is stopped when it gives up.
    ///
    /// # Errors
    /// [`SupervisorError`]. The caller lives on.
    ///
    /// # Cancel safety
    /// As [`start`](SupervisorBuilder::start).
    ///
    /// # Panics
    /// When not called in a task of a core.
    pub async fn start_link(self) -> Result<SupervisorRef, SupervisorError> {
        let (_, me) = own_process();
        self.start_by(Some(me.pid())).await
    }

    async fn start_by(self, parent: Option<RawPid>) -> Result<SupervisorRef, SupervisorError> {
        let (reply, answer) = call::reply();
        let pid = spawn_addr::<Supervisor, _, _>(move |inbox| async move {
            match nursery::begin(self, inbox, parent).await {
                Ok(running) => {
                    reply.send(Ok(()));
                    running.await;
                }
                Err(error) => reply.send(Err(error)),
            }
        });
        let mut unfinished = StopOnDrop(Some(pid.raw()));
        if let Some(parent) = parent {
            let local = context::current();
            if let (Some(parent), Some(child)) = (Process::of(&local, parent), Process::of(&local, pid.raw()))
            {
                link::tie(&parent, &child);
            }
        }
        let started = answer.await.unwrap_or(Err(SupervisorError::Stopped));
        unfinished.0 = None;
        started.map(|()| SupervisorRef::new(pid))
    }
}

struct StopOnDrop(Option<RawPid>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            request_stop(pid);
        }
    }
}
