//! Watches: who is to be told of an actor's end, and how that gets to another core.
//!
//! A watch is entered on both cores. Whoever watches keeps its sink, under a key; the watched actor keeps the key. Each of
//! the two letters of a watch says so when it is lost with its core, so whatever ends first, the sink is told once.
//!
//! Never: tell a sink twice, or wake its reader while something is borrowed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use slab::Slab;

use super::channel::Queue;
use super::exit::{Down, ExitReason};
use super::kit::Kit;
use super::process::Process;
use crate::runtime::executor::contain;
use crate::runtime::local::Local;
use crate::runtime::mesh::{self, Letter};
use crate::runtime::{CoreId, RawPid, context};

/// Where the one message of a [`Monitor`](super::Monitor) goes.
#[derive(Default)]
pub(super) struct MonitorCell {
    down: RefCell<Option<Down>>,
    reader: Cell<Option<Waker>>,
}

impl MonitorCell {
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Down> {
        if let Some(down) = self.down() {
            return Poll::Ready(down);
        }
        let kept = self.reader.take().filter(|kept| kept.will_wake(cx.waker()));
        self.reader.set(Some(kept.unwrap_or_else(|| cx.waker().clone())));
        Poll::Pending
    }

    pub(super) fn down(&self) -> Option<Down> {
        self.down.borrow().clone()
    }
}

/// Who is told, on the core that watches.
pub(super) enum Sink {
    One(Rc<MonitorCell>),
    /// One of many that go to the same reader, who knows them by these numbers.
    Tagged(Rc<Queue<(u64, Down)>>, u64),
}

impl Sink {
    fn tell(self, down: Down) {
        let reader = match self {
            Sink::One(cell) => {
                cell.down.replace(Some(down));
                cell.reader.take()
            }
            // A reader that is gone has no use for it. One that is there has a queue without a bound.
            Sink::Tagged(queue, tag) => queue.push((tag, down)).unwrap_or(None),
        };
        if let Some(reader) = reader {
            contain("a waker", || reader.wake());
        }
    }
}

/// Who watches one actor, on that actor's core.
#[derive(Default)]
pub(crate) struct Watchers {
    here: RefCell<Slab<Sink>>,
    /// Ordered, so that a simulated run repeats itself.
    there: RefCell<BTreeSet<FarKey>>,
}

impl Watchers {
    pub(super) fn add_far(&self, key: FarKey) {
        self.there.borrow_mut().insert(key);
    }

    pub(super) fn len(&self) -> usize {
        self.here.borrow().len() + self.there.borrow().len()
    }

    /// The actor has ended. Nobody is added any more.
    pub(super) fn tell(&self, pid: RawPid, reason: &ExitReason) {
        for (_, sink) in self.here.take() {
            sink.tell(Down::new(pid, reason.clone()));
        }
        for key in self.there.take() {
            FarDown { key, pid, reason: reason.clone() }.post();
        }
    }
}

/// Where a watch is entered, so that it can be taken back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// In the actor's record on this core.
    Near(usize),
    /// Among this core's watches of actors elsewhere.
    Far(FarKey),
    /// The actor had ended: the sink has been told.
    Over,
}

/// Has `sink` told of the end of `target`.
pub(super) fn watch(local: &Rc<Local>, target: RawPid, sink: Sink) -> Place {
    if target.core() == local.id() {
        return match Process::of(local, target) {
            Some(process) => Place::Near(process.bonds().watchers.here.borrow_mut().insert(sink)),
            None => {
                sink.tell(Down::new(target, ExitReason::NoProcess));
                Place::Over
            }
        };
    }
    let key = await_far(local, sink);
    // A request that does not arrive says so as it is dropped.
    drop(mesh::post(target.core(), WatchRequest { target, key, answered: false }));
    Place::Far(key)
}

/// Has `sink` told by whoever brings a [`FarDown`] with this key.
pub(super) fn await_far(local: &Rc<Local>, sink: Sink) -> FarKey {
    Kit::of(local).far_watches().insert(local.id(), sink)
}

/// Takes a watch back. It may have been told meanwhile.
pub(super) fn unwatch(local: &Rc<Local>, target: RawPid, place: Place) {
    match place {
        Place::Near(index) => {
            if let Some(Some(process)) = Process::find(local, target) {
                let removed = process.bonds().watchers.here.borrow_mut().try_remove(index);
                drop(removed);
            }
        }
        // A watch that has been told is not there any more, at either end.
        Place::Far(key) => {
            if let Some(sink) = Kit::of(local).far_watches().remove(key) {
                drop(sink);
                // Refused by a core that has ended, and the watch with it.
                let _ = mesh::post(target.core(), Unwatch { target, key });
            }
        }
        Place::Over => {}
    }
}

/// The watches of one core over actors elsewhere.
pub(super) struct FarWatches {
    sinks: RefCell<Slab<(u64, Sink)>>,
    generation: Cell<u64>,
}

/// Names a watch of the core that watches. Ordered by age.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct FarKey {
    generation: u64,
    index: u32,
    core: CoreId,
}

/// Where the generations of the next core begin: a letter to a core that has ended must not find a watch of a later core
/// with the same id.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// Watches that one core may enter before it meets another's generations.
const GENERATIONS_PER_CORE: u64 = 1 << 44;

impl Default for FarWatches {
    fn default() -> FarWatches {
        let generation = GENERATIONS.fetch_add(GENERATIONS_PER_CORE, Ordering::Relaxed);
        FarWatches { sinks: RefCell::new(Slab::new()), generation: Cell::new(generation) }
    }
}

impl FarWatches {
    fn insert(&self, core: CoreId, sink: Sink) -> FarKey {
        let generation = self.generation.get().wrapping_add(1);
        self.generation.set(generation);
        let index = self.sinks.borrow_mut().insert((generation, sink)) as u32;
        FarKey { generation, index, core }
    }

    fn remove(&self, key: FarKey) -> Option<Sink> {
        let mut sinks = self.sinks.borrow_mut();
        let (generation, _) = sinks.get(key.index as usize)?;
        (*generation == key.generation).then(|| sinks.remove(key.index as usize).1)
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
        match Process::of(&context::current(), self.target) {
            Some(process) => process.bonds().watchers.add_far(self.key),
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
        if let Some(Some(process)) = Process::find(&context::current(), self.target) {
            process.bonds().watchers.there.borrow_mut().remove(&self.key);
        }
    }
}

/// Tells the core that watches.
pub(super) struct FarDown {
    pub(super) key: FarKey,
    pub(super) pid: RawPid,
    pub(super) reason: ExitReason,
}

impl FarDown {
    pub(super) fn post(self) {
        // Refused by a core that has ended: nobody watches there any more.
        let _ = mesh::post(self.key.core, self);
    }
}

impl Letter for FarDown {
    fn open(self: Box<Self>) {
        let sink = context::with(|local| Kit::of(local).far_watches().remove(self.key)).flatten();
        if let Some(sink) = sink {
            sink.tell(Down::new(self.pid, self.reason));
        }
    }
}
