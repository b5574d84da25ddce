//! The receiving half: it stays on its core, and is read by one task at a time.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::queue::{AnyQueue, Queue};
use super::sender::Sender;
use crate::runtime::{Elapsed, context, timeout};

/// Receives what is sent to one channel, on the core that made it.
///
/// # Drop
/// Closes the channel: what was not received is dropped, and senders are refused.
pub struct Receiver<M: 'static> {
    pub(super) queue: Rc<Queue<M>>,
    /// What selective receives have passed over: it came before everything in the queue.
    pub(super) aside: VecDeque<M>,
}

/// Every sender is gone, no address leads here, and all that was sent has been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("every sender of the channel is gone")]
pub struct Disconnected;

/// Why there is no message now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TryRecvError {
    /// None has come yet.
    #[error("there is no such message in the channel yet")]
    Empty,
    /// None will come.
    #[error("every sender of the channel is gone")]
    Disconnected,
}

/// Why no message came in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvTimeoutError {
    /// The time is over, and one may come yet.
    #[error("no message came in time")]
    Timeout,
    /// None will come.
    #[error("every sender of the channel is gone")]
    Disconnected,
}

impl From<Disconnected> for RecvTimeoutError {
    fn from(_: Disconnected) -> RecvTimeoutError {
        RecvTimeoutError::Disconnected
    }
}

impl From<Elapsed> for RecvTimeoutError {
    fn from(_: Elapsed) -> RecvTimeoutError {
        RecvTimeoutError::Timeout
    }
}

impl<M: 'static> Receiver<M> {
    pub(crate) fn new(queue: Rc<Queue<M>>) -> Receiver<M> {
        Receiver { queue, aside: VecDeque::new() }
    }

    pub(crate) fn queue(&self) -> &Rc<Queue<M>> {
        &self.queue
    }

    /// Receives the next message, in the order of arrival.
    ///
    /// # Errors
    /// [`Disconnected`] when none can come any more.
    ///
    /// # Cancel safety
    /// Cancel safe: a message is taken when the future is ready, never before.
    pub fn recv(&mut self) -> impl Future<Output = Result<M, Disconnected>> + '_ {
        poll_fn(|cx| self.poll_recv(cx))
    }

    /// As [`recv`](Receiver::recv), for futures written by hand. Takes of the task's cooperative budget; when that is
    /// spent, the task is woken and the message stays for its next poll.
    ///
    /// # Errors
    /// [`Disconnected`] when none can come any more.
    #[inline]
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<M, Disconnected>> {
        if !self.aside.is_empty() {
            return self.poll_aside(cx);
        }
        self.queue.poll_pop(cx).map(|message| message.ok_or(Disconnected))
    }

    #[cold]
    fn poll_aside(&mut self, cx: &mut Context<'_>) -> Poll<Result<M, Disconnected>> {
        if !context::spend_budget() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.take_aside(0).ok_or(Disconnected))
    }

    /// Receives the next message within `limit`, counted from the first time that it has to wait. A message that is there
    /// when the time is over counts. A message that is there at once costs neither a timer nor a look at the clock.
    ///
    /// # Errors
    /// [`RecvTimeoutError::Disconnected`] when none can come any more, [`RecvTimeoutError::Timeout`] when the time is over.
    ///
    /// # Cancel safety
    /// Cancel safe: a message is taken when the future is ready, never before; no timer is left.
    ///
    /// # Panics
    /// When it has to wait and is not polled on a core.
    pub async fn recv_timeout(&mut self, limit: Duration) -> Result<M, RecvTimeoutError> {
        Ok(timeout(limit, self.recv()).await??)
    }

    /// The next message, if there is one now.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] when there is none yet, [`TryRecvError::Disconnected`] when none can come any more.
    pub fn try_recv(&mut self) -> Result<M, TryRecvError> {
        let message = self.take_aside(0).or_else(|| self.queue.take_counted());
        message.ok_or_else(|| self.why_none())
    }

    pub(super) fn why_none(&self) -> TryRecvError {
        if self.queue.is_disconnected() { TryRecvError::Disconnected } else { TryRecvError::Empty }
    }

    /// A further sender.
    ///
    /// # Panics
    /// When not called on a core.
    #[track_caller]
    pub fn sender(&self) -> Sender<M> {
        Sender::new(&context::current(), &self.queue)
    }

    /// Messages that have arrived and were not received.
    pub fn len(&self) -> usize {
        self.queue.depth()
    }

    /// Whether no message has arrived that was not received.
    pub fn is_empty(&self) -> bool {
        self.queue.depth() == 0
    }

    /// The most messages that the channel holds; none when it has no bound.
    pub fn capacity(&self) -> Option<usize> {
        self.queue.capacity()
    }
}

impl<M: 'static> Drop for Receiver<M> {
    fn drop(&mut self) {
        drop(self.queue.close());
    }
}

impl<M: 'static> fmt::Debug for Receiver<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("len", &self.len()).field("capacity", &self.capacity()).finish()
    }
}
