//! What a call waits for: room on the socket, then its reply.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_util::codec::Decoder;

use super::matching::Matching;
use super::pipe::{CallError, Pipe};
use super::state::Outcome;

/// A call that waits for room on the socket. Dropping it gives its place up.
pub(super) struct Room<'a, K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    pipe: &'a Pipe<K, M>,
    place: Option<u32>,
}

impl<'a, K, M> Room<'a, K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    pub(super) fn on(pipe: &'a Pipe<K, M>) -> Room<'a, K, M> {
        Room { pipe, place: None }
    }
}

impl<K, M> Future for Room<'_, K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    /// False when there will never be any.
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.pipe.state.borrow_mut();
        let Some(place) = self.place else {
            let place = state.enter(cx.waker().clone());
            drop(state);
            self.place = Some(place);
            return Poll::Pending;
        };
        let polled = state.poll_room(place, cx.waker());
        drop(state);
        if polled.is_ready() {
            self.place = None;
        }
        polled
    }
}

impl<K, M> Drop for Room<'_, K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.pipe.state.borrow_mut().leave(place);
            self.pipe.admit();
        }
    }
}

/// A request on its way. Dropping it leaves the reply to be swallowed.
pub(super) struct Reply<'a, K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    pipe: &'a Pipe<K, M>,
    key: Option<u32>,
}

impl<'a, K, M> Reply<'a, K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    pub(super) fn to(pipe: &'a Pipe<K, M>, key: u32) -> Reply<'a, K, M> {
        Reply { pipe, key: Some(key) }
    }
}

impl<K, M> Future for Reply<'_, K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    type Output = Result<K::Item, CallError<K>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(key) = self.key else { panic!("a call was polled after its end") };
        let polled = self.pipe.state.borrow_mut().poll(key, cx.waker());
        let Poll::Ready(outcome) = polled else { return Poll::Pending };
        self.key = None;
        Poll::Ready(match outcome {
            Outcome::Replied(reply) => Ok(reply),
            Outcome::Lost { sent } => Err(self.pipe.lost(sent)),
        })
    }
}

impl<K, M> Drop for Reply<'_, K, M>
where
    K: Decoder + 'static,
    M: Matching<K::Item>,
{
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let reply = self.pipe.state.borrow_mut().abandon(key);
            drop(reply);
        }
    }
}
