//! Deadlines in time order, each of which can be cancelled.
//!
//! The queue never reads a clock: the caller says what time it is, so that a simulated core fires the same
//! deadlines in the same order on every run.
//!
//! It is an indexed 4-ary min-heap. Four children to a node halve the depth of a binary heap, and the
//! commonest use, one time-out for everybody, appends at the end and cancels what was appended last, which
//! moves nothing at all. Each entry knows its place in the heap, so a cancel never searches and leaves no
//! tombstone behind that would make [`DeadlineQueue::next`] report a time at which nothing is due.

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
    /// The place in the heap while there is a value, the next free entry when there is none.
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
        Self { heap: Vec::new(), entries: Vec::new(), free: NONE, sequence: 0 }
    }

    /// Adds `value`, due at `at`.
    pub(crate) fn insert(&mut self, at: Instant, value: T) -> DeadlineKey {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        // Truncation is the point: a stale key could match again only if exactly 2^32 insertions lie between
        // it and the present user of the same entry.
        let generation = sequence as u32;
        let entry = Entry { generation, link: NONE, value: Some(value) };
        let index = if self.free == NONE {
            assert!(self.entries.len() < NONE as usize, "a deadline queue holds at most 2^32 - 1 deadlines");
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
        self.heap.push(node);
        self.sift_up(self.heap.len() - 1, node);
        DeadlineKey { index, generation }
    }

    /// Takes the deadline back. Gives the value if, and only if, it had neither fired nor been cancelled.
    pub(crate) fn cancel(&mut self, key: DeadlineKey) -> Option<T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        let value = entry.value.take()?;
        let position = entry.link as usize;
        self.vacate(key.index);
        self.remove_node(position);
        Some(value)
    }

    /// Gives one value that is due at `now`, the longest overdue first; `None` when nothing is due any more.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<T> {
        let first = *self.heap.first()?;
        if first.at > now {
            return None;
        }
        let value = self.entries[first.entry as usize].value.take();
        self.vacate(first.entry);
        self.remove_node(0);
        value
    }

    /// The value of a deadline that has neither fired nor been cancelled.
    pub(crate) fn get_mut(&mut self, key: DeadlineKey) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation == key.generation { entry.value.as_mut() } else { None }
    }

    /// Drops every deadline and keeps the memory. Keys given out before match nothing from now on.
    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        self.entries.clear();
        self.free = NONE;
    }

    /// The instant of the earliest deadline, exactly.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.first().map(|node| node.at)
    }

    /// How many deadlines are pending.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no deadline is pending.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
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

impl Node {
    fn before(&self, other: &Self) -> bool {
        (self.at, self.sequence) < (other.at, other.sequence)
    }
}

const ARITY: usize = 4;

/// No entry: the end of the list of free ones.
const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests;
