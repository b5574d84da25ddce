//! A slab whose elements stand in a line: adding at the end, and leaving from anywhere, searches nothing and, once the
//! slab is as large as it has to be, allocates nothing.

use slab::Slab;

const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node<T> {
    value: T,
    previous: u32,
    next: u32,
    in_line: bool,
}

/// Elements by key, of which some stand in a line.
#[derive(Debug)]
pub(super) struct Order<T> {
    nodes: Slab<Node<T>>,
    head: u32,
    tail: u32,
    in_line: usize,
}

impl<T> Order<T> {
    pub(super) fn new() -> Order<T> {
        Order { nodes: Slab::new(), head: NONE, tail: NONE, in_line: 0 }
    }

    /// Adds an element, at the end of the line.
    pub(super) fn push_back(&mut self, value: T) -> u32 {
        let key = self.nodes.insert(Node { value, previous: self.tail, next: NONE, in_line: true }) as u32;
        match self.tail {
            NONE => self.head = key,
            tail => self.nodes[tail as usize].next = key,
        }
        self.tail = key;
        self.in_line += 1;
        key
    }

    /// The first in the line.
    pub(super) fn front(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// Takes an element out of the line, and keeps it.
    pub(super) fn step_out(&mut self, key: u32) {
        let node = &mut self.nodes[key as usize];
        if !std::mem::replace(&mut node.in_line, false) {
            return;
        }
        let (previous, next) = (node.previous, node.next);
        match previous {
            NONE => self.head = next,
            previous => self.nodes[previous as usize].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => self.nodes[next as usize].previous = previous,
        }
        self.in_line -= 1;
    }

    /// Takes an element out altogether.
    pub(super) fn remove(&mut self, key: u32) -> T {
        self.step_out(key);
        self.nodes.remove(key as usize).value
    }

    pub(super) fn get_mut(&mut self, key: u32) -> &mut T {
        &mut self.nodes[key as usize].value
    }

    pub(super) fn get(&self, key: u32) -> &T {
        &self.nodes[key as usize].value
    }

    /// How many stand in the line.
    pub(super) fn in_line(&self) -> usize {
        self.in_line
    }

    /// How many there are, in the line or not.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}
