//! The supervisor's actor: hears what happens, asks its plan what is to be done, and does it. It decides nothing itself.

use std::collections::BTreeMap;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustc_hash::FxHashMap;

use super::Supervisor;
use super::builder::SupervisorBuilder;
use super::handle::{ChildError, ChildInfo, ChildState, Order, Request, SupervisorError};
use super::launch::{Cradle, launch};
use super::plan::{End, Fate, Key, Plan, Stage, State, Step};
use super::policy::Restart;
use super::spec::{ChildKind, ChildSpec};
use crate::actor::call::Reply;
use crate::actor::channel::{Queue, Receiver};
use crate::actor::exit::{Down, ExitReason};
use crate::actor::link::{self, Exits, trap_exits};
use crate::actor::pid::Pid;
use crate::actor::spawn::{exit, own_process};
use crate::actor::watch::{Place, Sink, unwatch, watch};
use crate::runtime::local::Local;
use crate::runtime::{RawPid, Sleep, context};

/// Starts all children, in the calling actor. What this gives is the rest of the supervisor's life.
pub(super) async fn begin(
    builder: SupervisorBuilder,
    inbox: Receiver<Request>,
    parent: Option<RawPid>,
) -> Result<impl Future<Output = ()>, SupervisorError> {
    let mut nursery = Nursery::new(builder, inbox, parent)?;
    match poll_fn(|cx| nursery.poll(cx, true)).await {
        None => Ok(nursery.run()),
        Some(End::StartFailed { id, reason } | End::GaveUp { id, reason }) => {
            Err(SupervisorError::ChildFailed { id, reason })
        }
        Some(End::Ordered) => Err(SupervisorError::Stopped),
    }
}

/// A supervisor and its children.
///
/// # Drop
/// Stops all children, the last one first, and waits for none.
struct Nursery {
    local: Rc<Local>,
    me: Pid<Supervisor>,
    /// With whose exit this one ends too.
    parent: Option<RawPid>,
    plan: Plan,
    wards: BTreeMap<Key, Ward>,
    ids: FxHashMap<Arc<str>, Key>,
    inbox: Receiver<Request>,
    /// The ends of children, under their keys.
    ends: Rc<Queue<(u64, Down)>>,
    exits: Exits,
    alarm: Option<Sleep>,
    /// What has to wait until the first start is over.
    held: Vec<Order>,
    /// Who has asked for the end.
    farewells: Vec<Reply<Vec<Arc<str>>>>,
}

/// One child, as far as it is more than a decision.
struct Ward {
    id: Arc<str>,
    /// None for one that was adopted.
    spec: Option<ChildSpec>,
    /// Its present life, once it is known.
    pid: Option<RawPid>,
    place: Place,
    starts: Vec<Reply<Result<Pid, ChildError>>>,
    stops: Vec<Reply<Result<(), ChildError>>>,
}

impl Nursery {
    fn new(
        builder: SupervisorBuilder,
        inbox: Receiver<Request>,
        parent: Option<RawPid>,
    ) -> Result<Nursery, SupervisorError> {
        let exits = trap_exits();
        let (local, process) = own_process();
        let me = process.pid();
        let parent = parent.or(process.bonds().supervisor.get());
        let ends = Rc::new(Queue::new(usize::MAX));
        ends.publish();
        // Two supervisors of one core are not to draw the same pauses.
        let seed = local.seed() ^ (u64::from(me.generation()) << 32 | u64::from(me.index()));
        let mut nursery = Nursery {
            local,
            me: Pid::new(me),
            parent,
            plan: Plan::new(builder.policy, seed),
            wards: BTreeMap::new(),
            ids: FxHashMap::default(),
            inbox,
            ends,
            exits,
            alarm: None,
            held: Vec::new(),
            farewells: Vec::new(),
        };
        for spec in builder.children {
            if nursery.ids.contains_key(&spec.id) {
                return Err(SupervisorError::AlreadyPresent { id: spec.id });
            }
            nursery.add(spec, Vec::new());
        }
        Ok(nursery)
    }

    async fn run(mut self) {
        let end = poll_fn(|cx| self.poll(cx, false)).await;
        let overdue: Vec<_> = self.plan.overdue().cloned().collect();
        let asked = !self.farewells.is_empty();
        for farewell in self.farewells.drain(..) {
            farewell.send(overdue.clone());
        }
        match end {
            Some(End::StartFailed { id, reason } | End::GaveUp { id, reason }) => {
                tracing::error!(supervisor = %self.me, child = %id, %reason, "a child failed too often; giving up");
                exit(format!("gave up: the child `{id}` {reason}")).await
            }
            Some(End::Ordered) if !asked => {
                context::stop(self.me.raw());
                pending().await
            }
            _ => {}
        }
    }

