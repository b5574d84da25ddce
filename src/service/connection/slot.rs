//! A place for one future at a time, whose memory is used again: each request of a connection is a future of another
//! type, and none of them allocates once the largest has come by.
//!
//! The rules that the unsafe code keeps, each with its one place:
//! - *Who lives in the memory*: `occupant`, and nobody while that is `None`. [`set`](FutureSlot::set) writes it, `clear` takes it out before it
//!   drops it. So nothing is dropped twice, not even when a drop panics.
//! - *The memory fits*: `memory` was allocated for `layout`, or is dangling and aligned to `layout` while that has no size. Only `make_room`
//!   and `free` change either, both at once, and only while nobody lives there.
//! - *What is in here does not move* (it is pinned): the slot may move, the memory does not, and it is given back only while
//!   nobody lives there. A slot that is leaked leaks its memory with it, so nothing of it is used again.
//! - *One reference at a time*: what lives here is reached by `poll` and `clear`, which have `&mut self`. It can drop
//!   or poll whatever it likes meanwhile but not reach this slot, which lies in the connection's task and is lent to nobody.
//!
//! A panic of the future in `poll` is the caller's, who clears the slot then; one in its drop is logged and goes no
//! further.
#![allow(unsafe_code)]

use std::alloc::{self, Layout};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::task::{Context, Poll};

use crate::runtime::executor::contain;

/// The most bytes that a slot keeps without a future. What is larger is rare, and would stay with each connection that ever ran it; it
/// is given back instead, and costs an allocation each time.
const KEPT: usize = 16 * 1024;

/// What allocators align to without being asked, so that a future which needs it seldom has memory allocated anew.
const ALIGNED: usize = align_of::<u128>();

/// Holds at most one future that gives a `T`.
///
/// # Drop
/// Drops the future, then frees the memory.
pub(crate) struct FutureSlot<T> {
    memory: NonNull<u8>,
    layout: Layout,
    /// The future that lives in `memory`.
    occupant: Option<NonNull<dyn Future<Output = T>>>,
    /// It owns what it points to, which need not be `Send`.
    owns: PhantomData<Box<dyn Future<Output = T>>>,
}

impl<T> FutureSlot<T> {
    /// An empty slot, without memory.
    pub(crate) fn new() -> FutureSlot<T> {
        let layout = Layout::new::<()>();
        FutureSlot { memory: dangling(layout), layout, occupant: None, owns: PhantomData }
    }

    /// Puts what `make` gives in the place of what is there, which is dropped before.
    ///
    /// A future that has not begun is a few arguments and much room. Made here and now, it need not be made elsewhere and
    /// copied with all of its room.
    #[inline]
    pub(crate) fn set<F: Future<Output = T> + 'static>(&mut self, make: impl FnOnce() -> F) {
        self.clear();
        self.make_room(Layout::new::<F>());
        let place = self.memory.cast::<F>();
        let future = make();
        // SAFETY: `make_room` left memory that is as large and as aligned as an `F` needs, and nobody lives in it, since
        // `clear` has run and `make` cannot reach the slot, which is borrowed here. For an `F` without size an aligned
        // pointer is all that is needed.
        unsafe { place.write(future) };
        self.occupant = Some(place);
    }

    /// Polls what is there; when it is done it is dropped, and the slot is empty. Pending when the slot is empty.
    ///
    /// # Panics
    /// When the future does. It is still there then, and must not be polled again: [`clear`](FutureSlot::clear) it.
    #[inline]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        let Some(mut occupant) = self.occupant else { return Poll::Pending };
        // SAFETY: `set` wrote it, and it has not been dropped, since what is dropped is out of `occupant` before. The reference is the only one, as
        // `&mut self` is. It is pinned: it stays where it is until it is dropped.
        let future = unsafe { Pin::new_unchecked(occupant.as_mut()) };
        let polled = future.poll(cx);
        if polled.is_ready() {
            self.clear();
        }
        polled
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.occupant.is_none()
    }

    /// Drops what is there. A panic of its drop is logged and goes no further.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if let Some(occupant) = self.occupant.take() {
            contain("the future of a request", || {
                // SAFETY: as in `poll`. It is out of `occupant` for good, so nobody reaches it during the drop or after.
                unsafe { occupant.drop_in_place() };
            });
            if self.layout.size() > KEPT {
                self.free();
            }
        }
    }

    /// Sees to memory for `wanted`. Only while nobody lives here.
    #[inline]
    fn make_room(&mut self, wanted: Layout) {
        if wanted.size() > self.layout.size() || wanted.align() > self.layout.align() {
            self.grow(wanted);
        }
    }

    #[cold]
    fn grow(&mut self, wanted: Layout) {
        debug_assert!(self.is_empty());
        // At least as large as before in both respects, so that two types in turn do not allocate for ever.
        let size = wanted.size().max(self.layout.size());
        let align = wanted.align().max(self.layout.align()).max(ALIGNED);
        let Ok(layout) = Layout::from_size_align(size, align) else { alloc::handle_alloc_error(wanted) };
        self.free();
        self.memory = if layout.size() == 0 {
            dangling(layout)
        } else {
            // SAFETY: the layout's size is not zero.
            let memory = unsafe { alloc::alloc(layout) };
            NonNull::new(memory).unwrap_or_else(|| alloc::handle_alloc_error(layout))
        };
        self.layout = layout;
    }

    /// Gives the memory back. Only while nobody lives here.
    fn free(&mut self) {
        debug_assert!(self.is_empty());
        let (memory, layout) = (self.memory, std::mem::replace(&mut self.layout, Layout::new::<()>()));
        self.memory = dangling(self.layout);
        if layout.size() > 0 {
            // SAFETY: the memory came from `alloc` with this very layout, and nobody lives in it.
            unsafe { alloc::dealloc(memory.as_ptr(), layout) };
        }
    }
}

