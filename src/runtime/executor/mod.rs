//! Runs the tasks of one core: who is ready, polling, stopping, and the table of task identities.
//!
//! Never: block, look at a descriptor or a clock, or run user code while the task table or the queue is borrowed.

mod cycles;
mod look;
mod queue;
mod task;
mod traced;
pub(crate) mod waker;

use std::cell::{Cell, Ref, RefCell};
use std::future::Future;
use std::num::NonZeroU64;
use std::panic::Location;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Context;

use slab::Slab;

use cycles::Meter;
pub(crate) use look::TaskView;
pub(crate) use task::{Ending, Joinable, Record, contain, panic_message};
use task::{Run, Task};
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
    /// Polls of tasks that came from the wake slot.
    pub slot_hits: u64,
    /// Tasks that a newer wake pushed out of the wake slot, into the queue.
    pub slot_displaced: u64,
}

/// Where the generations of each core id stand. A core that gets the id of one that has ended goes on counting, so that
/// identities and wakers from that time name nobody.
static GENERATIONS: [AtomicU32; waker::MAX_CORES] = [const { AtomicU32::new(0) }; waker::MAX_CORES];

type Ready = Rc<Task<dyn Run>>;

/// A task of this core in one word: one more than its slot, and its generation above that.
type Short = NonZeroU64;

pub(crate) struct Executor {
    core: CoreId,
    tasks: RefCell<Slab<Ready>>,
    queue: RefCell<RunQueue<Ready>>,
    generation: Cell<u32>,
    closed: Cell<bool>,
    finished: Cell<u64>,
    polls: Cell<u64>,
    overruns: Cell<u64>,
    current: Cell<Option<Short>>,
    budget: Cell<u32>,
    meter: Meter,
    /// Messages that the running task has received in this poll.
    received: Cell<u32>,
    spawned: Cell<u64>,
}

fn add(counter: &Cell<u64>, count: u64) {
    counter.set(counter.get() + count);
}

/// Borrowed by [`Executor::records`].
pub(crate) struct Records<'a>(Ref<'a, Slab<Ready>>);

impl Records<'_> {
    /// The record of a task of this core: none when the task has ended; the inner option is none when it has no record.
    #[inline]
    pub(crate) fn get(&self, pid: RawPid) -> Option<Option<&Rc<dyn Record>>> {
        let header = &self.0.get(pid.index as usize)?.header;
        (header.generation == pid.generation).then(|| header.record.get())
    }
}

impl Executor {
    pub(crate) fn new(core: CoreId, wake_slot: bool, shuffle: u64) -> Executor {
        let mut queue = RunQueue::new();
        queue.set_wake_slot(wake_slot);
        queue.set_shuffle(shuffle);
        Executor {
            core,
            tasks: RefCell::new(Slab::new()),
            queue: RefCell::new(queue),
            generation: Cell::new(GENERATIONS[usize::from(core.0)].load(Ordering::Relaxed)),
            closed: Cell::new(false),
            finished: Cell::new(0),
            polls: Cell::new(0),
            overruns: Cell::new(0),
            current: Cell::new(None),
            budget: Cell::new(BUDGET),
            meter: Meter::default(),
            received: Cell::new(0),
            spawned: Cell::new(0),
        }
    }

