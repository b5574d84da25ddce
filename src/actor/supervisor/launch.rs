//! How a child comes to its core, and how its supervisor hears of it.
//!
//! Whatever ends first, of the supervisor, the child and their cores: a child that its supervisor does not know is stopped,
//! and a supervisor is told of each start exactly how it went.

use std::rc::Rc;
use std::sync::Arc;

use super::Supervisor;
use super::handle::{Order, Request};
use super::plan::Key;
use super::spec::{ChildSpec, Start};
use crate::actor::channel::Queue;
use crate::actor::exit::{Down, ExitReason};
use crate::actor::pid::Pid;
use crate::actor::process::Process;
use crate::actor::send::send_to;
use crate::actor::watch::{FarDown, FarKey, Place, Sink, await_far, watch};
use crate::runtime::local::Local;
use crate::runtime::mesh::{Letter, Mail};
use crate::runtime::{CoreId, RawPid, context};

/// What a child knows of where it comes from.
#[derive(Clone, Copy, Debug)]
pub(in crate::actor) struct Cradle {
    pub(super) supervisor: Pid<Supervisor>,
    pub(super) key: Key,
}

impl Cradle {
    /// The calling child has started.
    pub(in crate::actor) fn started(self) {
        if let Some(pid) = context::current_task() {
            // A supervisor that has ended has stopped its children, also this one.
            let _ = send_to(self.supervisor, Request(Order::Started { key: self.key, pid }));
        }
    }
}

/// A child that its supervisor has yet to be told of.
///
/// # Drop
/// Stops it: its supervisor has ended.
#[derive(Debug)]
pub(super) struct Newborn {
    pid: Option<RawPid>,
}

impl Newborn {
    pub(super) fn new(pid: RawPid) -> Newborn {
        Newborn { pid: Some(pid) }
    }

    /// It is its supervisor's from now on.
    pub(super) fn accept(mut self) -> Option<RawPid> {
        self.pid.take()
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            context::stop(pid);
        }
    }
}

/// Starts a child, of which `ends` is told under its key. Its pid comes by a message if it is on another core.
pub(super) fn launch(
    local: &Rc<Local>,
    cradle: Cradle,
    spec: &ChildSpec,
    ends: &Rc<Queue<(u64, Down)>>,
) -> (Option<RawPid>, Place) {
    let sink = Sink::Tagged(Rc::clone(ends), cradle.key);
    let (id, start) = (Arc::clone(&spec.id), Arc::clone(&spec.start));
    match spec.core.filter(|core| *core != local.id()) {
        None => {
            let pid = start.spawn(cradle);
            own(local, pid, cradle.supervisor, Some(&id));
            (Some(pid), watch(local, pid, sink))
        }
        Some(core) => {
            let watch = await_far(local, sink);
            let launch = Launch { core, cradle, id, watch, start, launched: false };
            // One that does not arrive says so as it is dropped. By the runtime and not by the id alone, which a core of
            // another runtime may have by now.
            match local.runtime().mailbox(core) {
                Ok(mailbox) => drop(mailbox.send(Mail::Letter(Box::new(launch)))),
                Err(_) => drop(launch),
            }
            (None, Place::Far(watch))
        }
    }
}

/// Notes down in a child whose it is, and what it is called if it is called something.
pub(super) fn own(local: &Rc<Local>, pid: RawPid, supervisor: Pid<Supervisor>, id: Option<&Arc<str>>) {
    if let Some(process) = Process::of(local, pid) {
        process.bonds().supervisor.set(Some(supervisor.raw()));
        if let Some(id) = id {
            process.set_label(Arc::clone(id));
        }
    }
}

/// A child on its way to its core.
struct Launch {
    core: CoreId,
    cradle: Cradle,
    id: Arc<str>,
    watch: FarKey,
    start: Arc<dyn Start>,
    launched: bool,
}

impl Letter for Launch {
    fn open(mut self: Box<Self>) {
        let local = context::current();
        let pid = self.start.spawn(self.cradle);
        self.launched = true;
        own(&local, pid, self.cradle.supervisor, Some(&self.id));
        match Process::of(&local, pid) {
            Some(process) => process.bonds().watchers.add_far(self.watch),
            None => FarDown { key: self.watch, pid, reason: ExitReason::CoreEnded }.post(),
        }
        let order = Order::Launched { key: self.cradle.key, child: Newborn::new(pid) };
        // Dropped by a supervisor that has ended, and the child is stopped.
        drop(send_to(self.cradle.supervisor, Request(order)));
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        if !self.launched {
            // There is no child; its supervisor goes by the key.
            let nobody = RawPid { core: self.core, index: u32::MAX, generation: 0 };
            FarDown { key: self.watch, pid: nobody, reason: ExitReason::CoreEnded }.post();
        }
    }
}
