//! Looking at actors: a snapshot of all of them, one of them, or the tree of who spawned whom.
//!
//! The nearest in Erlang are `process_info/1` and the process list of `observer`. Every core is asked by a message and
//! answers for its own actors, so that nothing of a core is read by another thread, and an actor that nobody looks at pays
//! nothing for it: its counters have a single writer, on its own core, and are copied there.
//!
//! # What agrees with what
//!
//! The figures of one actor agree with each other: they are taken between two of its polls. A core copies a few thousand
//! actors at a time and lets others run in between, so two actors may be seen at slightly different times, and one that is
//! spawned or ends meanwhile may be seen or not. Those of two cores are taken at different times anyway.
//!
//! Never: run a user's code while a core's cell is borrowed, or wait for a core for ever.

mod collect;
mod info;
mod label;
mod tree;

pub use collect::{Unanswered, actor_info, snapshot, snapshot_of};
pub use info::{ActorInfo, CoreSnapshot, SNAPSHOT_FORMAT, Snapshot};
#[cfg(any(feature = "pool", feature = "observer"))]
pub(crate) use label::label;
pub use label::set_label;
pub use tree::{Tree, TreeNode, tree, tree_from};
