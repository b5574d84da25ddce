//! The plan alone: each rule by an example.

mod histories;
mod world;

use std::time::Duration;

use super::*;
use world::{GRACE, WITHIN, World, panicked};

const PERMANENT: [Restart; 3] = [Restart::Permanent; 3];

#[test]
fn children_start_in_order_each_after_the_one_before_is_up() {
    let mut world = World::new(Strategy::OneForOne, 3, Duration::ZERO);
    let keys = [world.add(Restart::Permanent), world.add(Restart::Temporary), world.add(Restart::Transient)];
    for (started, key) in keys.iter().enumerate() {
        world.act();
        world.act();
        assert_eq!(world.starts().len(), started + 1);
        world.comes_up(*key);
    }
    world.act();
    assert_eq!(world.starts(), keys);
    assert!(world.plan.is_running());
}

#[test]
fn a_first_start_that_fails_ends_all_and_says_who() {
    let mut world = World::new(Strategy::OneForOne, 3, Duration::ZERO);
    for _ in 0..3 {
        world.add(Restart::Permanent);
    }
    for key in [0, 1] {
        world.act();
        world.comes_up(key);
    }
    world.act();
    world.ends(2, &panicked());
    world.settle();
    assert_eq!(world.finished, Some(End::StartFailed { id: "2".into(), reason: panicked() }));
    assert_eq!(world.stops(), [1, 0]);
}

#[test]
fn a_child_that_fails_once_it_was_up_does_not_fail_the_first_start() {
    let mut world = World::new(Strategy::OneForOne, 3, Duration::ZERO);
    world.add(Restart::Permanent);
    world.add(Restart::Permanent);
    world.act();
    world.comes_up(0);
    assert_eq!(world.ends(0, &panicked()), Fate::Again);
    world.act();
    assert_eq!(world.starts(), [0, 0], "the next one waits for it");
    world.comes_up(0);
    world.act();
    assert!(!world.plan.is_running());
    world.comes_up(1);
    assert!(world.plan.is_running());
}

#[test]
fn each_strategy_restarts_whom_it_names_in_order() {
    let expected = [
        (Strategy::OneForOne, vec![], vec![1]),
        (Strategy::RestForOne, vec![2], vec![1, 2]),
        (Strategy::OneForAll, vec![2, 0], vec![0, 1, 2]),
    ];
    for (strategy, stops, starts) in expected {
        let mut world = World::up(strategy, 3, &PERMANENT);
        assert_eq!(world.ends(1, &panicked()), Fate::Again);
        world.settle();
        assert_eq!((world.stops(), world.starts()), (stops, starts), "{strategy:?}");
    }
}

#[test]
fn the_kind_of_a_child_decides_whether_it_comes_back() {
    let (again, down, gone) = (Fate::Again, Fate::Down, Fate::Gone);
    let expected = [
        (Restart::Permanent, [again, again, again]),
        (Restart::Transient, [down, down, again]),
        (Restart::Temporary, [gone, gone, gone]),
    ];
    for (kind, fates) in expected {
        for (reason, fate) in [ExitReason::Normal, ExitReason::Stopped, panicked()].iter().zip(fates) {
            let mut world = World::up(Strategy::OneForOne, 3, &[kind]);
            assert_eq!(world.ends(0, reason), fate, "{kind:?} {reason}");
            world.settle();
            assert_eq!(world.lives.len(), usize::from(fate == Fate::Again));
        }
    }
}

#[test]
fn a_temporary_child_does_not_come_back_with_its_group() {
    let mut world = World::up(Strategy::OneForAll, 3, &[Restart::Permanent, Restart::Temporary]);
    world.ends(0, &panicked());
    world.settle();
    assert_eq!((world.stops(), world.starts()), (vec![1], vec![0]));
    assert!(world.plan.child(1).is_none());
}

#[test]
fn one_failure_too_many_within_the_period_ends_all() {
    let mut world = World::up(Strategy::OneForOne, 2, &PERMANENT);
    for _ in 0..4 {
        world.ends(1, &panicked());
        world.settle();
        world.now += WITHIN.mul_f64(0.6);
    }
    assert_eq!(world.finished, None, "never three within the period");
    for _ in 0..2 {
        world.ends(0, &panicked());
        world.settle();
    }
    assert_eq!(world.finished, Some(End::GaveUp { id: "0".into(), reason: panicked() }));
}

