//! Ways to give up a future.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use corelet::runtime::timeout;

use super::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Never,
    /// After so many polls.
    Polls(usize),
    /// When it would be polled once more: what it waited for has come and is not collected.
    WhenWoken(usize),
    After(Duration),
}

impl Cut {
    pub fn draw(random: &mut Random) -> Cut {
        match random.below(8) {
            0 => Cut::Polls(random.below(4)),
            1 => Cut::WhenWoken(1 + random.below(3)),
            2 => Cut::After(random.some_time()),
            _ => Cut::Never,
        }
    }

    /// Gives what `future` gives; nothing when it was cut off.
    pub async fn apply<F: Future>(self, future: F) -> Option<F::Output> {
        let (polls, when_woken) = match self {
            Cut::Never => return Some(future.await),
            Cut::After(limit) => return timeout(limit, future).await.ok(),
            Cut::Polls(polls) => (polls, false),
            Cut::WhenWoken(polls) => (polls, true),
        };
        let mut future = pin!(future);
        let mut left = polls;
        poll_fn(move |cx| {
            if left == 0 {
                return Poll::Ready(None);
            }
            left -= 1;
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending if left == 0 && !when_woken => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}
