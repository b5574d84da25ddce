//! Every task is an actor.

mod introspect;

pub use introspect::{
    ActorInfo, CoreSnapshot, SNAPSHOT_FORMAT, Snapshot, Tree, TreeNode, Unanswered, actor_info, snapshot,
    snapshot_of, tree, tree_from,
};
