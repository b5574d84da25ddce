//! Mailboxes: channels whose receiver lives on one core, and whose senders are anywhere.
//!
//! A [`Sender`] on the receiver's core moves the message into the queue and wakes the reader: no lock, no allocation, and for an
//! unbounded channel no atomic operation. From another core, or a thread that is none, the message takes the mesh. It is
//! refused there and then when the channel is full or closed; nobody ever waits for room.
//!
//! # Order
//!
//! What one task sends by one sender arrives in order, and so does what one thread sends that is no core's. Between them
//! there is no order but that of arrival. A receiver hears of the end of its senders when it has had everything they sent.
//!
//! # Receiving
//!
//! | | |
//! |---|---|
//! | [`recv`](Receiver::recv), [`recv_timeout`](Receiver::recv_timeout), [`try_recv`](Receiver::try_recv) | the next message |
//! | [`recv_match`](Receiver::recv_match), [`recv_match_timeout`](Receiver::recv_match_timeout), [`try_recv_match`](Receiver::try_recv_match) | the first that fits; the others stay |
//! | [`select`](crate::actor::select) | from several channels, and whatever else is waited for, by priority |
//!
//! Each of their futures may be dropped at any await: no message is lost, none is given twice, and no timer is left. A
//! message that is there when the time is over wins.
//!
//! # Wakes
//!
//! A wake says nothing but *look*. A receiver that gave up, or was overtaken by another arm of a `select`, leaves its waker
//! with the channel; the next message then costs its task one poll, in which whatever it waits for by then looks at its own
//! condition, does not find it, and waits on. So there is nothing to take back, and no wake can be taken for another.
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

mod ends;
mod queue;
mod receiver;
mod selective;
mod sender;

use std::rc::Rc;

pub(crate) use queue::{AnyQueue, ChannelKey, Queue};
pub use receiver::{Disconnected, Receiver, RecvTimeoutError, TryRecvError};
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
