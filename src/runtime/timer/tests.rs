use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{DeadlineKey, DeadlineQueue, Node};

const TICK: Duration = Duration::from_millis(1);

impl<T> DeadlineQueue<T> {
    /// The heap order holds, and every node and its entry point at one another.
    fn check_links(&self) {
        for (position, node) in self.heap.iter().enumerate() {
            if position > 0 {
                let parent: &Node = &self.heap[(position - 1) / super::ARITY];
                assert!(!node.before(parent), "node {position} is earlier than its parent");
            }
            let entry = &self.entries[node.entry as usize];
            assert_eq!(entry.link as usize, position);
            assert!(entry.value.is_some());
        }
        let live = self.entries.iter().filter(|entry| entry.value.is_some()).count();
        assert_eq!(live, self.len());
        let in_run = |node: &&Node| self.entries[node.entry as usize].is_run_of(node);
        assert_eq!(self.run.iter().filter(in_run).count() + self.run_dead, self.run.len());
        assert!(
            self.run.front().iter().all(in_run) && self.run.back().iter().all(in_run),
            "the ends are live"
        );
        assert!(
            self.run.iter().zip(self.run.iter().skip(1)).all(|(a, b)| a.before(b)),
            "the run is in order"
        );
    }
}

fn drain<T>(queue: &mut DeadlineQueue<T>, now: Instant) -> Vec<T> {
    std::iter::from_fn(|| queue.pop_due(now)).collect()
}

#[test]
fn earliest_fires_first_and_equal_instants_in_order_of_insertion() {
    let start = Instant::now();
    let mut queue = DeadlineQueue::new();
    for (ticks, name) in [(5, "e"), (1, "a"), (3, "b"), (3, "c"), (3, "d"), (9, "f")] {
        queue.insert(start + TICK * ticks, name);
    }
    assert_eq!(drain(&mut queue, start + TICK * 9), ["a", "b", "c", "d", "e", "f"]);
    assert!(queue.is_empty());
}

#[test]
fn deadline_is_due_at_its_instant_and_not_before() {
    let start = Instant::now();
    let mut queue = DeadlineQueue::new();
    queue.insert(start + TICK, ());
    assert_eq!(queue.next(), Some(start + TICK));
    assert_eq!(queue.pop_due(start + TICK - Duration::from_nanos(1)), None);
    assert_eq!(queue.pop_due(start + TICK), Some(()));
    assert_eq!(queue.next(), None);
}

#[test]
fn cancel_succeeds_exactly_once_and_only_before_firing() {
    let start = Instant::now();
    let mut queue = DeadlineQueue::new();
    let cancelled = queue.insert(start, 1);
    let fired = queue.insert(start, 2);
    assert_eq!(queue.cancel(cancelled), Some(1));
    assert_eq!(queue.cancel(cancelled), None);
    assert_eq!(queue.pop_due(start), Some(2));
    assert_eq!(queue.cancel(fired), None);
}

#[test]
fn stale_key_never_reaches_the_next_user_of_its_entry() {
    let start = Instant::now();
    let mut queue = DeadlineQueue::new();
    let stale = queue.insert(start, 1);
    assert_eq!(queue.cancel(stale), Some(1));
    let fresh = queue.insert(start, 2);
    assert_eq!(fresh.index, stale.index, "the entry is reused");
    assert_eq!(queue.cancel(stale), None);
    assert_eq!(queue.get_mut(stale), None);
    assert_eq!(queue.get_mut(fresh), Some(&mut 2));
}

#[test]
fn keys_from_before_a_clear_match_nothing() {
    let start = Instant::now();
    let mut queue = DeadlineQueue::new();
    let stale = queue.insert(start, 1);
    queue.clear();
    assert!(queue.is_empty());
    let fresh = queue.insert(start, 2);
    assert_eq!(queue.cancel(stale), None);
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.cancel(fresh), Some(2));
}

#[test]
fn next_is_exact_after_the_earliest_is_cancelled() {
    let start = Instant::now();
    let mut queue = DeadlineQueue::new();
    let keys: Vec<DeadlineKey> = (1..=64).map(|ticks| queue.insert(start + TICK * ticks, ticks)).collect();
    for (ticks, key) in (1..=64).zip(keys) {
        assert_eq!(queue.next(), Some(start + TICK * ticks));
        assert_eq!(queue.cancel(key), Some(ticks));
        queue.check_links();
    }
    assert_eq!(queue.next(), None);
}

