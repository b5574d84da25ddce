//! Hearing of an actor's end, once.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::exit::Down;
use super::pid::Pid;
use super::watch::{MonitorCell, Place, Sink, unwatch, watch};
use crate::runtime::local::Local;
use crate::runtime::{RawPid, context};

/// Watches an actor, on whatever core it is; the monitor gives one [`Down`] when it has ended, or at once when it has already.
/// Watching an actor twice gives two.
///
/// # Panics
/// When not called on a core.
///
/// # Examples
/// ```
/// use corelet::actor::{self, ExitReason};
/// use corelet::runtime::{Cores, Runtime};
///
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// runtime.block_on(|| async {
///     let frail = actor::spawn(async { panic!("on purpose") });
///     let down = actor::monitor(frail).await;
///     assert_eq!(down.reason, ExitReason::Panicked("on purpose".into()));
///     assert_eq!(actor::monitor(frail).await.reason, ExitReason::NoProcess);
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn monitor(pid: impl Into<RawPid>) -> Monitor {
    let target = pid.into();
    let local = context::current();
    let cell = Rc::new(MonitorCell::default());
    let place = watch(&local, target, Sink::One(Rc::clone(&cell)));
    Monitor { local, target, cell, place }
}

/// Gives one [`Down`]; made by [`monitor`]. Ready again with the same when it is polled once more.
///
/// # Cancel safety
/// Cancel safe.
///
/// # Drop
/// Ends the watch: Erlang's `demonitor` with `flush`.
#[must_use = "dropping a monitor ends the watch"]
pub struct Monitor {
    local: Rc<Local>,
    target: RawPid,
    cell: Rc<MonitorCell>,
    place: Place,
}

impl Monitor {
    /// Who is watched.
    pub fn pid(&self) -> Pid {
        self.target.into()
    }

    /// What it has given, if the actor has ended.
    pub fn down(&self) -> Option<Down> {
        self.cell.down()
    }
}

impl Future for Monitor {
    type Output = Down;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Down> {
        self.cell.poll(cx)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        if self.cell.down().is_none() {
            unwatch(&self.local, self.target, self.place);
        }
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("pid", &self.target).field("down", &self.down()).finish()
    }
}
