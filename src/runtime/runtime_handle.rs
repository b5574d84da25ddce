//! A runtime as its users on every thread see it: which cores it has, and how to run something there.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use futures_channel::oneshot;

use super::context;
use super::executor::contain;
use super::identity::{CoreId, Incarnation, NodeId};
use super::join::{JoinError, RemoteJoinHandle};
use super::mesh::{Mail, Mailbox};

/// Names the cores of one runtime. Cheap to clone; keeps nothing running.
#[derive(Clone)]
pub struct RuntimeHandle {
    shared: Arc<Shared>,
}

/// What all handles and cores of a runtime have in common.
struct Shared {
    cores: Box<[Arc<Mailbox>]>,
    node: NodeId,
    incarnation: Incarnation,
    layer: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// A core that does not belong to this runtime was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{core:?} is not a core of this runtime")]
pub struct UnknownCore {
    /// The core that was named.
    pub core: CoreId,
}

impl RuntimeHandle {
    pub(crate) fn new(cores: Vec<Arc<Mailbox>>, node: NodeId, incarnation: Incarnation) -> RuntimeHandle {
        let layer = OnceLock::new();
        RuntimeHandle { shared: Arc::new(Shared { cores: cores.into(), node, incarnation, layer }) }
    }

    /// The cores, in the order in which they were chosen.
    pub fn cores(&self) -> Vec<CoreId> {
        self.mailboxes().iter().map(|mailbox| mailbox.core()).collect()
    }

    /// Which node of a system of several this runtime is.
    pub fn node(&self) -> NodeId {
        self.shared.node
    }

    /// Which life of its node this is.
    pub fn incarnation(&self) -> Incarnation {
        self.shared.incarnation
    }

    /// What the layer next above keeps of the runtime as a whole, made on first use.
    ///
    /// # Panics
    /// When asked for two kinds.
    pub(crate) fn layer<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        match self.shared.layer.get_or_init(|| Box::new(make())).downcast_ref() {
            Some(layer) => layer,
            None => unreachable!("there is one layer next above the runtime"),
        }
    }

    pub(crate) fn mailboxes(&self) -> &[Arc<Mailbox>] {
        &self.shared.cores
    }

    pub(crate) fn mailbox(&self, core: CoreId) -> Result<&Arc<Mailbox>, UnknownCore> {
        self.mailboxes().iter().find(|mailbox| mailbox.core() == core).ok_or(UnknownCore { core })
    }

    /// Runs the future that `task` makes on `core`, from any thread. `task` is called there, so the future itself
    /// need not be `Send`.
    ///
    /// When the core has ended, or ends before the task does, the handle gives an error that
    /// [`is_cancelled`](JoinError::is_cancelled).
    ///
    /// # Errors
    /// [`UnknownCore`] when `core` is not of this runtime.
    pub fn spawn_on<F, Fut>(
        &self,
        core: CoreId,
        task: F,
    ) -> Result<RemoteJoinHandle<Fut::Output>, UnknownCore>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        let mailbox = self.mailbox(core)?;
        let (result, receiver) = oneshot::channel();
        let (control, mut orders) = oneshot::channel::<()>();
        let job = move || {
            let mut body = context::spawn(async move { task().await });
            context::spawn(async move {
                let mut ordered = false;
                let joined = poll_fn(|cx| {
                    // An order is a detach; no more orders means that the handle is gone and the task should stop.
                    if !ordered && let Poll::Ready(order) = Pin::new(&mut orders).poll(cx) {
                        ordered = true;
                        if order.is_err() {
                            body.abort();
                        }
                    }
                    Pin::new(&mut body).poll(cx)
                })
                .await;
                if let Err(unwanted) = result.send(joined) {
                    contain("a task's result", || drop(unwanted));
                }
            })
            .detach();
        };
        // Refused by a core that has ended: the job is dropped, and with it the sender of the result.
        let _ = mailbox.send(Mail::Run(Box::new(job)));
        Ok(RemoteJoinHandle::new(receiver, control))
    }

    /// As [`spawn_on`](RuntimeHandle::spawn_on), in a blocking call from a thread that is no core's.
    pub(crate) fn run_on<F, Fut>(
        &self,
        mailbox: &Mailbox,
        task: F,
        answer: impl FnOnce(Result<Fut::Output, JoinError>) + Send + 'static,
    ) where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: 'static,
    {
        let job = move || {
            let body = context::spawn(async move { task().await });
            context::spawn(async move { answer(body.await) }).detach();
        };
        let _ = mailbox.send(Mail::Run(Box::new(job)));
    }
}

impl fmt::Debug for RuntimeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeHandle").field("cores", &self.cores()).finish()
    }
}
