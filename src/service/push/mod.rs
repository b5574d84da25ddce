//! Push queues: frames for a connection that nobody asked for, in two priorities.
//!
//! The queues live on the connection's core and hang on its actor. A [`PushHandle`] is cheap to clone and works from any
//! core: on the connection's own a push is a move into the queue, from elsewhere a letter.

mod builder;
mod handle;
mod queues;

pub use builder::PushBuilder;
pub use handle::{Priority, PushError, PushHandle};
pub use queues::PushQueues;
