//! The sending half: on the receiver's core a push, from elsewhere a letter.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use super::queue::{ChannelKey, Queue, Shared};
use crate::actor::kit::Kit;
use crate::actor::send::SendError;
use crate::runtime::context;
use crate::runtime::local::Local;
use crate::runtime::mesh::{self, Letter};
use crate::runtime::{CoreId, executor::contain};

/// Sends to the [`Receiver`](super::Receiver) of a channel, from any thread.
///
/// # Drop
/// With its last sender the receiver is disconnected, after it has received what was sent; unless an address leads to the
/// channel ([`install`](crate::actor::install)).
pub struct Sender<M> {
    shared: Arc<Shared>,
    messages: PhantomData<fn(M)>,
}

impl<M: 'static> Sender<M> {
    pub(crate) fn new(local: &Rc<Local>, queue: &Rc<Queue<M>>) -> Sender<M> {
        let shared = Arc::clone(queue.share(local));
        shared.ends.enter();
        queue.readopt();
        Sender { shared, messages: PhantomData }
    }

    /// Sends without waiting.
    ///
    /// From another core the message is on its way when this returns: it is lost if the receiver is dropped before it
    /// arrives, as it would be if it were dropped right after.
    ///
    /// # Errors
    /// Gives the message back in [`SendError::Full`] when a bounded channel is full, and in [`SendError::Closed`] when the
    /// receiver is gone.
    #[inline]
    pub fn send(&self, message: M) -> Result<(), SendError<M>>
    where
        M: Send,
    {
        if context::with(|local| local.id() == self.shared.core) != Some(true) {
            return self.send_abroad(message);
        }
        match context::with(move |local| self.send_here(local, message)) {
            Some(sent) => sent,
            None => unreachable!("the thread is on a core, as it was just now"),
        }
    }

    #[inline]
    fn send_here(&self, local: &Local, message: M) -> Result<(), SendError<M>> {
        let channels = Kit::of(local).channels();
        let queue =
            channels.get(self.shared.key).and_then(|queue| (queue as &dyn Any).downcast_ref::<Queue<M>>());
        let reader = match queue {
            Some(queue) => queue.push(message)?,
            None => return Err(SendError::Closed(message)),
        };
        // Woken only now: a waker may be a user's.
        drop(channels);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(())
    }

    fn send_abroad(&self, message: M) -> Result<(), SendError<M>>
    where
        M: Send,
    {
        let shared = &*self.shared;
        if shared.ends.is_closed() {
            return Err(SendError::Closed(message));
        }
        if !shared.ends.take_place() {
            return Err(SendError::Full(message));
        }
        shared.ends.goes_abroad();
        mesh::post(shared.core, Parcel { core: shared.core, key: shared.key, message })
            .map_err(|parcel| SendError::Closed(parcel.message))
    }

    /// Whether the receiver is gone. False is only true for the moment.
    pub fn is_closed(&self) -> bool {
        self.shared.ends.is_closed()
    }

    /// The receiver's core.
    pub fn core(&self) -> CoreId {
        self.shared.core
    }

    /// The most messages that the channel holds; none when it has no bound.
    pub fn capacity(&self) -> Option<usize> {
        self.shared.ends.capacity()
    }

    /// Whether both send to the same receiver.
    pub fn same_channel(&self, other: &Sender<M>) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Sender<M> {
        self.shared.ends.join();
        Sender { shared: Arc::clone(&self.shared), messages: PhantomData }
    }
}

impl<M> Drop for Sender<M> {
    fn drop(&mut self) {
        let shared = &*self.shared;
        let Some(farewell) = shared.ends.leave() else { return };
        let here = context::with(|local| local.id() == shared.core).unwrap_or(false);
        let news = SendersGone { core: shared.core, key: shared.key, life: farewell.life };
        if here && farewell.direct {
            news.tell();
        } else {
            // What was sent from elsewhere may still lie in the core's mailbox: the news goes behind it. Refused by a core
            // that has ended, and the receiver with it.
            let _ = mesh::post(shared.core, news);
        }
    }
}

impl<M> fmt::Debug for Sender<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("core", &self.shared.core)
            .field("closed", &self.shared.ends.is_closed())
            .finish()
    }
}

/// A message on its way from elsewhere; its place is taken.
struct Parcel<M> {
    core: CoreId,
    key: ChannelKey,
    message: M,
}

impl<M: Send + 'static> Letter for Parcel<M> {
    fn open(self: Box<Self>) {
        let Parcel { core, key, message } = *self;
        let local = context::current();
        debug_assert_eq!(local.id(), core);
        let kit = Kit::of(&local);
        let queue = kit.channel(key);
        let arrived = match queue.as_deref().and_then(|queue| (queue as &dyn Any).downcast_ref::<Queue<M>>())
        {
            Some(queue) => queue.push_arrived(message),
            None => Err(message),
        };
        match arrived {
            Ok(Some(reader)) => reader.wake(),
            Ok(None) => {}
            Err(message) => {
                kit.count_undelivered();
                contain("a message that came too late", || drop(message));
            }
        }
    }
}

/// The last sender of a channel is gone.
struct SendersGone {
    core: CoreId,
    key: ChannelKey,
    life: usize,
}

impl SendersGone {
    fn tell(&self) {
        let reader = context::with(|local| Kit::of(local).abandon_channel(self.key, self.life)).flatten();
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Letter for SendersGone {
    fn open(self: Box<Self>) {
        debug_assert_eq!(crate::runtime::current_core(), Some(self.core));
        self.tell();
    }
}
