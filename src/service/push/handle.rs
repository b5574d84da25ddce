//! The sending end of push queues.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::queues::{Queues, Shared, take_place};
use crate::actor::channel::ChannelKey;
use crate::actor::kit::Kit;
use crate::runtime::context;
use crate::runtime::executor::contain;
use crate::runtime::local::Local;
use crate::runtime::mesh::{self, Letter};

/// Which queue a frame goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Before everything but a shutdown.
    High,
    /// Behind those of high priority, but never for ever.
    Low,
}

/// A push that was refused, with its frame.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PushError<F> {
    /// The queue has no room.
    #[error("the push queue is full")]
    Full(F),
    /// The connection has ended, or is ending.
    #[error("the connection takes no pushes any more")]
    Closed(F),
}

impl<F> PushError<F> {
    /// The frame.
    pub fn into_inner(self) -> F {
        match self {
            PushError::Full(frame) | PushError::Closed(frame) => frame,
        }
    }
}

impl<F> fmt::Debug for PushError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PushError::Full(_) => "Full(..)",
            PushError::Closed(_) => "Closed(..)",
        })
    }
}

/// Pushes frames to one connection, from any core and any thread.
pub struct PushHandle<F> {
    shared: Arc<Shared>,
    frames: PhantomData<fn(F)>,
}

impl<F> PushHandle<F> {
    pub(super) fn new(shared: Arc<Shared>) -> PushHandle<F> {
        PushHandle { shared, frames: PhantomData }
    }
}

impl<F: Send + 'static> PushHandle<F> {
    /// Pushes with high priority.
    ///
    /// # Errors
    /// [`PushError`], with the frame.
    #[inline]
    pub fn high(&self, frame: F) -> Result<(), PushError<F>> {
        self.push(Priority::High, frame)
    }

    /// Pushes with low priority.
    ///
    /// # Errors
    /// [`PushError`], with the frame.
    #[inline]
    pub fn low(&self, frame: F) -> Result<(), PushError<F>> {
        self.push(Priority::Low, frame)
    }

    #[inline]
    fn push(&self, priority: Priority, frame: F) -> Result<(), PushError<F>> {
        let frame = take_place(&self.shared, priority, frame)?;
        if context::with(|local| local.id() == self.shared.core) != Some(true) {
            let Shared { core, key, .. } = *self.shared;
            return mesh::post(core, Parcel { key, priority, frame })
                .map_err(|parcel| PushError::Closed(parcel.frame));
        }
        match context::with(move |local| self.push_here(local, priority, frame)) {
            Some(pushed) => pushed,
            None => unreachable!("the thread is on a core, as it was just now"),
        }
    }

    #[inline]
    fn push_here(&self, local: &Local, priority: Priority, frame: F) -> Result<(), PushError<F>> {
        let channels = Kit::of(local).channels();
        let queues =
            channels.get(self.shared.key).and_then(|queues| (queues as &dyn Any).downcast_ref::<Queues<F>>());
        let reader = match queues {
            Some(queues) => queues.push(priority, frame).map_err(PushError::Closed)?,
            None => return Err(PushError::Closed(frame)),
        };
        // Woken only now: a waker may be a user's.
        drop(channels);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(())
    }
}

impl<F> Clone for PushHandle<F> {
    fn clone(&self) -> PushHandle<F> {
        PushHandle { shared: Arc::clone(&self.shared), frames: PhantomData }
    }
}

impl<F> fmt::Debug for PushHandle<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushHandle").field("core", &self.shared.core).finish_non_exhaustive()
    }
}

/// A push on its way to another core.
struct Parcel<F> {
    key: ChannelKey,
    priority: Priority,
    frame: F,
}

impl<F: Send + 'static> Letter for Parcel<F> {
    fn open(self: Box<Self>) {
        let Parcel { key, priority, frame } = *self;
        let local = context::current();
        let kit = Kit::of(&local);
        let queues = kit.channel(key);
        let pushed =
            match queues.as_deref().and_then(|queues| (queues as &dyn Any).downcast_ref::<Queues<F>>()) {
                Some(queues) => queues.push(priority, frame),
                None => Err(frame),
            };
        match pushed {
            Ok(Some(reader)) => reader.wake(),
            Ok(None) => {}
            Err(frame) => contain("a push that came too late", || drop(frame)),
        }
    }
}
