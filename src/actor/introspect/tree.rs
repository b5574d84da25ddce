//! Who spawned whom, as a forest.

use std::fmt;

use rustc_hash::FxHashMap;

use super::collect::snapshot;
use super::info::{ActorInfo, Snapshot};
use crate::runtime::CoreId;

/// No actor.
const NOBODY: u32 = u32::MAX;

/// Every actor of a snapshot, each below the one that spawned it.
///
/// An actor whose parent is not in the snapshot, because it has ended or its core did not answer, stands at the top and is
/// [orphaned](TreeNode::orphaned). In Erlang the nearest is the tree of `observer`; there the edge is a link, here it is
/// the spawn, which every task has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tree {
    /// All actors, each right before its children: the order in which a tree is printed.
    pub nodes: Vec<TreeNode>,
    /// The cores that did not answer: their actors are not in the tree.
    pub missing: Vec<CoreId>,
}

/// An actor at its place in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeNode {
    /// The actor.
    pub actor: ActorInfo,
    /// How many stand above it.
    pub depth: u32,
    /// It had a parent, which is not there any more.
    pub orphaned: bool,
}

impl Tree {
    /// Those that stand at the top.
    pub fn roots(&self) -> impl Iterator<Item = &TreeNode> {
        self.nodes.iter().filter(|node| node.depth == 0)
    }

    /// The children of the node at `index`; none when there is no such node.
    pub fn children(&self, index: usize) -> impl Iterator<Item = &TreeNode> {
        let below = self.nodes.get(index + 1..).unwrap_or_default();
        let depth = self.nodes.get(index).map_or(0, |node| node.depth);
        below.iter().take_while(move |node| node.depth > depth).filter(move |node| node.depth == depth + 1)
    }
}

impl fmt::Display for Tree {
    /// A line for each actor, indented below its parent: identity, names, label.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for TreeNode { actor, depth, orphaned } in &self.nodes {
            write!(f, "{:indent$}{}", "", actor.pid, indent = 2 * *depth as usize)?;
            for name in &actor.names {
                write!(f, " {name}")?;
            }
            if let Some(label) = &actor.label {
                write!(f, " ({label})")?;
            }
            f.write_str(if *orphaned { ", orphaned\n" } else { "\n" })?;
        }
        Ok(())
    }
}

/// The actors of the runtime that the caller runs on, as a forest: [`tree_from`] a [`snapshot`].
///
/// # Cancel safety
/// Cancel safe.
///
/// # Panics
/// When not called on a core.
pub async fn tree() -> Tree {
    tree_from(snapshot().await)
}

