//! A plan, and a world that keeps count of who really runs.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::actor::ExitReason;
use crate::actor::supervisor::plan::{End, Fate, Key, Plan, Step};
use crate::actor::supervisor::policy::{Backoff, Intensity, Policy, Restart, Shutdown, Strategy};

pub(super) const WITHIN: Duration = Duration::from_secs(5);
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// One start of time for all, so that equal worlds are equal.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

pub(super) fn panicked() -> ExitReason {
    ExitReason::Panicked("on purpose".into())
}

/// A plan, and the children as they really are.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) strategy: Strategy,
    pub(super) now: Instant,
    /// Who runs.
    pub(super) lives: BTreeMap<Key, Life>,
    /// What was done, in order.
    pub(super) log: Vec<Step>,
    pub(super) finished: Option<End>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Life {
    up: bool,
    told: bool,
    overdue: bool,
}

impl World {
    pub(super) fn new(strategy: Strategy, restarts: u32, pause: Duration) -> World {
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
    pub(super) fn up(strategy: Strategy, restarts: u32, kinds: &[Restart]) -> World {
        let mut world = World::new(strategy, restarts, Duration::ZERO);
        for kind in kinds {
            world.add(*kind);
        }
        world.settle();
        assert!(world.plan.is_running() && world.lives.len() == kinds.len());
        world.log.clear();
        world
    }

    pub(super) fn add(&mut self, kind: Restart) -> Key {
        let id = self.plan.next_key.to_string().into();
        self.plan.add(id, kind, Shutdown::Within(GRACE))
    }

    /// Does what the plan says, and checks that it may.
    pub(super) fn act(&mut self) {
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
                let comes_back = |key| self.plan.child(key).is_some_and(|child| child.wanted);
                let stops = self.lives.iter().any(|(key, life)| life.told && comes_back(*key));
                assert!(
                    self.strategy == Strategy::OneForOne || !stops,
                    "started before all have ended: {self:#?}"
                );
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

    pub(super) fn comes_up(&mut self, key: Key) {
        if let Some(life) = self.lives.get_mut(&key) {
            life.up = true;
            self.plan.started(key, self.now);
        }
    }

    pub(super) fn ends(&mut self, key: Key, reason: &ExitReason) -> Fate {
        self.lives.remove(&key);
        self.plan.ended(key, reason, self.now)
    }

    /// Lets everything go well until nothing is left to happen.
    pub(super) fn settle(&mut self) {
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

    pub(super) fn starts(&self) -> Vec<Key> {
        let start = |step: &Step| if let Step::Start(key) = step { Some(*key) } else { None };
        self.log.iter().filter_map(start).collect()
    }

    pub(super) fn stops(&self) -> Vec<Key> {
        let stop = |step: &Step| if let Step::Stop(key) = step { Some(*key) } else { None };
        self.log.iter().filter_map(stop).collect()
    }
}
