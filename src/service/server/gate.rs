//! How many connections there may be: in all, and on each core.
//!
//! The counts are the one thing that the cores of a server share, and are touched twice in the life of a connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::sync::{AtomicBool, AtomicUsize, Ordering};

/// The counts of a server, and who waits for them to fall.
pub(super) struct Gate {
    all: Count,
    cores: Box<[Count]>,
    /// Raised while there may be wakers below, so that a place that is given back looks at the lock only then.
    waiting: AtomicBool,
    waiters: Mutex<Vec<Waker>>,
    /// Places given back while somebody waited.
    releases: AtomicUsize,
}

struct Count {
    taken: AtomicUsize,
    limit: usize,
}

impl Count {
    fn new(limit: usize) -> Count {
        Count { taken: AtomicUsize::new(0), limit }
    }

    fn take(&self) -> bool {
        let more = |taken| (taken < self.limit).then_some(taken + 1);
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Gate {
    /// For so many cores.
    pub(super) fn new(cores: usize, per_core: usize, in_all: usize) -> Arc<Gate> {
        Arc::new(Gate {
            all: Count::new(in_all),
            cores: (0..cores).map(|_| Count::new(per_core)).collect(),
            waiting: AtomicBool::new(false),
            waiters: Mutex::default(),
            releases: AtomicUsize::new(0),
        })
    }

    /// A place on the core with that number, if there is one.
    pub(super) fn take(self: &Arc<Gate>, core: usize) -> Option<Place> {
        if !self.cores[core].take() {
            return None;
        }
        if !self.all.take() {
            self.cores[core].give_back();
            // For this instant the core may have looked full to somebody who has now begun to wait.
            self.tell();
            return None;
        }
        Some(Place { gate: Arc::clone(self), core })
    }

    /// A place on the first core that has one, from `first` on and around.
    pub(super) fn take_any(self: &Arc<Gate>, first: usize) -> Option<Place> {
        let count = self.cores.len();
        (first..first + count).find_map(|core| self.take(core % count))
    }

    /// Waits until `take` finds a place.
    pub(super) fn poll_take(&self, cx: &Context<'_>, mut take: impl FnMut() -> Option<Place>) -> Poll<Place> {
        if let Some(place) = take() {
            return Poll::Ready(place);
        }
        self.register(cx);
        // What was given back before the waker was there has woken nobody.
        take().map_or(Poll::Pending, Poll::Ready)
    }

    /// Which releases are past, for [`poll_release`](Gate::poll_release).
    pub(super) fn releases(&self) -> usize {
        self.releases.load(Ordering::SeqCst)
    }

    /// Waits for a place to be given back after `seen` was read. One that is given back before the first poll is not
    /// heard of.
    pub(super) fn poll_release(&self, cx: &Context<'_>, seen: usize) -> Poll<()> {
        if self.releases() != seen {
            return Poll::Ready(());
        }
        self.register(cx);
        Poll::Pending
    }

    fn register(&self, cx: &Context<'_>) {
        let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiters.iter().any(|waiter| waiter.will_wake(cx.waker())) {
            waiters.push(cx.waker().clone());
        }
        self.waiting.store(true, Ordering::SeqCst);
    }

    fn tell(&self) {
        if !self.waiting.load(Ordering::SeqCst) {
            return;
        }
        let waiters = {
            let mut waiters = self.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            self.waiting.store(false, Ordering::SeqCst);
            self.releases.fetch_add(1, Ordering::SeqCst);
            std::mem::take(&mut *waiters)
        };
        for waiter in waiters {
            waiter.wake();
        }
    }
}

/// The place of one connection. Given back when it is dropped, on whatever thread.
pub(super) struct Place {
    gate: Arc<Gate>,
    core: usize,
}

impl Place {
    /// The number of its core.
    pub(super) fn core(&self) -> usize {
        self.core
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gate.cores[self.core].give_back();
        self.gate.all.give_back();
        self.gate.tell();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicUsize as Wakes;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Bell(Wakes);

    impl Wake for Bell {
        fn wake(self: Arc<Bell>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn both_limits_hold_and_places_come_back() {
        let gate = Gate::new(2, 2, 3);
        let first = gate.take(0);
        let second = gate.take(0);
        assert!(first.is_some() && second.is_some());
        assert!(gate.take(0).is_none(), "the core is full");
        let third = gate.take_any(0);
        assert_eq!(third.as_ref().map(Place::core), Some(1), "the other one is not");
        assert!(gate.take(1).is_none(), "all are taken");
        drop(first);
        assert!(gate.take(1).is_some() && gate.take(0).is_some());
    }

    #[test]
    fn who_waits_is_woken_by_a_place_on_whichever_core() {
        let gate = Gate::new(2, 2, 2);
        let (near, far) = (gate.take(0), gate.take(1));
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let cx = Context::from_waker(&waker);
        for _ in 0..3 {
            assert!(gate.poll_take(&cx, || gate.take(0)).is_pending());
        }
        drop(far);
        assert_eq!(bell.0.load(Ordering::SeqCst), 1, "once, however often it was polled");
        assert!(gate.poll_take(&cx, || gate.take(0)).is_ready());
        drop(near);
        assert_eq!(bell.0.load(Ordering::SeqCst), 1, "nobody waits any more");
    }

    #[test]
    fn a_release_is_heard_of_by_those_who_wait_for_one() {
        let gate = Gate::new(1, 1, 1);
        let place = gate.take(0);
        let seen = gate.releases();
        let cx = Context::from_waker(Waker::noop());
        assert!(gate.poll_release(&cx, seen).is_pending());
        drop(place);
        assert!(gate.poll_release(&cx, seen).is_ready());
    }

    #[test]
    fn no_wake_is_lost_between_threads() {
        let gate = Gate::new(2, 1, 1);
        let workers = [0, 1].map(|core| {
            let gate = Arc::clone(&gate);
            std::thread::spawn(move || {
                for _ in 0..2000 {
                    let take = std::future::poll_fn(|cx| gate.poll_take(cx, || gate.take(core)));
                    drop(block_on(take));
                }
            })
        });
        for worker in workers {
            assert!(worker.join().is_ok());
        }
        assert_eq!(gate.all.taken.load(Ordering::SeqCst), 0);
    }

    /// Parks between polls, so that a lost wake hangs (the harness of the test would end it) instead of passing.
    fn block_on<F: Future>(future: F) -> F::Output {
        struct Thread(std::thread::Thread);
        impl Wake for Thread {
            fn wake(self: Arc<Thread>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Thread(std::thread::current())));
        let mut future = std::pin::pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}
