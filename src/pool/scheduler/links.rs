//! Doubly linked lists threaded through the elements of a slice: a move from list to list allocates nothing
//! and a removal from the middle searches nothing.
//!
//! A list does not own its elements and cannot tell which list an element is on: an element has one pair of
//! links and is therefore on one list at most, and its owner's state says on which.

/// The neighbours of an element in the list it is on. What the first element has for a predecessor means nothing: taking
/// one off the front then leaves the next one, and its cache line, alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    previous: u32,
    next: u32,
}

/// An element that a [`List`] can hold.
pub(super) trait Linked {
    fn links(&self) -> &Links;
    fn links_mut(&mut self) -> &mut Links;
}

/// The two ends of one list, and its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Links {
    pub(super) const fn new() -> Self {
        Self { previous: NONE, next: NONE }
    }

    /// The element after this one. A loop that removes as it walks reads this before it removes.
    pub(super) fn next(&self) -> Option<u32> {
        some(self.next)
    }
}

impl List {
    pub(super) const fn new() -> Self {
        Self { head: NONE, tail: NONE, len: 0 }
    }

    #[inline(always)]
    pub(super) fn push_front<T: Linked>(&mut self, items: &mut [T], index: u32) {
        *items[index as usize].links_mut() = Links { previous: NONE, next: self.head };
        if self.head == NONE {
            self.tail = index;
        } else {
            items[self.head as usize].links_mut().previous = index;
        }
        self.head = index;
        self.len += 1;
    }

    pub(super) fn push_back<T: Linked>(&mut self, items: &mut [T], index: u32) {
        *items[index as usize].links_mut() = Links { previous: self.tail, next: NONE };
        if self.tail == NONE {
            self.head = index;
        } else {
            items[self.tail as usize].links_mut().next = index;
        }
        self.tail = index;
        self.len += 1;
    }

    #[inline(always)]
    pub(super) fn pop_front<T: Linked>(&mut self, items: &mut [T]) -> Option<u32> {
        let index = self.front()?;
        self.head = items[index as usize].links().next;
        if self.head == NONE {
            self.tail = NONE;
        }
        self.len -= 1;
        Some(index)
    }

    /// Takes out an element that is on this list.
    pub(super) fn remove<T: Linked>(&mut self, items: &mut [T], index: u32) {
        let Links { previous, next } = *items[index as usize].links();
        if self.head == index {
            self.head = next;
        } else {
            items[previous as usize].links_mut().next = next;
        }
        if next == NONE {
            debug_assert_eq!(self.tail, index, "only the last element has no successor");
            self.tail = if self.head == NONE { NONE } else { previous };
        } else {
            items[next as usize].links_mut().previous = previous;
        }
        self.len -= 1;
    }

    /// Puts an element right behind one that is on this list.
    pub(super) fn insert_behind<T: Linked>(&mut self, items: &mut [T], neighbour: u32, index: u32) {
        let next = items[neighbour as usize].links().next;
        if next == NONE {
            return self.push_back(items, index);
        }
        *items[index as usize].links_mut() = Links { previous: neighbour, next };
        items[neighbour as usize].links_mut().next = index;
        items[next as usize].links_mut().previous = index;
        self.len += 1;
    }

    #[inline]
    pub(super) fn front(&self) -> Option<u32> {
        some(self.head)
    }

    #[inline]
    pub(super) fn back(&self) -> Option<u32> {
        some(self.tail)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element before this one, which is on this list.
    pub(super) fn before<T: Linked>(&self, items: &[T], index: u32) -> Option<u32> {
        if self.head == index { None } else { some(items[index as usize].links().previous) }
    }

    /// The elements from front to back.
    pub(super) fn iter<'a, T: Linked>(&self, items: &'a [T]) -> impl Iterator<Item = u32> + 'a {
        std::iter::successors(self.front(), |&index| items[index as usize].links().next())
    }

    /// The elements from back to front.
    pub(super) fn iter_back<'a, T: Linked>(&self, items: &'a [T]) -> impl Iterator<Item = u32> + use<'a, T> {
        let list = *self;
        std::iter::successors(self.back(), move |&index| list.before(items, index))
    }
}

#[inline]
const fn some(index: u32) -> Option<u32> {
    if index == NONE { None } else { Some(index) }
}

/// No element. Whoever owns the elements keeps fewer of them than this.
pub(super) const NONE: u32 = u32::MAX;
