//! Starting a server.

use std::fmt;
use std::rc::Rc;

use super::Server;
use super::named::{Nameless, Naming, ServerName};
use super::reference::ServerRef;
use super::request::Request;
use super::serve::serve;
use crate::actor::channel::{Queue, Receiver};
use crate::actor::infos::Infos;
use crate::actor::name::RegisterError;
use crate::actor::pid::Pid;
use crate::actor::process::Process;
use crate::actor::spawn::spawn;
use crate::actor::supervisor::{SupervisorRef, spawn_under};
use crate::runtime::context;

/// Builds a server; from [`server::build`](super::build).
///
/// ```
/// use corelet::actor::channel;
/// use corelet::actor::server;
/// # use corelet::actor::Reply;
/// # use corelet::actor::server::{Context, Server};
/// # use corelet::runtime::{Cores, Runtime};
/// # struct Sum(u64);
/// # impl Server for Sum {
/// #     type Call = ();
/// #     type Reply = u64;
/// #     type Cast = u64;
/// #     type Info = u64;
/// #     async fn handle_call(&mut self, _: (), reply: Reply<u64>, _: &Context<Self>) {
/// #         reply.send(self.0);
/// #     }
/// #     async fn handle_cast(&mut self, summand: u64, _: &Context<Self>) {
/// #         self.0 += summand;
/// #     }
/// #     async fn handle_info(&mut self, summand: u64, _: &Context<Self>) {
/// #         self.0 += summand;
/// #     }
/// # }
///
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// # runtime.block_on(|| async {
/// let (summands, more) = channel::unbounded::<u32>();
/// let sum = server::build(Sum(0)).with_info(more).bounded(64).start();
/// summands.send(3).unwrap();
/// assert_eq!(sum.call(()).await, Ok(3));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder starts nothing by itself"]
pub struct Builder<S: Server, N = Nameless> {
    server: S,
    infos: Infos<S::Info>,
    capacity: usize,
    outliving: bool,
    supervisor: Option<SupervisorRef>,
    name: N,
}

impl<S: Server> Builder<S> {
    pub(super) fn new(server: S) -> Builder<S> {
        let infos = Infos::new();
        Builder { server, infos, capacity: usize::MAX, outliving: false, supervisor: None, name: Nameless }
    }

    /// Gives the server a name, by which it is found on all cores from when it has been started. The name counts as a
    /// reference: the server lives until it is told to end, or the name is
    /// [given away](crate::actor::unregister) and nobody else refers to it. Its start may fail.
    pub fn named(self, name: ServerName<S>) -> Builder<S, ServerName<S>> {
        let Builder { server, infos, capacity, outliving, supervisor, name: Nameless } = self;
        Builder { server, infos, capacity, outliving, supervisor, name }
    }

    /// Starts the server on the current core. What is sent to it from now on arrives; [`init`](Server::init) is still to
    /// run.
    ///
    /// # Panics
    /// When not called on a core.
    #[track_caller]
    pub fn start(self) -> ServerRef<S> {
        match self.launch(|| ()) {
            Ok(server) => server,
            Err(never) => match never {},
        }
    }
}

impl<S: Server> Builder<S, ServerName<S>> {
    /// Starts the server on the current core, under its name. What is sent to it from now on arrives;
    /// [`init`](Server::init) is still to run.
    ///
    /// # Errors
    /// [`RegisterError::NameTaken`] when another live actor has the name. Nothing of the server has run then.
    ///
    /// # Panics
    /// When not called on a core.
    #[track_caller]
    pub fn start(self) -> Result<ServerRef<S>, RegisterError> {
        self.launch(|| ())
    }
}

impl<S: Server, N: Naming<S>> Builder<S, N> {
    /// Has the server listen to `receiver` too, with [`handle_info`](Server::handle_info). Each message of it goes before
    /// what lies in the mailbox, and receivers go in the order in which they were added. One whose senders are gone is let go.
    pub fn with_info<M: Into<S::Info> + 'static>(mut self, receiver: Receiver<M>) -> Self {
        self.infos.add(receiver);
        self
    }

    /// Limits the mailbox to so many requests, what is on its way from other cores among them; more are refused. Without
    /// this there is no limit.
    ///
    /// # Panics
    /// When `capacity` is zero.
    #[track_caller]
    pub fn bounded(mut self, capacity: usize) -> Self {
        assert!(capacity > 0, "a mailbox has room for at least one request");
        self.capacity = capacity;
        self
    }

    /// The server runs on when nobody refers to it any more, until it is told to end, as one must that is reached by its
    /// [`Pid`] only.
    pub fn outliving(mut self) -> Self {
        self.outliving = true;
        self
    }

    /// Makes the server a [temporary](crate::actor::supervisor::Restart::Temporary) child of a supervisor: it is shut down
    /// with its siblings, and in good order. It still ends with its last reference. For a server that is to be started again
    /// there is [`server::child`](super::child).
    pub fn under(mut self, supervisor: SupervisorRef) -> Self {
        self.supervisor = Some(supervisor);
        self
    }

    /// Starts the server; `begun` is called after its init.
    #[track_caller]
    pub(super) fn launch(self, begun: impl FnOnce() + 'static) -> Result<ServerRef<S>, N::Error> {
        let local = context::current();
        let queue = Rc::new(Queue::<Request<S>>::new(self.capacity));
        let inbox = Receiver::new(Rc::clone(&queue));
        let sender = inbox.sender();
        let task = serve(self.server, self.infos, inbox, begun);
        let pid = match self.supervisor {
            Some(supervisor) => spawn_under(supervisor, task),
            None => spawn(task),
        };
        if let Some(process) = Process::of(&local, pid.raw()) {
            process.oblige();
            if self.outliving {
                process.publish(&queue);
            } else {
                process.deliver_to(&queue);
            }
        }
        match self.name.enter(pid.raw()) {
            Ok(()) => Ok(ServerRef::new(sender, Pid::new(pid.raw()))),
            Err(error) => {
                // It has not run yet, and is not to.
                context::stop(pid.raw());
                Err(error)
            }
        }
    }
}

impl<S: Server, N> fmt::Debug for Builder<S, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("outliving", &self.outliving).finish_non_exhaustive()
    }
}
