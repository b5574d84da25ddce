//! Push queues: frames for a connection that nobody asked for, in two priorities.
//!
//! The queues live on the connection's core and hang on its actor. A [`PushHandle`] is cheap to clone and works from any
//! core: on the connection's own a push is a move into the queue, from elsewhere a letter.

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
