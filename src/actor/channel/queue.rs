//! The queue of one channel, on its receiver's core, and what senders elsewhere know of it.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::ends::Ends;
use crate::actor::kit::Kit;
use crate::actor::send::SendError;
use crate::runtime::local::Local;
use crate::runtime::{CoreId, context};

/// Messages for one reader.
pub(crate) struct Queue<M> {
    messages: RefCell<VecDeque<M>>,
    /// Messages that the receiver has passed over and keeps; they hold their places.
    aside: Cell<usize>,
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
    /// Messages that have arrived and were not received.
    fn depth(&self) -> usize;
    /// The last sender of one life is gone. Whoever reads is to be woken.
    fn abandon(&self, life: usize) -> Option<Waker>;
    /// The core has ended, and the receiver has leaked: senders are refused from now on.
    fn core_ended(&self);
}

impl<M: 'static> AnyQueue for Queue<M> {
    fn depth(&self) -> usize {
        self.messages.borrow().len() + self.aside.get()
    }

    fn core_ended(&self) {
        drop(self.close());
    }

    fn abandon(&self, life: usize) -> Option<Waker> {
        let (shared, _) = self.shared.get()?;
        if !shared.ends.is_over(life) {
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
    pub(super) ends: Ends,
}

/// Names a queue that has senders, on its core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChannelKey {
    pub(crate) index: u32,
    pub(crate) generation: u64,
}

impl<M: 'static> Queue<M> {
    pub(crate) fn new(capacity: usize) -> Queue<M> {
        Queue {
            messages: RefCell::new(VecDeque::new()),
            aside: Cell::new(0),
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
                ends: Ends::new(self.capacity, self.depth(), self.closed.get()),
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
            Some((shared, _)) => shared.ends.take_place(),
            None => self.depth() < self.capacity,
        }
    }

    /// Takes a message that keeps its place.
    #[inline]
    pub(super) fn pop(&self) -> Option<M> {
        self.messages.borrow_mut().pop_front()
    }

    #[inline]
    fn free_place(&self) {
        if self.capacity != usize::MAX
            && let Some((shared, _)) = self.shared.get()
        {
            shared.ends.free_place();
        }
    }

    /// A message has been received: its place is free, and it counts for the running task.
    #[inline]
    pub(super) fn count_taken(&self) {
        self.free_place();
        context::count_received();
    }

    /// So many messages are kept by the receiver, passed over.
    pub(super) fn set_aside(&self, count: usize) {
        self.aside.set(count);
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
        self.free_place();
        Poll::Ready(message)
    }

    /// Takes a message and counts it for the running task.
    #[inline]
    pub(crate) fn take_counted(&self) -> Option<M> {
        let message = self.pop()?;
        self.count_taken();
        Some(message)
    }

    /// Has the task woken when there is a message; none when nothing can come any more.
    #[inline]
    pub(super) fn poll_empty(&self, cx: &mut Context<'_>) -> Poll<Option<M>> {
        if self.is_disconnected() {
            return Poll::Ready(None);
        }
        self.register(cx);
        Poll::Pending
    }

    #[inline]
    fn register(&self, cx: &mut Context<'_>) {
        let kept = self.reader.take().filter(|kept| kept.will_wake(cx.waker()));
        self.reader.set(Some(kept.unwrap_or_else(|| cx.waker().clone())));
    }

    /// The receiver is going: nothing more gets in. What was in is for the caller to drop.
    pub(crate) fn close(&self) -> VecDeque<M> {
        self.closed.set(true);
        self.aside.set(0);
        if let Some((shared, local)) = self.shared.get() {
            shared.ends.close();
            Kit::of(local).remove_channel(shared.key);
        }
        drop(self.reader.take());
        std::mem::take(&mut *self.messages.borrow_mut())
    }
}
