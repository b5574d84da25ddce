//! The watches of a server: many actors, one arm.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::actor::exit::Down;
use crate::actor::monitors::Monitors;
use crate::runtime::RawPid;

/// Has a server hear of the end of other actors, by its [`handle_down`](super::Server::handle_down); from
/// [`Context::watcher`](super::Context::watcher). A clone is the same watcher. It may be used by other tasks of the
/// server's core too.
///
/// # Drop
/// Watches stay. When there are none left, and no watcher, the server looks for no more.
#[derive(Clone)]
pub struct Watcher(Rc<Watches>);

/// None once the server has ended.
type Watches = RefCell<Option<Monitors>>;

impl Watcher {
    /// Watches an actor, on whatever core: there will be one [`Down`], at once when it has ended already. Watching an
    /// actor that is being watched, or for a server that has ended, does nothing.
    pub fn watch(&self, pid: impl Into<RawPid>) {
        if let Some(monitors) = &mut *self.0.borrow_mut() {
            monitors.watch(pid);
        }
    }

    /// Ends a watch; false when there was none. No [`Down`] of it is seen after this: Erlang's `demonitor` with `flush`.
    pub fn unwatch(&self, pid: impl Into<RawPid>) -> bool {
        self.0.borrow_mut().as_mut().is_some_and(|monitors| monitors.unwatch(pid))
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watcher").field(&self.0.borrow()).finish()
    }
}

/// The server's side of its watches.
///
/// # Drop
/// Ends them all.
pub(super) struct DownArm {
    watches: Rc<Watches>,
    /// Found, and not taken yet.
    found: Option<Down>,
}

impl DownArm {
    pub(super) fn new() -> DownArm {
        DownArm { watches: Rc::new(RefCell::new(Some(Monitors::new()))), found: None }
    }

    pub(super) fn watcher(&self) -> Watcher {
        Watcher(Rc::clone(&self.watches))
    }

    /// Nothing can come any more: there are no watches, and nobody to add one.
    pub(super) fn is_over(&self) -> bool {
        let watches = &self.watches;
        Rc::strong_count(watches) == 1 && watches.borrow().as_ref().is_none_or(Monitors::is_empty)
    }

    /// Finds the next end of a watched actor.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self.watches.borrow_mut() {
            Some(monitors) => monitors.poll_recv(cx).map(|down| self.found = Some(down)),
            None => Poll::Pending,
        }
    }

    /// What was found.
    pub(super) fn take(&mut self) -> Option<Down> {
        self.found.take()
    }
}

impl Drop for DownArm {
    fn drop(&mut self) {
        drop(self.watches.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::spawn;
    use crate::runtime::{Cores, Runtime};

    #[test]
    fn the_arm_is_over_when_neither_a_watch_nor_a_watcher_is_left() {
        let runtime = Runtime::builder().cores(Cores::Count(1)).pinned(false).build().unwrap();
        let test = || async {
            let mut arm = DownArm::new();
            assert!(arm.is_over());
            let (watcher, watched) = (arm.watcher(), spawn(async {}));
            let second = watcher.clone();
            watcher.watch(watched);
            drop(watcher);
            second.watch(watched);
            drop(second);
            assert!(!arm.is_over(), "a watch is left");
            std::future::poll_fn(|cx| arm.poll(cx)).await;
            assert!(arm.take().is_some_and(|down| down.pid == watched) && arm.take().is_none());
            assert!(arm.is_over());
            let watcher = arm.watcher();
            assert!(!arm.is_over(), "a watcher is left");
            drop(arm);
            watcher.watch(watched);
            assert!(!watcher.unwatch(watched), "the server has ended");
        };
        runtime.block_on(test).unwrap();
    }
}
