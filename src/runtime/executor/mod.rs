//! Runs the tasks of one core: who is ready, polling, stopping, and the table of task identities.
//!
//! Never: block, look at a descriptor or a clock, or run user code while the task table is borrowed.

mod queue;
mod task;
pub(crate) mod waker;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::task::Context;

use slab::Slab;

pub(crate) use task::{Joinable, contain, panic_message};
use task::{Runnable, TaskCell};
use waker::WakeTarget;

use crate::runtime::identity::{CoreId, RawPid};
use queue::RunQueue;

/// How many steps that could have gone on a task may take in one poll before it must let others run.
const BUDGET: u32 = 128;

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskState {
    /// Waits in the run queue for its next poll.
    Queued,
    /// Is being polled.
    Running,
    /// Is being polled and was woken meanwhile: goes back to the queue afterwards.
    Notified,
    /// Waits for a wake.
    Parked,
}

/// What a core knows of one task. Written by its own core only.
struct Slot {
    cell: Rc<dyn Runnable>,
    generation: u32,
    state: TaskState,
    stop: bool,
    parent: Option<RawPid>,
    polls: u64,
    overruns: u64,
}

/// Counts of one executor since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecutorStats {
    /// Tasks ever spawned.
    pub spawned: u64,
    /// Tasks that have ended, in whatever way.
    pub finished: u64,
    /// Polls of tasks.
    pub polls: u64,
    /// Polls in which a task spent its whole cooperative budget.
    pub overruns: u64,
    /// Tasks alive now.
    pub live: usize,
    /// Tasks ready to run now.
    pub ready: usize,
}

struct Table {
    tasks: Slab<Slot>,
    queue: RunQueue,
    generation: u32,
    closed: bool,
    stats: ExecutorStats,
}

pub(crate) struct Executor {
    core: CoreId,
    table: RefCell<Table>,
    current: Cell<Option<RawPid>>,
    budget: Cell<u32>,
}

impl Executor {
    pub(crate) fn new(core: CoreId, wake_slot: bool, shuffle: u64) -> Executor {
        let mut queue = RunQueue::default();
        queue.set_wake_slot(wake_slot);
        queue.set_shuffle(shuffle);
        Executor {
            core,
            table: RefCell::new(Table {
                tasks: Slab::new(),
                queue,
                generation: 0,
                closed: false,
                stats: ExecutorStats::default(),
            }),
            current: Cell::new(None),
            budget: Cell::new(BUDGET),
        }
    }

