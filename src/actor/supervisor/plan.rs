//! What a supervisor decides: whom to start and to stop, in which order, when, and when to give up.
//!
//! A value with an event for each thing that can happen and one question, [`next`](Plan::next): what is to be done now?
//! The answer follows from what should run and what does, not from how it came to that, so failures may come in any order
//! and at any moment, also in the middle of a restart of the whole group.
//!
//! Never: start a child of which an earlier life has not ended, read a clock, or wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::policy::{Failures, Policy, Restart, Shutdown, Strategy};
use crate::actor::ExitReason;

mod child;
mod step;
#[cfg(test)]
mod tests;

pub(super) use child::{Child, Fate, Stage, State};
pub(super) use step::{End, Step};

/// Names a child; later ones have greater keys.
pub(super) type Key = u64;

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
enum Phase {
    /// The first start, in order: until each child has been up.
    Starting,
    Running,
    Ending(End),
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Plan {
    policy: Policy,
    children: BTreeMap<Key, Child>,
    next_key: Key,
    phase: Phase,
    failures: Failures,
    random: fastrand::Rng,
    /// Have yet to be up for the first time.
    unborn: usize,
    /// Should run and do not.
    unsettled: BTreeSet<Key>,
    /// Of those, the ones that could be started.
    ready: BTreeSet<Key>,
    /// Run and must end, the last one first.
    doomed: BTreeSet<Key>,
    /// Were dismissed on their own, and are yet to be told.
    dismissed: VecDeque<Key>,
    /// Were told to end, and are waited for.
    stopping: BTreeSet<Key>,
    overdue: BTreeSet<Key>,
    deadlines: BTreeSet<(Instant, Key)>,
}

impl Plan {
    pub(super) fn new(policy: Policy, seed: u64) -> Plan {
        Plan {
            policy,
            children: BTreeMap::new(),
            next_key: 0,
            phase: Phase::Starting,
            failures: Failures::new(policy.intensity),
            random: fastrand::Rng::with_seed(seed),
            unborn: 0,
            unsettled: BTreeSet::new(),
            ready: BTreeSet::new(),
            doomed: BTreeSet::new(),
            dismissed: VecDeque::new(),
            stopping: BTreeSet::new(),
            overdue: BTreeSet::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// A further child, which should run. In a running supervisor somebody waits for its start.
    pub(super) fn add(&mut self, id: Arc<str>, restart: Restart, shutdown: Shutdown) -> Key {
        let asked = !matches!(self.phase, Phase::Starting);
        self.unborn += usize::from(!asked);
        self.enter(Child {
            id,
            restart,
            shutdown,
            state: State::Down,
            wanted: true,
            born: false,
            asked,
            leaves: asked || restart == Restart::Temporary,
            pause: None,
            restarts: 0,
        })
    }

    /// A child that runs already, and is not restarted.
    pub(super) fn adopt(&mut self, id: Arc<str>, now: Instant) -> Key {
        self.enter(Child {
            id,
            restart: Restart::Temporary,
            shutdown: Shutdown::default(),
            state: State::Up(now),
            wanted: true,
            born: true,
            asked: false,
            leaves: true,
            pause: None,
            restarts: 0,
        })
    }

    /// A child is up.
    pub(super) fn started(&mut self, key: Key, now: Instant) {
        let Some(child) = self.children.get_mut(&key) else { return };
        // One that was told to end meanwhile goes on ending.
        if child.state == State::Starting {
            if std::mem::take(&mut child.asked) {
                child.leaves = child.restart == Restart::Temporary;
            }
            let first = !std::mem::replace(&mut child.born, true);
            self.set(key, State::Up(now));
            if first && matches!(self.phase, Phase::Starting) {
                self.unborn -= 1;
                self.leave_first_start();
            }
        }
    }

    /// A child has ended, in whatever state.
    pub(super) fn ended(&mut self, key: Key, reason: &ExitReason, now: Instant) -> Fate {
        let was_doomed = self.doomed.remove(&key);
        self.dismissed.retain(|dismissed| *dismissed != key);
        let Some(child) = self.children.get(&key) else { return Fate::Gone };
        let told = was_doomed || matches!(child.state, State::Stopping(..));
        if told {
            return self.is_down(key, child.wanted);
        }
        let id = Arc::clone(&child.id);
        let since = match child.state {
            State::Up(since) => Some(since),
            _ => None,
        };
        let fails = match (since, child.restart) {
            (None, _) | (Some(_), Restart::Permanent) => true,
            (Some(_), Restart::Transient) => reason.is_failure(),
            (Some(_), Restart::Temporary) => false,
        };
        if !fails || child.asked {
            return self.is_down(key, false);
        }
        if matches!(self.phase, Phase::Starting) && !child.born {
            let fate = self.is_down(key, false);
            self.end(End::StartFailed { id, reason: reason.clone() });
            return fate;
        }
        if !self.failures.count(now) {
            let fate = self.is_down(key, false);
            self.end(End::GaveUp { id, reason: reason.clone() });
            return fate;
        }
        self.recover(key, since, now);
        Fate::Again
    }

    /// A child should not run, and should leave the list if `leaves`. True when it does not run now.
    pub(super) fn stop(&mut self, key: Key, leaves: bool, now: Instant) -> bool {
        let Some(child) = self.children.get_mut(&key) else { return true };
        child.wanted = false;
        child.asked = false;
        child.leaves |= leaves;
        match child.state {
            State::Starting | State::Up(_) => {
                self.dismiss(key, now);
                false
            }
            State::Stopping(..) => {
                self.index(key);
                false
            }
            State::Down | State::Waiting(_) => {
                self.is_down(key, false);
                true
            }
        }
    }

    /// A child should be started, and ended before if it runs. Somebody waits for its start.
    pub(super) fn restart(&mut self, key: Key, now: Instant) {
        let ending = self.is_ending();
        let Some(child) = self.children.get_mut(&key).filter(|_| !ending) else { return };
        child.wanted = true;
        child.asked = true;
        match child.state {
            State::Starting | State::Up(_) => self.dismiss(key, now),
            State::Stopping(..) => self.index(key),
            State::Down | State::Waiting(_) => self.set(key, State::Down),
        }
    }

    /// All children are to end. The first reason stands.
    pub(super) fn end(&mut self, end: End) {
        if matches!(self.phase, Phase::Ending(_)) {
            return;
        }
        self.phase = Phase::Ending(end);
        self.unsettled.clear();
        self.ready.clear();
        for (key, child) in &mut self.children {
            child.wanted = false;
            match child.state {
                State::Starting | State::Up(_) => {
                    self.doomed.insert(*key);
                }
                State::Waiting(at) => {
                    self.deadlines.remove(&(at, *key));
                    child.state = State::Down;
                }
                State::Down | State::Stopping(..) => {}
            }
        }
    }

    /// What is to be done now, one thing at a time; it counts as done. None when something has to happen first.
    pub(super) fn next(&mut self, now: Instant) -> Option<Step> {
        while let Some(&(at, key)) = self.deadlines.first()
            && at <= now
        {
            if let Some(step) = self.time_is_up(key, now) {
                return Some(step);
            }
        }
        if let Some(key) = self.dismissed.pop_front() {
            return Some(Step::Stop(key));
        }
        if let Some(key) = self.next_to_stop() {
            self.tell(key, now);
            return Some(Step::Stop(key));
        }
        match &self.phase {
            Phase::Ending(end) if self.doomed.is_empty() && self.stopping.is_empty() => {
                Some(Step::Finish(end.clone()))
            }
            Phase::Ending(_) => None,
            Phase::Starting | Phase::Running => {
                self.leave_first_start();
                let key = self.next_to_start()?;
                self.set(key, State::Starting);
                Some(Step::Start(key))
            }
        }
    }

    /// When to ask again even if nothing has happened.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// The first start is over, and well.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending(_))
    }

    pub(super) fn child(&self, key: Key) -> Option<&Child> {
        self.children.get(&key)
    }

    pub(super) fn overdue(&self) -> impl Iterator<Item = &Arc<str>> {
        self.overdue.iter().filter_map(|key| self.children.get(key)).map(|child| &child.id)
    }

    fn leave_first_start(&mut self) {
        if self.unborn == 0 && matches!(self.phase, Phase::Starting) {
            self.phase = Phase::Running;
        }
    }

    fn enter(&mut self, child: Child) -> Key {
        let key = self.next_key;
        self.next_key += 1;
        self.children.insert(key, child);
        self.index(key);
        key
    }

    /// The child is down, and will be started again if `again`.
    fn is_down(&mut self, key: Key, again: bool) -> Fate {
        let Some(child) = self.children.get_mut(&key) else { return Fate::Gone };
        child.wanted = again;
        let leaves = child.leaves && !again;
        self.set(key, State::Down);
        if leaves {
            self.children.remove(&key);
        }
        match (again, leaves) {
            (true, _) => Fate::Again,
            (false, true) => Fate::Gone,
            (false, false) => Fate::Down,
        }
    }

    /// A child failed, in its start or having been up since then: it is started again, after a pause, and who depends on it
    /// is, too.
    fn recover(&mut self, key: Key, since: Option<Instant>, now: Instant) {
        let within = self.policy.intensity.within;
        let Some(child) = self.children.get_mut(&key) else { return };
        child.restarts = child.restarts.saturating_add(1);
        // One that was up for long is well again.
        let well = since.is_some_and(|since| now.saturating_duration_since(since) > within);
        let from = child.pause.filter(|_| !well);
        let (pause, next) = self.policy.backoff.pause(from, &mut self.random);
        child.pause = Some(next);
        self.set(key, if pause.is_zero() { State::Down } else { State::Waiting(now + pause) });
        let first = match self.policy.strategy {
            Strategy::OneForOne => return,
            Strategy::OneForAll => 0,
            Strategy::RestForOne => key,
        };
        for (other, child) in self.children.range_mut(first..) {
            if matches!(child.state, State::Starting | State::Up(_)) {
                self.doomed.insert(*other);
                if child.restart == Restart::Temporary && child.born {
                    child.wanted = false;
                }
            }
        }
    }

    /// Ends a child whatever the others do; in order, if all end.
    fn dismiss(&mut self, key: Key, now: Instant) {
        if self.is_ending() {
            self.doomed.insert(key);
            return;
        }
        self.doomed.remove(&key);
        self.tell(key, now);
        self.dismissed.push_back(key);
    }

    fn tell(&mut self, key: Key, now: Instant) {
        let limit = self.children.get(&key).and_then(|child| child.shutdown.limit());
        self.set(key, State::Stopping(Stage::Told, limit.map(|limit| now + limit)));
    }

    /// The last one of those that end in order, once all behind it have ended.
    fn next_to_stop(&mut self) -> Option<Key> {
        let key = *self.doomed.last()?;
        if self.stopping.range(key..).next().is_some() {
            return None;
        }
        self.doomed.pop_last()
    }

    fn next_to_start(&self) -> Option<Key> {
        let in_order = matches!(self.phase, Phase::Starting) || self.policy.strategy != Strategy::OneForOne;
        if !in_order {
            return self.ready.first().copied();
        }
        let comes_back = |key: &Key| self.children.get(key).is_some_and(|child| child.wanted);
        if !self.doomed.is_empty()
            || self.stopping.iter().any(comes_back)
            || self.overdue.iter().any(comes_back)
        {
            return None;
        }
        // Each depends on those before it.
        self.unsettled.first().filter(|key| self.ready.contains(key)).copied()
    }

    fn time_is_up(&mut self, key: Key, now: Instant) -> Option<Step> {
        let child = self.children.get(&key)?;
        let limit = child.shutdown.limit();
        match child.state {
            State::Waiting(_) => {
                self.set(key, State::Down);
                None
            }
            State::Stopping(Stage::Told, _) => {
                self.set(key, State::Stopping(Stage::Forced, limit.map(|limit| now + limit)));
                Some(Step::Force(key))
            }
            State::Stopping(..) => {
                self.set(key, State::Stopping(Stage::Overdue, None));
                Some(Step::Overdue(key))
            }
            State::Down | State::Starting | State::Up(_) => unreachable!("it has no deadline"),
        }
    }

    fn set(&mut self, key: Key, state: State) {
        let Some(child) = self.children.get_mut(&key) else { return };
        let former = std::mem::replace(&mut child.state, state);
        if let State::Waiting(at) | State::Stopping(_, Some(at)) = former {
            self.deadlines.remove(&(at, key));
        }
        if let State::Waiting(at) | State::Stopping(_, Some(at)) = state {
            self.deadlines.insert((at, key));
        }
        self.index(key);
    }

    /// Puts a child where its state belongs.
    fn index(&mut self, key: Key) {
        let Some(child) = self.children.get(&key) else { return };
        let file = |set: &mut BTreeSet<Key>, belongs: bool| {
            if belongs {
                set.insert(key)
            } else {
                set.remove(&key)
            };
        };
        file(&mut self.unsettled, child.wanted && !matches!(child.state, State::Up(_)));
        file(&mut self.ready, child.wanted && child.state == State::Down);
        let stage = match child.state {
            State::Stopping(stage, _) => Some(stage),
            _ => None,
        };
        file(&mut self.stopping, stage.is_some_and(|stage| stage != Stage::Overdue));
        file(&mut self.overdue, stage == Some(Stage::Overdue));
    }
}
