//! Names: an actor that is found by what it does, not by who it is.
//!
//! A [`Name`] is looked up anew each time, so it outlives its holder: when an actor has ended, its successor registers under
//! the same name and is reached by everybody who uses it. Names belong to a runtime, and reach across all its cores.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::rc::Rc;

use super::call::{CallError, Reply, reply};
use super::channel::{Receiver, Sender};
use super::pid::Pid;
use super::process::Process;
use super::registry::Tables;
use super::send::SendError;
use super::spawn::own_process;
use crate::runtime::local::Local;
use crate::runtime::{RawPid, context};

/// A name under which messages of type `M` are taken. One actor has a name, and may take several types of message by it, each
/// on a channel of its own: `Name::<A>::new("x")` and `Name::<B>::new("x")` lead to the same actor.
///
/// ```
/// use corelet::actor::Name;
///
/// const METRICS: Name<u64> = Name::new("metrics");
/// assert_eq!(METRICS.as_str(), "metrics");
/// ```
pub struct Name<M> {
    text: &'static str,
    messages: PhantomData<fn(M)>,
}

impl<M> Name<M> {
    /// The name with this text.
    pub const fn new(text: &'static str) -> Name<M> {
        Name { text, messages: PhantomData }
    }

    /// Its text.
    pub const fn as_str(&self) -> &'static str {
        self.text
    }
}

/// Why an actor did not get a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Another live actor has it.
    #[error("the name is taken by {holder}; it has to end or to be unregistered first")]
    NameTaken {
        /// Who has it.
        holder: Pid,
    },
    /// The actor has ended.
    #[error("the actor that was to be registered has ended")]
    Dead,
    /// The actor has no mailbox for messages of this type.
    #[error("the actor that was to be registered has no mailbox for messages of this type")]
    NoChannel,
    /// The actor lives on another core. It has to be registered there.
    #[error("the actor that was to be registered lives on another core")]
    OtherCore,
}

impl RegisterError {
    /// Whether another live actor has the name.
    pub fn is_taken(&self) -> bool {
        matches!(self, RegisterError::NameTaken { .. })
    }
}

/// Registers the calling actor under a name: what is sent to the name arrives at `receiver`. Registering again with a
/// receiver for another type adds that channel; with one for the same type it takes the place of the first.
///
/// The actor loses its names when it ends. While it has them, its receivers count as having a sender.
///
/// # Errors
/// [`RegisterError::NameTaken`] when another live actor has the name. One that has ended is no hindrance.
///
/// # Panics
/// When not called in a task of a core.
///
/// # Examples
/// ```
/// use corelet::actor::{self, Name, channel};
/// use corelet::runtime::{Cores, Runtime, yield_now};
///
/// const GREETINGS: Name<&str> = Name::new("greeter");
/// const NUMBERS: Name<u64> = Name::new("greeter");
///
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// runtime.block_on(|| async {
///     let greeter = actor::spawn(async {
///         let (_sender, mut greetings) = channel::unbounded();
///         let (_sender, mut numbers) = channel::bounded(1);
///         actor::register(GREETINGS, &greetings).unwrap();
///         actor::register(NUMBERS, &numbers).unwrap();
///         assert_eq!(greetings.recv().await, Ok("hello"));
///         assert_eq!(numbers.recv().await, Ok(7));
///     });
///     assert_eq!(actor::send(GREETINGS, "too early").unwrap_err().into_inner(), "too early");
///     yield_now().await;
///     assert_eq!(actor::whereis("greeter"), Some(greeter));
///     actor::send(GREETINGS, "hello").unwrap();
///     actor::send(NUMBERS, 7).unwrap();
///     actor::monitor(greeter).await;
///     assert_eq!(actor::whereis("greeter"), None);
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn register<M: Send + 'static>(name: Name<M>, receiver: &Receiver<M>) -> Result<(), RegisterError> {
    let (local, me) = own_process();
    enter(&local, &me, name, Sender::new(&local, receiver.queue()))
}

