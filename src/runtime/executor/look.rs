//! Looking at tasks: what the executor knows of them, copied out under one short borrow.

use std::ops::Range;

use super::task::Run;
use super::{Executor, Task, TaskState};
use crate::runtime::identity::RawPid;

/// What the executor knows of a task.
#[derive(Clone, Debug)]
pub(crate) struct TaskView {
    pub(crate) pid: RawPid,
    pub(crate) parent: Option<RawPid>,
    pub(crate) state: TaskState,
    pub(crate) polls: u64,
    pub(crate) overruns: u64,
    pub(crate) cycles: u64,
    /// Somebody waits for its result.
    pub(crate) joined: bool,
}

impl Executor {
    /// A live task.
    pub(crate) fn view(&self, pid: RawPid) -> Option<TaskView> {
        self.with_task(pid, |task| self.view_of(task))
    }

    /// Shows the live tasks in these slots to `each`, which must run no user code. True when there are slots beyond.
    pub(crate) fn views(&self, slots: Range<usize>, mut each: impl FnMut(TaskView)) -> bool {
        let tasks = self.tasks.borrow();
        let slots = slots.start..slots.end.min(tasks.capacity());
        for task in slots.clone().filter_map(|slot| tasks.get(slot)) {
            each(self.view_of(task));
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
            cycles: header.cycles.get(),
            joined: header.is_joined(),
        }
    }
}