/// An aligned pointer for what has no size.
fn dangling(layout: Layout) -> NonNull<u8> {
    // An alignment is never zero.
    NonNull::new(ptr::without_provenance_mut(layout.align())).unwrap_or(NonNull::dangling())
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
    use std::cell::{Cell, RefCell};
    use std::future::{pending, poll_fn, ready};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;
    use std::task::Waker;

    use proptest::prelude::*;

    use super::*;

    fn poll<T>(slot: &mut FutureSlot<T>) -> Poll<T> {
        slot.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Counts its drop, and panics in it if it is to.
    struct Dropped {
        drops: Rc<Cell<usize>>,
        panics: bool,
    }

    impl Dropped {
        fn counted(drops: &Rc<Cell<usize>>) -> Dropped {
            Dropped { drops: Rc::clone(drops), panics: false }
        }
    }

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.drops.set(self.drops.get() + 1);
            assert!(!self.panics, "on purpose");
        }
    }

    /// Gives its tag when it has been pending so often; sees that neither it nor its bytes have moved.
    struct Probe<const N: usize, A> {
        tag: usize,
        pending: usize,
        panics: bool,
        at: Option<*const u8>,
        bytes: [u8; N],
        _align: A,
        _dropped: Dropped,
    }

    impl<const N: usize, A: Unpin> Future for Probe<N, A> {
        type Output = usize;

        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<usize> {
            let here = (&raw const self.bytes).cast::<u8>();
            assert_eq!(*self.at.get_or_insert(here), here, "it moved");
            assert!(
                (&raw const *self).cast::<()>().addr().is_multiple_of(align_of::<Self>()),
                "it is not aligned"
            );
            let tag = self.tag as u8;
            assert!(self.bytes.iter().all(|byte| *byte == tag), "somebody wrote into it");
            if self.pending > 0 {
                self.pending -= 1;
                return Poll::Pending;
            }
            assert!(!self.panics, "on purpose");
            Poll::Ready(self.tag)
        }
    }

    #[derive(Clone, Copy)]
    #[repr(align(128))]
    struct Aligned;

    #[derive(Clone, Debug)]
    enum Step {
        Set { shape: u8, pending: usize, panics: bool, drop_panics: bool },
        Poll,
        Clear,
        Move,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let set = (0..6_u8, 0..3_usize, prop::bool::weighted(0.15), prop::bool::weighted(0.15));
        let set = set.prop_map(|(shape, pending, panics, drop_panics)| Step::Set {
            shape,
            pending,
            panics,
            drop_panics,
        });
        let step =
            prop_oneof![3 => set, 6 => Just(Step::Poll), 1 => Just(Step::Clear), 1 => Just(Step::Move)];
        prop::collection::vec(step, 1..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Against a model: who lives there, how often it will still be pending, how many were dropped.
        #[test]
        fn whatever_is_done_with_it_each_future_lives_in_peace_and_is_dropped_once(steps in steps()) {
            let (drops, mut made) = (Rc::new(Cell::new(0)), 0_usize);
            let mut lives: Option<(usize, usize, bool)> = None;
            let mut slot = FutureSlot::new();
            for step in steps {
                match step {
                    Step::Set { shape, pending, panics, drop_panics } => {
                        let tag = made;
                        made += 1;
                        let dropped = Dropped { drops: Rc::clone(&drops), panics: drop_panics };
                        macro_rules! set {
                            ($n:expr, $align:expr) => {
                                slot.set(|| Probe {
                                    tag,
                                    pending,
                                    panics,
                                    at: None,
                                    bytes: [tag as u8; $n],
                                    _align: $align,
                                    _dropped: dropped,
                                })
                            };
                        }
                        match shape {
                            0 => set!(0, ()),
                            1 => set!(1, Aligned),
                            2 => set!(300, ()),
                            3 => set!(5000, Aligned),
                            4 => set!(KEPT, 0_u128),
                            _ => set!(17, ()),
                        }
                        lives = Some((tag, pending, panics));
                    }
                    Step::Poll => {
                        let polled = catch_unwind(AssertUnwindSafe(|| poll(&mut slot)));
                        match &mut lives {
                            None => prop_assert_eq!(polled.unwrap(), Poll::Pending),
                            Some((_, left @ 1.., _)) => {
                                prop_assert_eq!(polled.unwrap(), Poll::Pending);
                                *left -= 1;
                            }
                            Some((tag, _, false)) => {
                                prop_assert_eq!(polled.unwrap(), Poll::Ready(*tag));
                                lives = None;
                            }
                            Some((_, _, true)) => {
                                prop_assert!(polled.is_err());
                                prop_assert!(!slot.is_empty());
                                slot.clear();
                                lives = None;
                            }
                        }
                    }
                    Step::Clear => {
                        slot.clear();
                        lives = None;
                    }
                    Step::Move => slot = *Box::new(slot),
                }
                prop_assert_eq!(slot.is_empty(), lives.is_none());
                prop_assert_eq!(drops.get(), made - usize::from(lives.is_some()));
            }
            drop(slot);
            prop_assert_eq!(drops.get(), made);
        }
    }

    #[test]
    fn memory_is_allocated_once_for_the_largest() {
        let mut slot = FutureSlot::new();
        let large = [1_u8; 400];
        slot.set(|| async move { u128::from(large[3]) });
        let memory = slot.memory;
        for _ in 0..5 {
            slot.set(|| ready(1_u128));
            slot.set(|| async move { u128::from(large[3]) });
            assert_eq!(slot.memory, memory);
        }
    }

    #[test]
    fn what_is_very_large_is_not_kept() {
        let mut slot = FutureSlot::new();
        let huge = [1_u8; KEPT + 1];
        slot.set(|| async move {
            poll_fn(|_| Poll::Ready(())).await;
            huge[5]
        });
        assert_eq!(poll(&mut slot), Poll::Ready(1));
        assert_eq!(slot.layout.size(), 0);
        slot.set(|| ready(2));
        assert_eq!(poll(&mut slot), Poll::Ready(2));
    }

    #[test]
    fn futures_without_size_need_no_memory() {
        struct Aligned128([Aligned; 0]);

        impl Future for Aligned128 {
            type Output = usize;

            fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<usize> {
                Poll::Ready(self.0.as_ptr().addr() % 128)
            }
        }

        let mut slot = FutureSlot::new();
        for _ in 0..2 {
            slot.set(|| Aligned128([]));
            assert_eq!((poll(&mut slot), slot.layout.size()), (Poll::Ready(0), 0));
        }
    }

    #[test]
    fn a_drop_that_panics_leaves_the_slot_empty_and_of_use() {
        let drops = Rc::new(Cell::new(0));
        let dropped = Dropped { drops: Rc::clone(&drops), panics: true };
        let mut slot = FutureSlot::new();
        slot.set(|| async move {
            let _dropped = dropped;
            pending::<()>().await;
        });
        assert!(poll(&mut slot).is_pending());
        slot.clear();
        assert!(slot.is_empty());
        slot.set(|| ready(()));
        assert!(poll(&mut slot).is_ready());
        assert_eq!(drops.get(), 1);
    }

    #[test]
    fn what_a_future_holds_is_dropped_before_the_next_is_there() {
        let order = Rc::new(RefCell::new(Vec::new()));
        struct Says(Rc<RefCell<Vec<&'static str>>>, &'static str);
        impl Drop for Says {
            fn drop(&mut self) {
                self.0.borrow_mut().push(self.1);
            }
        }
        let mut slot = FutureSlot::new();
        for name in ["first", "second"] {
            let says = Says(Rc::clone(&order), name);
            let order = Rc::clone(&order);
            slot.set(|| async move {
                order.borrow_mut().push("polled");
                let _says = says;
                pending::<()>().await;
            });
            assert!(poll(&mut slot).is_pending());
        }
        drop(slot);
        assert_eq!(*order.borrow(), ["polled", "first", "polled", "second"]);
    }

    #[test]
    fn a_future_may_drop_in_its_drop_what_has_a_slot_of_its_own() {
        let drops = Rc::new(Cell::new(0));
        let mut inner = FutureSlot::new();
        let dropped = Dropped::counted(&drops);
        inner.set(|| async move { drop(dropped) });
        let mut outer = FutureSlot::new();
        outer.set(|| async move { inner.is_empty() });
        outer.clear();
        assert_eq!(drops.get(), 1);
    }
}
