//! Deadlines in time order, each of which can be cancelled.
//!
//! The queue never reads a clock: the caller says what time it is, so that a simulated core fires the same
//! deadlines in the same order on every run.
//!
//! It is two structures in one. A deadline that is not before the latest one joins the *run*, a queue in time order:
//! that is the commonest use, one time-out for everybody, and there joining, firing and cancelling at either end move
//! nothing. All others go to an indexed 4-ary min-heap (four children to a node halve the depth of a binary one), in
//! which each entry knows its place, so that a cancel never searches.
//!
//! Both ends of the run are always live, so [`DeadlineQueue::next`] never reports a time at which nothing is due;
//! cancelled nodes between them are dropped when they outnumber the live ones.

use std::collections::VecDeque;
use std::time::Instant;

/// Names one deadline of one queue. A key whose deadline has fired or was cancelled matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DeadlineKey {
    index: u32,
    generation: u32,
}

/// Values that fall due at an instant, the earliest first, those of the same instant in order of insertion.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct DeadlineQueue<T> {
    run: VecDeque<Node>,
    /// Nodes of the run whose deadline was cancelled.
    run_dead: usize,
    heap: Vec<Node>,
    entries: Vec<Entry<T>>,
    free: u32,
    /// Counts insertions over the life of the queue: breaks ties between equal instants, and its low half is
    /// the generation of the entry, which is why [`DeadlineQueue::clear`] does not reset it.
    sequence: u64,
}

/// What the heap compares. The instant lies here and not in the entry, so that sifting reads only the heap.
#[derive(Clone, Copy, Debug)]
struct Node {
    at: Instant,
    sequence: u64,
    entry: u32,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Entry<T> {
    generation: u32,
    /// The place in the heap, or [`IN_RUN`], while there is a value; the next free entry when there is none.
    link: u32,
    value: Option<T>,
}

impl<T> Default for DeadlineQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> DeadlineQueue<T> {
    /// An empty queue; it allocates on the first insertion.
    pub(crate) const fn new() -> Self {
        Self {
            run: VecDeque::new(),
            run_dead: 0,
            heap: Vec::new(),
            entries: Vec::new(),
            free: NONE,
            sequence: 0,
        }
    }

    /// Adds `value`, due at `at`.
    pub(crate) fn insert(&mut self, at: Instant, value: T) -> DeadlineKey {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        // Truncation is the point: a stale key could match again only if exactly 2^32 insertions lie between
        // it and the present user of the same entry.
        let generation = sequence as u32;
        let entry = Entry { generation, link: IN_RUN, value: Some(value) };
        let index = if self.free == NONE {
            assert!(
                self.entries.len() < IN_RUN as usize,
                "a deadline queue holds fewer than 2^32 - 1 deadlines"
            );
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        } else {
            let index = self.free;
            let vacant = &mut self.entries[index as usize];
            self.free = vacant.link;
            *vacant = entry;
            index
        };
        let node = Node { at, sequence, entry: index };
        if self.run.back().is_none_or(|latest| latest.at <= at) {
            self.run.push_back(node);
        } else {
            self.heap.push(node);
            self.sift_up(self.heap.len() - 1, node);
        }
        DeadlineKey { index, generation }
    }

    /// Takes the deadline back. Gives the value if, and only if, it had neither fired nor been cancelled.
    pub(crate) fn cancel(&mut self, key: DeadlineKey) -> Option<T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        let value = entry.value.take()?;
        let link = entry.link;
        self.vacate(key.index);
        if link == IN_RUN {
            self.run_dead += 1;
            self.trim_run();
        } else {
            self.remove_node(link as usize);
        }
        Some(value)
    }

