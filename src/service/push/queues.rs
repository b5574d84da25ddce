//! The two queues of one connection, on its core.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::builder::PushBuilder;
use super::handle::{Priority, PushError, PushHandle};
use crate::actor::channel::{AnyQueue, ChannelKey, Ends};
use crate::actor::kit::Kit;
use crate::runtime::local::Local;
use crate::runtime::{CoreId, context};

/// What handles everywhere know of the queues.
pub(super) struct Shared {
    pub(super) core: CoreId,
    pub(super) key: ChannelKey,
    pub(super) high: Ends,
    pub(super) low: Ends,
}

impl Shared {
    #[inline]
    pub(super) fn ends(&self, priority: Priority) -> &Ends {
        match priority {
            Priority::High => &self.high,
            Priority::Low => &self.low,
        }
    }
}

pub(super) struct Queues<F> {
    high: RefCell<VecDeque<F>>,
    low: RefCell<VecDeque<F>>,
    reader: Cell<Option<Waker>>,
    closed: Cell<bool>,
    /// Frames of high priority that have gone out since the last of low priority.
    streak: Cell<usize>,
    high_before_low: usize,
}

impl<F: 'static> AnyQueue for Queues<F> {
    fn depth(&self) -> usize {
        self.high.borrow().len() + self.low.borrow().len()
    }

    fn abandon(&self, _life: usize) -> Option<Waker> {
        None
    }

    fn core_ended(&self) {
        self.closed.set(true);
        let frames = (self.high.take(), self.low.take());
        drop(frames);
    }
}

impl<F> Queues<F> {
    /// The place for it has been taken.
    #[inline]
    pub(super) fn push(&self, priority: Priority, frame: F) -> Result<Option<Waker>, F> {
        if self.closed.get() {
            return Err(frame);
        }
        let lane = match priority {
            Priority::High => &self.high,
            Priority::Low => &self.low,
        };
        lane.borrow_mut().push_back(frame);
        Ok(self.reader.take())
    }

    #[inline]
    fn pop(&self) -> Option<(Priority, F)> {
        let (mut high, mut low) = (self.high.borrow_mut(), self.low.borrow_mut());
        let lows_turn = self.streak.get() >= self.high_before_low && !low.is_empty();
        if !lows_turn && let Some(frame) = high.pop_front() {
            self.streak.set(self.streak.get() + 1);
            return Some((Priority::High, frame));
        }
        self.streak.set(0);
        low.pop_front().map(|frame| (Priority::Low, frame))
    }
}

/// The receiving end: what a connection's actor takes its pushes from.
///
/// # Drop
/// Closes the queues. What is in them is dropped; handles hear of it with their next push.
pub struct PushQueues<F: 'static> {
    queues: Rc<Queues<F>>,
    shared: Arc<Shared>,
    local: Rc<Local>,
}

impl<F: 'static> PushQueues<F> {
    pub(super) fn new(settings: &PushBuilder) -> PushQueues<F> {
        let local = context::current();
        let queues = Rc::new(Queues {
            high: RefCell::default(),
            low: RefCell::default(),
            reader: Cell::new(None),
            closed: Cell::new(false),
            streak: Cell::new(0),
            high_before_low: settings.high_before_low,
        });
        let key = Kit::of(&local).enter_channel(Rc::clone(&queues) as Rc<dyn AnyQueue>);
        let shared = Arc::new(Shared {
            core: local.id(),
            key,
            high: Ends::new(settings.high, 0, false),
            low: Ends::new(settings.low, 0, false),
        });
        PushQueues { queues, shared, local }
    }

    /// A handle that pushes into these queues.
    pub fn handle(&self) -> PushHandle<F> {
        PushHandle::new(Arc::clone(&self.shared))
    }

    /// The next frame, if there is one.
    #[inline]
    pub fn try_next(&mut self) -> Option<(Priority, F)> {
        let (priority, frame) = self.queues.pop()?;
        self.shared.ends(priority).free_place();
        Some((priority, frame))
    }

    /// The next frame, waited for.
    #[inline]
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<(Priority, F)> {
        if !self.is_empty() {
            if !context::may_receive() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Some(next) = self.try_next() {
                return Poll::Ready(next);
            }
        }
        let kept = self.queues.reader.take().filter(|kept| kept.will_wake(cx.waker()));
        self.queues.reader.set(Some(kept.unwrap_or_else(|| cx.waker().clone())));
        Poll::Pending
    }

    /// How many frames are queued.
    pub fn len(&self) -> usize {
        self.queues.depth()
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.queues.depth() == 0
    }

    /// Refuses further pushes; what is queued stays.
    pub fn close(&mut self) {
        self.queues.closed.set(true);
        self.shared.high.close();
        self.shared.low.close();
    }
}

impl<F: 'static> Drop for PushQueues<F> {
    fn drop(&mut self) {
        self.close();
        Kit::of(&self.local).remove_channel(self.shared.key);
        drop(self.queues.reader.take());
        let frames = (self.queues.high.take(), self.queues.low.take());
        drop(frames);
    }
}

/// The error for a place that was not there.
pub(super) fn take_place<F>(shared: &Shared, priority: Priority, frame: F) -> Result<F, PushError<F>> {
    let ends = shared.ends(priority);
    if ends.is_closed() {
        return Err(PushError::Closed(frame));
    }
    if !ends.take_place() {
        return Err(PushError::Full(frame));
    }
    Ok(frame)
}
