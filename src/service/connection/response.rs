//! The request that a connection is answering.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::Stream;

use super::slot::FutureSlot;
use crate::service::app::{Outcome, Response};
use crate::service::error::RequestError;

type Frames<F> = Pin<Box<dyn Stream<Item = Result<F, RequestError>>>>;

/// What the current request has come to.
pub(super) enum Progress<F> {
    /// A frame of the response.
    Frame(F),
    /// There is no further frame. `streamed` if there might have been any number.
    Done {
        streamed: bool,
    },
    Failed(RequestError),
}

/// The current request: its handler runs, or its response streams, or there is none.
pub(super) struct Current<F> {
    pub(super) slot: FutureSlot<Outcome<F>>,
    frames: Option<Frames<F>>,
    /// The response was one frame, which has been given.
    done: bool,
    pub(super) correlation: Option<u64>,
}

impl<F> Current<F> {
    pub(super) fn new() -> Current<F> {
        Current { slot: FutureSlot::new(), frames: None, done: false, correlation: None }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.slot.is_empty() && self.frames.is_none() && !self.done
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Progress<F>> {
        if std::mem::take(&mut self.done) {
            return Poll::Ready(Progress::Done { streamed: false });
        }
        let polled = catch_unwind(AssertUnwindSafe(|| self.poll_user(cx)));
        polled.unwrap_or_else(|panic| {
            self.clear();
            Poll::Ready(Progress::Failed(RequestError::from_panic(panic)))
        })
    }

    fn poll_user(&mut self, cx: &mut Context<'_>) -> Poll<Progress<F>> {
        if let Some(frames) = &mut self.frames {
            let progress = match ready!(frames.as_mut().poll_next(cx)) {
                Some(Ok(frame)) => return Poll::Ready(Progress::Frame(frame)),
                Some(Err(error)) => Progress::Failed(error),
                None => Progress::Done { streamed: true },
            };
            self.frames = None;
            return Poll::Ready(progress);
        }
        Poll::Ready(match ready!(self.slot.poll(cx)) {
            Ok(Response::None) => Progress::Done { streamed: false },
            Ok(Response::One(frame)) => {
                self.done = true;
                Progress::Frame(frame)
            }
            Ok(Response::Stream(frames)) => {
                self.frames = Some(frames);
                return self.poll_user(cx);
            }
            Err(error) => Progress::Failed(error),
        })
    }

    /// Drops what is left of the request.
    pub(super) fn clear(&mut self) {
        self.done = false;
        self.slot.clear();
        self.frames = None;
    }
}
