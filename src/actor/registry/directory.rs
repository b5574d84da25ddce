//! The names and groups of a runtime, from threads that are none of its cores.

use std::fmt;

use super::Tables;
use crate::actor::group::{self, Change, Member};
use crate::actor::name::Name;
use crate::actor::pid::{Addressable, Pid};
use crate::actor::send::SendError;
use crate::runtime::{Incarnation, NodeId, RawPid, RuntimeHandle};

/// The names and groups of one runtime, for any thread. On a core of the runtime the functions of the same names in
/// [`actor`](crate::actor) and [`group`](crate::actor::group) do the same.
///
/// Cheap to clone; keeps nothing running. After the runtime has ended it is empty.
///
/// # Examples
/// ```
/// use corelet::actor::{self, Directory, Name, channel};
/// use corelet::runtime::{Cores, Runtime};
///
/// const ECHO: Name<u32> = Name::new("echo");
///
/// let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// let echo = runtime.spawn_on(runtime.cores()[0], || async {
///     let (_sender, mut inbox) = channel::unbounded();
///     actor::register(ECHO, &inbox).unwrap();
///     inbox.recv().await
/// })?;
/// let directory = Directory::of(&runtime.handle());
/// while directory.send(ECHO, 7).is_err() {}
/// assert_eq!(runtime.block_on(|| echo)??, Ok(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Directory {
    runtime: RuntimeHandle,
}

impl Directory {
    /// That of `runtime`.
    pub fn of(runtime: &RuntimeHandle) -> Directory {
        Directory { runtime: runtime.clone() }
    }

    fn tables(&self) -> &Tables {
        Tables::of(&self.runtime)
    }

    /// The live holder of a name; see [`whereis`](crate::actor::whereis).
    pub fn whereis(&self, name: impl AsRef<str>) -> Option<Pid> {
        self.tables().whereis(name.as_ref()).map(Pid::from)
    }

    /// The live holder of a name, taken for an `A`; see [`lookup_as`](crate::actor::lookup_as).
    pub fn lookup_as<A>(&self, name: impl AsRef<str>) -> Option<Pid<A>> {
        self.tables().whereis(name.as_ref()).map(Pid::new)
    }

    /// Frees a name; see [`unregister`](crate::actor::unregister).
    pub fn unregister(&self, name: impl AsRef<str>) -> bool {
        self.tables().unregister(name.as_ref())
    }

    /// Sends to whoever has a name; see [`send`](crate::actor::send).
    ///
    /// # Errors
    /// As [`send`](crate::actor::send).
    pub fn send<M: Send + 'static>(&self, name: Name<M>, message: M) -> Result<(), SendError<M>> {
        self.tables().send(name.as_str(), message)
    }

    /// Has an actor join a group; see [`group::join`].
    pub fn join(&self, group: &str, pid: impl Into<RawPid>) {
        group::ask(&self.runtime, group, pid.into(), Change::Join);
    }

    /// Has an actor leave a group; see [`group::leave`].
    pub fn leave(&self, group: &str, pid: impl Into<RawPid>) {
        group::ask(&self.runtime, group, pid.into(), Change::Leave);
    }

    /// The live members of a group; see [`group::members`].
    pub fn members(&self, group: &str) -> Vec<Member> {
        self.tables().members(group)
    }

    /// The live members of a group, taken for `A`s; see [`group::members_as`].
    pub fn members_as<A>(&self, group: &str) -> Vec<Pid<A>> {
        self.members(group).into_iter().map(|member| Pid::new(member.pid.raw())).collect()
    }

    /// The next live member of a group; see [`group::pick`].
    pub fn pick(&self, group: &str) -> Option<Pid> {
        self.tables().pick(group)
    }

    /// The next live member of a group, taken for an `A`; see [`group::pick_as`].
    pub fn pick_as<A>(&self, group: &str) -> Option<Pid<A>> {
        self.pick(group).map(|pid| Pid::new(pid.raw()))
    }

    /// Sends to the next live member of a group; see [`group::dispatch`].
    ///
    /// # Errors
    /// As [`group::dispatch`].
    pub fn dispatch<A: Addressable>(
        &self,
        group: &str,
        message: A::Msg,
    ) -> Result<Pid<A>, SendError<A::Msg>> {
        self.tables().dispatch(group, message)
    }

    /// Removes the members of earlier lives of a node from every group; see [`group::sweep`].
    pub fn sweep(&self, node: NodeId, before: Incarnation) -> usize {
        self.tables().sweep(node, before)
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("runtime", &self.runtime).finish()
    }
}
