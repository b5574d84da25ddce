//! Every short history, and many long ones, against a world that keeps count of who really runs.

use std::time::Duration;

use proptest::prelude::{Just, any, prop_oneof, proptest};
use proptest::strategy::Strategy as Generator;

use super::world::{World, panicked};
use crate::actor::ExitReason;
use crate::actor::supervisor::plan::{End, Key};
use crate::actor::supervisor::policy::{Restart, Strategy};

/// What can happen.
#[derive(Clone, Copy, Debug)]
enum Event {
    Up(Key),
    Returns(Key),
    Panics(Key),
    Stop(Key, bool),
    Restart(Key),
    Add(Restart),
    TimeTo,
    TimeBy(u64),
    End,
}

fn apply(world: &mut World, event: Event) {
    let asks = matches!(event, Event::Stop(..) | Event::Restart(_) | Event::Add(_));
    if asks && !world.plan.is_running() {
        // The actor lets them wait.
        return;
    }
    match event {
        Event::Up(key) => world.comes_up(key),
        Event::Returns(key) if world.lives.contains_key(&key) => drop(world.ends(key, &ExitReason::Normal)),
        Event::Panics(key) if world.lives.contains_key(&key) => drop(world.ends(key, &panicked())),
        Event::Returns(_) | Event::Panics(_) => {}
        Event::Stop(key, leaves) => {
            let down = world.plan.stop(key, leaves, world.now);
            assert_eq!(down, !world.lives.contains_key(&key), "{world:#?}");
        }
        Event::Restart(key) => world.plan.restart(key, world.now),
        Event::Add(kind) => drop(world.add(kind)),
        Event::TimeTo => world.now = world.plan.next_deadline().unwrap_or(world.now).max(world.now),
        Event::TimeBy(millis) => world.now += Duration::from_millis(millis),
        Event::End => world.plan.end(End::Ordered),
    }
}

#[test]
fn every_short_history_keeps_the_rules_and_comes_to_rest() {
    let kinds = [Restart::Permanent, Restart::Transient, Restart::Temporary];
    let mut histories = 0_u64;
    for strategy in [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne] {
        let mut begun = World::new(strategy, 2, Duration::from_millis(10));
        for kind in kinds {
            begun.add(kind);
        }
        let mut open = vec![(begun, 3), (World::up(strategy, 2, &kinds), 3)];
        while let Some((mut world, left)) = open.pop() {
            world.act();
            histories += 1;
            let mut ended_well = world.clone();
            ended_well.settle();
            if left == 0 || world.finished.is_some() {
                continue;
            }
            let of_each = |key| {
                [
                    Event::Up(key),
                    Event::Returns(key),
                    Event::Panics(key),
                    Event::Stop(key, false),
                    Event::Stop(key, true),
                    Event::Restart(key),
                ]
            };
            let events =
                (0..3).flat_map(of_each).chain([Event::Add(Restart::Permanent), Event::TimeTo, Event::End]);
            for event in events {
                let mut next = world.clone();
                apply(&mut next, event);
                open.push((next, left - 1));
            }
        }
    }
    println!("{histories} histories");
}

fn events() -> impl Generator<Value = Vec<Event>> {
    let key = 0_u64..8;
    let kind = prop_oneof![Just(Restart::Permanent), Just(Restart::Transient), Just(Restart::Temporary)];
    let event = prop_oneof![
        6 => key.clone().prop_map(Event::Up),
        2 => key.clone().prop_map(Event::Returns),
        3 => key.clone().prop_map(Event::Panics),
        1 => (key.clone(), any::<bool>()).prop_map(|(key, leaves)| Event::Stop(key, leaves)),
        1 => key.prop_map(Event::Restart),
        1 => kind.prop_map(Event::Add),
        2 => Just(Event::TimeTo),
        2 => (0_u64..3_000).prop_map(Event::TimeBy),
    ];
    proptest::collection::vec(event, 0..120)
}

proptest! {
    #[test]
    fn long_histories_keep_the_rules_and_come_to_rest(
        strategy in prop_oneof![Just(Strategy::OneForOne), Just(Strategy::OneForAll), Just(Strategy::RestForOne)],
        pause in prop_oneof![Just(0_u64), Just(50)],
        restarts in 0_u32..40,
        events in events(),
        ends in any::<bool>(),
    ) {
        let mut world = World::new(strategy, restarts, Duration::from_millis(pause));
        for kind in [Restart::Permanent, Restart::Transient, Restart::Temporary, Restart::Permanent] {
            world.add(kind);
        }
        for event in events {
            world.act();
            if world.finished.is_none() {
                apply(&mut world, event);
            }
        }
        world.clone().settle();
        if ends {
            world.plan.end(End::Ordered);
        }
        world.settle();
    }
}
