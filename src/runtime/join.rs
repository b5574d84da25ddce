//! Waiting for a task's result, and stopping it.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_channel::oneshot;

use super::context;
use super::executor::{Joinable, panic_message};
use super::identity::RawPid;

/// Why a task gave no result.
pub struct JoinError(Cause);

enum Cause {
    Cancelled,
    /// Behind a lock only so that the error is `Sync`, as errors are expected to be.
    Panicked(Mutex<Box<dyn Any + Send>>),
}

impl JoinError {
    pub(crate) fn cancelled() -> JoinError {
        JoinError(Cause::Cancelled)
    }

    pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> JoinError {
        JoinError(Cause::Panicked(Mutex::new(payload)))
    }

    /// The panic's text, if it is one.
    pub(crate) fn panic_text(&self) -> Option<String> {
        match &self.0 {
            Cause::Cancelled => None,
            Cause::Panicked(payload) => {
                let payload = payload.lock().unwrap_or_else(PoisonError::into_inner);
                Some(panic_message(&**payload).to_owned())
            }
        }
    }

    /// The task was aborted, its handle on another core was closed, or its core or run ended before it did.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, Cause::Cancelled)
    }

    /// The task panicked; the panic ended that task only.
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Cause::Panicked(_))
    }

    /// The panic's payload, to be resumed or looked at; the error itself when the task did not panic.
    ///
    /// # Errors
    /// Gives the error back when it is not a panic.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, JoinError> {
        match self.0 {
            Cause::Panicked(payload) => Ok(payload.into_inner().unwrap_or_else(PoisonError::into_inner)),
            cause => Err(JoinError(cause)),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Cause::Cancelled => f.write_str("JoinError::Cancelled"),
            Cause::Panicked(payload) => {
                let payload = payload.lock().unwrap_or_else(PoisonError::into_inner);
                write!(f, "JoinError::Panicked({:?})", panic_message(&**payload))
            }
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Cause::Cancelled => f.write_str("the task was cancelled"),
            Cause::Panicked(payload) => {
                let payload = payload.lock().unwrap_or_else(PoisonError::into_inner);
                write!(f, "the task panicked: {}", panic_message(&**payload))
            }
        }
    }
}

impl std::error::Error for JoinError {}

/// A task on this core: awaits its result, stops it when dropped.
///
/// # Drop
/// Dropping the handle of an unfinished task stops it: its future is dropped at its next scheduling point.
/// [`detach`](JoinHandle::detach) lets it run on its own.
///
/// # Cancel safety
/// Awaiting by `&mut handle` is cancel safe. A result is given once; polling again afterwards panics.
#[must_use = "dropping a join handle stops its task; `detach` lets it run on"]
pub struct JoinHandle<T>(Rc<dyn Joinable<Output = T>>);

impl<T> JoinHandle<T> {
    pub(crate) fn new(task: Rc<dyn Joinable<Output = T>>) -> JoinHandle<T> {
        JoinHandle(task)
    }

    /// The task's identity.
    pub fn pid(&self) -> RawPid {
        self.0.pid()
    }

    /// Lets the task run on without a handle.
    pub fn detach(self) {
        self.0.detach();
    }

    /// Stops the task at its next scheduling point; awaiting the handle then gives an error that
    /// [`is_cancelled`](JoinError::is_cancelled), or the result if the task had already ended.
    pub fn abort(&self) {
        context::stop(self.pid());
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T> Drop for JoinHandle<T> {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_finished() && !self.0.is_detached() {
            context::stop(self.pid());
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_join(cx)
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("pid", &self.pid()).field("finished", &self.is_finished()).finish()
    }
}

/// A task on another core, or on none of this thread's: awaits its result from anywhere, stops it when dropped.
///
/// # Drop
/// As for [`JoinHandle`]: dropping it stops the task, [`detach`](RemoteJoinHandle::detach) does not.
///
/// # Cancel safety
/// Awaiting by `&mut handle` is cancel safe.
#[must_use = "dropping a join handle stops its task; `detach` lets it run on"]
pub struct RemoteJoinHandle<T> {
    result: oneshot::Receiver<Result<T, JoinError>>,
    /// Sending detaches the task; dropping it stops the task.
    control: Option<oneshot::Sender<()>>,
}

impl<T> RemoteJoinHandle<T> {
    pub(crate) fn new(
        result: oneshot::Receiver<Result<T, JoinError>>,
        control: oneshot::Sender<()>,
    ) -> RemoteJoinHandle<T> {
        RemoteJoinHandle { result, control: Some(control) }
    }

    /// Lets the task run on without a handle.
    pub fn detach(mut self) {
        if let Some(control) = self.control.take() {
            // Refused only when the task has already ended.
            let _ = control.send(());
        }
    }

    /// Stops the task at its next scheduling point; the handle then gives an error that
    /// [`is_cancelled`](JoinError::is_cancelled), or the result if the task had already ended.
    pub fn abort(&mut self) {
        self.control = None;
    }
}

impl<T> Future for RemoteJoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.result).poll(cx).map(|sent| sent.unwrap_or_else(|_| Err(JoinError::cancelled())))
    }
}

impl<T> fmt::Debug for RemoteJoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteJoinHandle").finish_non_exhaustive()
    }
}