    /// Puts a task into the table and the queue. On an executor that has shut down the task ends at once, cancelled.
    pub(crate) fn spawn<F>(&self, future: F) -> (RawPid, Rc<dyn Joinable<Output = F::Output>>)
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let cell = Rc::new(TaskCell::new(future));
        let mut table = self.table.borrow_mut();
        let generation = table.generation;
        table.generation = generation.wrapping_add(1);
        if table.closed {
            drop(table);
            cell.cancel();
            return (RawPid { core: self.core, index: 0, generation }, cell);
        }
        let index = table.tasks.insert(Slot {
            cell: Rc::clone(&cell) as Rc<dyn Runnable>,
            generation,
            state: TaskState::Queued,
            stop: false,
            parent: self.current.get(),
            polls: 0,
            overruns: 0,
        });
        assert!(index < waker::MAX_TASKS, "one core holds at most {} tasks", waker::MAX_TASKS);
        table.queue.push(index as u32);
        table.stats.spawned += 1;
        (RawPid { core: self.core, index: index as u32, generation }, cell)
    }

    /// Makes a parked task ready. A target whose task has ended is nothing.
    #[inline]
    pub(crate) fn wake(&self, target: WakeTarget) {
        let table = &mut *self.table.borrow_mut();
        let Some(slot) = table.tasks.get_mut(target.index as usize) else { return };
        if !target.matches(slot.generation) {
            return;
        }
        match slot.state {
            TaskState::Parked => {
                slot.state = TaskState::Queued;
                if self.current.get().is_some() {
                    table.queue.push_woken(target.index);
                } else {
                    table.queue.push(target.index);
                }
            }
            TaskState::Running => slot.state = TaskState::Notified,
            TaskState::Queued | TaskState::Notified => {}
        }
    }

    /// Has the task dropped at its next scheduling point. A task that has ended is left alone.
    pub(crate) fn stop(&self, pid: RawPid) {
        let found = match self.table.borrow_mut().tasks.get_mut(pid.index as usize) {
            Some(slot) if slot.generation == pid.generation => {
                slot.stop = true;
                true
            }
            _ => false,
        };
        if found {
            self.wake(pid.into());
        }
    }

    /// Polls ready tasks until none is left or `limit` polls were made; returns how many were made.
    pub(crate) fn run(&self, limit: u32) -> u32 {
        let mut polls = 0;
        while polls < limit && self.run_one() {
            polls += 1;
        }
        polls
    }

    #[inline]
    fn run_one(&self) -> bool {
        let (pid, cell, stop) = {
            let table = &mut *self.table.borrow_mut();
            let Some(index) = table.queue.pop() else { return false };
            let slot = &mut table.tasks[index as usize];
            debug_assert_eq!(slot.state, TaskState::Queued, "only a queued task is in the run queue");
            slot.state = TaskState::Running;
            slot.polls += 1;
            (RawPid { core: self.core, index, generation: slot.generation }, Rc::clone(&slot.cell), slot.stop)
        };
        self.current.set(Some(pid));
        self.budget.set(BUDGET);
        let ended = if stop {
            cell.cancel();
            true
        } else {
            let waker = waker::task_waker(pid);
            cell.poll(&mut Context::from_waker(&waker))
        };
        self.current.set(None);
        self.settle(pid, cell, ended);
        true
    }

    /// Files a task away after its poll.
    #[inline]
    fn settle(&self, pid: RawPid, cell: Rc<dyn Runnable>, ended: bool) {
        let retired = {
            let table = &mut *self.table.borrow_mut();
            let overrun = u64::from(self.budget.get() == 0);
            table.stats.polls += 1;
            table.stats.overruns += overrun;
            if ended {
                table.stats.finished += 1;
                Some(table.tasks.remove(pid.index as usize))
            } else {
                let slot = &mut table.tasks[pid.index as usize];
                slot.overruns += overrun;
                if slot.state == TaskState::Notified {
                    slot.state = TaskState::Queued;
                    table.queue.push(pid.index);
                } else {
                    slot.state = TaskState::Parked;
                }
                None
            }
        };
        if let Some(slot) = retired {
            drop(slot);
            // With the last reference goes a result that nobody waits for: user code, so not under the borrow.
            if Rc::strong_count(&cell) == 1 {
                contain("a task's result", || drop(cell));
            }
        }
    }

    /// Refuses further spawns and drops every task, also those spawned or woken by the drops.
    pub(crate) fn shut_down(&self) {
        self.table.borrow_mut().closed = true;
        loop {
            let slots: Vec<Slot> = {
                let table = &mut *self.table.borrow_mut();
                while table.queue.pop().is_some() {}
                table.tasks.drain().collect()
            };
            if slots.is_empty() {
                return;
            }
            self.table.borrow_mut().stats.finished += slots.len() as u64;
            for slot in slots {
                slot.cell.cancel();
                contain("a task's result", || drop(slot));
            }
        }
    }

    /// Takes one unit of the running task's budget; false when it is spent and the task must yield.
    #[inline]
    pub(crate) fn spend_budget(&self) -> bool {
        let left = self.budget.get();
        if left == 0 {
            return false;
        }
        self.budget.set(left - 1);
        true
    }

    pub(crate) fn set_wake_slot(&self, enabled: bool) {
        self.table.borrow_mut().queue.set_wake_slot(enabled);
    }

    pub(crate) fn current(&self) -> Option<RawPid> {
        self.current.get()
    }

    pub(crate) fn parent(&self, pid: RawPid) -> Option<RawPid> {
        let table = self.table.borrow();
        table.tasks.get(pid.index as usize).filter(|slot| slot.generation == pid.generation)?.parent
    }

    pub(crate) fn state(&self, pid: RawPid) -> Option<TaskState> {
        let table = self.table.borrow();
        let slot = table.tasks.get(pid.index as usize).filter(|slot| slot.generation == pid.generation)?;
        Some(slot.state)
    }

    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.table.borrow().queue.is_empty()
    }

    pub(crate) fn stats(&self) -> ExecutorStats {
        let table = self.table.borrow();
        ExecutorStats { live: table.tasks.len(), ready: table.queue.len(), ..table.stats }
    }
}
