//! Who has which name, and by which channels it is reached: a plain value, kept under a lock.
//!
//! Never: drop a sender in here. That may wake a reader, so what is taken out is for the caller to drop, without the lock.

use std::any::Any;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::life::Life;
use crate::actor::channel::Sender;
use crate::runtime::RawPid;

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

    /// A sender to the live holder.
    pub(super) fn channel<M: 'static>(&mut self, name: &str) -> Result<Sender<M>, Missing> {
        let bound = self.live(name).map_err(|stale| Missing::Holder { _stale: stale })?;
        bound.channels.iter().find_map(|kept| kept.downcast_ref()).cloned().ok_or(Missing::Channel)
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