    /// Goes on until the supervisor has ended, or until its first start is over if only that is waited for.
    fn poll(&mut self, cx: &mut Context<'_>, start_only: bool) -> Poll<Option<End>> {
        loop {
            self.hear(cx);
            while let Some(step) = self.plan.next(self.local.now()) {
                match step {
                    Step::Start(key) => self.start(key),
                    Step::Stop(key) => self.order_out(key, Stage::Told),
                    Step::Force(key) => self.order_out(key, Stage::Forced),
                    Step::Overdue(key) => self.report_overdue(key),
                    Step::Finish(end) => return Poll::Ready(Some(end)),
                }
            }
            if start_only && self.plan.is_running() {
                return Poll::Ready(None);
            }
            if self.plan.is_running() && !self.held.is_empty() {
                std::mem::take(&mut self.held).into_iter().for_each(|order| self.obey(order));
                continue;
            }
            let Some(at) = self.plan.next_deadline() else {
                self.alarm = None;
                return Poll::Pending;
            };
            if self.alarm.as_ref().is_none_or(|alarm| alarm.deadline() != at) {
                self.alarm = Some(Sleep::on(&self.local, at));
            }
            let rings = self.alarm.as_mut().is_some_and(|alarm| Pin::new(alarm).poll(cx).is_ready());
            if !rings {
                return Poll::Pending;
            }
            self.alarm = None;
        }
    }

    /// Takes what has come. What a child has sent counts before its end.
    fn hear(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Ok(Request(order))) = self.inbox.poll_recv(cx) {
            self.obey(order);
        }
        if self.inbox.is_empty() {
            while let Poll::Ready(Some((key, down))) = self.ends.poll_pop(cx) {
                self.ended(key, down.reason);
            }
        }
        while let Poll::Ready(exit) = self.exits.poll_recv(cx) {
            if self.parent == Some(exit.from.raw()) {
                self.plan.end(End::Ordered);
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Launched { key, child } => {
                if let Some(ward) = self.wards.get_mut(&key) {
                    ward.pid = child.accept();
                }
                if let Some(State::Stopping(stage, _)) = self.plan.child(key).map(|child| child.state) {
                    self.order_out(key, stage);
                }
            }
            Order::Started { key, pid } => self.started(key, pid),
            Order::Shutdown(reply) => {
                self.farewells.push(reply);
                self.plan.end(End::Ordered);
            }
            Order::Which(reply) => reply.send(self.children()),
            // Dropped unanswered: the supervisor ends.
            _ if self.plan.is_ending() => {}
            order if !self.plan.is_running() => self.held.push(order),
            Order::Adopt { child } => {
                if let Some(pid) = child.accept() {
                    self.adopt(pid);
                }
            }
            Order::Start(spec, reply) => {
                if self.ids.contains_key(&spec.id) {
                    reply.send(Err(ChildError::AlreadyPresent));
                } else {
                    self.add(spec, vec![reply]);
                }
            }
            Order::Stop { id, leaves, reply } => match self.ids.get(&id).copied() {
                Some(key) => self.stop(key, leaves, reply),
                None => reply.send(Err(ChildError::NotFound)),
            },
            Order::Restart { id, reply } => match self.ids.get(&id).copied() {
                Some(key) => self.restart(key, reply),
                None => reply.send(Err(ChildError::NotFound)),
            },
        }
    }

    fn add(&mut self, spec: ChildSpec, starts: Vec<Reply<Result<Pid, ChildError>>>) {
        let key = self.plan.add(Arc::clone(&spec.id), spec.restart, spec.shutdown);
        self.ids.insert(Arc::clone(&spec.id), key);
        let id = Arc::clone(&spec.id);
        let ward = Ward { id, spec: Some(spec), pid: None, place: Place::Over, starts, stops: Vec::new() };
        self.wards.insert(key, ward);
    }

    fn adopt(&mut self, pid: RawPid) {
        let id: Arc<str> = pid.to_string().into();
        let key = self.plan.adopt(Arc::clone(&id), self.local.now());
        let place = watch(&self.local, pid, Sink::Tagged(Rc::clone(&self.ends), key));
        self.ids.insert(Arc::clone(&id), key);
        let ward = Ward { id, spec: None, pid: Some(pid), place, starts: Vec::new(), stops: Vec::new() };
        self.wards.insert(key, ward);
    }

    fn stop(&mut self, key: Key, leaves: bool, reply: Reply<Result<(), ChildError>>) {
        let down = self.plan.stop(key, leaves, self.local.now());
        let overdue = self.is_overdue(key);
        let Some(ward) = self.wards.get_mut(&key) else { return };
        if overdue {
            reply.send(Err(ChildError::Overdue));
        } else if down {
            reply.send(Ok(()));
            refuse(&mut ward.starts, &ChildError::FailedToStart(ExitReason::Stopped));
        } else {
            ward.stops.push(reply);
        }
        self.forget_if_gone(key);
    }

