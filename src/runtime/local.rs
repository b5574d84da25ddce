//! What one core owns, and its turn: reap, deliver, fire timers, run tasks, submit; and its sleep.
//!
//! Reached on the core's own thread only. Nothing user-made runs while one of its cells is borrowed.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use rustc_hash::FxHashMap;
use slab::Slab;

use super::driver::op::Aftermath;
use super::driver::{Driver, DriverStats};
use super::executor::{Executor, ExecutorStats, contain};
use super::identity::{CoreId, RawPid};
use super::mesh::{Mail, Mailbox};
use super::runtime_handle::RuntimeHandle;
use super::timer::DeadlineQueue;
use super::{context, timer};

mod sleep;

/// Polls of tasks in one turn, before the core looks at its ring and its mail again.
const POLLS_PER_TURN: u32 = 256;
/// Mails delivered in one turn.
const MAILS_PER_TURN: usize = 256;

/// What an upper layer keeps on a core and the core looks after: a queue outside the mailbox that one task reads.
pub(crate) trait Port {
    /// Looked at every turn and before the core sleeps; true has the reader woken.
    fn has_mail(&self) -> bool;

    /// Called when the tasks of a turn have run.
    fn turn_ends(&self);
}

/// What the layer next above keeps on a core, found without a search.
pub(crate) trait Layer: Any {
    /// The core's tasks have been dropped; lets go of what users own.
    fn core_ends(&self);
}

/// What a deadline brings.
pub(crate) enum Due {
    Wake(Waker),
    Run(Box<dyn FnOnce()>),
}

struct OpenPort {
    port: Rc<dyn Port>,
    reader: RawPid,
}

/// Counts the cores of the process: an id is used again, a life never.
#[cfg_attr(not(feature = "service"), allow(dead_code))]
static LIVES: AtomicU64 = AtomicU64::new(0);

pub(crate) struct Local {
    #[cfg_attr(not(feature = "service"), allow(dead_code))]
    life: u64,
    mailbox: Arc<Mailbox>,
    inbox: RefCell<Receiver<Mail>>,
    executor: Executor,
    timers: RefCell<DeadlineQueue<Due>>,
    driver: RefCell<Driver>,
    aftermath: RefCell<Aftermath>,
    ports: RefCell<Slab<OpenPort>>,
    extensions: RefCell<FxHashMap<u64, Rc<dyn Any>>>,
    layer: OnceCell<Box<dyn Layer>>,
    idle_probes: RefCell<Vec<Sender<u64>>>,
    mails: Cell<u64>,
    parks: Cell<u64>,
    busy_poll: Cell<Duration>,
    ending: Cell<bool>,
    runtime: RuntimeHandle,
}

/// Counts of one core since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CoreStats {
    /// The executor's counts.
    pub executor: ExecutorStats,
    /// The driver's counts.
    pub driver: DriverStats,
    /// Times the core went to sleep.
    pub parks: u64,
    /// Mails received from other cores and threads.
    pub mails: u64,
    /// Timers armed now.
    pub timers: usize,
}

impl Local {
    pub(crate) fn new(
        mailbox: Arc<Mailbox>,
        inbox: Receiver<Mail>,
        driver: Driver,
        executor: Executor,
        busy_poll: Duration,
        runtime: RuntimeHandle,
    ) -> Rc<Local> {
        Rc::new(Local {
            life: LIVES.fetch_add(1, Ordering::Relaxed),
            mailbox,
            inbox: RefCell::new(inbox),
            executor,
            timers: RefCell::new(DeadlineQueue::new()),
            driver: RefCell::new(driver),
            aftermath: RefCell::new(Aftermath::default()),
            ports: RefCell::new(Slab::new()),
            extensions: RefCell::new(FxHashMap::default()),
            layer: OnceCell::new(),
            idle_probes: RefCell::new(Vec::new()),
            mails: Cell::new(0),
            parks: Cell::new(0),
            busy_poll: Cell::new(busy_poll),
            ending: Cell::new(false),
            runtime,
        })
    }

    /// One turn. True when there is more to run at once.
    pub(crate) fn turn(self: &Rc<Local>) -> io::Result<bool> {
        context::enter(self, || {
            self.driver.borrow_mut().reap()?;
            self.settle_driver();
            self.deliver();
            self.fire_timers();
            self.executor.run(POLLS_PER_TURN);
            self.end_turn();
            let more = self.executor.has_ready();
            if more {
                self.submit()?;
            }
            Ok(more)
        })
    }

