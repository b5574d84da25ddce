//! The run queue of one core: which ready task runs next.
//!
//! First in, first out, with an optional wake slot in front: with the slot on, the newest task that another task woke
//! runs next, while its data is still in the cache. The slot may be used `SLOT_RUN` times in a row; then the queue
//! has its turn, so that two tasks waking each other starve nobody.

use std::collections::VecDeque;

const SLOT_RUN: u32 = 16;

#[derive(Debug)]
pub(super) struct RunQueue<T> {
    ready: VecDeque<T>,
    slot: Option<T>,
    slot_enabled: bool,
    slot_run: u32,
    /// Tasks that ran from the slot, and tasks that a newer one pushed out of it.
    slot_hits: u64,
    slot_displaced: u64,
    /// State of the shuffle; zero runs tasks in order.
    shuffle: u64,
}

impl<T> RunQueue<T> {
    pub(super) fn new() -> RunQueue<T> {
        RunQueue {
            ready: VecDeque::new(),
            slot: None,
            slot_enabled: false,
            slot_run: 0,
            slot_hits: 0,
            slot_displaced: 0,
            shuffle: 0,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, task: T) {
        self.ready.push_back(task);
    }

    /// Queues a task that another task woke.
    #[inline]
    pub(super) fn push_woken(&mut self, task: T) {
        if !self.slot_enabled {
            self.ready.push_back(task);
        } else if let Some(displaced) = self.slot.replace(task) {
            self.slot_displaced += 1;
            self.ready.push_back(displaced);
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.slot_enabled && self.slot.is_some() && (self.slot_run < SLOT_RUN || self.ready.is_empty()) {
            self.slot_run += 1;
            self.slot_hits += 1;
            return self.slot.take();
        }
        self.slot_run = 0;
        if self.shuffle != 0 {
            self.shuffle_front();
        }
        self.ready.pop_front()
    }

    /// Switches the wake slot; a task that waits in it goes to the queue.
    pub(super) fn set_wake_slot(&mut self, enabled: bool) {
        self.slot_enabled = enabled;
        if !enabled && let Some(task) = self.slot.take() {
            self.ready.push_back(task);
        }
    }

    /// Runs ready tasks in an order drawn from `seed`; zero restores first in, first out.
    pub(super) fn set_shuffle(&mut self, seed: u64) {
        self.shuffle = seed;
    }

    /// How many tasks ran from the slot, and how many were pushed out of it.
    pub(super) fn slot_counts(&self) -> (u64, u64) {
        (self.slot_hits, self.slot_displaced)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.slot.is_none()
    }

    pub(super) fn len(&self) -> usize {
        self.ready.len() + usize::from(self.slot.is_some())
    }

    #[cold]
    fn shuffle_front(&mut self) {
        if self.ready.len() > 1 {
            let chosen = self.draw() as usize % self.ready.len();
            self.ready.swap(0, chosen);
        }
    }

    /// Xorshift (Marsaglia, 2003): an order that replays from its seed is all that is asked of it.
    fn draw(&mut self) -> u64 {
        self.shuffle ^= self.shuffle << 13;
        self.shuffle ^= self.shuffle >> 7;
        self.shuffle ^= self.shuffle << 17;
        self.shuffle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_run_in_the_order_they_became_ready() {
        let mut queue = RunQueue::<u32>::new();
        for task in 0..5 {
            queue.push_woken(task);
        }
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn the_wake_slot_runs_the_newest_wake_next_and_keeps_the_displaced_one() {
        let mut queue = RunQueue::<u32>::new();
        queue.set_wake_slot(true);
        queue.push(0);
        queue.push_woken(1);
        queue.push_woken(2);
        assert_eq!(queue.len(), 3);
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [2, 0, 1]);
        assert_eq!(queue.slot_counts(), (1, 1));
    }

    #[test]
    fn two_tasks_waking_each_other_through_the_slot_starve_nobody() {
        let mut queue = RunQueue::<u32>::new();
        queue.set_wake_slot(true);
        queue.push(99);
        queue.push_woken(0);
        for step in 0..=SLOT_RUN {
            let task = queue.pop();
            if task == Some(99) {
                return;
            }
            queue.push_woken(step % 2);
        }
        panic!("the queued task did not run within {SLOT_RUN} slots");
    }

    #[test]
    fn switching_the_slot_off_keeps_its_task() {
        let mut queue = RunQueue::<u32>::new();
        queue.set_wake_slot(true);
        queue.push_woken(5);
        queue.set_wake_slot(false);
        assert_eq!(queue.pop(), Some(5));
        assert!(queue.is_empty());
    }

    #[test]
    fn the_same_seed_gives_the_same_order() {
        let order = |seed| {
            let mut queue = RunQueue::<u32>::new();
            queue.set_shuffle(seed);
            (0..32).for_each(|task| queue.push(task));
            std::iter::from_fn(move || queue.pop()).collect::<Vec<u32>>()
        };
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
    }
}
