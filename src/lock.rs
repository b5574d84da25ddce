//! The locks that cores share, and the order in which one thread may take them.
//!
//! There are few, and each is held for a look into a table or a change of it. A lock that a thread may take while it holds
//! another comes later in the order of [`Rank`]; two of one rank are never held together. Builds with debug assertions check
//! that before they wait, so that what could deadlock some day panics at once. Others check nothing.
//!
//! Never: hold one across an await, or run what a user wrote (a drop, a waker) under one.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};

/// What a lock protects, in the order in which locks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// The names or the groups of a runtime.
    Directory,
    /// What the shards of a pool, or the pools of an upstream, have in common.
    #[cfg_attr(not(feature = "pool"), allow(dead_code))]
    Pool,
    /// Who waits for a place in a server.
    #[cfg_attr(not(feature = "service"), allow(dead_code))]
    Server,
    /// Which core ids of the process are in use. Last, because a drop may give one back.
    Cores,
}

/// A lock with its place in the order.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    rank: Rank,
    value: Mutex<T>,
}

/// The right to a locked value.
pub(crate) struct Guard<'a, T> {
    value: MutexGuard<'a, T>,
    // Dropped last: the thread holds the lock until the value is let go.
    _held: order::Held,
}

impl<T> Lock<T> {
    pub(crate) const fn new(rank: Rank, value: T) -> Lock<T> {
        Lock { rank, value: Mutex::new(value) }
    }

    /// Waits for the lock. What a panic has left is used on: nothing that is done under these locks can be half done.
    ///
    /// # Panics
    /// In builds with debug assertions, when the thread holds a lock of the same rank or of a later one.
    #[track_caller]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let held = order::take(self.rank);
        let value = self.value.lock().unwrap_or_else(|poisoned| {
            tracing::error!(rank = ?self.rank, "a thread panicked while it held a lock; what it left is used on");
            self.value.clear_poison();
            poisoned.into_inner()
        });
        Guard { value, _held: held }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(debug_assertions)]
mod order {
    use std::cell::Cell;

    use super::Rank;

    thread_local! {
        /// A bit for each rank of which this thread holds a lock.
        static HELD: Cell<u8> = const { Cell::new(0) };
    }

    /// The thread holds a lock of this rank.
    pub(super) struct Held(Rank);

    #[track_caller]
    pub(super) fn take(rank: Rank) -> Held {
        let held = HELD.get();
        assert!(
            held >> rank as u8 == 0,
            "a lock of rank {rank:?} is taken out of order: the thread holds one of the same rank or of a later one, \
             where another thread may wait for this one"
        );
        HELD.set(held | 1 << rank as u8);
        Held(rank)
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.set(HELD.get() & !(1 << self.0 as u8));
        }
    }
}

#[cfg(not(debug_assertions))]
mod order {
    use super::Rank;

    pub(super) struct Held;

    #[inline]
    pub(super) fn take(_: Rank) -> Held {
        Held
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::{Lock, Rank};

    #[test]
    fn locks_are_taken_together_in_the_order_of_their_ranks() {
        let (names, pool, cores) =
            (Lock::new(Rank::Directory, 1), Lock::new(Rank::Pool, 2), Lock::new(Rank::Cores, 3));
        for _ in 0..2 {
            let (one, two, three) = (names.lock(), pool.lock(), cores.lock());
            assert_eq!((*one, *two, *three), (1, 2, 3));
        }
        // Given back in another order than they were taken in.
        let (one, three) = (names.lock(), cores.lock());
        drop(one);
        drop(three);
        assert_eq!(*names.lock(), 1);
    }

    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "checked in builds with debug assertions")]
    #[should_panic(expected = "a lock of rank Directory is taken out of order")]
    fn an_inverted_order_panics() {
        let (names, cores) = (Lock::new(Rank::Directory, ()), Lock::new(Rank::Cores, ()));
        let _later = cores.lock();
        let _earlier = names.lock();
    }

    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "checked in builds with debug assertions")]
    #[should_panic(expected = "a lock of rank Directory is taken out of order")]
    fn two_locks_of_one_rank_panic() {
        let (names, groups) = (Lock::new(Rank::Directory, ()), Lock::new(Rank::Directory, ()));
        let _one = names.lock();
        let _other = groups.lock();
    }

    #[test]
    fn a_panic_under_a_lock_leaves_it_usable() {
        let lock = Lock::new(Rank::Pool, 1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut value = lock.lock();
            *value = 2;
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(*lock.lock(), 2);
    }
}