    /// Tells the ports. Not while they are borrowed: users' code that runs then may open another.
    fn end_turn(&self) {
        let mut key = 0;
        while key < self.ports.borrow().capacity() {
            let port = self.ports.borrow().get(key).map(|open| Rc::clone(&open.port));
            if let Some(port) = port {
                port.turn_ends();
            }
            key += 1;
        }
    }

    /// Sends what is staged, without sleeping.
    pub(crate) fn submit(&self) -> io::Result<()> {
        self.driver.borrow_mut().submit()?;
        self.settle_driver();
        Ok(())
    }

    /// Runs what the driver has found: wakes, watches, and drops of what dropped futures left behind.
    fn settle_driver(&self) {
        loop {
            let mut aftermath = self.aftermath.take();
            if !self.driver.borrow_mut().take_aftermath(&mut aftermath) {
                self.aftermath.replace(aftermath);
                return;
            }
            aftermath.wakes.drain(..).for_each(Waker::wake);
            for watch in aftermath.watches.drain(..) {
                watch.notify();
            }
            for garbage in aftermath.garbage.drain(..) {
                contain("a buffer", || drop(garbage));
            }
            self.aftermath.replace(aftermath);
        }
    }

    fn deliver(&self) {
        for _ in 0..MAILS_PER_TURN {
            // Looking is cheaper than trying.
            let mail = {
                let inbox = self.inbox.borrow();
                if inbox.is_empty() { None } else { inbox.try_recv().ok() }
            };
            let Some(mail) = mail else { break };
            self.mails.set(self.mails.get() + 1);
            match mail {
                Mail::Wake(target) => self.executor.wake(target),
                Mail::Stop(pid) => self.executor.stop(pid),
                Mail::Run(job) => contain("a job sent to a core", job),
                Mail::Letter(letter) => contain("a letter to a core", || letter.open()),
                Mail::WhenIdle(answer) => self.idle_probes.borrow_mut().push(answer),
                Mail::End => self.ending.set(true),
            }
        }
        for (_, open) in &*self.ports.borrow() {
            if open.port.has_mail() {
                self.executor.wake(open.reader.into());
            }
        }
    }

    fn has_mail(&self) -> bool {
        !self.inbox.borrow().is_empty() || self.ports.borrow().iter().any(|(_, open)| open.port.has_mail())
    }

    /// Anything to do for a turn now? For a simulation, which turns no core in vain.
    pub(crate) fn has_work(&self) -> bool {
        let (io, now) = {
            let mut driver = self.driver.borrow_mut();
            (driver.has_news() || driver.has_staged(), driver.now())
        };
        io || self.executor.has_ready() || self.has_mail() || self.next_deadline().is_some_and(|at| at <= now)
    }

    fn fire_timers(&self) {
        if self.timers.borrow().is_empty() {
            return;
        }
        let now = self.now();
        loop {
            let due = self.timers.borrow_mut().pop_due(now);
            match due {
                Some(Due::Wake(waker)) => waker.wake(),
                Some(Due::Run(job)) => contain("a job of a timer", job),
                None => return,
            }
        }
    }

    /// Only now is nothing queued: mail, ready tasks and news have all been looked at.
    fn answer_idle_probes(&self) {
        if self.idle_probes.borrow().is_empty() || self.executor.has_ready() || self.has_mail() {
            return;
        }
        let activity = self.executor.stats().polls + self.mails.get();
        for answer in self.idle_probes.borrow_mut().drain(..) {
            // Nobody listens any more when the coordinator lost its patience.
            let _ = answer.send(activity);
        }
    }

    /// Drops every task, then closes the ring; later calls find a core that refuses everything.
    pub(crate) fn shut_down(self: &Rc<Local>) {
        context::enter(self, || {
            self.executor.shut_down();
            self.ports.borrow_mut().clear();
            if let Some(layer) = self.layer.get() {
                contain("the upper layer of a core", || layer.core_ends());
            }
            let extensions = self.extensions.take();
            contain("an extension of the core", || drop(extensions));
            self.mailbox.unpublish();
            self.driver.borrow_mut().shut_down();
            self.settle_driver();
            let timers = self.timers.borrow_mut().clear();
            contain("a timer of an ended core", || drop(timers));
            // Closed here and not with the last reference: whoever sends to an ended core must be refused, whatever
            // task has leaked.
            let inbox = self.inbox.replace(crossbeam_channel::never());
            while let Ok(mail) = inbox.try_recv() {
                contain("a mail to an ended core", || drop(mail));
            }
            contain("a mail to an ended core", || drop(inbox));
        });
    }

