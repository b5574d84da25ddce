//! The receiving half: it stays on its core, and is read by one task at a time.

use std::fmt;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll};

use super::queue::{AnyQueue, Queue};
use super::sender::Sender;
use crate::runtime::context;

/// Receives what is sent to one channel, on the core that made it.
///
/// # Drop
/// Closes the channel: what was not received is dropped, and senders are refused.
pub struct Receiver<M: 'static> {
    queue: Rc<Queue<M>>,
}

/// Every sender is gone, no address leads here, and all that was sent has been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("every sender of the channel is gone")]
pub struct Disconnected;

/// Why there is no message now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TryRecvError {
    /// None has come yet.
    #[error("the channel is empty")]
    Empty,
    /// None will come.
    #[error("every sender of the channel is gone")]
    Disconnected,
}

impl<M: 'static> Receiver<M> {
    pub(crate) fn new(queue: Rc<Queue<M>>) -> Receiver<M> {
        Receiver { queue }
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
        self.queue.poll_pop(cx).map(|message| message.ok_or(Disconnected))
    }

    /// The next message, if there is one now.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] when there is none yet, [`TryRecvError::Disconnected`] when none can come any more.
    pub fn try_recv(&mut self) -> Result<M, TryRecvError> {
        match self.queue.take_counted() {
            Some(message) => Ok(message),
            None if self.queue.is_disconnected() => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
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
