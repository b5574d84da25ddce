//! The receiving end of push queues, on their core.

use std::fmt;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::builder::PushSettings;
use super::handle::{Priority, PushHandle};
use super::shared::{Queues, Shared};
use super::stats::PushStats;
use crate::runtime::context;
use crate::runtime::local::Local;

/// The receiving end: what a connection's actor takes its pushes from. It stays on its core, and is read by one task at a
/// time.
///
/// # Drop
/// Closes the queues. What is in them goes to the dead-letter queue, if there is one, and counts as
/// [undelivered](super::QueueStats::undelivered); so does what is still on its way from other cores.
pub struct PushQueues<F: 'static> {
    shared: Arc<Shared<F>>,
    local: Rc<Local>,
}

impl<F: 'static> PushQueues<F> {
    #[track_caller]
    pub(super) fn new(settings: &PushSettings<F>) -> PushQueues<F> {
        let local = context::current();
        // Not every frame can be sent to another thread; the handles of one that cannot stay here.
        #[allow(clippy::arc_with_non_send_sync)]
        let shared = Arc::new(Shared::new(&local, settings));
        PushQueues { shared, local }
    }

    #[inline]
    fn queues(&self) -> &Queues<F> {
        match self.shared.queues(&self.local) {
            Some(queues) => queues,
            None => unreachable!("they were made on this core"),
        }
    }

    /// A handle that pushes into these queues.
    pub fn handle(&self) -> PushHandle<F> {
        PushHandle::new(Arc::clone(&self.shared))
    }

    /// The next frame, if there is one.
    #[inline]
    pub fn try_next(&mut self) -> Option<(Priority, F)> {
        let queues = self.queues();
        self.shared.look(queues);
        let next = self.shared.pop(queues);
        match next {
            Some(_) => context::count_received(),
            None => self.shared.rest(queues),
        }
        next
    }

    /// The next frame, waited for; none when the queues were [closed](PushQueues::close) and everything has been taken.
    ///
    /// # Cancel safety
    /// Cancel safe: a frame is taken when the future is ready, never before.
    pub fn recv(&mut self) -> impl Future<Output = Option<(Priority, F)>> + '_ {
        poll_fn(|cx| self.poll_next(cx))
    }

    /// As [`recv`](PushQueues::recv), for futures written by hand. Takes of the task's cooperative budget; when that is
    /// spent, the task is woken and the frame stays for its next poll.
    #[inline]
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Priority, F)>> {
        let queues = self.queues();
        self.shared.look(queues);
        if queues.is_empty() {
            return self.poll_empty(cx);
        }
        if !context::may_receive() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.shared.pop(queues))
    }

    fn poll_empty(&self, cx: &mut Context<'_>) -> Poll<Option<(Priority, F)>> {
        if self.shared.gate().is_closed() {
            return Poll::Ready(None);
        }
        let queues = self.queues();
        self.shared.rest(queues);
        let kept = queues.reader.take().filter(|kept| kept.will_wake(cx.waker()));
        queues.reader.set(Some(kept.unwrap_or_else(|| cx.waker().clone())));
        Poll::Pending
    }

    /// Whether nothing is queued, or known to be on its way.
    pub fn is_empty(&self) -> bool {
        !self.shared.gate().is_raised() && self.queues().is_empty()
    }

    /// How many frames are queued. What is on its way from another core has its place already, but does not count here.
    pub fn len(&self) -> usize {
        self.queues().len()
    }

    /// What has become of the frames so far.
    pub fn stats(&self) -> PushStats {
        self.shared.stats()
    }

    /// Refuses further pushes; what is queued stays. A frame that another core is pushing at this very moment is queued, or
    /// a dead letter.
    pub fn close(&mut self) {
        let queues = self.queues();
        if !self.shared.gate().is_closed() {
            self.shared.gate().close();
        }
        self.shared.arrive(queues);
    }

    /// Closes the queues and gives what is in them, in the order in which it would have been sent. What is not taken is
    /// still there afterwards.
    pub fn drain(&mut self) -> impl Iterator<Item = (Priority, F)> + '_ {
        self.close();
        std::iter::from_fn(|| self.try_next())
    }
}

impl<F: 'static> Drop for PushQueues<F> {
    fn drop(&mut self) {
        self.shared.end(self.queues());
    }
}

impl<F: 'static> fmt::Debug for PushQueues<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushQueues")
            .field("len", &self.len())
            .field("closed", &self.shared.gate().is_closed())
            .finish()
    }
}
