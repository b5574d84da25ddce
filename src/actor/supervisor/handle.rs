//! What others can ask of a supervisor, from every core.

use std::fmt;
use std::sync::Arc;

use super::Supervisor;
use super::launch::Newborn;
use super::plan::Key;
use super::policy::Restart;
use super::spec::{ChildKind, ChildSpec};
use crate::actor::call::{Reply, call};
use crate::actor::exit::ExitReason;
use crate::actor::monitor::monitor;
use crate::actor::pid::Pid;
use crate::runtime::{CoreId, RawPid};

/// A running supervisor, as any core may use it.
///
/// # Drop
/// Nothing: the supervisor runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SupervisorRef {
    pid: Pid<Supervisor>,
}

impl SupervisorRef {
    /// The supervisor with this pid.
    pub fn new(pid: Pid<Supervisor>) -> SupervisorRef {
        SupervisorRef { pid }
    }

    /// Its pid.
    pub fn pid(self) -> Pid<Supervisor> {
        self.pid
    }

    /// Adds a child, starts it, and gives its pid once it has started. It comes last in the order of children.
    ///
    /// # Errors
    /// [`ChildError::AlreadyPresent`] when there is one with this id, [`ChildError::FailedToStart`], after which it is not in
    /// the list, and [`ChildError::NoSupervisor`].
    ///
    /// # Cancel safety
    /// When the future is dropped, the child may be started all the same.
    ///
    /// # Panics
    /// When not polled on a core.
    pub async fn start_child(self, child: ChildSpec) -> Result<Pid, ChildError> {
        self.ask(|reply| Order::Start(child, reply)).await
    }

    /// Stops a child and waits for its end. It stays in the list, to be [restarted](SupervisorRef::restart_child), unless it
    /// is [temporary](Restart::Temporary). Nothing when it does not run.
    ///
    /// # Errors
    /// [`ChildError::NotFound`], [`ChildError::Overdue`] and [`ChildError::NoSupervisor`].
    ///
    /// # Cancel safety
    /// When the future is dropped, the child may be stopped all the same.
    ///
    /// # Panics
    /// When not polled on a core.
    pub async fn stop_child(self, id: &str) -> Result<(), ChildError> {
        self.ask(|reply| Order::Stop { id: id.into(), leaves: false, reply }).await
    }

    /// As [`stop_child`](SupervisorRef::stop_child), and the child leaves the list.
    ///
    /// # Errors
    /// As [`stop_child`](SupervisorRef::stop_child).
    ///
    /// # Cancel safety
    /// As [`stop_child`](SupervisorRef::stop_child).
    ///
    /// # Panics
    /// When not polled on a core.
    pub async fn remove_child(self, id: &str) -> Result<(), ChildError> {
        self.ask(|reply| Order::Stop { id: id.into(), leaves: true, reply }).await
    }

    /// Starts a child that does not run, or stops one that does and starts it again, and gives its new pid. This is no
    /// failure, does not count as a restart, and concerns no other child.
    ///
    /// # Errors
    /// [`ChildError::NotFound`], [`ChildError::FailedToStart`], after which it is in the list and does not run,
    /// [`ChildError::Adopted`], [`ChildError::Overdue`] and [`ChildError::NoSupervisor`].
    ///
    /// # Cancel safety
    /// When the future is dropped, the child may be restarted all the same.
    ///
    /// # Panics
    /// When not polled on a core.
    pub async fn restart_child(self, id: &str) -> Result<Pid, ChildError> {
        self.ask(|reply| Order::Restart { id: id.into(), reply }).await
    }

    /// All children, in the order in which they are started.
    ///
    /// # Errors
    /// [`ChildError::NoSupervisor`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// # Panics
    /// When not polled on a core.
    pub async fn which_children(self) -> Result<Vec<ChildInfo>, ChildError> {
        call(self.pid, |reply| Request(Order::Which(reply))).await.map_err(|_| ChildError::NoSupervisor)
    }