#[test]
fn a_restart_that_fails_counts_and_is_tried_again() {
    let mut world = World::up(Strategy::OneForOne, 2, &PERMANENT);
    world.ends(1, &panicked());
    world.act();
    assert_eq!(world.ends(1, &ExitReason::Failed("no port".into())), Fate::Again);
    world.act();
    assert_eq!(world.ends(1, &ExitReason::Normal), Fate::Down, "ended before it was up, the third time");
    world.settle();
    assert!(matches!(world.finished, Some(End::GaveUp { .. })));
}

#[test]
fn pauses_double_up_to_their_limit_half_of_each_random_and_begin_anew_after_a_good_time() {
    let pause = Duration::from_millis(100);
    let mut world = World::new(Strategy::OneForOne, 1_000, pause);
    world.add(Restart::Permanent);
    world.settle();
    let fail = |world: &mut World| {
        world.ends(0, &panicked());
        world.act();
        assert!(world.lives.is_empty(), "it stays down");
        let pause = world.plan.next_deadline().unwrap() - world.now;
        world.settle();
        pause
    };
    let mut pauses = Vec::new();
    for full in [1, 2, 4, 8, 8, 8] {
        pauses.push(fail(&mut world));
        let full = full * pause;
        assert!((full / 2..=full).contains(pauses.last().unwrap()), "{pauses:?}");
    }
    pauses.sort();
    pauses.dedup();
    assert_eq!(pauses.len(), 6, "they are drawn");
    world.now += WITHIN + Duration::from_millis(1);
    assert!(fail(&mut world) <= pause);
}

#[test]
fn a_child_has_so_long_to_end_then_is_forced_then_overdue_and_never_has_two_lives() {
    let mut world = World::up(Strategy::OneForAll, 3, &PERMANENT);
    world.ends(0, &panicked());
    world.act();
    assert_eq!(world.log, [Step::Stop(2)]);
    world.now += GRACE;
    world.act();
    assert_eq!(world.log, [Step::Stop(2), Step::Force(2)], "the order holds");
    world.now += GRACE;
    world.act();
    assert_eq!(world.log[2..], [Step::Overdue(2), Step::Stop(1)]);
    world.ends(1, &ExitReason::Stopped);
    world.act();
    assert!(world.starts().is_empty(), "all start again when all have ended");
    world.ends(2, &ExitReason::Stopped);
    world.settle();
    assert_eq!(world.starts(), [0, 1, 2]);
}

#[test]
fn an_overdue_child_does_not_hold_up_the_end() {
    let mut world = World::up(Strategy::OneForOne, 3, &PERMANENT);
    world.plan.end(End::Ordered);
    for _ in 0..3 {
        world.act();
        world.now += GRACE;
    }
    assert_eq!(world.plan.overdue().map(|id| &**id).collect::<Vec<_>>(), ["2"]);
    assert_eq!(world.stops(), [2, 1]);
    world.ends(1, &ExitReason::Stopped);
    world.act();
    world.ends(0, &ExitReason::Stopped);
    world.act();
    assert_eq!(world.finished, Some(End::Ordered));
}

#[test]
fn what_somebody_waits_for_is_tried_once_and_is_no_failure() {
    let mut world = World::up(Strategy::OneForAll, 0, &PERMANENT);
    let key = world.add(Restart::Permanent);
    world.act();
    assert_eq!(world.ends(key, &panicked()), Fate::Gone);
    world.plan.restart(1, world.now);
    world.act();
    assert_eq!(world.ends(1, &ExitReason::Stopped), Fate::Again);
    world.act();
    assert_eq!(world.ends(1, &panicked()), Fate::Down);
    world.settle();
    assert_eq!((world.starts(), world.stops(), &world.finished), (vec![key, 1], vec![1], &None));
    world.plan.restart(1, world.now);
    world.settle();
    assert_eq!(world.lives.len(), 3);
}
