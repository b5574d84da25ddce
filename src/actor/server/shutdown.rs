//! Asking actors to end in good order, of their own doing.

use std::rc::Rc;

use crate::actor::exit::ExitReason;
use crate::actor::monitor::monitor;
use crate::actor::process::Process;
use crate::runtime::local::Local;
use crate::runtime::mesh::{self, Letter};
use crate::runtime::{RawPid, context};

/// Asks an actor to end and waits until it has.
pub(super) async fn shutdown(pid: RawPid) -> ExitReason {
    let end = monitor(pid);
    ask_to_end(pid);
    end.await.reason
}

/// Asks an actor to end when it next looks: from any thread, ahead of its mail. One that does not look is stopped.
fn ask_to_end(pid: RawPid) {
    let here = context::with(|local| (local.id() == pid.core()).then(|| Rc::clone(local))).flatten();
    match here {
        Some(local) => ask_here(&local, pid),
        // Refused by a core that has ended, and the actor with it.
        None => drop(mesh::post(pid.core(), EndRequest { pid })),
    }
}

fn ask_here(local: &Local, pid: RawPid) {
    if !Process::find(local, pid).flatten().is_some_and(|process| process.ask_to_end(local)) {
        local.executor().stop(pid);
    }
}

struct EndRequest {
    pid: RawPid,
}

impl Letter for EndRequest {
    fn open(self: Box<Self>) {
        ask_here(&context::current(), self.pid);
    }
}
