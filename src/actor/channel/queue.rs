//! The queue of one channel, on its receiver's core, and what senders elsewhere know of it.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::actor::kit::Kit;
use crate::actor::send::SendError;
use crate::runtime::local::Local;
use crate::runtime::{CoreId, context};
use crate::sync::{AtomicBool, AtomicUsize, Ordering};

/// Messages for one reader.
pub(crate) struct Queue<M> {
    messages: RefCell<VecDeque<M>>,
    reader: Cell<Option<Waker>>,
    /// `usize::MAX` is none.
    capacity: usize,
    /// The receiver is gone.
    closed: Cell<bool>,
    /// An address leads here, which is as good as a sender.
    published: Cell<bool>,
    /// The last sender is gone.
    abandoned: Cell<bool>,
    /// Made with the first sender: a queue that is only published needs none.
    shared: OnceCell<(Arc<Shared>, Rc<Local>)>,
}

/// A queue of messages of some type.
pub(crate) trait AnyQueue: Any {
    fn depth(&self) -> usize;
    /// The last sender is gone, unless there is one again. Whoever reads is to be woken.
    fn abandon(&self) -> Option<Waker>;
}

impl<M: 'static> AnyQueue for Queue<M> {
    fn depth(&self) -> usize {
        self.messages.borrow().len()
    }

    fn abandon(&self) -> Option<Waker> {
        let (shared, _) = self.shared.get()?;
        if shared.senders.load(Ordering::Acquire) > 0 {
            return None;
        }
        self.abandoned.set(true);
        self.reader.take()
    }
}

/// What senders on every thread hold.
pub(super) struct Shared {
    pub(super) core: CoreId,
    /// Names the queue among its core's.
    pub(super) key: ChannelKey,
    pub(super) capacity: usize,
    /// Messages in a bounded queue and on their way to it.
    taken: AtomicUsize,
    pub(super) senders: AtomicUsize,
    closed: AtomicBool,
    /// Something has been sent from elsewhere, so that the end of the senders must travel behind it.
    pub(super) abroad: AtomicBool,
}

/// Names a queue that has senders, on its core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChannelKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Shared {
    /// Takes a place for one message; false when there is none.
    pub(super) fn take_place(&self) -> bool {
        if self.capacity == usize::MAX {
            return true;
        }
        // Whoever would exceed the bound takes nothing, so the count is never above it.
        let take = |taken: usize| (taken < self.capacity).then_some(taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).is_ok()
    }

    fn free_place(&self) {
        if self.capacity != usize::MAX {
            self.taken.fetch_sub(1, Ordering::AcqRel);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

impl<M: 'static> Queue<M> {
    pub(crate) fn new(capacity: usize) -> Queue<M> {
        Queue {
            messages: RefCell::new(VecDeque::new()),
            reader: Cell::new(None),
            capacity,
            closed: Cell::new(false),
            published: Cell::new(false),
            abandoned: Cell::new(false),
            shared: OnceCell::new(),
        }
    }

    /// What senders hold; the queue can be found by its key from now on.
    pub(super) fn share(self: &Rc<Self>, local: &Rc<Local>) -> &Arc<Shared> {
        let (shared, _) = self.shared.get_or_init(|| {
            let key = Kit::of(local).enter_channel(Rc::clone(self) as Rc<dyn AnyQueue>);
            let shared = Arc::new(Shared {
                core: local.id(),
                key,
                capacity: self.capacity,
                taken: AtomicUsize::new(self.messages.borrow().len()),
                senders: AtomicUsize::new(0),
                closed: AtomicBool::new(self.closed.get()),
                abroad: AtomicBool::new(false),
            });
            (shared, Rc::clone(local))
        });
        shared
    }

    /// An address leads here from now on.
    pub(crate) fn publish(&self) {
        self.published.set(true);
    }

    /// Puts a message in, unless the queue is full or closed. Whoever reads is to be woken by the caller, once nothing is borrowed.
    #[inline]
    pub(crate) fn push(&self, message: M) -> Result<Option<Waker>, SendError<M>> {
        if self.closed.get() {
            return Err(SendError::Closed(message));
        }
        if self.capacity != usize::MAX && !self.take_place() {
            return Err(SendError::Full(message));
        }
        Ok(self.push_placed(message))
    }

    /// Puts in a message whose place has been taken.
    #[inline]
    fn push_placed(&self, message: M) -> Option<Waker> {
        self.messages.borrow_mut().push_back(message);
        self.reader.take()
    }

    /// Puts in what comes from elsewhere, where its place was taken. Gives it back when the receiver is gone.
    pub(super) fn push_arrived(&self, message: M) -> Result<Option<Waker>, M> {
        if self.closed.get() { Err(message) } else { Ok(self.push_placed(message)) }
    }

    fn take_place(&self) -> bool {
        match self.shared.get() {
            Some((shared, _)) => shared.take_place(),
            None => self.messages.borrow().len() < self.capacity,
        }
    }

    #[inline]
    pub(super) fn pop(&self) -> Option<M> {
        let message = self.messages.borrow_mut().pop_front()?;
        self.place_freed();
        Some(message)
    }

    fn place_freed(&self) {
        if self.capacity != usize::MAX
            && let Some((shared, _)) = self.shared.get()
        {
            shared.free_place();
        }
    }

    pub(super) fn messages(&self) -> &RefCell<VecDeque<M>> {
        &self.messages
    }

    pub(super) fn capacity(&self) -> Option<usize> {
        (self.capacity != usize::MAX).then_some(self.capacity)
    }

    /// Nothing can come any more, except what is in.
    #[inline]
    pub(super) fn is_disconnected(&self) -> bool {
        !self.published.get() && (self.abandoned.get() || self.shared.get().is_none())
    }

    /// A sender again after the last one had gone.
    pub(super) fn readopt(&self) {
        self.abandoned.set(false);
    }

    /// Takes a message, in the order of arrival, or has the task woken when there is one; none when nothing can come
    /// any more. Counts for the running task, and takes of its budget.
    #[inline]
    pub(crate) fn poll_pop(&self, cx: &mut Context<'_>) -> Poll<Option<M>> {
        let mut messages = self.messages.borrow_mut();
        if messages.is_empty() {
            drop(messages);
            return self.poll_empty(cx);
        }
        if !context::may_receive() {
            drop(messages);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let message = messages.pop_front();
        drop(messages);
        self.place_freed();
        Poll::Ready(message)
    }

    /// Takes a message and counts it for the running task.
    #[inline]
    pub(crate) fn take_counted(&self) -> Option<M> {
        let message = self.pop()?;
        context::count_received();
        Some(message)
    }

    #[inline]
    fn poll_empty(&self, cx: &mut Context<'_>) -> Poll<Option<M>> {
        if self.is_disconnected() {
            return Poll::Ready(None);
        }
        self.register(cx);
        Poll::Pending
    }

    /// Has the task woken by the next message.
    #[inline]
    pub(super) fn register(&self, cx: &mut Context<'_>) {
        let kept = self.reader.take().filter(|kept| kept.will_wake(cx.waker()));
        self.reader.set(Some(kept.unwrap_or_else(|| cx.waker().clone())));
    }

    /// The receiver is gone: nothing more gets in. What was in is for the caller to drop.
    pub(crate) fn close(&self) -> VecDeque<M> {
        self.closed.set(true);
        if let Some((shared, local)) = self.shared.get() {
            shared.closed.store(true, Ordering::Release);
            Kit::of(local).remove_channel(shared.key);
        }
        drop(self.reader.take());
        std::mem::take(&mut *self.messages.borrow_mut())
    }
}
