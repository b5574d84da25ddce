//! Push queues: frames for a connection that nobody asked for, in two priorities.
//!
//! News to a subscriber, a cursor that has moved, the order to reconnect elsewhere: whoever has a connection's [`PushHandle`]
//! pushes what its peer is to get, from any core and from threads that are none. The connection's actor takes the frames
//! before anything else but a shutdown. [`Connection::push_handle`](crate::service::Connection::push_handle) gives the
//! handle; queues without a connection are made by [`PushBuilder::build`] on a core, and read by a task there.
//!
//! # What is promised
//!
//! - A queue never holds more frames than it has places, those on their way from other cores included. Nobody waits for a
//!   place: a push succeeds, or gives the frame back at once, or drops it where [`WhenFull`] says so.
//! - Of two frames of one priority, the one whose push returned before the other's began goes first.
//! - High goes before low. But low is passed over at most [so many times](PushBuilder::high_before_low), and for no longer
//!   than [a slice](PushBuilder::high_slice) if there is one; and high waits behind one of low priority at most.
//! - No frame vanishes. What is accepted is received; or, if the queues close before, it counts as
//!   [undelivered](QueueStats::undelivered) and goes to the [dead-letter queue](PushBuilder::dead_letters), if there is one.
//!
//! From elsewhere, a push may find a queue full while its own core still has some of the last places in hand: an eighth of
//! them, sixteen at most. The core gives them back when its reader waits.
//!
//! # Cost
//!
//! On the queues' own core, push and receive are moves in and out of a queue, without an atomic read-modify-write, a lock, an
//! allocation or a look at a clock. From elsewhere a push costs three read-modify-writes and the channel's; the core is
//! told at most once in each of its turns. A slice and a rate cost a look at the clock, and nothing where there is none.
//!
//! # Compared
//!
//! With two bounded channels of tokio and a `select!`: those share their queues between threads, and pay for it on one core
//! as well; and a biased `select!` lets the lower one starve, an unbiased one knows no priority. `actix` has one mailbox for
//! each actor, without priorities, which waits or refuses. The rate is kept by [`governor`], on the core's clock: in a
//! [`Simulation`](crate::runtime::Simulation) that is the simulated one.
//!
//! # Examples
//! ```
//! use corelet::actor::channel;
//! use corelet::runtime::{Cores, Runtime};
//! use corelet::service::push::{DeadLetterReason, Priority, PushBuilder, PushError, WhenFull};
//!
//! let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
//! runtime.block_on(|| async {
//!     let (sink, mut dead_letters) = channel::bounded(1024);
//!     let (handle, mut queues) = PushBuilder::new()
//!         .low_capacity(2)
//!         .when_full(WhenFull::Drop)
//!         .dead_letters(sink)
//!         .build()?;
//!
//!     handle.low("one")?;
//!     std::thread::spawn({
//!         let handle = handle.clone();
//!         move || handle.low("two")
//!     })
//!     .join()
//!     .unwrap()?;
//!     handle.low("three")?;
//!     handle.high("fire")?;
//!
//!     assert_eq!(queues.recv().await, Some((Priority::High, "fire")));
//!     assert_eq!(queues.recv().await, Some((Priority::Low, "one")));
//!     assert_eq!(dead_letters.recv().await?.frame, "three");
//!
//!     drop(queues);
//!     assert_eq!(dead_letters.recv().await?.reason, DeadLetterReason::Undelivered);
//!     assert_eq!(handle.low("four"), Err(PushError::Closed("four")));
//!     assert_eq!(handle.stats().low.lost(), 0);
//!     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! })??;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! Never: run a frame's drop, or a waker, while a queue is borrowed; lose a frame without counting it.

mod builder;
mod dead;
mod fairness;
mod gate;
mod handle;
mod home;
mod places;
mod queues;
mod rate;
mod shared;
mod stats;

pub use builder::{PushBuilder, PushConfigError, PushSettings, WhenFull};
pub use dead::{DeadLetter, DeadLetterReason};
pub use handle::{Priority, PushError, PushHandle};
pub use queues::PushQueues;
pub use rate::Rate;
pub use stats::{PushStats, QueueStats};