    fn restart(&mut self, key: Key, reply: Reply<Result<Pid, ChildError>>) {
        let overdue = self.is_overdue(key);
        let Some(ward) = self.wards.get_mut(&key) else { return };
        if overdue {
            reply.send(Err(ChildError::Overdue));
        } else if ward.spec.is_none() {
            reply.send(Err(ChildError::Adopted));
        } else {
            ward.starts.push(reply);
            self.plan.restart(key, self.local.now());
        }
    }

    fn start(&mut self, key: Key) {
        let Some(ward) = self.wards.get_mut(&key) else { return };
        let Some(spec) = &ward.spec else { unreachable!("an adopted child is not started") };
        let cradle = Cradle { supervisor: self.me, key };
        (ward.pid, ward.place) = launch(&self.local, cradle, spec, &self.ends);
    }

    fn started(&mut self, key: Key, pid: RawPid) {
        let Some(ward) = self.wards.get_mut(&key).filter(|ward| ward.pid == Some(pid)) else { return };
        self.plan.started(key, self.local.now());
        // Not for one that is to be stopped and started again.
        if self.plan.child(key).is_some_and(|child| matches!(child.state, State::Up(_))) {
            for reply in ward.starts.drain(..) {
                reply.send(Ok(pid.into()));
            }
        }
    }

    fn ended(&mut self, key: Key, reason: ExitReason) {
        let fate = self.plan.ended(key, &reason, self.local.now());
        let Some(ward) = self.wards.get_mut(&key) else { return };
        (ward.pid, ward.place) = (None, Place::Over);
        if let Some(spec) = &ward.spec {
            spec.start.ended();
            if reason.is_failure() {
                tracing::warn!(supervisor = %self.me, child = %spec.id, %reason, "a supervised child failed");
            }
        }
        ward.stops.drain(..).for_each(|reply| reply.send(Ok(())));
        if fate != Fate::Again {
            refuse(&mut ward.starts, &ChildError::FailedToStart(reason));
        }
        self.forget_if_gone(key);
    }

    /// A child is to end. One that is still on its way to its core is told when it is there.
    fn order_out(&self, key: Key, stage: Stage) {
        let Some(pid) = self.wards.get(&key).and_then(|ward| ward.pid) else { return };
        match stage {
            Stage::Told => link::shut_down(pid, self.me.raw()),
            Stage::Forced | Stage::Overdue => context::stop(pid),
        }
    }

    fn report_overdue(&mut self, key: Key) {
        let Some(ward) = self.wards.get_mut(&key) else { return };
        tracing::error!(supervisor = %self.me, child = %ward.id, pid = ?ward.pid, "a child does not end: its poll does not return");
        ward.stops.drain(..).for_each(|reply| reply.send(Err(ChildError::Overdue)));
        refuse(&mut ward.starts, &ChildError::Overdue);
    }

    fn is_overdue(&self, key: Key) -> bool {
        let state = self.plan.child(key).map(|child| child.state);
        matches!(state, Some(State::Stopping(Stage::Overdue, _)))
    }

    fn forget_if_gone(&mut self, key: Key) {
        if self.plan.child(key).is_none()
            && let Some(ward) = self.wards.remove(&key)
        {
            self.ids.remove(&ward.id);
        }
    }

    fn children(&self) -> Vec<ChildInfo> {
        let info = |(key, ward): (&Key, &Ward)| {
            let child = self.plan.child(*key)?;
            let spec = ward.spec.as_ref();
            Some(ChildInfo {
                id: Arc::clone(&child.id),
                pid: ward.pid.map(Pid::from),
                state: match child.state {
                    State::Down => ChildState::Down,
                    State::Waiting(_) => ChildState::BackingOff,
                    State::Starting => ChildState::Starting,
                    State::Up(_) => ChildState::Up,
                    State::Stopping(Stage::Overdue, _) => ChildState::Overdue,
                    State::Stopping(..) => ChildState::Stopping,
                },
                kind: spec.map_or(ChildKind::Worker, |spec| spec.kind),
                restart: spec.map_or(Restart::Temporary, |spec| spec.restart),
                core: spec.map_or(ward.pid.map(RawPid::core), |spec| spec.core),
                restarts: child.restarts,
            })
        };
        self.wards.iter().filter_map(info).collect()
    }
}

fn refuse(starts: &mut Vec<Reply<Result<Pid, ChildError>>>, error: &ChildError) {
    starts.drain(..).for_each(|reply| reply.send(Err(error.clone())));
}

impl Drop for Nursery {
    fn drop(&mut self) {
        for ward in self.wards.values().rev() {
            if let Some(pid) = ward.pid {
                unwatch(&self.local, pid, ward.place);
                context::stop(pid);
            }
            if let Some(spec) = &ward.spec {
                spec.start.ended();
            }
        }
        drop(self.ends.close());
    }
}
