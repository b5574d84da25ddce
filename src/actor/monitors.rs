//! Hearing of the ends of many actors, in one place.

use std::fmt;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use rustc_hash::FxHashMap;

use super::channel::Queue;
use super::exit::Down;
use super::watch::{Place, Sink, unwatch, watch};
use crate::runtime::local::Local;
use crate::runtime::{RawPid, context};

/// Watches many actors, on whatever cores, for one reader: Erlang's monitors as a process has them, whose `'DOWN'`
/// messages all arrive in its mailbox. Here they have a queue of their own, without a bound, so that none is lost and none
/// waits behind ordinary mail.
///
/// For one actor, [`monitor`](super::monitor) is simpler.
///
/// # Drop
/// Ends all watches. What was not received is dropped.
///
/// # Examples
/// ```
/// use corelet::actor::{self, ExitReason, Monitors};
/// use corelet::runtime::{Cores, Runtime};
///
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// runtime.block_on(|| async {
///     let mut monitors = Monitors::new();
///     let workers: Vec<_> = (0..3).map(|_| actor::spawn(async {})).collect();
///     for worker in &workers {
///         assert!(monitors.watch(*worker));
///         assert!(!monitors.watch(*worker), "it is watched already");
///     }
///     assert!(monitors.unwatch(workers[0]));
///     while !monitors.is_empty() {
///         assert_eq!(monitors.recv().await.reason, ExitReason::Normal);
///     }
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Monitors {
    local: Rc<Local>,
    queue: Rc<Queue<(u64, Down)>>,
    watched: FxHashMap<RawPid, Watched>,
    tags: u64,
}

struct Watched {
    /// Of several watches of one actor, one after the other, only the last counts.
    tag: u64,
    place: Place,
}

impl Monitors {
    /// Watches nobody yet.
    ///
    /// # Panics
    /// When not called on a core.
    #[allow(clippy::new_without_default)] // A default that panics outside a core would be a trap.
    #[track_caller]
    pub fn new() -> Monitors {
        let queue = Rc::new(Queue::new(usize::MAX));
        // So that it never counts as disconnected.
        queue.publish();
        Monitors { local: context::current(), queue, watched: FxHashMap::default(), tags: 0 }
    }

    /// Watches an actor. Its [`Down`] comes once, at once if it has ended already; until that has been received, watching the
    /// same actor again changes nothing, and gives false.
    pub fn watch(&mut self, pid: impl Into<RawPid>) -> bool {
        let pid = pid.into();
        if self.watched.contains_key(&pid) {
            return false;
        }
        self.tags += 1;
        let sink = Sink::Tagged(Rc::clone(&self.queue), self.tags);
        let place = watch(&self.local, pid, sink);
        self.watched.insert(pid, Watched { tag: self.tags, place });
        true
    }

    /// Ends a watch; nothing of it is received from now on, even if the actor has ended meanwhile. False when there was
    /// none.
    pub fn unwatch(&mut self, pid: impl Into<RawPid>) -> bool {
        let pid = pid.into();
        let watched = self.watched.remove(&pid);
        if let Some(watched) = &watched {
            unwatch(&self.local, pid, watched.place);
        }
        watched.is_some()
    }

    /// The next end of a watched actor, which is not watched any more then. Waits for ever while nobody is watched.
    ///
    /// # Cancel safety
    /// Cancel safe: a message is taken when the future is ready, never before.
    pub fn recv(&mut self) -> impl Future<Output = Down> + '_ {
        poll_fn(|cx| self.poll_recv(cx))
    }

    /// As [`recv`](Monitors::recv), for futures written by hand.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Down> {
        loop {
            // Never disconnected: see `new`.
            let Some((tag, down)) = ready!(self.queue.poll_pop(cx)) else { return Poll::Pending };
            if self.finish(tag, &down) {
                return Poll::Ready(down);
            }
        }
    }

    /// The next end of a watched actor, if one has come.
    pub fn try_recv(&mut self) -> Option<Down> {
        while let Some((tag, down)) = self.queue.take_counted() {
            if self.finish(tag, &down) {
                return Some(down);
            }
        }
        None
    }

    /// Whether an actor is watched, and its end has not been received.
    pub fn is_watching(&self, pid: impl Into<RawPid>) -> bool {
        self.watched.contains_key(&pid.into())
    }

    /// How many actors are watched.
    pub fn len(&self) -> usize {
        self.watched.len()
    }

    /// Whether nobody is watched.
    pub fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Whether the message belongs to the present watch of its actor, which ends with it.
    fn finish(&mut self, tag: u64, down: &Down) -> bool {
        let pid = down.pid.raw();
        let current = self.watched.get(&pid).is_some_and(|watched| watched.tag == tag);
        if current {
            self.watched.remove(&pid);
        }
        current
    }
}

impl Drop for Monitors {
    fn drop(&mut self) {
        for (pid, watched) in self.watched.drain() {
            unwatch(&self.local, pid, watched.place);
        }
        drop(self.queue.close());
    }
}

impl fmt::Debug for Monitors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitors").field("watched", &self.len()).finish_non_exhaustive()
    }
}
