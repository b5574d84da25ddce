//! The watches of a server: many actors, one arm.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};

use rustc_hash::FxHashMap;

use crate::actor::channel::{AnyQueue, Queue};
use crate::actor::exit::Down;
use crate::actor::monitor::{Place, Sink, unwatch, watch};
use crate::runtime::RawPid;
use crate::runtime::local::Local;

/// Has a server hear of the end of other actors, by its [`handle_down`](super::Server::handle_down); from
/// [`Context::watcher`](super::Context::watcher). A clone is the same watcher. It may be used by other tasks of the
/// server's core too.
///
/// # Drop
/// Watches stay. When there are none left, and no watcher, the server looks for no more.
#[derive(Clone)]
pub struct Watcher(Rc<Downs>);

impl Watcher {
    /// Watches an actor, on whatever core: there will be one [`Down`], at once when it has ended already. Watching an
    /// actor that is being watched, or for a server that has ended, does nothing.
    pub fn watch(&self, pid: impl Into<RawPid>) {
        self.0.watch(pid.into());
    }

    /// Ends a watch; false when there was none. No [`Down`] of it is seen after this: Erlang's `demonitor` with `flush`.
    pub fn unwatch(&self, pid: impl Into<RawPid>) -> bool {
        self.0.unwatch(pid.into())
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("watches", &self.0.watched.borrow().len()).finish()
    }
}

/// What watchers share with their server.
struct Downs {
    local: Rc<Local>,
    queue: Rc<Queue<Down>>,
    /// An actor is in here until its end has been handled, or is no longer of interest.
    watched: RefCell<FxHashMap<RawPid, Place>>,
    /// The server has ended.
    closed: Cell<bool>,
}

impl Downs {
    fn watch(&self, pid: RawPid) {
        if self.closed.get() || self.watched.borrow().contains_key(&pid) {
            return;
        }
        let place = watch(&self.local, pid, Sink::Queue(Rc::clone(&self.queue)));
        self.watched.borrow_mut().insert(pid, place);
    }

    fn unwatch(&self, pid: RawPid) -> bool {
        let Some(place) = self.watched.borrow_mut().remove(&pid) else { return false };
        unwatch(&self.local, pid, place);
        true
    }
}

/// The server's side of its watches.
///
/// # Drop
/// Ends them all.
pub(super) struct DownArm {
    downs: Rc<Downs>,
    /// Found, and not taken yet.
    found: Option<Down>,
}

impl DownArm {
    pub(super) fn new(local: &Rc<Local>) -> DownArm {
        let queue = Rc::new(Queue::new(usize::MAX));
        // The arm, not its senders, says when it is over.
        queue.publish();
        let downs =
            Downs { local: Rc::clone(local), queue, watched: RefCell::default(), closed: Cell::new(false) };
        DownArm { downs: Rc::new(downs), found: None }
    }

    pub(super) fn watcher(&self) -> Watcher {
        Watcher(Rc::clone(&self.downs))
    }

    /// Nothing can come any more: there are no watches, and nobody to add one.
    pub(super) fn is_over(&self) -> bool {
        Rc::strong_count(&self.downs) == 1 && self.downs.watched.borrow().is_empty()
    }

    /// Finds the next end of a watched actor. What was told of others since is left out.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(Some(down)) = self.downs.queue.poll_pop(cx) {
            let watched = self.downs.watched.borrow_mut().remove(&down.pid.raw());
            if watched.is_some() {
                self.found = Some(down);
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// What was found.
    pub(super) fn take(&mut self) -> Option<Down> {
        self.found.take()
    }
}

impl Drop for DownArm {
    fn drop(&mut self) {
        let downs = &self.downs;
        downs.closed.set(true);
        for (pid, place) in downs.watched.take() {
            unwatch(&downs.local, pid, place);
        }
        drop(downs.queue.close());
    }
}