    /// Has the core look after `port`, which `reader` reads. The answer is for [`remove_port`](Local::remove_port).
    #[cfg_attr(not(feature = "pool"), allow(dead_code))]
    pub(crate) fn add_port(&self, reader: RawPid, port: Rc<dyn Port>) -> usize {
        self.ports.borrow_mut().insert(OpenPort { port, reader })
    }

    #[cfg_attr(not(feature = "pool"), allow(dead_code))]
    pub(crate) fn remove_port(&self, port: usize) {
        let removed = self.ports.borrow_mut().try_remove(port);
        drop(removed);
    }

    /// A value that upper layers keep on the core, by a key of theirs.
    #[cfg_attr(not(feature = "pool"), allow(dead_code))]
    pub(crate) fn extension(&self, key: u64) -> Option<Rc<dyn Any>> {
        self.extensions.borrow().get(&key).cloned()
    }

    #[cfg_attr(not(feature = "pool"), allow(dead_code))]
    pub(crate) fn set_extension(&self, key: u64, value: Rc<dyn Any>) {
        self.extensions.borrow_mut().insert(key, value);
    }

    #[cfg_attr(not(feature = "pool"), allow(dead_code))]
    pub(crate) fn remove_extension(&self, key: u64) {
        let removed = self.extensions.borrow_mut().remove(&key);
        drop(removed);
    }

    /// The upper layer's own, made on first use.
    ///
    /// # Panics
    /// When asked for two kinds.
    #[inline]
    pub(crate) fn layer<T: Layer>(&self, make: impl FnOnce() -> T) -> &T {
        let layer: &dyn Any = &**self.layer.get_or_init(|| Box::new(make()));
        match layer.downcast_ref() {
            Some(layer) => layer,
            None => unreachable!("there is one layer next above the runtime"),
        }
    }

    #[inline]
    pub(crate) fn id(&self) -> CoreId {
        self.mailbox.core()
    }

    /// A number that no other core of the process has, nor ever had.
    #[inline]
    #[cfg_attr(not(feature = "service"), allow(dead_code))]
    pub(crate) fn life(&self) -> u64 {
        self.life
    }

    #[inline]
    pub(crate) fn executor(&self) -> &Executor {
        &self.executor
    }

    #[inline]
    pub(crate) fn driver(&self) -> RefMut<'_, Driver> {
        self.driver.borrow_mut()
    }

    pub(crate) fn now(&self) -> Instant {
        self.driver.borrow().now()
    }

    #[cfg_attr(not(feature = "pool"), allow(dead_code))]
    pub(crate) fn seed(&self) -> u64 {
        self.driver.borrow().seed()
    }

    pub(crate) fn arm_timer(&self, at: Instant, due: Due) -> timer::DeadlineKey {
        self.timers.borrow_mut().insert(at, due)
    }

    /// Disarms; false when it has fired.
    pub(crate) fn disarm_timer(&self, key: timer::DeadlineKey) -> bool {
        self.take_timer(key).is_some()
    }

    /// Disarms, and gives what the timer would have brought; none when it has fired.
    pub(crate) fn take_timer(&self, key: timer::DeadlineKey) -> Option<Due> {
        self.timers.borrow_mut().cancel(key)
    }

    /// Updates the waker of an armed timer; false when it has fired.
    pub(crate) fn update_timer(&self, key: timer::DeadlineKey, waker: &Waker) -> bool {
        let replaced = match self.timers.borrow_mut().get_mut(key) {
            Some(Due::Wake(kept)) if kept.will_wake(waker) => return true,
            Some(kept) => std::mem::replace(kept, Due::Wake(waker.clone())),
            None => return false,
        };
        drop(replaced);
        true
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.timers.borrow().next()
    }

    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    pub(crate) fn runtime(&self) -> &RuntimeHandle {
        &self.runtime
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.get()
    }

    pub(crate) fn set_busy_poll(&self, busy_poll: Duration) {
        self.busy_poll.set(busy_poll);
    }

    pub(crate) fn stats(&self) -> CoreStats {
        CoreStats {
            executor: self.executor.stats(),
            driver: self.driver.borrow().stats(),
            parks: self.parks.get(),
            mails: self.mails.get(),
            timers: self.timers.borrow().len(),
        }
    }
}
