//! The plan alone: each rule by an example, and then every short history and many long ones against a world that keeps
//! count of who really runs.

use std::sync::OnceLock;

use proptest::prelude::{Just, any, prop_oneof, proptest};
use proptest::strategy::Strategy as Generator;

use super::*;

const WITHIN: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_secs(1);

/// One start of time for all, so that equal worlds are equal.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

fn panicked() -> ExitReason {
    ExitReason::Panicked("on purpose".into())
}

/// A plan, and the children as they really are.
#[derive(Clone, Debug)]
struct World {
    plan: Plan,
    strategy: Strategy,
    now: Instant,
    /// Who runs.
    lives: BTreeMap<Key, Life>,
    /// What was done, in order.
    log: Vec<Step>,
    finished: Option<End>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Life {
    up: bool,
    told: bool,
    overdue: bool,
}

impl World {
    fn new(strategy: Strategy, restarts: u32, pause: Duration) -> World {
        let policy = Policy {
            strategy,
            intensity: Intensity { restarts, within: WITHIN },
            backoff: Backoff { initial: pause, max: 8 * pause },
        };
        World {
            plan: Plan::new(policy, 1),
            strategy,
            now: start(),
            lives: BTreeMap::new(),
            log: Vec::new(),
            finished: None,
        }
    }

    /// Children of these kinds, all of them up.
    fn up(strategy: Strategy, restarts: u32, kinds: &[Restart]) -> World {
        let mut world = World::new(strategy, restarts, Duration::ZERO);
        for kind in kinds {
            world.add(*kind);
        }
        world.settle();
        assert!(world.plan.is_running() && world.lives.len() == kinds.len());
        world.log.clear();
        world
    }

    fn add(&mut self, kind: Restart) -> Key {
        let id = self.plan.next_key.to_string().into();
        self.plan.add(id, kind, Shutdown::Within(GRACE))
    }

    /// Does what the plan says, and checks that it may.
    fn act(&mut self) {
        while self.finished.is_none()
            && let Some(step) = self.plan.next(self.now)
        {
            self.check(&step);
            self.log.push(step.clone());
            match step {
                Step::Start(key) => drop(self.lives.insert(key, Life::default())),
                Step::Stop(key) => self.lives.get_mut(&key).unwrap().told = true,
                Step::Force(_) => {}
                Step::Overdue(key) => self.lives.get_mut(&key).unwrap().overdue = true,
                Step::Finish(end) => self.finished = Some(end),
            }
        }
    }

    fn check(&self, step: &Step) {
        let ordered = self.strategy != Strategy::OneForOne || self.plan.unborn > 0;
        match step {
            Step::Start(key) => {
                assert!(!self.lives.contains_key(key), "two lives of one child: {self:#?}");
                assert!(!self.plan.is_ending());
                let before = self.plan.children.range(..key);
                let ready = before
                    .filter(|(_, child)| child.wanted)
                    .all(|(key, _)| self.lives.get(key).is_some_and(|life| life.up));
                assert!(!ordered || ready, "started before what it depends on: {self:#?}");
            }
            Step::Stop(key) => {
                assert!(!self.lives[key].told, "told twice: {self:#?}");
                let mut behind = self.lives.range(key + 1..);
                let gone = !behind.any(|(_, life)| !life.overdue);
                assert!(!self.plan.is_ending() || gone, "stopped before what depends on it: {self:#?}");
            }
            Step::Force(key) | Step::Overdue(key) => assert!(self.lives[key].told),
            Step::Finish(_) => assert!(self.lives.values().all(|life| life.overdue), "{self:#?}"),
        }
    }

    fn comes_up(&mut self, key: Key) {
        if let Some(life) = self.lives.get_mut(&key) {
            life.up = true;
            self.plan.started(key, self.now);
        }
    }

    fn ends(&mut self, key: Key, reason: &ExitReason) -> Fate {
        self.lives.remove(&key);
        self.plan.ended(key, reason, self.now)
    }

    /// Lets everything go well until nothing is left to happen.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.act();
            let starting = self.lives.iter().find(|(_, life)| !life.up && !life.told).map(|(key, _)| *key);
            let told = self.lives.iter().find(|(_, life)| life.told).map(|(key, _)| *key);
            if let Some(key) = told {
                self.ends(key, &ExitReason::Stopped);
            } else if let Some(key) = starting {
                self.comes_up(key);
            } else if let Some(at) = self.plan.next_deadline() {
                self.now = self.now.max(at);
            } else {
                return self.check_settled();
            }
        }
        panic!("never settles: {self:#?}");
    }

    fn check_settled(&self) {
        if self.plan.is_ending() {
            assert!(self.finished.is_some() && self.lives.is_empty(), "{self:#?}");
            return;
        }
        assert!(self.plan.is_running(), "the first start is never over: {self:#?}");
        for (key, child) in &self.plan.children {
            let up = self.lives.get(key).is_some_and(|life| life.up);
            assert_eq!(child.wanted, up, "child {key}: {self:#?}");
        }
        assert!(self.lives.keys().all(|key| self.plan.child(*key).is_some()), "nobody's child: {self:#?}");
        assert!(
            self.plan.unsettled.is_empty() && self.plan.stopping.is_empty() && self.plan.overdue.is_empty()
        );
    }

    fn starts(&self) -> Vec<Key> {
        let start = |step: &Step| if let Step::Start(key) = step { Some(*key) } else { None };
        self.log.iter().filter_map(start).collect()
    }

    fn stops(&self) -> Vec<Key> {
        let stop = |step: &Step| if let Step::Stop(key) = step { Some(*key) } else { None };
        self.log.iter().filter_map(stop).collect()
    }
}

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
