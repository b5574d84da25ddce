//! What the actor kit keeps on each core.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;

use slab::Slab;

use super::channel::{AnyQueue, ChannelKey};
use super::desk::Desks;
use super::timer::Timers;
use super::watch::FarWatches;
use crate::runtime::context;
use crate::runtime::executor::contain;
use crate::runtime::local::{Layer, Local};

/// The kit of one core, reached on its thread only.
pub(crate) struct Kit {
    channels: RefCell<Slab<Channel>>,
    generation: Cell<u64>,
    far_watches: FarWatches,
    desks: Desks,
    timers: Timers,
    undelivered: Cell<u64>,
}

/// Counts the kits: what names a thing of an ended core must name nothing of a later core with the same id.
static LIVES: AtomicU32 = AtomicU32::new(0);

struct Channel {
    generation: u64,
    queue: Rc<dyn AnyQueue>,
}

/// Borrowed by [`Kit::channels`].
pub(crate) struct Channels<'a>(Ref<'a, Slab<Channel>>);

impl Channels<'_> {
    #[inline]
    pub(crate) fn get(&self, key: ChannelKey) -> Option<&dyn AnyQueue> {
        let channel = self.0.get(key.index as usize)?;
        (channel.generation == key.generation).then_some(&*channel.queue)
    }
}

impl Layer for Kit {
    fn core_ends(&self) {
        // Receivers went with their tasks; what is left belongs to receivers that have leaked. Nobody will receive what is in
        // there, and their senders should know.
        let channels = std::mem::take(&mut *self.channels.borrow_mut());
        for (_, channel) in channels {
            contain("a message that nobody received", || channel.queue.core_ended());
        }
        self.far_watches.clear();
        self.desks.clear();
        context::with(|local| self.timers.clear(local));
    }
}

impl Kit {
    /// The kit of `local`.
    #[inline]
    pub(crate) fn of(local: &Local) -> &Kit {
        local.layer(|| {
            let life = LIVES.fetch_add(1, Ordering::Relaxed);
            Kit {
                channels: RefCell::new(Slab::new()),
                generation: Cell::new(u64::from(life) << 32),
                far_watches: FarWatches::default(),
                desks: Desks::new(life),
                timers: Timers::new(life),
                undelivered: Cell::new(0),
            }
        })
    }

    pub(crate) fn enter_channel(&self, queue: Rc<dyn AnyQueue>) -> ChannelKey {
        let generation = self.generation.get().wrapping_add(1);
        self.generation.set(generation);
        let index = self.channels.borrow_mut().insert(Channel { generation, queue });
        ChannelKey { index: index as u32, generation }
    }

    #[inline]
    pub(crate) fn channel(&self, key: ChannelKey) -> Option<Rc<dyn AnyQueue>> {
        let channels = self.channels.borrow();
        let channel =
            channels.get(key.index as usize).filter(|channel| channel.generation == key.generation)?;
        Some(Rc::clone(&channel.queue))
    }

    /// The channels that have senders, under a borrow: no user's code may run while they are held.
    #[inline]
    pub(crate) fn channels(&self) -> Channels<'_> {
        Channels(self.channels.borrow())
    }

    pub(crate) fn remove_channel(&self, key: ChannelKey) {
        let mut channels = self.channels.borrow_mut();
        if channels.get(key.index as usize).is_some_and(|channel| channel.generation == key.generation) {
            let removed = channels.remove(key.index as usize);
            drop(channels);
            drop(removed);
        }
    }

    /// The last sender of one life of a channel is gone. Whoever reads it is to be woken.
    pub(crate) fn abandon_channel(&self, key: ChannelKey, life: usize) -> Option<Waker> {
        self.channel(key)?.abandon(life)
    }

    pub(super) fn far_watches(&self) -> &FarWatches {
        &self.far_watches
    }

    pub(super) fn desks(&self) -> &Desks {
        &self.desks
    }

    pub(super) fn timers(&self) -> &Timers {
        &self.timers
    }

    /// A message arrived from elsewhere for an actor or a receiver that is gone, or for a full mailbox.
    pub(crate) fn count_undelivered(&self) {
        self.undelivered.set(self.undelivered.get() + 1);
    }

    pub(crate) fn undelivered(&self) -> u64 {
        self.undelivered.get()
    }
}
