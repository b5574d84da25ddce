//! Who has which name, and by which channels it is reached: a plain value, kept under a lock.
//!
//! Never: drop a sender in here. That may wake a reader, so what is taken out is for the caller to drop, without the lock.

use std::any::Any;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::life::Life;
use crate::actor::channel::Sender;
use crate::runtime::{CoreId, RawPid};

#[derive(Default)]
pub(super) struct Names {
    bindings: FxHashMap<&'static str, Binding>,
    /// The names that each holder has, for when it ends.
    held: FxHashMap<RawPid, SmallVec<[&'static str; 1]>>,
}

/// A name's holder, and a sender for each type of message that it takes by this name.
pub(super) struct Binding {
    holder: RawPid,
    life: Arc<Life>,
    channels: SmallVec<[Channel; 1]>,
}

type Channel = Box<dyn Any + Send>;

/// What a binding has replaced.
pub(super) struct Replaced {
    _stale: Option<Binding>,
    _channel: Option<Channel>,
}

/// Why there is no channel behind a name.
pub(super) enum Missing {
    /// Nobody has the name; this is what was left of somebody who had.
    Holder { _stale: Option<Binding> },
    /// The holder takes no messages of this type by this name.
    Channel,
}

impl Names {
    /// Binds a name to `holder`, or adds a channel to what it has. A channel for the same type is replaced.
    ///
    /// # Errors
    /// The live holder, and the sender, when it is another.
    pub(super) fn bind<M: 'static>(
        &mut self,
        name: &'static str,
        holder: RawPid,
        life: &Arc<Life>,
        sender: Sender<M>,
    ) -> Result<Replaced, (RawPid, Sender<M>)> {
        let stale = match self.bindings.get(name) {
            Some(bound) if bound.holder == holder => None,
            Some(bound) if bound.life.is_live() => return Err((bound.holder, sender)),
            _ => self.unbind(name),
        };
        let binding = self.bindings.entry(name).or_insert_with(|| {
            self.held.entry(holder).or_default().push(name);
            Binding { holder, life: Arc::clone(life), channels: SmallVec::new() }
        });
        let channel = Box::new(sender) as Channel;
        let replaced = match binding.channels.iter_mut().find(|kept| kept.is::<Sender<M>>()) {
            Some(kept) => Some(std::mem::replace(kept, channel)),
            None => {
                binding.channels.push(channel);
                None
            }
        };
        Ok(Replaced { _stale: stale, _channel: replaced })
    }

    /// The live holder, or what is left of one that has ended.
    pub(super) fn holder(&mut self, name: &str) -> Result<RawPid, Option<Binding>> {
        self.live(name).map(|bound| bound.holder)
    }

    /// The live holder, and a sender to it.
    pub(super) fn channel<M: 'static>(&mut self, name: &str) -> Result<(RawPid, Sender<M>), Missing> {
        let bound = self.live(name).map_err(|stale| Missing::Holder { _stale: stale })?;
        let sender: Option<&Sender<M>> = bound.channels.iter().find_map(|kept| kept.downcast_ref());
        sender.map(|sender| (bound.holder, sender.clone())).ok_or(Missing::Channel)
    }

    /// Frees a name.
    pub(super) fn unbind(&mut self, name: &str) -> Option<Binding> {
        let bound = self.bindings.remove(name)?;
        if let Some(names) = self.held.get_mut(&bound.holder) {
            names.retain(|held| *held != name);
            if names.is_empty() {
                self.held.remove(&bound.holder);
            }
        }
        Some(bound)
    }

    /// Frees every name of an actor that has ended.
    pub(super) fn forget(&mut self, holder: RawPid) -> SmallVec<[Binding; 1]> {
        let names = self.held.remove(&holder).unwrap_or_default();
        names.iter().filter_map(|name| self.bindings.remove(name)).collect()
    }

    /// The names that `holder` has.
    pub(super) fn held_by(&self, holder: RawPid) -> Vec<&'static str> {
        self.held.get(&holder).map_or_else(Vec::new, |names| names.to_vec())
    }

    /// Everybody on `core` who has names, and which.
    pub(super) fn held_on(&self, core: CoreId) -> Vec<(RawPid, Vec<&'static str>)> {
        let here = self.held.iter().filter(|(holder, _)| holder.core() == core);
        here.map(|(holder, names)| (*holder, names.to_vec())).collect()
    }

    /// What a live holder is bound to; a stale binding is taken out.
    fn live(&mut self, name: &str) -> Result<&Binding, Option<Binding>> {
        if self.bindings.get(name).is_some_and(|bound| !bound.life.is_live()) {
            return Err(self.unbind(name));
        }
        self.bindings.get(name).ok_or(None)
    }
}

impl Binding {
    pub(super) fn is_live(&self) -> bool {
        self.life.is_live()
    }
}

#[cfg(test)]
impl Names {
    pub(super) fn is_empty(&self) -> bool {
        self.bindings.is_empty() && self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actor::channel;
    use crate::runtime::Simulation;

    fn holder(index: u32) -> (RawPid, Arc<Life>) {
        (RawPid { core: CoreId(0), index, generation: 1 }, Arc::default())
    }

    fn assert_empty(names: &Names) {
        assert!(names.is_empty(), "nothing is left of names that nobody has");
    }

    /// Runs `test` with a sender, which only a core can make.
    fn with_sender(test: impl FnOnce(Sender<u8>) + 'static) {
        Simulation::new(1, 1).block_on(|| async { test(channel::unbounded().0) }).unwrap();
    }

    fn bind(names: &mut Names, name: &'static str, who: &(RawPid, Arc<Life>), sender: &Sender<u8>) -> bool {
        names.bind(name, who.0, &who.1, sender.clone()).is_ok()
    }

    #[test]
    fn a_binding_whose_holder_has_ended_is_passed_over_before_it_is_taken_out() {
        with_sender(|sender| {
            let mut names = Names::default();
            let (one, two) = (holder(1), holder(2));
            assert!(bind(&mut names, "a", &one, &sender) && bind(&mut names, "b", &one, &sender));
            assert!(!bind(&mut names, "a", &two, &sender));
            one.1.end();
            assert!(bind(&mut names, "a", &two, &sender), "it is taken over");
            assert_eq!(names.holder("a").ok(), Some(two.0));
            assert!(matches!(names.channel::<u8>("b"), Err(Missing::Holder { _stale: Some(_) })));
            assert!(matches!(names.holder("b"), Err(None)), "it was taken out on contact");
            assert_eq!(names.forget(one.0).len(), 0, "nothing of it is left");
            assert_eq!(names.holder("a").ok(), Some(two.0), "and its successor is left alone");
            assert_eq!(names.forget(two.0).len(), 1);
            assert_empty(&names);
        });
    }

    #[test]
    fn a_name_that_was_freed_is_not_its_former_holders_to_forget() {
        with_sender(|sender| {
            let mut names = Names::default();
            let (one, two) = (holder(1), holder(2));
            assert!(bind(&mut names, "a", &one, &sender) && bind(&mut names, "a", &one, &sender));
            assert!(names.unbind("a").is_some_and(|freed| freed.is_live()) && names.unbind("a").is_none());
            assert!(bind(&mut names, "a", &two, &sender));
            assert_eq!(names.forget(one.0).len(), 0);
            assert_eq!(names.holder("a").ok(), Some(two.0));
            assert!(matches!(names.channel::<u16>("a"), Err(Missing::Channel)));
            assert!(names.channel::<u8>("a").is_ok_and(|found| found.1.same_channel(&sender)));
            assert_eq!(names.forget(two.0).len(), 1);
            assert_empty(&names);
        });
    }
}