    /// Gives one value that is due at `now`, the longest overdue first; `None` when nothing is due any more.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<T> {
        let (first, in_run) = match (self.run.front(), self.heap.first()) {
            (Some(run), Some(heap)) if heap.before(run) => (*heap, false),
            (Some(run), _) => (*run, true),
            (None, heap) => (*heap?, false),
        };
        if first.at > now {
            return None;
        }
        let value = self.entries[first.entry as usize].value.take();
        self.vacate(first.entry);
        if in_run {
            self.run.pop_front();
            self.trim_run();
        } else {
            self.remove_node(0);
        }
        value
    }

    /// The value of a deadline that has neither fired nor been cancelled.
    pub(crate) fn get_mut(&mut self, key: DeadlineKey) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation == key.generation { entry.value.as_mut() } else { None }
    }

    /// Gives up every deadline, for the caller to drop. Keys given out before match nothing from now on.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        self.run.clear();
        self.run_dead = 0;
        self.heap.clear();
        self.free = NONE;
        self.entries.drain(..).filter_map(|entry| entry.value).collect()
    }

    /// The instant of the earliest deadline, exactly.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        match (self.run.front(), self.heap.first()) {
            (Some(run), Some(heap)) => Some(run.at.min(heap.at)),
            (run, heap) => run.or(heap).map(|node| node.at),
        }
    }

    /// How many deadlines are pending.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.heap.len() + self.run.len() - self.run_dead
    }

    /// Whether no deadline is pending.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // The ends of the run are live.
        self.heap.is_empty() && self.run.is_empty()
    }

    /// Drops cancelled nodes at both ends of the run, and all of them when they are the majority.
    fn trim_run(&mut self) {
        while self.run_dead > 0
            && let Some(front) = self.run.front()
            && !self.entries[front.entry as usize].is_run_of(front)
        {
            self.run.pop_front();
            self.run_dead -= 1;
        }
        while self.run_dead > 0
            && let Some(back) = self.run.back()
            && !self.entries[back.entry as usize].is_run_of(back)
        {
            self.run.pop_back();
            self.run_dead -= 1;
        }
        if self.run_dead * 2 > self.run.len() {
            let entries = &self.entries;
            self.run.retain(|node| entries[node.entry as usize].is_run_of(node));
            self.run_dead = 0;
        }
    }

    fn vacate(&mut self, index: u32) {
        self.entries[index as usize].link = self.free;
        self.free = index;
    }

    fn remove_node(&mut self, position: usize) {
        let Some(last) = self.heap.pop() else {
            unreachable!("an entry with a value has a node in the heap");
        };
        if position == self.heap.len() {
            return;
        }
        // The last node may come from another branch, and then it can be earlier than its new parent.
        if position > 0 && last.before(&self.heap[(position - 1) / ARITY]) {
            self.sift_up(position, last);
        } else {
            self.sift_down(position, last);
        }
    }

    fn sift_up(&mut self, mut position: usize, node: Node) {
        while position > 0 {
            let parent = (position - 1) / ARITY;
            let above = self.heap[parent];
            if !node.before(&above) {
                break;
            }
            self.place(position, above);
            position = parent;
        }
        self.place(position, node);
    }

    fn sift_down(&mut self, mut position: usize, node: Node) {
        loop {
            let first = position * ARITY + 1;
            if first >= self.heap.len() {
                break;
            }
            let end = (first + ARITY).min(self.heap.len());
            let mut least = first;
            for child in first + 1..end {
                if self.heap[child].before(&self.heap[least]) {
                    least = child;
                }
            }
            let below = self.heap[least];
            if !below.before(&node) {
                break;
            }
            self.place(position, below);
            position = least;
        }
        self.place(position, node);
    }

    fn place(&mut self, position: usize, node: Node) {
        self.heap[position] = node;
        self.entries[node.entry as usize].link = position as u32;
    }
}

impl<T> Entry<T> {
    /// Whether the entry is still that of `node`, which lies in the run.
    #[inline]
    fn is_run_of(&self, node: &Node) -> bool {
        self.generation == node.sequence as u32 && self.link == IN_RUN && self.value.is_some()
    }
}

impl Node {
    #[inline]
    fn before(&self, other: &Self) -> bool {
        (self.at, self.sequence) < (other.at, other.sequence)
    }
}

const ARITY: usize = 4;

/// In place of a place in the heap: the node is in the run.
const IN_RUN: u32 = u32::MAX - 1;

/// No entry: the end of the list of free ones.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests;