/// Puts each actor of a snapshot below its parent. Every actor is there once, whatever the snapshot says: siblings in its
/// order, and actors that are said to be their own ancestors at the top, orphaned.
pub fn tree_from(snapshot: Snapshot) -> Tree {
    let Snapshot { cores, missing, .. } = snapshot;
    let actors: Vec<ActorInfo> = cores.into_iter().flat_map(|core| core.actors).collect();
    let places: FxHashMap<_, _> =
        actors.iter().zip(0_u32..).map(|(actor, place)| (actor.pid, place)).collect();
    // Children as lists through two arrays, the last one first.
    let mut last_child = vec![NOBODY; actors.len()];
    let mut elder_sibling = vec![NOBODY; actors.len()];
    let mut tops = Vec::new();
    for (actor, place) in actors.iter().zip(0_u32..) {
        match actor.parent.and_then(|parent| places.get(&parent)) {
            Some(&parent) => {
                elder_sibling[place as usize] = std::mem::replace(&mut last_child[parent as usize], place);
            }
            None => tops.push(place),
        }
    }
    // Whoever has no way to the top, being among its own ancestors or below one that is, comes after all others.
    let all = 0..actors.len() as u32;
    let mut left: Vec<Option<ActorInfo>> = actors.into_iter().map(Some).collect();
    let mut nodes = Vec::with_capacity(left.len());
    // No recursion: a chain of spawns may be long.
    let mut stack = Vec::new();
    for top in tops.into_iter().chain(all) {
        stack.push((top, 0));
        while let Some((place, depth)) = stack.pop() {
            // Those that are in the tree have brought their children.
            let Some(actor) = left[place as usize].take() else { continue };
            let orphaned = depth == 0 && actor.parent.is_some();
            nodes.push(TreeNode { actor, depth, orphaned });
            let mut child = last_child[place as usize];
            while child != NOBODY {
                stack.push((child, depth + 1));
                child = elder_sibling[child as usize];
            }
        }
    }
    Tree { nodes, missing }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::actor::introspect::info::{CoreSnapshot, SNAPSHOT_FORMAT};
    use crate::actor::pid::Pid;
    use crate::runtime::{CoreStats, RawPid, TaskState};

    fn pid(index: u32) -> RawPid {
        RawPid { core: CoreId((index % 2) as u16), index, generation: 7 }
    }

    fn actor(index: u32, parent: Option<u32>) -> ActorInfo {
        ActorInfo {
            pid: pid(index).into(),
            parent: parent.map(|parent| pid(parent).into()),
            supervisor: None,
            state: TaskState::Parked,
            names: Vec::new(),
            label: None,
            traps_exits: false,
            mailbox: 0,
            monitors: 0,
            links: 0,
            joiners: 0,
            polls: 1,
            overruns: 0,
            messages_received: 0,
            cycles: 0,
        }
    }

    fn snapshot(actors: &[(u32, Option<u32>)]) -> Snapshot {
        // Two cores, so that some parents are on the other one.
        let core = |core: u16| CoreSnapshot {
            core: CoreId(core),
            at: std::time::Instant::now(),
            cpu_time: None,
            stats: CoreStats::default(),
            undelivered: 0,
            actors: actors
                .iter()
                .map(|(index, parent)| actor(*index, *parent))
                .filter(|actor| actor.pid.core().get() == core)
                .collect(),
        };
        Snapshot { format: SNAPSHOT_FORMAT, cores: vec![core(0), core(1)], missing: Vec::new() }
    }

    /// The tree as indices, depths and marks of orphans.
    fn shape(actors: &[(u32, Option<u32>)]) -> Vec<(u32, u32, bool)> {
        let tree = tree_from(snapshot(actors));
        tree.nodes.iter().map(|node| (node.actor.pid.raw().index, node.depth, node.orphaned)).collect()
    }

    #[test]
    fn children_stand_below_their_parents_in_order() {
        let actors = [(0, None), (2, Some(0)), (4, Some(2)), (6, Some(0)), (8, None), (1, Some(8))];
        let expected =
            [(0, 0, false), (2, 1, false), (4, 2, false), (6, 1, false), (8, 0, false), (1, 1, false)];
        assert_eq!(shape(&actors), expected);

        let tree = tree_from(snapshot(&actors));
        let indices = |nodes: &mut dyn Iterator<Item = &TreeNode>| {
            nodes.map(|node| node.actor.pid.raw().index).collect::<Vec<_>>()
        };
        assert_eq!(indices(&mut tree.roots()), [0, 8]);
        assert_eq!(indices(&mut tree.children(0)), [2, 6]);
        assert_eq!(indices(&mut tree.children(5)), [0; 0]);
        assert_eq!(indices(&mut tree.children(99)), [0; 0]);
        assert!(tree.to_string().starts_with("<0.0.7>\n  <0.2.7>\n    <0.4.7>\n"), "{tree}");
    }

    #[test]
    fn one_whose_parent_is_not_there_stands_at_the_top_and_says_so() {
        assert_eq!(shape(&[(2, Some(0)), (4, Some(2))]), [(2, 0, true), (4, 1, false)]);
    }

    #[test]
    fn the_next_tenant_of_a_slot_adopts_nobody() {
        let mut snapshot = snapshot(&[(0, None), (2, Some(0))]);
        let next = RawPid { generation: 8, ..pid(0) };
        snapshot.cores[0].actors[0].pid = next.into();
        let tree = tree_from(snapshot);
        assert!(tree.nodes.iter().all(|node| node.depth == 0));
        assert_eq!(tree.nodes.iter().filter(|node| node.orphaned).count(), 1);
    }

    #[test]
    fn those_that_are_their_own_ancestors_are_there_once() {
        assert_eq!(shape(&[(0, Some(0))]), [(0, 0, true)]);
        assert_eq!(
            shape(&[(0, Some(2)), (2, Some(4)), (4, Some(0))]),
            [(0, 0, true), (4, 1, false), (2, 2, false)]
        );
    }

    #[test]
    fn a_chain_of_a_hundred_thousand_spawns_is_no_recursion() {
        let chain: Vec<_> = (0..100_000).map(|index: u32| (index, index.checked_sub(1))).collect();
        let tree = tree_from(snapshot(&chain));
        assert_eq!(tree.nodes.last().map(|node| node.depth), Some(99_999));
    }

    proptest! {
        #[test]
        fn whatever_a_snapshot_says_everybody_is_in_the_tree_once_and_below_the_right_parent(
            parents in proptest::collection::vec(proptest::option::of(0_u32..60), 0..40)
        ) {
            let actors: Vec<_> = (0..).zip(parents).collect();
            let tree = tree_from(snapshot(&actors));
            let mut seen: Vec<u32> = tree.nodes.iter().map(|node| node.actor.pid.raw().index).collect();
            let mut path: Vec<Pid> = Vec::new();
            for node in &tree.nodes {
                prop_assert!(node.depth as usize <= path.len());
                path.truncate(node.depth as usize);
                match path.last() {
                    Some(above) => prop_assert!(node.actor.parent == Some(*above) && !node.orphaned),
                    None => prop_assert_eq!(node.orphaned, node.actor.parent.is_some()),
                }
                path.push(node.actor.pid);
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..actors.len() as u32).collect::<Vec<_>>());
        }
    }
}
