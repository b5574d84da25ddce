//! Sessions whose calls share a socket at the same time: requests go out back to back, and each reply is matched with
//! the request it belongs to.
//!
//! Never: a task per call; a reply to another caller than the one who asked; a call that harms another.

mod matching;
mod pipe;
mod session;
mod state;
mod task;
#[cfg(test)]
mod tests;
mod waits;

pub use matching::{ById, Identify, InOrder, Matching};
pub use session::{Pipelined, PipelinedSession};

pub(super) use pipe::Settings;
