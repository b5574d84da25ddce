//! A core as its host's own futures use it: what makes it the current core, and sees to the turn that must follow.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

use super::CoreEnded;
use crate::runtime::context;
use crate::runtime::executor::waker::WakeTarget;
use crate::runtime::identity::CoreId;
use crate::runtime::join::JoinHandle;
use crate::runtime::local::{CoreStats, Local};
use crate::runtime::runtime_handle::RuntimeHandle;

/// The key of a core's seat among the values that a core keeps for others. Pools count theirs up from the other end.
const SEAT: u64 = u64::MAX;

thread_local! {
    /// The cores that the hosts of this thread drive, to be found by wakers.
    static DRIVEN: RefCell<Vec<Hosted>> = const { RefCell::new(Vec::new()) };
}

/// Wakes a task of a core whose host runs on this thread, between two turns: nothing has to be sent, or rung, for that.
/// False when there is no such core.
pub(crate) fn wake(target: WakeTarget) -> bool {
    // A waker may be used while the thread's locals are taken down.
    let seat = DRIVEN.try_with(|driven| {
        let driven = driven.borrow();
        let core = driven.iter().find(|core| core.id() == target.core())?;
        core.local.executor().wake(target);
        Some(Rc::clone(&core.seat))
    });
    match seat {
        Ok(Some(seat)) => {
            seat.call();
            true
        }
        _ => false,
    }
}

/// What a core's drive and the host's other futures have in common.
#[derive(Default)]
pub(super) struct Seat {
    /// The drive's waker, from the end of its poll until it is called.
    driver: Cell<Option<Waker>>,
    /// Those who must learn of the core's end.
    waiting: RefCell<Slab<Waker>>,
    pub(super) ending: Cell<bool>,
    ended: Cell<bool>,
}

impl Seat {
    pub(super) fn take_on(local: &Rc<Local>) -> Rc<Seat> {
        let seat = Rc::new(Seat::default());
        local.set_extension(SEAT, Rc::clone(&seat) as Rc<dyn std::any::Any>);
        let core = Hosted { local: Rc::clone(local), seat: Rc::clone(&seat) };
        DRIVEN.with_borrow_mut(|driven| driven.push(core));
        seat
    }

    /// No waker of this thread finds the core any more.
    pub(super) fn give_up(self: &Rc<Seat>) {
        // Not there any more when the thread ends under its host.
        let gone = DRIVEN.try_with(|driven| {
            let mut driven = driven.borrow_mut();
            let place = driven.iter().position(|core| Rc::ptr_eq(&core.seat, self))?;
            Some(driven.swap_remove(place))
        });
        drop(gone);
    }

    pub(super) fn sit_down(&self, driver: &Waker) {
        self.driver.set(Some(driver.clone()));
    }

    /// Has the core turned. Who has been called already comes anyway.
    fn call(&self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    pub(super) fn core_ended(&self) {
        self.ended.set(true);
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// A core inside a host, for the host's own futures on the core's thread. Cheap to clone; keeps nothing running.
#[derive(Clone)]
pub struct Hosted {
    local: Rc<Local>,
    seat: Rc<Seat>,
}

/// The current core, when it is one inside a host.
///
/// # Panics
/// When not called on a core, or on one that has no [`Drive`](super::Drive).
#[track_caller]
pub fn here() -> Hosted {
    let local = context::current();
    match local.extension(SEAT).and_then(|seat| seat.downcast().ok()) {
        Some(seat) => Hosted { local, seat },
        None => panic!("core {} is not inside a host", local.id()),
    }
}

impl Hosted {
    pub(super) fn new(local: Rc<Local>, seat: Rc<Seat>) -> Hosted {
        Hosted { local, seat }
    }

    /// The core's id.
    pub fn id(&self) -> CoreId {
        self.local.id()
    }

    /// The runtime that the core belongs to.
    pub fn runtime(&self) -> &RuntimeHandle {
        self.local.runtime()
    }

    /// The core's counts. A park is counted whenever the core leaves the waiting to its host.
    pub fn stats(&self) -> CoreStats {
        self.local.stats()
    }

    /// Runs `future` where the host polls it, with the core as the current one for the length of each poll and of the
    /// drop.
    ///
    /// # Cancel safety
    /// As safe as `future`.
    pub fn on_core<F: Future>(&self, future: F) -> OnCore<F> {
        OnCore { core: self.clone(), future: Some(Box::pin(future)), waiting: None }
    }

    /// Calls `f` with the core as the current one; what it has begun there is carried out by a turn that follows. On
    /// a core that has ended, tasks end at once and operations fail.
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        if context::is_inside(&self.local) {
            return f();
        }
        // Also after a panic.
        let _call = Call(&self.seat);
        self.local.executor().refill_budget();
        context::enter(&self.local, f)
    }

    /// Starts a task of the core.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.enter(|| context::spawn(future))
    }

    /// Ends the core: its drive is done after the turn that it is in, or at its next poll.
    pub fn end(&self) {
        self.seat.ending.set(true);
        self.seat.call();
    }
}

impl fmt::Debug for Hosted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosted").field("core", &self.id()).finish_non_exhaustive()
    }
}

/// Calls the drive when it is dropped.
struct Call<'a>(&'a Seat);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.call();
    }
}

/// A future of the host that uses a core; made by [`Hosted::on_core`]. Gives [`CoreEnded`] when the core ends first.
///
/// # Drop
/// The inner future is dropped with the core as the current one, so that what it leaves behind is taken care of.
#[must_use = "futures do nothing unless they are awaited"]
pub struct OnCore<F: Future> {
    core: Hosted,
    /// Boxed so that it can be dropped from here before its holder is; gone when it is done.
    future: Option<Pin<Box<F>>>,
    /// Its place among those who wait for the core's end too.
    waiting: Option<usize>,
}

impl<F: Future> OnCore<F> {
    fn leave(&mut self) {
        if let Some(place) = self.waiting.take() {
            // Nobody waits on a core that has ended.
            let waker = self.core.seat.waiting.borrow_mut().try_remove(place);
            drop(waker);
        }
        if let Some(future) = self.future.take() {
            self.core.enter(|| drop(future));
        }
    }

    fn wait(&mut self, waker: &Waker) {
        let mut waiting = self.core.seat.waiting.borrow_mut();
        match self.waiting.and_then(|place| waiting.get_mut(place)) {
            Some(kept) => kept.clone_from(waker),
            None => self.waiting = Some(waiting.insert(waker.clone())),
        }
    }
}

impl<F: Future> Future for OnCore<F> {
    type Output = Result<F::Output, CoreEnded>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(future) = &mut this.future else { panic!("a future on a core was polled after its end") };
        if this.core.seat.ended.get() {
            let core = this.core.id();
            this.leave();
            return Poll::Ready(Err(CoreEnded { core }));
        }
        let polled = this.core.enter(|| future.as_mut().poll(cx));
        match polled {
            Poll::Ready(_) => this.leave(),
            Poll::Pending => this.wait(cx.waker()),
        }
        polled.map(Ok)
    }
}

impl<F: Future> Drop for OnCore<F> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<F: Future> fmt::Debug for OnCore<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnCore").field("core", &self.core.id()).finish_non_exhaustive()
    }
}