    /// Has all children stopped, the last one first and each after the one behind it has ended, and waits until the supervisor
    /// has ended as well. Gives the ids of the children that had not ended within their
    /// [limit](super::ChildSpec::shutdown): they will, when their present poll returns. Nothing to do for a supervisor that
    /// has ended.
    ///
    /// # Cancel safety
    /// When the future is dropped, the supervisor may shut down all the same.
    ///
    /// # Panics
    /// When not polled on a core.
    pub async fn shutdown(self) -> Vec<Arc<str>> {
        let end = monitor(self.pid);
        let overdue = call(self.pid, |reply| Request(Order::Shutdown(reply))).await;
        end.await;
        overdue.unwrap_or_default()
    }

    async fn ask<R: Send + 'static>(
        self,
        order: impl FnOnce(Reply<Result<R, ChildError>>) -> Order,
    ) -> Result<R, ChildError> {
        call(self.pid, |reply| Request(order(reply))).await.unwrap_or(Err(ChildError::NoSupervisor))
    }
}

impl From<SupervisorRef> for RawPid {
    fn from(supervisor: SupervisorRef) -> RawPid {
        supervisor.pid.raw()
    }
}

/// What a supervisor is sent; made by [`SupervisorRef`].
pub struct Request(pub(super) Order);

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Request(..)")
    }
}

pub(super) enum Order {
    Launched { key: Key, child: Newborn },
    Started { key: Key, pid: RawPid },
    Adopt { child: Newborn },
    Start(ChildSpec, Reply<Result<Pid, ChildError>>),
    Stop { id: Arc<str>, leaves: bool, reply: Reply<Result<(), ChildError>> },
    Restart { id: Arc<str>, reply: Reply<Result<Pid, ChildError>> },
    Which(Reply<Vec<ChildInfo>>),
    Shutdown(Reply<Vec<Arc<str>>>),
}

/// One child of a supervisor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChildInfo {
    /// What it is called among its siblings.
    pub id: Arc<str>,
    /// Its present life; none while there is none, or while it is on its way to another core.
    pub pid: Option<Pid>,
    /// Whether it runs.
    pub state: ChildState,
    /// Worker or supervisor.
    pub kind: ChildKind,
    /// When it is started again.
    pub restart: Restart,
    /// The core it was given; none is its supervisor's.
    pub core: Option<CoreId>,
    /// How often it was started again after a failure.
    pub restarts: u32,
}

/// Where a child stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChildState {
    /// Does not run.
    Down,
    /// Failed, and will be started again after a pause.
    BackingOff,
    /// In its init.
    Starting,
    /// Runs.
    Up,
    /// Was told to end.
    Stopping,
    /// Was told to end long ago, and has not.
    Overdue,
}

/// Why a supervisor did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// There is a child with this id.
    #[error("there is a child with this id already")]
    AlreadyPresent,
    /// There is no child with this id.
    #[error("there is no child with this id")]
    NotFound,
    /// The child ended before it had started.
    #[error("the child did not start: it {0}")]
    FailedToStart(ExitReason),
    /// The child was started by [`spawn_under`](super::spawn_under): its supervisor cannot make it anew.
    #[error("the supervisor has not started this child, and cannot start it again")]
    Adopted,
    /// The child was told to end, and has not within its limit: its present poll does not return.
    #[error("the child does not end; its present poll does not return")]
    Overdue,
    /// The supervisor has ended, or is about to.
    #[error("the supervisor has ended, or is ending")]
    NoSupervisor,
}

/// Why a supervisor did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SupervisorError {
    /// Two children have the same id.
    #[error("two children are called `{id}`")]
    AlreadyPresent {
        /// Which.
        id: Arc<str>,
    },
    /// A child ended before it had started.
    #[error("the child `{id}` did not start: it {reason}")]
    ChildFailed {
        /// Which.
        id: Arc<str>,
        /// How it ended.
        reason: ExitReason,
    },
    /// The supervisor was stopped first.
    #[error("the supervisor was stopped before its children had started")]
    Stopped,
}
