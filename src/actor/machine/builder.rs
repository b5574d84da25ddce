//! Starting a machine.

use std::fmt;
use std::rc::Rc;

use super::Machine;
use super::run::live;
use crate::actor::channel::{Queue, Receiver};
use crate::actor::infos::Infos;
use crate::actor::pid::Pid;
use crate::actor::process::Process;
use crate::actor::spawn::spawn;
use crate::runtime::context;

/// Builds a machine; from [`machine::build`](super::build).
///
/// ```
/// use corelet::actor::channel;
/// use corelet::actor::machine::{self, Context, Machine, Next};
/// # use corelet::actor::{Addressable, Reply, call};
/// # use corelet::runtime::{Cores, Runtime};
/// # struct Lamp;
/// # impl Addressable for Lamp {
/// #     type Msg = Reply<bool>;
/// # }
///
/// impl Machine for Lamp {
///     type State = bool;
///     type Timeout = std::convert::Infallible;
///     type Info = ();
///
///     /// The switch.
///     fn info(&mut self, lit: &bool, _: (), _: &mut Context<Self>) -> Next<bool> {
///         Next::To(!lit)
///     }
/// #   fn handle(&mut self, lit: &bool, reply: Reply<bool>, _: &mut Context<Self>) -> Next<bool> {
/// #       reply.send(*lit);
/// #       Next::Stay
/// #   }
/// #   fn timeout(&mut self, _: &bool, timeout: Self::Timeout, _: &mut Context<Self>) -> Next<bool> {
/// #       match timeout {}
/// #   }
///     // ...
/// }
///
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// # runtime.block_on(|| async {
/// let (switch, switched) = channel::unbounded::<()>();
/// let lamp = machine::build(Lamp, false).with_info(switched).bounded(64).start();
/// switch.send(()).unwrap();
/// assert_eq!(call(lamp, |reply| reply).await, Ok(true));
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder starts nothing by itself"]
pub struct Builder<M: Machine> {
    machine: M,
    initial: M::State,
    infos: Infos<M::Info>,
    capacity: usize,
}

impl<M: Machine> Builder<M> {
    pub(super) fn new(machine: M, initial: M::State) -> Builder<M> {
        Builder { machine, initial, infos: Infos::new(), capacity: usize::MAX }
    }

    /// Has the machine listen to `receiver` too, by [`info`](Machine::info). Each message of it goes before what lies in the
    /// mailbox, and receivers go in the order in which they were added. One whose senders are gone is let go.
    pub fn with_info<I: Into<M::Info> + 'static>(mut self, receiver: Receiver<I>) -> Builder<M> {
        self.infos.add(receiver);
        self
    }

    /// Limits the mailbox to so many events, what is on its way from other cores among them; more are refused. What the machine has
    /// postponed does not count. Without this there is no limit.
    ///
    /// # Panics
    /// When `capacity` is zero.
    #[track_caller]
    pub fn bounded(mut self, capacity: usize) -> Builder<M> {
        assert!(capacity > 0, "a mailbox has room for at least one event");
        self.capacity = capacity;
        self
    }

    /// Starts the machine on the current core, detached. What is sent to it from now on arrives; its first state is still to be
    /// [entered](Machine::enter).
    ///
    /// # Panics
    /// When not called on a core.
    #[track_caller]
    pub fn start(self) -> Pid<M> {
        let local = context::current();
        let queue = Rc::new(Queue::new(self.capacity));
        let inbox = Receiver::new(Rc::clone(&queue));
        let pid = spawn(live(self.machine, self.initial, self.infos, inbox)).raw();
        if let Some(process) = Process::of(&local, pid) {
            process.publish(&queue);
        }
        Pid::new(pid)
    }
}

impl<M: Machine> fmt::Debug for Builder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}
