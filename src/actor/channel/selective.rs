//! Selective receive: the next message that fits, whatever came before it.
//!
//! Messages that are passed over are kept by the receiver, in the order of arrival and with their places in a bounded
//! channel, and are the first that later receives look at: Erlang's save queue. A receive that waits looks at each message
//! once, however often it is woken.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::task::{Context, Poll};
use std::time::Duration;

use super::receiver::{Disconnected, Receiver, RecvTimeoutError, TryRecvError};
use crate::runtime::{context, timeout};

impl<M: 'static> Receiver<M> {
    /// Receives the first message that is `wanted`. Those before it stay, in their order, for later receives: Erlang's
    /// `receive` with a pattern.
    ///
    /// A message is looked at once by each call, so a receiver behind a long queue of other things does well to take those,
    /// or to have a channel for each kind and [`select`](crate::actor::select). Looking takes of the task's cooperative
    /// budget. `wanted` may send to this very channel. If it panics, the message stays.
    ///
    /// # Errors
    /// [`Disconnected`] when none of the messages that are left is wanted, and no other can come.
    ///
    /// # Cancel safety
    /// Cancel safe: a message is taken when the future is ready, never before, and the order of the others does not change.
    ///
    /// # Examples
    /// ```
    /// use corelet::actor::channel;
    /// use corelet::runtime::{Cores, Runtime};
    ///
    /// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
    /// runtime.block_on(|| async {
    ///     let (sender, mut receiver) = channel::unbounded();
    ///     for number in [1, 2, 3] {
    ///         sender.send(number).unwrap();
    ///     }
    ///     assert_eq!(receiver.recv_match(|number| number % 2 == 0).await, Ok(2));
    ///     assert_eq!(receiver.recv().await, Ok(1));
    ///     assert_eq!(receiver.recv().await, Ok(3));
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recv_match(
        &mut self,
        mut wanted: impl FnMut(&M) -> bool,
    ) -> impl Future<Output = Result<M, Disconnected>> {
        let mut looked = 0;
        poll_fn(move |cx| self.poll_match(&mut looked, &mut wanted, cx))
    }

    /// As [`recv_match`](Receiver::recv_match), for at most `limit`. A message that is there when the time is over counts.
    ///
    /// # Errors
    /// [`RecvTimeoutError::Disconnected`] when no other message can come, [`RecvTimeoutError::Timeout`] when the time is
    /// over.
    ///
    /// # Cancel safety
    /// As [`recv_match`](Receiver::recv_match); no timer is left.
    ///
    /// # Panics
    /// When it has to wait and is not polled on a core.
    pub async fn recv_match_timeout(
        &mut self,
        limit: Duration,
        wanted: impl FnMut(&M) -> bool,
    ) -> Result<M, RecvTimeoutError> {
        Ok(timeout(limit, self.recv_match(wanted)).await??)
    }

    /// The first message that is `wanted`, if it is there now. Those before it stay, in their order, for later receives.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`] when none is there that is wanted, [`TryRecvError::Disconnected`] when none can come either.
    pub fn try_recv_match(&mut self, mut wanted: impl FnMut(&M) -> bool) -> Result<M, TryRecvError> {
        let mut looked = 0;
        while self.has_unseen(looked) {
            if let Some(message) = self.look(&mut looked, &mut wanted) {
                return Ok(message);
            }
        }
        Err(self.why_none())
    }

    fn poll_match(
        &mut self,
        looked: &mut usize,
        wanted: &mut impl FnMut(&M) -> bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<M, Disconnected>> {
        while self.has_unseen(*looked) {
            if !context::spend_budget() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Some(message) = self.look(looked, wanted) {
                return Poll::Ready(Ok(message));
            }
        }
        self.queue.poll_empty(cx).map(|_| Err(Disconnected))
    }

    /// Whether there is a message behind the first `looked` ones; it is among those kept then.
    fn has_unseen(&mut self, looked: usize) -> bool {
        if looked == self.aside.len()
            && let Some(message) = self.queue.pop()
        {
            self.aside.push_back(message);
            self.queue.set_aside(self.aside.len());
        }
        looked < self.aside.len()
    }

    /// Looks at one more message and takes it if it is wanted. Nothing of the core is borrowed: `wanted` is a user's.
    fn look(&mut self, looked: &mut usize, wanted: &mut impl FnMut(&M) -> bool) -> Option<M> {
        if wanted(&self.aside[*looked]) {
            return self.take_aside(*looked);
        }
        *looked += 1;
        None
    }

    /// Takes one of the messages that were passed over.
    pub(super) fn take_aside(&mut self, place: usize) -> Option<M> {
        let message = VecDeque::remove(&mut self.aside, place)?;
        self.queue.set_aside(self.aside.len());
        self.queue.count_taken();
        Some(message)
    }
}
