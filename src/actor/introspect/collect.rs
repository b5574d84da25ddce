//! Asking cores for their actors.

use std::any::Any;
use std::rc::Rc;
use std::time::Duration;

use futures_channel::oneshot;

use super::info::{ActorInfo, CoreSnapshot, SNAPSHOT_FORMAT, Snapshot};
use crate::actor::kit::Kit;
use crate::actor::process::Process;
use crate::actor::registry::Tables;
use crate::runtime::executor::{Record, TaskView};
use crate::runtime::local::Local;
use crate::runtime::mesh::{self, Mail};
use crate::runtime::{CoreId, RawPid, RuntimeHandle, context, handle, now, timeout, usage, yield_now};

/// How long a core may take to answer by default. It answers at its next turn: one that takes longer is stuck in a task.
const PATIENCE: Duration = Duration::from_secs(1);
/// Task slots that a core copies before it lets others run: some tens of microseconds.
const SLOTS_AT_ONCE: usize = 1024;

/// All actors of the runtime that the caller runs on.
///
/// Every core is asked at once, and has a second to answer; those that did not are [`missing`](Snapshot::missing). See
/// [`snapshot_of`] for another runtime and another limit.
///
/// # Cancel safety
/// Cancel safe; cores that are at it stop soon.
///
/// # Panics
/// When not called on a core.
///
/// # Examples
/// ```
/// use corelet::actor;
/// use corelet::runtime::{Cores, Runtime, sleep};
/// use std::time::Duration;
///
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// runtime.block_on(|| async {
///     let child = actor::spawn(sleep(Duration::from_secs(60)));
///     let snapshot = actor::snapshot().await;
///     let seen = snapshot.actors().find(|actor| actor.pid == child).unwrap();
///     assert_eq!(seen.parent, actor::myself());
///     assert!(snapshot.missing.is_empty());
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn snapshot() -> Snapshot {
    snapshot_of(&handle(), PATIENCE).await
}

/// All actors of `runtime`, whose cores have so much time to answer, together.
///
/// # Cancel safety
/// Cancel safe; cores that are at it stop soon.
///
/// # Panics
/// When not called on a core. It may be one of another runtime.
pub async fn snapshot_of(runtime: &RuntimeHandle, limit: Duration) -> Snapshot {
    let ends = now() + limit;
    let mut asked = Vec::with_capacity(runtime.mailboxes().len());
    for mailbox in runtime.mailboxes() {
        let (answer, answered) = oneshot::channel();
        // Refused by a core that has ended: the question is dropped, and nobody will answer.
        let _ = mailbox.send(Mail::Run(Box::new(move || context::spawn(collect(answer)).detach())));
        asked.push((mailbox.core(), answered));
    }
    let mut snapshot = Snapshot { format: SNAPSHOT_FORMAT, cores: Vec::new(), missing: Vec::new() };
    for (core, answered) in asked {
        match timeout(ends.saturating_duration_since(now()), answered).await {
            Ok(Ok(answer)) => snapshot.cores.push(answer),
            _ => snapshot.missing.push(core),
        }
    }
    snapshot
}

/// A core did not answer in time: one of its tasks keeps it from its mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{core:?} did not answer within {after:?}; a task keeps it busy")]
#[non_exhaustive]
pub struct Unanswered {
    /// Which core.
    pub core: CoreId,
    /// How long it had.
    pub after: Duration,
}

/// One actor of any runtime of this process; none when it has ended, or never was.
///
/// # Errors
/// [`Unanswered`] when the actor's core did not answer within a second.
///
/// # Cancel safety
/// Cancel safe.
///
/// # Panics
/// When not called on a core.
pub async fn actor_info(pid: impl Into<RawPid>) -> Result<Option<ActorInfo>, Unanswered> {
    let pid = pid.into();
    let (answer, answered) = oneshot::channel();
    let look = move || {
        // Nobody listens any more when the caller lost its patience.
        let _ = answer.send(info(&context::current(), pid));
    };
    mesh::send_to(pid.core(), Mail::Run(Box::new(look)));
    match timeout(PATIENCE, answered).await {
        // A core that has ended has no actors left; its question was dropped.
        Ok(answer) => Ok(answer.unwrap_or(None)),
        Err(elapsed) => Err(Unanswered { core: pid.core(), after: elapsed.after }),
    }
}

fn info(local: &Rc<Local>, pid: RawPid) -> Option<ActorInfo> {
    let mut info = local.executor().view(pid, describe)?;
    info.names = Tables::of(local.runtime()).names_of(pid);
    Some(info)
}

fn describe(view: TaskView, record: Option<&Rc<dyn Record>>) -> ActorInfo {
    let process = record.and_then(|record| (&**record as &dyn Any).downcast_ref::<Process>());
    ActorInfo::new(view, process)
}

/// Runs on the core that was asked, as a task, so that a core with many actors goes on serving them meanwhile.
async fn collect(answer: oneshot::Sender<CoreSnapshot>) {
    let local = context::current();
    let executor = local.executor();
    let myself = executor.current();
    let (at, stats) = (local.now(), local.stats());
    let cpu_time = (!local.driver().is_simulated()).then(usage::thread_cpu_time);
    let mut actors = Vec::with_capacity(stats.executor.live);
    let mut slot = 0;
    while executor.views(slot..slot + SLOTS_AT_ONCE, |view, record| {
        if Some(view.pid) != myself {
            actors.push(describe(view, record));
        }
    }) {
        slot += SLOTS_AT_ONCE;
        yield_now().await;
        if answer.is_canceled() {
            return;
        }
    }
    for (holder, names) in Tables::of(local.runtime()).names_on(local.id()) {
        // They are in the order of their slots.
        if let Ok(place) = actors.binary_search_by_key(&holder.index(), |actor| actor.pid.raw().index())
            && actors[place].pid.raw() == holder
        {
            actors[place].names = names;
        }
    }
    let undelivered = Kit::of(&local).undelivered();
    // As above: nobody may listen any more.
    let _ = answer.send(CoreSnapshot { core: local.id(), at, cpu_time, stats, undelivered, actors });
}
