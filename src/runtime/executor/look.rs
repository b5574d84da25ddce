//! Looking at tasks: what the executor knows of them, copied out under one short borrow.

use std::ops::Range;
use std::rc::Rc;

use super::task::Run;
use super::{Executor, Record, Task, TaskState};
use crate::runtime::identity::RawPid;

/// What the executor knows of a task.
#[derive(Clone, Debug)]
pub(crate) struct TaskView {
    pub(crate) pid: RawPid,
    pub(crate) parent: Option<RawPid>,
    pub(crate) state: TaskState,
    pub(crate) polls: u64,
    pub(crate) overruns: u64,
    pub(crate) received: u64,
    pub(crate) cycles: u64,
    /// Somebody waits for its result.
    pub(crate) joined: bool,
}

impl Executor {
    /// Shows a live task and its record to `look`, which must run no user code. None when the task has ended.
    pub(crate) fn view<R>(
        &self,
        pid: RawPid,
        look: impl FnOnce(TaskView, Option<&Rc<dyn Record>>) -> R,
    ) -> Option<R> {
        self.with_task(pid, |task| look(self.view_of(task), task.header.record.get()))
    }

    /// Shows the live tasks in these slots to `each`, as [`view`](Executor::view) does. True when there are slots beyond.
    pub(crate) fn views(
        &self,
        slots: Range<usize>,
        mut each: impl FnMut(TaskView, Option<&Rc<dyn Record>>),
    ) -> bool {
        let tasks = self.tasks.borrow();
        let slots = slots.start..slots.end.min(tasks.capacity());
        for task in slots.clone().filter_map(|slot| tasks.get(slot)) {
            each(self.view_of(task), task.header.record.get());
        }
        slots.end < tasks.capacity()
    }

    fn view_of(&self, task: &Task<dyn Run>) -> TaskView {
        let header = &task.header;
        TaskView {
            pid: header.pid(),
            parent: header.parent.map(|parent| self.lengthen(parent)),
            state: header.state.get(),
            polls: header.polls.get(),
            overruns: header.overruns.get().into(),
            received: header.received.get(),
            cycles: header.cycles.get(),
            joined: header.is_joined(),
        }
    }
}
