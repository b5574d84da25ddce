//! The names and the groups of a runtime: two tables that all its cores share.
//!
//! Each is under a lock that is held for work on the table only: a sender is cloned under it, and used and dropped without.
//! Whether a holder or a member still lives is told by a flag that its record keeps, so nobody has to be asked.
//!
//! Never: hold both locks at once, or drop under one of them what was taken out.

mod directory;
mod groups;
mod life;
mod names;

use std::sync::Arc;

pub use directory::Directory;
pub(super) use life::Life;

use super::channel::Sender;
use super::group::Member;
use super::pid::{Addressable, Pid};
use super::send::{SendError, send_to};
use crate::lock::{Lock, Rank};
use crate::runtime::executor::contain;
use crate::runtime::{CoreId, Incarnation, NodeId, RawPid, RuntimeHandle};
use groups::{Among, Groups};
use names::{Binding, Missing, Names};

/// The tables of one runtime.
pub(super) struct Tables {
    names: Lock<Names>,
    groups: Lock<Groups>,
    node: NodeId,
    incarnation: Incarnation,
}

impl Tables {
    pub(super) fn of(runtime: &RuntimeHandle) -> &Tables {
        runtime.layer(|| Tables {
            names: Lock::new(Rank::Directory, Names::default()),
            groups: Lock::new(Rank::Directory, Groups::default()),
            node: runtime.node(),
            incarnation: runtime.incarnation(),
        })
    }

    /// Enters a channel of a live actor of the current core.
    ///
    /// # Errors
    /// The live holder, when it is another.
    pub(super) fn bind<M: 'static>(
        &self,
        name: &'static str,
        holder: RawPid,
        life: &Arc<Life>,
        sender: Sender<M>,
    ) -> Result<(), RawPid> {
        let bound = self.names.lock().bind(name, holder, life, sender);
        // What was replaced, or refused, is dropped here.
        bound.map(drop).map_err(|(holder, _)| holder)
    }

    pub(super) fn whereis(&self, name: &str) -> Option<RawPid> {
        let holder = self.names.lock().holder(name);
        holder.ok()
    }

    /// The names that an actor has.
    pub(super) fn names_of(&self, holder: RawPid) -> Vec<&'static str> {
        self.names.lock().held_by(holder)
    }

    /// Everybody on `core` who has names, and which.
    pub(super) fn names_on(&self, core: CoreId) -> Vec<(RawPid, Vec<&'static str>)> {
        self.names.lock().held_on(core)
    }

    pub(super) fn unregister(&self, name: &str) -> bool {
        let freed = self.names.lock().unbind(name);
        freed.as_ref().is_some_and(Binding::is_live)
    }

    pub(super) fn send<M: Send + 'static>(&self, name: &str, message: M) -> Result<(), SendError<M>> {
        let found = self.names.lock().channel(name);
        match found {
            Ok((_, sender)) => sender.send(message),
            Err(Missing::Channel) => Err(SendError::NoChannel(message)),
            Err(Missing::Holder { .. }) => Err(SendError::Unresolved(message)),
        }
    }

    /// The live holder of a name, and a sender to it.
    pub(super) fn reach<M: 'static>(&self, name: &str) -> Option<(RawPid, Sender<M>)> {
        let found = self.names.lock().channel(name);
        found.ok()
    }

    /// Enters a live actor of the current core into a group.
    pub(super) fn join(&self, group: &str, pid: RawPid, life: &Arc<Life>) {
        self.groups.lock().join(group, self.member(pid), life);
    }

    pub(super) fn leave(&self, group: &str, pid: RawPid) {
        let left = self.groups.lock().remove_where(Among::One(group, self.member(pid)), |_| true);
        drop(left);
    }

    pub(super) fn members(&self, group: &str) -> Vec<Member> {
        self.groups.lock().members(group)
    }

    pub(super) fn pick(&self, group: &str) -> Option<Pid> {
        self.groups.lock().pick(group).map(|member| member.pid)
    }

    pub(super) fn dispatch<A: Addressable>(
        &self,
        group: &str,
        message: A::Msg,
    ) -> Result<Pid<A>, SendError<A::Msg>> {
        let mut message = message;
        loop {
            let Some(pid) = self.pick(group) else { return Err(SendError::NoMember(message)) };
            let pid = Pid::new(pid.raw());
            match send_to(pid, message) {
                Ok(()) => return Ok(pid),
                // It has ended since it was picked, and is not picked again.
                Err(SendError::Dead(returned)) => message = returned,
                Err(refused) => return Err(refused),
            }
        }
    }

    pub(super) fn sweep(&self, node: NodeId, before: Incarnation) -> usize {
        let earlier = |member: &Member| member.node == node && member.incarnation < before;
        let swept = self.groups.lock().remove_where(Among::All, earlier);
        swept.len()
    }

    /// An actor has ended, and its flag says so: takes it out of all its groups, and its names away.
    pub(super) fn forget(&self, pid: RawPid) {
        let left = self.groups.lock().remove_where(Among::Of(self.member(pid)), |_| true);
        let freed = self.names.lock().forget(pid);
        drop(left);
        // A sender may be the last one, and wake a reader that the actor has given away.
        contain("the senders behind a name", || drop(freed));
    }

    fn member(&self, pid: RawPid) -> Member {
        Member { node: self.node, incarnation: self.incarnation, pid: pid.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::Tables;
    use crate::actor::{self, Name, channel, group};
    use crate::runtime::{Simulation, handle};

    #[test]
    fn nothing_is_left_of_actors_that_have_ended_though_nobody_asks_for_them() {
        Simulation::new(1, 1)
            .block_on(|| async {
                let runtime = handle();
                let ends = actor::spawn(async {
                    let (_sender, inbox) = channel::unbounded();
                    actor::register(Name::<u8>::new("a"), &inbox).unwrap();
                    actor::register(Name::<u8>::new("b"), &inbox).unwrap();
                    let me = actor::myself().unwrap();
                    group::join("a", me);
                    group::join("b", me);
                });
                actor::monitor(ends).await;
                let tables = Tables::of(&runtime);
                assert!(tables.names.lock().is_empty());
                assert!(tables.groups.lock().is_empty());
            })
            .unwrap();
    }
}
