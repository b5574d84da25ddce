//! The request that a connection is answering.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::Stream;

use super::slot::FutureSlot;
use crate::runtime::executor::{contain, panic_message};
use crate::service::app::{Outcome, Response};
use crate::service::error::RequestError;

type Frames<F> = Pin<Box<dyn Stream<Item = Result<F, RequestError>>>>;

/// What the current request has come to.
pub(super) enum Progress<F> {
    /// A frame of a stream of them.
    Frame(F),
    /// The only frame of the response. The request is done with.
    Only(F),
    /// There is no frame, or no further one. The request is done with.
    Done {
        /// There might have been any number.
        streamed: bool,
    },
    /// The request is done with.
    Failed(RequestError),
}

/// The current request: its handler runs, or its response streams, or there is none.
pub(super) struct Current<F> {
    pub(super) slot: FutureSlot<Outcome<F>>,
    frames: Option<Frames<F>>,
    pub(super) correlation: Option<u64>,
    /// The place of its route.
    pub(super) route: usize,
}

impl<F> Current<F> {
    pub(super) fn new() -> Current<F> {
        Current { slot: FutureSlot::new(), frames: None, correlation: None, route: usize::MAX }
    }

    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.slot.is_empty() && self.frames.is_none()
    }

    /// Whether the handler runs, and its response has not begun.
    #[inline]
    pub(super) fn is_handled(&self) -> bool {
        !self.slot.is_empty()
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Progress<F>> {
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll_user(cx)));
        polled.unwrap_or_else(|panic| {
            self.clear();
            Poll::Ready(Progress::Failed(RequestError::from_panic(panic)))
        })
    }

    fn poll_user(&mut self, cx: &mut Context<'_>) -> Poll<Progress<F>> {
        if self.frames.is_none() {
            match ready!(self.slot.poll(cx)) {
                Ok(Response::None) => return Poll::Ready(Progress::Done { streamed: false }),
                Ok(Response::One(frame)) => return Poll::Ready(Progress::Only(frame)),
                Ok(Response::Stream(frames)) => self.frames = Some(frames),
                Err(error) => return Poll::Ready(Progress::Failed(error)),
            }
        }
        let Some(frames) = &mut self.frames else { return Poll::Pending };
        let progress = match ready!(frames.as_mut().poll_next(cx)) {
            Some(Ok(frame)) => return Poll::Ready(Progress::Frame(frame)),
            Some(Err(error)) => Progress::Failed(error),
            None => Progress::Done { streamed: true },
        };
        // Out of its place before it is dropped, which may panic.
        drop(self.frames.take());
        Poll::Ready(progress)
    }

    /// Drops what is left of the request.
    pub(super) fn clear(&mut self) {
        self.slot.clear();
        if let Some(frames) = self.frames.take() {
            contain("a stream of frames", || drop(frames));
        }
    }
}

/// The text of a panic, which is dropped.
pub(super) fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = panic_message(&*panic).to_owned();
    contain("a panic's payload", || drop(panic));
    text
}
