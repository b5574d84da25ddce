//! Watching many operations from one task: each completion leaves a token in the task's list and wakes it once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::context;
use super::identity::RawPid;

/// The list of one watching task.
#[derive(Debug)]
pub(crate) struct WatchList {
    fired: RefCell<Vec<u64>>,
    task: Cell<Option<RawPid>>,
}

#[cfg_attr(not(feature = "pool"), allow(dead_code))]
impl WatchList {
    pub(crate) fn new() -> Rc<WatchList> {
        Rc::new(WatchList { fired: RefCell::new(Vec::new()), task: Cell::new(None) })
    }

    /// Names the task that is woken.
    pub(crate) fn set_task(&self, task: RawPid) {
        self.task.set(Some(task));
    }

    /// A watch that leaves `token` here.
    #[inline]
    pub(crate) fn watch(self: &Rc<WatchList>, token: u64) -> Watch {
        Watch { list: Rc::clone(self), token }
    }

    /// Moves the tokens that fired into `into`.
    pub(crate) fn take_fired(&self, into: &mut Vec<u64>) {
        into.append(&mut self.fired.borrow_mut());
    }
}

/// Tells the task that watches a thing, once, that something happened to it. What happened is for the task to find out.
#[derive(Debug)]
pub struct Watch {
    list: Rc<WatchList>,
    token: u64,
}

impl Watch {
    /// Wakes the watching task. Only a hint: calling it without a cause costs the task a look.
    pub fn notify(self) {
        self.list.fired.borrow_mut().push(self.token);
        if let Some(task) = self.list.task.get() {
            context::wake(task.into());
        }
    }
}