/// Registers an actor of the current core that has a mailbox for messages of type `M`, as one that was started by
/// [`spawn_addr`](super::spawn_addr) has: when this returns it is found by the name, whether it has run or not.
///
/// # Errors
/// See [`RegisterError`].
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn register_pid<M: Send + 'static>(name: Name<M>, pid: impl Into<RawPid>) -> Result<(), RegisterError> {
    let (local, pid) = (context::current(), pid.into());
    if pid.core() != local.id() {
        return Err(RegisterError::OtherCore);
    }
    let process = Process::find(&local, pid).ok_or(RegisterError::Dead)?.ok_or(RegisterError::NoChannel)?;
    let mailbox = process.mailbox().ok_or(RegisterError::NoChannel)?;
    enter(&local, &process, name, Sender::new(&local, &mailbox))
}

/// Registers a live actor of the current core.
fn enter<M: Send + 'static>(
    local: &Rc<Local>,
    process: &Process,
    name: Name<M>,
    sender: Sender<M>,
) -> Result<(), RegisterError> {
    Tables::of(local.runtime())
        .bind(name.text, process.pid(), process.life(), sender)
        .map_err(|holder| RegisterError::NameTaken { holder: holder.into() })
}

/// The live actor that has a name, by its [`Name`] or by its text.
///
/// # Panics
/// When not called on a core; other threads have the [`Directory`](super::Directory).
#[track_caller]
pub fn whereis(name: impl AsRef<str>) -> Option<Pid> {
    let local = context::current();
    Tables::of(local.runtime()).whereis(name.as_ref()).map(Pid::from)
}

/// As [`whereis`], taken for an actor that understands what `A` does. Nothing checks that: of an actor that does not, a send
/// says [`NoChannel`](SendError::NoChannel), or drops and counts the message if it lives on another core. It never reaches
/// a mailbox of another type.
///
/// # Panics
/// When not called on a core; other threads have the [`Directory`](super::Directory).
#[track_caller]
pub fn lookup_as<A>(name: impl AsRef<str>) -> Option<Pid<A>> {
    let local = context::current();
    Tables::of(local.runtime()).whereis(name.as_ref()).map(Pid::new)
}

/// Frees a name, whoever has it; true when a live actor had it. Nothing else of that actor changes: its mailboxes are still
/// reached by its pid and by its other names.
///
/// # Panics
/// When not called on a core; other threads have the [`Directory`](super::Directory).
#[track_caller]
pub fn unregister(name: impl AsRef<str>) -> bool {
    let local = context::current();
    Tables::of(local.runtime()).unregister(name.as_ref())
}

/// Sends to whoever has the name now, on whatever core, without waiting.
///
/// The channel behind the name is found at once, so also across cores the answer is that of a [`Sender`]: a message that is
/// refused comes back, and one that is not was accepted by the channel.
///
/// # Errors
/// [`SendError::Unresolved`] when nobody has the name, [`SendError::NoChannel`] when its holder takes no messages of this
/// type by it, [`SendError::Closed`] when that receiver was dropped, [`SendError::Full`].
///
/// # Panics
/// When not called on a core; other threads have the [`Directory`](super::Directory).
#[track_caller]
pub fn send<M: Send + 'static>(name: Name<M>, message: M) -> Result<(), SendError<M>> {
    let local = context::current();
    Tables::of(local.runtime()).send(name.text, message)
}

/// As [`call`](super::call), to whoever has the name.
///
/// # Errors
/// [`CallError::Unresolved`] when nobody has it, [`CallError::NoChannel`] when its holder takes no messages of this type; see
/// [`CallError`] for the rest.
///
/// # Cancel safety
/// As [`call`](super::call).
///
/// # Panics
/// When not polled on a core.
pub async fn call_named<M, R>(name: Name<M>, question: impl FnOnce(Reply<R>) -> M) -> Result<R, CallError>
where
    M: Send + 'static,
    R: Send + 'static,
{
    let (reply, answer) = reply();
    send(name, question(reply))?;
    answer.await
}

// Not derived: a derive would ask the same of `M`.
impl<M> Clone for Name<M> {
    fn clone(&self) -> Name<M> {
        *self
    }
}

impl<M> Copy for Name<M> {}

impl<M> PartialEq for Name<M> {
    fn eq(&self, other: &Name<M>) -> bool {
        self.text == other.text
    }
}

impl<M> Eq for Name<M> {}

impl<M> Hash for Name<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl<M> AsRef<str> for Name<M> {
    fn as_ref(&self) -> &str {
        self.text
    }
}

impl<M> fmt::Debug for Name<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Name").field(&self.text).finish()
    }
}

impl<M> fmt::Display for Name<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}