#[test]
fn node_that_fills_a_gap_in_another_branch_may_have_to_rise() {
    let start = Instant::now();
    let mut queue = DeadlineQueue::new();
    // The children of 10 are the 11s; 3 is the only child of a 2. It is last, and fills the gap under 10.
    // A later deadline is in the run, so that all of these go to the heap.
    queue.insert(start + TICK * 100, 100);
    let keys = [0, 10, 2, 2, 2, 11, 11, 11, 11, 3].map(|ticks| queue.insert(start + TICK * ticks, ticks));
    queue.cancel(keys[5]);
    queue.check_links();
    assert_eq!(drain(&mut queue, start + TICK * 11), [0, 2, 2, 2, 3, 10, 11, 11, 11]);
}

#[test]
fn uniform_time_outs_cancelled_in_any_order_leave_nothing_behind() {
    let start = Instant::now();
    let mut queue = DeadlineQueue::new();
    let mut keys: Vec<DeadlineKey> = (0..1_000).map(|n| queue.insert(start + TICK * n, n)).collect();
    assert!(queue.heap.is_empty(), "in order of insertion they need no heap");
    // From the middle outwards, so that both ends stay live for long.
    keys.sort_by_key(|key| (key.index.abs_diff(500), key.index));
    for (count, key) in keys.iter().enumerate() {
        assert!(queue.cancel(*key).is_some());
        queue.check_links();
        assert!(queue.run.len() <= 2 * (1_000 - count), "the dead do not outnumber the living");
    }
    assert!(queue.is_empty() && queue.run.is_empty());
}

#[test]
fn memory_is_reused() {
    let start = Instant::now();
    let mut queue = DeadlineQueue::new();
    for round in 0..1_000 {
        let keys: Vec<DeadlineKey> = (0..8).map(|n| queue.insert(start + TICK * n, round)).collect();
        for key in keys.into_iter().rev() {
            queue.cancel(key);
        }
    }
    assert_eq!(queue.entries.len(), 8);
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u32),
    Cancel(prop::sample::Index),
    Touch(prop::sample::Index),
    Advance(u32),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_u32..40).prop_map(Step::Insert),
        4 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        2 => any::<prop::sample::Index>().prop_map(Step::Touch),
        2 => (0_u32..12).prop_map(Step::Advance),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    #[test]
    fn behaves_like_a_sorted_map(steps in prop::collection::vec(step(), 1..200)) {
        let mut now = Instant::now();
        let mut queue = DeadlineQueue::new();
        let mut model: BTreeMap<(Instant, u64), DeadlineKey> = BTreeMap::new();
        let mut issued: Vec<((Instant, u64), DeadlineKey)> = Vec::new();
        let mut serial = 0;
        for step in steps {
            match step {
                Step::Insert(ticks) => {
                    let at = now + TICK * ticks;
                    let key = queue.insert(at, serial);
                    model.insert((at, serial), key);
                    issued.push(((at, serial), key));
                    serial += 1;
                }
                // Any key ever issued, so most cancels of a long run are stale.
                Step::Cancel(which) if !issued.is_empty() => {
                    let (order, key) = *which.get(&issued);
                    let expected = model.remove(&order).map(|_| order.1);
                    prop_assert_eq!(queue.cancel(key), expected);
                }
                Step::Touch(which) if !issued.is_empty() => {
                    let (order, key) = *which.get(&issued);
                    let expected = model.contains_key(&order).then_some(order.1);
                    prop_assert_eq!(queue.get_mut(key).copied(), expected);
                }
                Step::Cancel(_) | Step::Touch(_) => {}
                Step::Advance(ticks) => {
                    now += TICK * ticks;
                    while let Some((&order, _)) = model.iter().next().filter(|((at, _), _)| *at <= now) {
                        model.remove(&order);
                        prop_assert_eq!(queue.pop_due(now), Some(order.1));
                    }
                    prop_assert_eq!(queue.pop_due(now), None);
                }
                Step::Clear => {
                    queue.clear();
                    model.clear();
                }
            }
            queue.check_links();
            prop_assert_eq!(queue.len(), model.len());
            prop_assert_eq!(queue.next(), model.keys().next().map(|(at, _)| *at));
        }
    }
}
