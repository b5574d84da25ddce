//! Servers that are found by name, whoever serves under it now.

use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use super::{Request, Server, ServerRef};
use crate::actor::exit::ExitReason;
use crate::actor::name::{Name, RegisterError, register_pid, send};
use crate::actor::pid::Pid;
use crate::actor::registry::Tables;
use crate::actor::{CallError, SendError, reply};
use crate::runtime::{RawPid, context, timeout};

/// The name of a server. It is looked up at each use, so it outlives its holder: when the server has been started anew under
/// it, that one is reached.
///
/// ```
/// use std::convert::Infallible;
///
/// use corelet::actor::server::{self, Context, Server, ServerName};
/// use corelet::actor::{Name, Reply};
/// use corelet::runtime::{Cores, Runtime};
///
/// struct Dice;
///
/// const DICE: ServerName<Dice> = Name::new("dice");
///
/// impl Server for Dice {
///     type Call = ();
///     type Reply = u8;
///     type Cast = Infallible;
///     type Info = Infallible;
///
///     async fn handle_call(&mut self, (): (), reply: Reply<u8>, _: &Context<Self>) {
///         reply.send(4);
///     }
///
///     async fn handle_cast(&mut self, never: Infallible, _: &Context<Self>) {
///         match never {}
///     }
/// }
///
/// let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// runtime.block_on(|| async {
///     server::build(Dice).named(DICE).start().unwrap();
///     assert_eq!(server::call(DICE, ()).await, Ok(4));
///     assert!(server::build(Dice).named(DICE).start().unwrap_err().is_taken());
///     server::shutdown(DICE).await;
///     server::build(Dice).named(DICE).start().unwrap();
///     assert_eq!(server::call(DICE, ()).await, Ok(4));
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type ServerName<S> = Name<Request<S>>;

/// As [`ServerRef::call`], of whoever has the name now.
///
/// # Errors
/// See [`CallError`]; [`CallError::Unresolved`] when nobody has the name.
///
/// # Cancel safety
/// As [`ServerRef::call`].
///
/// # Panics
/// When not polled on a core.
pub async fn call<S: Server>(name: ServerName<S>, call: S::Call) -> Result<S::Reply, CallError> {
    let (reply, answer) = reply();
    send(name, Request::call(call, reply))?;
    answer.await
}

/// As [`ServerRef::call_timeout`], of whoever has the name now.
///
/// # Errors
/// See [`CallError`].
///
/// # Cancel safety
/// As [`ServerRef::call`].
///
/// # Panics
/// When not polled on a core.
pub async fn call_timeout<S: Server>(
    name: ServerName<S>,
    question: S::Call,
    limit: Duration,
) -> Result<S::Reply, CallError> {
    timeout(limit, call(name, question)).await.unwrap_or(Err(CallError::Timeout))
}

/// As [`ServerRef::cast`], to whoever has the name now.
///
/// # Errors
/// As [`ServerRef::cast`]; [`SendError::Unresolved`] when nobody has the name.
///
/// # Panics
/// When not called on a core; other threads have the [`Directory`](crate::actor::Directory).
#[track_caller]
pub fn cast<S: Server>(name: ServerName<S>, cast: S::Cast) -> Result<(), SendError<S::Cast>> {
    send(name, Request::cast(cast)).map_err(|refused| refused.map(Request::into_cast))
}

/// The server that has the name now, and that one only.
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn whereis<S: Server>(name: ServerName<S>) -> Option<ServerRef<S>> {
    let (pid, inbox) = Tables::of(context::current().runtime()).reach(name.as_str())?;
    Some(ServerRef::new(inbox, Pid::new(pid)))
}

/// As [`ServerRef::shutdown`], of whoever has the name now; none when nobody has. The name is free when this returns.
///
/// # Cancel safety
/// Cancel safe; the server ends all the same.
///
/// # Panics
/// When not polled on a core.
pub async fn shutdown<S: Server>(name: ServerName<S>) -> Option<ExitReason> {
    Some(whereis(name)?.shutdown().await)
}

/// Whether a [`Builder`](super::Builder) gives its server a name.
pub trait Naming<S: Server>: 'static {
    /// Why the server did not get it.
    type Error: fmt::Display;
    #[doc(hidden)]
    fn enter(self, pid: RawPid) -> Result<(), Self::Error>;
}

/// It gives none.
#[derive(Clone, Copy, Debug)]
pub struct Nameless;

impl<S: Server> Naming<S> for Nameless {
    type Error = Infallible;

    fn enter(self, _: RawPid) -> Result<(), Infallible> {
        Ok(())
    }
}

impl<S: Server> Naming<S> for ServerName<S> {
    type Error = RegisterError;

    fn enter(self, pid: RawPid) -> Result<(), RegisterError> {
        register_pid(self, pid)
    }
}
