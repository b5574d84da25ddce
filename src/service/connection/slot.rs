//! A place for one future at a time, whose memory is used again: each request of a connection is a future of another
//! type, and none of them allocates once the largest has come by.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

/// Holds at most one future that gives a `T`.
///
/// # Drop
/// Drops the future, then frees the memory.
pub(crate) struct FutureSlot<T> {
    /// Memory of `layout`, or dangling while the layout's size is zero.
    memory: NonNull<u8>,
    layout: Layout,
    /// The future that lives in `memory`. It never moves while it is in here.
    occupant: Option<*mut dyn Future<Output = T>>,
    /// It owns what it points to, which need not be `Send`.
    owns: PhantomData<Box<dyn Future<Output = T>>>,
}

impl<T> FutureSlot<T> {
    /// An empty slot, without memory.
    pub(crate) fn new() -> FutureSlot<T> {
        let layout = Layout::new::<()>();
        FutureSlot { memory: NonNull::dangling(), layout, occupant: None, owns: PhantomData }
    }

    /// Puts `future` in the place of what is there, which is dropped before.
    pub(crate) fn set<F: Future<Output = T> + 'static>(&mut self, future: F) {
        self.clear();
        self.make_room(Layout::new::<F>());
        let place = self.memory.as_ptr().cast::<F>();
        // SAFETY: `make_room` left memory that is as large and as aligned as `F` needs, and that nothing lives in, since
        // `clear` has run. If `F` has no size, the pointer need only be aligned, which `make_room` has seen to as well.
        unsafe { place.write(future) };
        self.occupant = Some(place);
    }

    /// Polls what is there; when it is done it is dropped, and the slot is empty. Pending when the slot is empty.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        let Some(occupant) = self.occupant else { return Poll::Pending };
        // SAFETY: `occupant` points to a future that `set` wrote and that has not been dropped, for both that drop it take
        // it out of `occupant` before. It is borrowed only here, through `&mut self`. It is pinned: it is not moved before
        // it is dropped, as the memory is freed or used again only when the slot is empty.
        let future = unsafe { Pin::new_unchecked(&mut *occupant) };
        let polled = future.poll(cx);
        if polled.is_ready() {
            self.clear();
        }
        polled
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.occupant.is_none()
    }

    /// Drops what is there.
    pub(crate) fn clear(&mut self) {
        if let Some(occupant) = self.occupant.take() {
            // SAFETY: as in `poll`: it lives, and nobody else has it. It is out of `occupant` already, so that a drop that
            // panics is not repeated.
            unsafe { occupant.drop_in_place() };
        }
    }

    /// Sees to memory for `wanted`. Only while the slot is empty.
    fn make_room(&mut self, wanted: Layout) {
        debug_assert!(self.is_empty());
        if wanted.size() <= self.layout.size() && wanted.align() <= self.layout.align() {
            return;
        }
        self.free();
        // At least as large as before in both respects, so that two types in turn do not allocate for ever.
        let (size, align) = (wanted.size().max(self.layout.size()), wanted.align().max(self.layout.align()));
        let Ok(layout) = Layout::from_size_align(size, align) else { alloc::handle_alloc_error(wanted) };
        if layout.size() == 0 {
            self.memory = layout_dangling(layout);
        } else {
            // SAFETY: the layout's size is not zero.
            let memory = unsafe { alloc::alloc(layout) };
            self.memory = NonNull::new(memory).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        }
        self.layout = layout;
    }

    /// Gives the memory back but remembers its layout, which `make_room` or `drop` is about to forget.
    fn free(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: the memory came from `alloc` with this very layout, and nothing lives in it.
            unsafe { alloc::dealloc(self.memory.as_ptr(), self.layout) };
        }
        self.memory = NonNull::dangling();
    }
}

/// An aligned pointer for what has no size.
fn layout_dangling(layout: Layout) -> NonNull<u8> {
    let address = std::ptr::without_provenance_mut::<u8>(layout.align());
    // An alignment is never zero.
    NonNull::new(address).unwrap_or(NonNull::dangling())
}

impl<T> Drop for FutureSlot<T> {
    fn drop(&mut self) {
        self.clear();
        self.free();
    }
}

impl<T> fmt::Debug for FutureSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FutureSlot")
            .field("bytes", &self.layout.size())
            .field("empty", &self.is_empty())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, ready};
    use std::rc::Rc;
    use std::task::Waker;

    use super::*;

    struct Dropped(Rc<Cell<u32>>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn futures_of_all_sizes_take_turns_and_each_is_dropped_once() {
        let mut cx = Context::from_waker(Waker::noop());
        let drops = Rc::new(Cell::new(0));
        let mut slot = FutureSlot::new();
        for round in 0..3_u32 {
            slot.set(ready(round));
            assert_eq!(slot.poll(&mut cx), Poll::Ready(round));
            let (held, room) = (Dropped(Rc::clone(&drops)), [round; 100]);
            slot.set(async move {
                let _held = held;
                room[99]
            });
            assert_eq!(slot.poll(&mut cx), Poll::Ready(round));
            let held = Dropped(Rc::clone(&drops));
            slot.set(async move {
                let _held = held;
                pending().await
            });
            assert_eq!(slot.poll(&mut cx), Poll::Pending);
            assert_eq!(drops.get(), 2 * round + 1);
            slot.clear();
            assert_eq!(drops.get(), 2 * round + 2);
        }
        assert_eq!(slot.poll(&mut cx), Poll::Pending);
    }

    #[test]
    fn memory_is_allocated_once_for_the_largest() {
        let mut slot = FutureSlot::new();
        let large = [1_u8; 400];
        slot.set(async move { usize::from(large[3]) });
        let memory = slot.memory;
        for _ in 0..5 {
            slot.set(ready(1_usize));
            slot.set(async move { usize::from(large[3]) });
        }
        assert_eq!(slot.memory, memory);
    }
}
