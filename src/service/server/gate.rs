//! How many connections there may be: in all, and on each core.
//!
//! The counts are the one thing that the cores of a server share, and are touched twice in the life of a connection.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::lock::{Lock, Rank};

/// The counts of a server, and who waits for them to fall.
pub(super) struct Gate {
    per_core: usize,
    in_all: usize,
    /// How many cores there are.
    count: usize,
    state: Lock<State>,
}

struct State {
    all: usize,
    cores: Box<[usize]>,
    waiters: Vec<Waker>,
    /// Places that were given back.
    releases: u64,
}

impl Gate {
    /// For so many cores.
    pub(super) fn new(cores: usize, per_core: usize, in_all: usize) -> Arc<Gate> {
        let state = State { all: 0, cores: vec![0; cores].into(), waiters: Vec::new(), releases: 0 };
        Arc::new(Gate { per_core, in_all, count: cores, state: Lock::new(Rank::Server, state) })
    }

    /// A place on the first core that has one, of those with the numbers `cores`.
    pub(super) fn take(self: &Arc<Gate>, cores: impl IntoIterator<Item = usize>) -> Option<Place> {
        let mut state = self.state.lock();
        if state.all >= self.in_all {
            return None;
        }
        let core = cores.into_iter().find(|core| state.cores[*core] < self.per_core)?;
        state.all += 1;
        state.cores[core] += 1;
        drop(state);
        Some(Place { gate: Arc::clone(self), core })
    }

    /// The numbers of all cores, from `first` on and around.
    pub(super) fn around(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.count;
        (first..first + count).map(move |core| core % count)
    }

    /// Waits for a place to be given back, if none was since `seen` was read.
    pub(super) fn poll_release(&self, cx: &Context<'_>, seen: u64) -> Poll<()> {
        // Wakers are cloned and dropped outside of the lock: they may be a user's.
        let waker = cx.waker().clone();
        let mut state = self.state.lock();
        if state.releases != seen {
            return Poll::Ready(());
        }
        let spare = match state.waiters.iter().any(|waiter| waiter.will_wake(&waker)) {
            true => Some(waker),
            false => {
                state.waiters.push(waker);
                None
            }
        };
        drop(state);
        drop(spare);
        Poll::Pending
    }

    /// How many places were given back, for [`poll_release`](Gate::poll_release).
    pub(super) fn releases(&self) -> u64 {
        self.state.lock().releases
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
        let mut state = self.gate.state.lock();
        state.all -= 1;
        state.cores[self.core] -= 1;
        state.releases += 1;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        for waiter in waiters {
            waiter.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Bell>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn both_limits_hold_and_places_come_back() {
        let gate = Gate::new(2, 2, 3);
        let first = gate.take([0]);
        let second = gate.take([0]);
        assert!(first.is_some() && second.is_some());
        assert!(gate.take([0]).is_none(), "the core is full");
        let third = gate.take(gate.around(0));
        assert_eq!(third.as_ref().map(Place::core), Some(1), "the other one is not");
        assert!(gate.take([1]).is_none(), "all are taken");
        drop(first);
        assert!(gate.take([1]).is_some() && gate.take([0]).is_some());
    }

    #[test]
    fn places_go_round() {
        let gate = Gate::new(3, 9, 9);
        let places: Vec<_> = (0..4).filter_map(|turn| gate.take(gate.around(turn))).collect();
        assert_eq!(places.iter().map(Place::core).collect::<Vec<_>>(), [0, 1, 2, 0]);
    }

    #[test]
    fn who_waits_is_woken_once_by_a_place_on_whichever_core() {
        let gate = Gate::new(2, 2, 2);
        let (near, far) = (gate.take([0]), gate.take([1]));
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        let cx = Context::from_waker(&waker);
        let seen = gate.releases();
        for _ in 0..3 {
            assert!(gate.take([0]).is_none());
            assert!(gate.poll_release(&cx, seen).is_pending());
        }
        assert_eq!(bell.0.load(Ordering::SeqCst), 0, "to look and find nothing wakes nobody");
        drop(far);
        assert_eq!(bell.0.load(Ordering::SeqCst), 1, "once, however often it was polled");
        assert!(gate.poll_release(&cx, seen).is_ready());
        drop(near);
        assert_eq!(bell.0.load(Ordering::SeqCst), 1, "nobody waits any more");
    }

    #[test]
    fn no_wake_is_lost_between_threads() {
        let gate = Gate::new(2, 1, 1);
        let workers = [0, 1].map(|core| {
            let gate = Arc::clone(&gate);
            std::thread::spawn(move || {
                for _ in 0..2000 {
                    let place = loop {
                        let seen = gate.releases();
                        match gate.take([core]) {
                            Some(place) => break place,
                            None => block_on(poll_fn(|cx| gate.poll_release(cx, seen))),
                        }
                    };
                    drop(place);
                }
            })
        });
        for worker in workers {
            assert!(worker.join().is_ok());
        }
        assert_eq!(gate.state.lock().all, 0);
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