    /// Puts a task into the table and the queue. On an executor that has shut down the task ends at once, cancelled.
    #[inline]
    #[track_caller]
    pub(crate) fn spawn<F>(&self, future: F) -> Rc<dyn Joinable<Output = F::Output>>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let site = Location::caller();
        #[cfg(feature = "console")]
        {
            let id = u64::from(self.core.0) << 32 | u64::from(self.generation.get());
            if let Some(span) = traced::span(id, site) {
                return self.start(tracing::Instrument::instrument(future, span), site);
            }
        }
        self.start(future, site)
    }

    #[inline]
    fn start<F>(&self, future: F, site: &'static Location<'static>) -> Rc<dyn Joinable<Output = F::Output>>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let generation = self.generation.get();
        self.generation.set(generation.wrapping_add(1));
        let pid = RawPid { core: self.core, index: 0, generation };
        let task = Rc::new(Task::new(pid, self.current.get(), future));
        if self.closed.get() {
            task.cancel();
        } else {
            self.enter(Rc::clone(&task) as Ready, site);
        }
        task
    }

    fn enter(&self, task: Ready, site: &'static Location<'static>) {
        let mut tasks = self.tasks.borrow_mut();
        let entry = tasks.vacant_entry();
        let index = entry.key();
        assert!(index < waker::MAX_TASKS, "one core holds at most {} tasks", waker::MAX_TASKS);
        let generation = task.header.generation;
        task.header.target.set(RawPid { core: self.core, index: index as u32, generation }.into());
        entry.insert(Rc::clone(&task));
        drop(tasks);
        let (pid, parent) = (task.header.pid(), task.header.parent);
        self.queue.borrow_mut().push(task);
        add(&self.spawned, 1);
        traced::spawned(pid, || parent.map(|parent| self.lengthen(parent)), site);
    }

    /// Makes a parked task ready. A target whose task has ended is nothing.
    #[inline]
    pub(crate) fn wake(&self, target: WakeTarget) {
        let tasks = self.tasks.borrow();
        let Some(task) = tasks.get(target.index()) else { return };
        let header = &task.header;
        if header.target.get() != target {
            return;
        }
        match header.state.get() {
            TaskState::Parked => {
                header.state.set(TaskState::Queued);
                let mut queue = self.queue.borrow_mut();
                if self.current.get().is_some() {
                    queue.push_woken(Rc::clone(task));
                } else {
                    queue.push(Rc::clone(task));
                }
            }
            TaskState::Running => header.state.set(TaskState::Notified),
            TaskState::Queued | TaskState::Notified => {}
        }
    }

    /// Has the task dropped at its next scheduling point. A task that has ended is left alone.
    pub(crate) fn stop(&self, pid: RawPid) {
        if self.with_task(pid, |task| task.header.stop.set(true)).is_some() {
            self.wake(pid.into());
        }
    }

    fn with_task<R>(&self, pid: RawPid, look: impl FnOnce(&Task<dyn Run>) -> R) -> Option<R> {
        let tasks = self.tasks.borrow();
        let task = tasks.get(pid.index as usize).filter(|task| task.header.pid() == pid)?;
        Some(look(task))
    }

    /// Polls ready tasks until none is left or `limit` polls were made; returns how many were made.
    pub(crate) fn run(&self, limit: u32) -> u32 {
        let mut polls = 0;
        self.meter.start();
        while polls < limit && self.run_one() {
            polls += 1;
        }
        add(&self.polls, polls.into());
        polls
    }

    #[inline]
    fn run_one(&self) -> bool {
        let Some(task) = self.queue.borrow_mut().pop() else { return false };
        let header = &task.header;
        debug_assert_eq!(header.state.get(), TaskState::Queued, "only a queued task is in the run queue");
        header.state.set(TaskState::Running);
        add(&header.polls, 1);
        let target = header.target.get();
        self.current.set(Short::new(u64::from(header.generation) << 32 | (target.index() as u64 + 1)));
        self.budget.set(BUDGET);
        self.received.set(0);
        let ended = if header.stop.get() {
            task.cancel();
            true
        } else {
            let waker = waker::task_waker(target);
            task.poll(&mut Context::from_waker(&waker))
        };
        self.current.set(None);
        self.meter.charge(&header.cycles);
        if self.budget.get() == 0 {
            header.overruns.set(header.overruns.get().wrapping_add(1));
            add(&self.overruns, 1);
        }
        add(&header.received, self.received.get().into());
        if ended {
            self.retire(target.index(), task);
        } else if header.state.get() == TaskState::Notified {
            header.state.set(TaskState::Queued);
            self.queue.borrow_mut().push(task);
        } else {
            // Not the last reference: the table has one.
            header.state.set(TaskState::Parked);
        }
        true
    }

    #[inline]
    fn retire(&self, index: usize, task: Ready) {
        add(&self.finished, 1);
        let entry = self.tasks.borrow_mut().remove(index);
        drop(entry);
        traced::ended(task.header.pid(), || task.ending());
        task.tell_record(false);
        // With the last reference goes a result that nobody waits for: user code, so not under a borrow.
        if Rc::strong_count(&task) == 1 {
            contain("a task's result", || drop(task));
        }
    }

    /// Refuses further spawns and drops every task. Each keeps its identity until it has been dropped, as at any other end:
    /// what the drops of others do to it does not find it dead before it says so.
    pub(crate) fn shut_down(&self) {
        self.closed.set(true);
        let forget_ready = || while self.queue.borrow_mut().pop().is_some() {};
        // Nobody enters any more, so one round meets them all.
        let slots = self.tasks.borrow().capacity();
        for index in 0..slots {
            let task = self.tasks.borrow().get(index).map(Rc::clone);
            let Some(task) = task else { continue };
            task.cancel();
            // What is queued is in the table too, so no last reference is dropped under the borrow.
            forget_ready();
            let entry = self.tasks.borrow_mut().remove(index);
            drop(entry);
            add(&self.finished, 1);
            traced::ended(task.header.pid(), || Ending::CoreEnded);
            task.tell_record(true);
            contain("a task's result", || drop(task));
        }
        // The id is given away under a lock, after this.
        GENERATIONS[usize::from(self.core.0)].store(self.generation.get(), Ordering::Relaxed);
    }

    /// Takes one unit of the running task's budget; false when it is spent and the task must yield.
    #[inline]
    #[cfg_attr(not(feature = "pool"), allow(dead_code))]
    pub(crate) fn spend_budget(&self) -> bool {
        let left = self.budget.get();
        if left == 0 {
            return false;
        }
        self.budget.set(left - 1);
        true
    }

    #[inline]
    pub(crate) fn is_budget_spent(&self) -> bool {
        self.budget.get() == 0
    }

    /// Whether the running task is to be stopped.
    pub(crate) fn must_stop(&self) -> bool {
        self.current().is_some_and(|pid| self.is_stopping(pid))
    }

    /// Whether a live task is to be stopped.
    pub(crate) fn is_stopping(&self, pid: RawPid) -> bool {
        self.with_task(pid, |task| task.header.stop.get()).unwrap_or(false)
    }

    /// Counts a message for the running task. Outside a task it counts for nobody, since each poll begins at zero.
    #[inline]
    pub(crate) fn count_received(&self) {
        self.received.set(self.received.get() + 1);
    }

    /// The records of this core's tasks, under a borrow: no user's code may run while they are held.
    #[inline]
    pub(crate) fn records(&self) -> Records<'_> {
        Records(self.tasks.borrow())
    }

    /// Gives a live task its record; false when it has ended or has one.
    pub(crate) fn set_record(&self, pid: RawPid, record: Rc<dyn Record>) -> bool {
        self.with_task(pid, |task| task.header.record.set(record).is_ok()).unwrap_or(false)
    }

    /// A poll that is no task's begins.
    #[cfg(feature = "tokio")]
    pub(crate) fn refill_budget(&self) {
        self.budget.set(BUDGET);
    }

    pub(crate) fn set_wake_slot(&self, enabled: bool) {
        self.queue.borrow_mut().set_wake_slot(enabled);
    }

    pub(crate) fn current(&self) -> Option<RawPid> {
        self.current.get().map(|short| self.lengthen(short))
    }

    pub(crate) fn parent(&self, pid: RawPid) -> Option<RawPid> {
        self.with_task(pid, |task| task.header.parent)?.map(|parent| self.lengthen(parent))
    }

    fn lengthen(&self, short: Short) -> RawPid {
        let (index, generation) = (short.get() as u32 - 1, (short.get() >> 32) as u32);
        RawPid { core: self.core, index, generation }
    }

    pub(crate) fn state(&self, pid: RawPid) -> Option<TaskState> {
        self.with_task(pid, |task| task.header.state.get())
    }

    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    pub(crate) fn stats(&self) -> ExecutorStats {
        let (slot_hits, slot_displaced) = self.queue.borrow().slot_counts();
        ExecutorStats {
            spawned: self.spawned.get(),
            finished: self.finished.get(),
            polls: self.polls.get(),
            overruns: self.overruns.get(),
            live: self.tasks.borrow().len(),
            ready: self.queue.borrow().len(),
            slot_hits,
            slot_displaced,
        }
    }
}
