//! Mailboxes: channels whose receiver lives on one core, and whose senders are anywhere.
//!
//! A [`Sender`] on the receiver's core moves the message into the queue and wakes the reader: no lock, no allocation, and for an
//! unbounded channel no atomic operation. From another core, or a thread that is none, the message takes the mesh. It is
//! refused there and then when the channel is full or closed; nobody ever waits for room.
//!
//! # Order
//!
//! What one sender sends arrives in order. Between senders there is no order but that of arrival.
//!
//! # Compared with tokio
//!
//! `tokio::sync::mpsc` has its senders wait for room, and shares its queue between threads. Here a full channel is the sender's
//! to deal with, as in Erlang's world of mailboxes, and the queue is one core's own.
//!
//! ```
//! use corelet::actor::channel;
//! use corelet::runtime::{Cores, Runtime};
//!
//! let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
//! runtime.block_on(|| async {
//!     let (sender, mut receiver) = channel::bounded(1);
//!     sender.send("first").unwrap();
//!     let refused = sender.send("second").unwrap_err();
//!     assert!(refused.is_full() && refused.into_inner() == "second");
//!     assert_eq!(receiver.recv().await, Ok("first"));
//!     drop(sender);
//!     assert!(receiver.recv().await.is_err());
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod queue;
mod receiver;
mod sender;

use std::rc::Rc;

pub(crate) use queue::{AnyQueue, ChannelKey, Queue};
pub use receiver::{Disconnected, Receiver, TryRecvError};
pub use sender::Sender;

use crate::runtime::context;

/// A channel without a bound.
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn unbounded<M: 'static>() -> (Sender<M>, Receiver<M>) {
    channel(usize::MAX)
}

/// A channel that holds at most `capacity` messages. What is on its way from another core counts.
///
/// # Panics
/// When not called on a core, or when `capacity` is zero.
#[track_caller]
pub fn bounded<M: 'static>(capacity: usize) -> (Sender<M>, Receiver<M>) {
    assert!(capacity > 0, "a channel has room for at least one message");
    channel(capacity)
}

#[track_caller]
fn channel<M: 'static>(capacity: usize) -> (Sender<M>, Receiver<M>) {
    let local = context::current();
    let queue = Rc::new(Queue::new(capacity));
    let sender = Sender::new(&local, &queue);
    (sender, Receiver::new(queue))
}
