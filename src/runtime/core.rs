//! A core as a value, driven by the thread that holds it.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::context;
use super::driver::Features;
use super::executor::TaskState;
use super::identity::{CoreId, RawPid};
use super::join::JoinHandle;
use super::local::{CoreStats, Local};
use super::runtime_handle::RuntimeHandle;

/// One core of a runtime: run queue, timers, ring and mailbox, on the thread that made it.
///
/// A [`Runtime`](super::Runtime) drives its cores on threads of its own. A service that already owns a loop per core
/// makes its cores by [`build_guests`](super::RuntimeBuilder::build_guests) and drives them itself: wait until the
/// [descriptor](Core::event_fd) is readable or the [deadline](Core::next_deadline) has come, then call
/// [`turn`](Core::turn).
///
/// # Drop
/// Drops all tasks, cancels the operations in flight, waits for their end and closes the ring.
pub struct Core {
    local: Rc<Local>,
}

impl Core {
    pub(crate) fn new(local: Rc<Local>) -> Core {
        local.mailbox().publish();
        Core { local }
    }

    /// The core's id.
    pub fn id(&self) -> CoreId {
        self.local.id()
    }

    /// The runtime that the core belongs to.
    pub fn runtime(&self) -> &RuntimeHandle {
        self.local.runtime()
    }

    /// Starts a task on this core, from outside a turn.
    #[track_caller]
    pub fn spawn<F>(&mut self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let handle = JoinHandle::new(self.local.executor().spawn(future));
        // Whoever waits for the descriptor has to come back for this task.
        self.local.mailbox().nudge();
        handle
    }

    /// Runs what is ready, never waits: reaps completions, delivers mail, fires timers, polls ready tasks and submits.
    /// True when there is more to run at once; otherwise the core has announced that it sleeps, and its
    /// [descriptor](Core::event_fd) becomes readable when it should be turned again.
    ///
    /// # Errors
    /// When the ring cannot be entered, which leaves the core unusable.
    pub fn turn(&mut self) -> io::Result<bool> {
        self.local.mailbox().silence();
        self.turn_rung()
    }

    /// As [`turn`](Core::turn), but leaves the descriptor readable: for a host that is told of each ring, once, and does
    /// not care whether one is still to be heard.
    pub(crate) fn turn_rung(&mut self) -> io::Result<bool> {
        self.local.awake();
        self.local.driver().signal_eventfd(true);
        if self.local.turn()? {
            return Ok(true);
        }
        context::enter(&self.local, || self.local.submit())?;
        // A kernel entry may have been put off: its signal has been taken back above, so nobody would come for the rest.
        let unfinished = {
            let mut driver = self.local.driver();
            driver.has_staged() || driver.has_news()
        };
        Ok(unfinished || self.local.executor().has_ready() || !self.local.fall_asleep())
    }

    /// When the core wants to be turned even if its descriptor stays silent.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.local.next_deadline()
    }

    /// A descriptor that becomes readable when the core should be turned: on mail and on completions. The first call
    /// registers it with the ring.
    ///
    /// # Errors
    /// When the ring refuses the registration.
    pub fn event_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.local.driver().register_eventfd(self.local.mailbox().bell())?;
        Ok(self.local.mailbox().bell_fd())
    }

    /// Sleeps until there is something to do, or for at most `limit`: for a loop that has nothing else to wait for.
    ///
    /// # Errors
    /// As for [`turn`](Core::turn).
    pub fn park(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.local.awake();
        self.local.park(limit)
    }

    /// Drives the core until `future` is done, on the calling thread.
    ///
    /// # Errors
    /// As for [`turn`](Core::turn).
    pub fn block_on<F>(&mut self, future: F) -> io::Result<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let result = Rc::new(std::cell::RefCell::new(None));
        let handle = {
            let result = Rc::clone(&result);
            self.spawn(async move {
                let output = future.await;
                result.replace(Some(output));
            })
        };
        while !handle.is_finished() {
            if !self.local.turn()? && !handle.is_finished() {
                self.local.park(None)?;
            }
        }
        let output = result.take();
        match output {
            Some(output) => Ok(output),
            None => context::enter(&self.local, || resume_panic(handle)),
        }
    }

    /// Switches the wake slot: with it the task that was woken last by another task runs next.
    pub fn set_wake_slot(&self, enabled: bool) {
        self.local.executor().set_wake_slot(enabled);
    }

    /// Sets for how long an idle core looks at its queues before it sleeps.
    pub fn set_busy_poll(&self, busy_poll: Duration) {
        self.local.set_busy_poll(busy_poll);
    }

    /// The core's counts.
    pub fn stats(&self) -> CoreStats {
        self.local.stats()
    }

    /// What the core's ring was found to have.
    pub fn features(&self) -> Features {
        self.local.driver().features()
    }

    /// Where a task stands; none when it has ended or is of another core.
    pub fn task_state(&self, pid: RawPid) -> Option<TaskState> {
        self.local.executor().state(pid)
    }

    /// The task that spawned a task; none when nobody did, when it has ended, or when it is of another core.
    pub fn task_parent(&self, pid: RawPid) -> Option<RawPid> {
        self.local.executor().parent(pid)
    }

    /// Whether the runtime has asked this core to end.
    pub fn is_ending(&self) -> bool {
        self.local.is_ending()
    }

    pub(crate) fn local(&self) -> &Rc<Local> {
        &self.local
    }
}

/// Carries a task's panic on to the caller.
fn resume_panic<T>(handle: JoinHandle<()>) -> T {
    let mut handle = std::pin::pin!(handle);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match handle.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(Err(error)) => match error.try_into_panic() {
            Ok(payload) => std::panic::resume_unwind(payload),
            Err(error) => panic!("the core ended under its own `block_on`: {error}"),
        },
        _ => unreachable!("a task without its result has failed"),
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.local.shut_down();
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("id", &self.id()).finish_non_exhaustive()
    }
}
