//! A lock between the tasks of one core, handed on by ticket.
//!
//! Whoever lets go names the next holder, by its ticket, and wakes it. A wake says nothing by itself: a waiter that is woken
//! looks whether the lock bears its ticket. So no other wake can be taken for the lock, and a waiter that goes away knows
//! whether it has to pass the lock on.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::runtime::{Elapsed, context, timeout};

/// Lets one task of a core at a time have a value, across awaits.
///
/// Tasks of a core never run at the same time, so what they share needs no lock as long as nobody keeps it over an await: a
/// `Cell` or a `RefCell` does. This is for what must stay as it is *while* its holder waits: a connection in the middle of a
/// dialogue, a file that is being rewritten. Often an actor that owns the thing, and is sent to, is the better answer.
///
/// The lock is handed on in the order of asking: whoever lets go of it gives it to the one that has waited longest, and a
/// newcomer never overtakes. It stays on its core, unlike `tokio::sync::Mutex`, and has no atomics.
///
/// It does not poison: when a holder panics or is stopped, its guard is dropped and the lock handed on, and the value is as
/// that left it. Who must know puts it into the value.
///
/// To lock twice in one task is to wait for oneself.
///
/// # Examples
/// ```
/// use std::rc::Rc;
/// use std::time::Duration;
///
/// use corelet::actor::Mutex;
/// use corelet::runtime::{Cores, Runtime, sleep, spawn};
///
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// runtime.block_on(|| async {
///     let total = Rc::new(Mutex::new(0));
///     let tasks: Vec<_> = (0..3)
///         .map(|_| {
///             let total = Rc::clone(&total);
///             spawn(async move {
///                 let mut total = total.lock().await;
///                 let seen = *total;
///                 sleep(Duration::from_millis(1)).await;
///                 *total = seen + 1;
///             })
///         })
///         .collect();
///     let held = total.lock().await;
///     assert!(total.try_lock().is_none());
///     assert!(total.lock_timeout(Duration::from_millis(1)).await.is_err());
///     drop(held);
///     for task in tasks {
///         task.await.unwrap();
///     }
///     assert_eq!(*total.lock().await, 3);
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    queue: Queue,
    value: RefCell<T>,
}

/// Whose turn it is.
#[derive(Default)]
struct Queue {
    /// The ticket of whoever has the lock, or was handed it and has not looked yet.
    holder: Cell<Option<u64>>,
    /// Never used again, so a ticket names its owner for good.
    next: Cell<u64>,
    waiting: RefCell<BTreeMap<u64, Waker>>,
}

impl Queue {
    fn draw(&self) -> u64 {
        let ticket = self.next.get();
        self.next.set(ticket + 1);
        ticket
    }

    /// Takes the lock if nobody has it. While somebody waits, somebody has it.
    fn take(&self) -> Option<u64> {
        if self.holder.get().is_some() {
            return None;
        }
        self.holder.set(Some(self.draw()));
        self.holder.get()
    }

    fn wait(&self, ticket: u64, waker: &Waker) {
        // Cloned and dropped outside the borrow: a waker may be a user's.
        let waker = waker.clone();
        let replaced = self.waiting.borrow_mut().insert(ticket, waker);
        drop(replaced);
    }

    /// Hands the lock to the one that has waited longest.
    fn pass_on(&self) {
        let next = self.waiting.borrow_mut().pop_first();
        self.holder.set(next.as_ref().map(|(ticket, _)| *ticket));
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }

    /// A waiter gives up, whatever it was handed.
    fn leave(&self, ticket: u64) {
        if self.holder.get() == Some(ticket) {
            return self.pass_on();
        }
        let removed = self.waiting.borrow_mut().remove(&ticket);
        drop(removed);
    }
}

impl<T> Mutex<T> {
    /// A lock that nobody has.
    pub const fn new(value: T) -> Mutex<T> {
        let queue =
            Queue { holder: Cell::new(None), next: Cell::new(0), waiting: RefCell::new(BTreeMap::new()) };
        Mutex { queue, value: RefCell::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    ///
    /// # Cancel safety
    /// Cancel safe: a waiter that is dropped or stopped leaves the queue, and the lock goes to the next, also if it was just
    /// being handed over. Whoever asks again asks at the end of the queue.
    pub fn lock(&self) -> Lock<'_, T> {
        Lock { mutex: self, ticket: None }
    }

    /// Waits for the lock, for at most `limit`. A lock that is handed over together with the deadline is taken.
    ///
    /// # Errors
    /// [`Elapsed`] when the time is over.
    ///
    /// # Cancel safety
    /// As [`lock`](Mutex::lock); no timer is left.
    ///
    /// # Panics
    /// When it has to wait and is not polled on a core.
    pub async fn lock_timeout(&self, limit: Duration) -> Result<MutexGuard<'_, T>, Elapsed> {
        timeout(limit, self.lock()).await
    }

    /// Takes the lock if nobody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.queue.take().map(|_| self.guard())
    }

    /// Whether somebody has the lock, or is being handed it.
    pub fn is_locked(&self) -> bool {
        self.queue.holder.get().is_some()
    }

    /// The value, which nobody else can have.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// For whoever has the lock.
    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard { value: self.value.borrow_mut(), _turn: Turn(&self.queue) }
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("locked", &self.is_locked())
            .field("waiting", &self.queue.waiting.borrow().len())
            .finish_non_exhaustive()
    }
}

/// Waits for a lock; made by [`Mutex::lock`]. After it has given the guard, polling it again asks again.
///
/// # Drop
/// Leaves the queue; a lock that was being handed over goes to the next.
#[must_use = "a lock is taken only when this is awaited"]
pub struct Lock<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// While it waits.
    ticket: Option<u64>,
}

impl<'a, T: ?Sized> Future for Lock<'a, T> {
    type Output = MutexGuard<'a, T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<MutexGuard<'a, T>> {
        let mutex = self.mutex;
        let queue = &mutex.queue;
        match self.ticket {
            Some(ticket) if queue.holder.get() == Some(ticket) => self.ticket = None,
            Some(ticket) => {
                queue.wait(ticket, cx.waker());
                return Poll::Pending;
            }
            None => match queue.take() {
                Some(_) if context::spend_budget() => {}
                // It is this one's already, and is collected by the next poll.
                Some(ticket) => {
                    self.ticket = Some(ticket);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                None => {
                    let ticket = queue.draw();
                    queue.wait(ticket, cx.waker());
                    self.ticket = Some(ticket);
                    return Poll::Pending;
                }
            },
        }
        Poll::Ready(mutex.guard())
    }
}

impl<T: ?Sized> Drop for Lock<'_, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.mutex.queue.leave(ticket);
        }
    }
}

impl<T: ?Sized> fmt::Debug for Lock<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("waiting", &self.ticket.is_some()).finish_non_exhaustive()
    }
}

/// Has the lock, and the value.
///
/// # Drop
/// Hands the lock to the one that has waited longest.
#[must_use = "the lock is let go when this is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    // Goes before the turn: whoever is next must find the value free.
    value: RefMut<'a, T>,
    _turn: Turn<'a>,
}

struct Turn<'a>(&'a Queue);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
