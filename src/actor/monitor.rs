//! Hearing of an actor's end, once.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

use super::channel::Queue;
use super::exit::{Down, ExitReason};
use super::kit::Kit;
use super::pid::Pid;
use super::process::Process;
use crate::runtime::local::Local;
use crate::runtime::mesh::{self, Letter};
use crate::runtime::{CoreId, RawPid, context};

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
    let cell = Rc::new(MonitorCell { down: RefCell::new(None), reader: Cell::new(None) });
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
        self.cell.down.borrow().clone()
    }
}

impl Future for Monitor {
    type Output = Down;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Down> {
        if let Some(down) = &*self.cell.down.borrow() {
            return Poll::Ready(down.clone());
        }
        let kept = self.cell.reader.take().filter(|kept| kept.will_wake(cx.waker()));
        self.cell.reader.set(Some(kept.unwrap_or_else(|| cx.waker().clone())));
        Poll::Pending
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        if self.cell.down.borrow().is_none() {
            unwatch(&self.local, self.target, self.place);
        }
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("pid", &self.target).field("down", &self.down()).finish()
    }
}

/// Where a monitor's one message goes.
pub(crate) struct MonitorCell {
    down: RefCell<Option<Down>>,
    reader: Cell<Option<Waker>>,
}

/// Who is told on this core.
#[derive(Clone)]
pub(crate) enum Sink {
    One(Rc<MonitorCell>),
    /// One of many that go to the same reader.
    Queue(Rc<Queue<Down>>),
}

impl Sink {
    fn tell(self, down: Down) {
        let reader = match self {
            Sink::One(cell) => {
                cell.down.replace(Some(down));
                cell.reader.take()
            }
            // A reader that is gone has no use for it.
            Sink::Queue(queue) => queue.push(down).unwrap_or(None),
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// Who is told, as the watched actor knows it.
pub(crate) enum Watcher {
    Here(Sink),
    There(FarKey),
}

impl Watcher {
    pub(super) fn tell(self, pid: RawPid, reason: ExitReason) {
        match self {
            Watcher::Here(sink) => sink.tell(Down::new(pid, reason)),
            Watcher::There(key) => FarDown { key, pid, reason }.post(),
        }
    }
}

/// Where a watch is entered, so that it can be taken back.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// In the actor's record on this core.
    Near(usize),
    /// Among this core's watches of actors elsewhere.
    Far(FarKey),
    /// The actor had ended: the sink has been told.
    Over,
}

/// Has `sink` told of the end of `target`.
pub(crate) fn watch(local: &Rc<Local>, target: RawPid, sink: Sink) -> Place {
    if target.core() == local.id() {
        return match Process::of(local, target) {
            Some(process) => Place::Near(process.bonds().watchers.borrow_mut().insert(Watcher::Here(sink))),
            None => {
                sink.tell(Down::new(target, ExitReason::NoProcess));
                Place::Over
            }
        };
    }
    let key = Kit::of(local).far_monitors().insert(local.id(), sink);
    // A request that does not arrive says so as it is dropped.
    drop(mesh::post(target.core(), WatchRequest { target, key, answered: false }));
    Place::Far(key)
}

/// Takes a watch back. It may have been told meanwhile.
pub(crate) fn unwatch(local: &Rc<Local>, target: RawPid, place: Place) {
    match place {
        Place::Near(index) => {
            if let Some(Some(process)) = Process::find(local, target) {
                let removed = process.bonds().watchers.borrow_mut().try_remove(index);
                drop(removed);
            }
        }
        Place::Far(key) => {
            drop(Kit::of(local).far_monitors().remove(key));
            // Refused by a core that has ended, and the watch with it.
            let _ = mesh::post(target.core(), Unwatch { target, key });
        }
        Place::Over => {}
    }
}

/// The watches of one core over actors elsewhere.
#[derive(Default)]
pub(crate) struct FarMonitors {
    sinks: RefCell<Slab<(u32, Sink)>>,
    generation: Cell<u32>,
}

/// Names a watch of the core that watches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FarKey {
    core: CoreId,
    index: u32,
    generation: u32,
}

impl FarMonitors {
    fn insert(&self, core: CoreId, sink: Sink) -> FarKey {
        let generation = self.generation.get().wrapping_add(1);
        self.generation.set(generation);
        let index = self.sinks.borrow_mut().insert((generation, sink)) as u32;
        FarKey { core, index, generation }
    }

    fn remove(&self, key: FarKey) -> Option<Sink> {
        let mut sinks = self.sinks.borrow_mut();
        let (generation, _) = sinks.get(key.index as usize)?;
        if *generation != key.generation {
            return None;
        }
        Some(sinks.remove(key.index as usize).1)
    }

    pub(super) fn clear(&self) {
        drop(self.sinks.take());
    }
}

/// Asks the core of `target` for a watch.
struct WatchRequest {
    target: RawPid,
    key: FarKey,
    answered: bool,
}

impl Letter for WatchRequest {
    fn open(mut self: Box<Self>) {
        self.answered = true;
        let local = context::current();
        match Process::of(&local, self.target) {
            Some(process) => {
                process.bonds().watchers.borrow_mut().insert(Watcher::There(self.key));
            }
            None => FarDown { key: self.key, pid: self.target, reason: ExitReason::NoProcess }.post(),
        }
    }
}

impl Drop for WatchRequest {
    fn drop(&mut self) {
        if !self.answered {
            FarDown { key: self.key, pid: self.target, reason: ExitReason::CoreEnded }.post();
        }
    }
}

struct Unwatch {
    target: RawPid,
    key: FarKey,
}

impl Letter for Unwatch {
    fn open(self: Box<Self>) {
        let local = context::current();
        if let Some(Some(process)) = Process::find(&local, self.target) {
            let mut watchers = process.bonds().watchers.borrow_mut();
            watchers.retain(|_, watcher| !matches!(watcher, Watcher::There(key) if *key == self.key));
        }
    }
}

/// Tells the core that watches.
struct FarDown {
    key: FarKey,
    pid: RawPid,
    reason: ExitReason,
}

impl FarDown {
    fn post(self) {
        // Refused by a core that has ended: nobody watches there any more.
        let _ = mesh::post(self.key.core, self);
    }
}

impl Letter for FarDown {
    fn open(self: Box<Self>) {
        let local = context::current();
        if let Some(sink) = Kit::of(&local).far_monitors().remove(self.key) {
            sink.tell(Down::new(self.pid, self.reason));
        }
    }
}
