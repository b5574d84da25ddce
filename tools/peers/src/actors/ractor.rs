//! ractor: its ordinary actors on a current-thread tokio. Its thread-local ones run on a thread that ractor starts, and
//! differ in that their state need not be `Send`; all their state here is.
//!
//! Mailboxes have no bound. A parent is a supervisor, whose children are linked to it; the exit signal is the supervision
//! event. A supervisor restarts by starting another child, and tells the caller its address. The list of actors is a
//! supervisor's of its children.

use super::cases::{self, Kit, Sum, Supervising, over, settle};
use super::{Case, Outcome};
use crate::meter::{Meter, Throughput};
use crate::rounds::Plan;
use anyhow::{Context, Result, anyhow, ensure};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent, call};
use std::future::Future;
use std::hint::black_box;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

pub fn run(case: Case, plan: &Plan) -> Result<Outcome> {
    let (slice, crowd) = (plan.slice, plan.crowd);
    match case {
        Case::Snapshot => super::tokio::run(move || snapshots(slice, crowd))?,
        _ => cases::run::<Ractor>(case, plan),
    }
}

pub struct Ractor;

pub enum Message {
    Add(u64),
    Ask(u64, RpcReplyPort<u64>),
}

impl Kit for Ractor {
    type Address = ActorRef<Message>;

    fn run<T, F>(main: impl FnOnce(Self) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        super::tokio::run(move || main(Self))
    }

    async fn adder(&self, sum: Sum) -> Result<Self::Address> {
        Ok(Actor::spawn(None, Adder, sum).await?.0)
    }

    async fn call(adder: &Self::Address, number: u64) -> Result<u64> {
        call!(adder, Message::Ask, number).map_err(|error| anyhow!("{error}"))
    }

    async fn cast(adder: &Self::Address, number: u64) -> Result<()> {
        adder.cast(Message::Add(number)).map_err(|error| anyhow!("{error}"))
    }

    async fn spawns(&self, meter: Meter) -> Result<Throughput> {
        let (done, outcome) = oneshot::channel();
        Actor::spawn(None, Parent, Spawns { sum: Sum::default(), meter, done: Some(done) }).await?;
        outcome.await.context("the parent has failed")
    }
}

impl Supervising for Ractor {
    async fn restarts(&self, meter: Meter) -> Result<Throughput> {
        let (started, mut starts) = unbounded_channel();
        let (supervisor, _) = Actor::spawn(None, Supervisor, started).await?;
        let mut worker = starts.recv().await.context("the supervisor has gone")?;
        let mut failed = 0;
        while meter.add(1) {
            worker.cast(Work::Fail).map_err(|error| anyhow!("{error}"))?;
            failed += 1;
            worker = starts.recv().await.context("the supervisor has gone")?;
            let answer = call!(worker, Work::Ask).map_err(|error| anyhow!("{error}"))?;
            ensure!(answer == failed, "not the new worker has answered");
        }
        supervisor.stop(None);
        over(&meter)
    }
}

struct Adder;

impl Actor for Adder {
    type Msg = Message;
    type State = Sum;
    type Arguments = Sum;

    async fn pre_start(&self, _: ActorRef<Message>, sum: Sum) -> Result<Sum, ActorProcessingErr> {
        Ok(sum)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        sum: &mut Sum,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Add(number) => {
                sum.add(number);
            }
            Message::Ask(number, reply) => {
                let _ = reply.send(sum.add(number));
            }
        }
        Ok(())
    }
}

struct Parent;

struct Spawns {
    sum: Sum,
    meter: Meter,
    done: Option<oneshot::Sender<Throughput>>,
}

impl Spawns {
    /// `mut` because a meter may be sent to another thread, but not shared.
    async fn start_a_child(&mut self, myself: &ActorRef<()>) -> Result<(), ActorProcessingErr> {
        let (child, _) = Actor::spawn_linked(None, Adder, self.sum.clone(), myself.get_cell()).await?;
        child.stop(None);
        Ok(())
    }
}

impl Actor for Parent {
    type Msg = ();
    type State = Spawns;
    type Arguments = Spawns;

    async fn pre_start(&self, _: ActorRef<()>, spawns: Spawns) -> Result<Spawns, ActorProcessingErr> {
        Ok(spawns)
    }

    async fn post_start(&self, myself: ActorRef<()>, spawns: &mut Spawns) -> Result<(), ActorProcessingErr> {
        spawns.start_a_child(&myself).await
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<()>,
        event: SupervisionEvent,
        spawns: &mut Spawns,
    ) -> Result<(), ActorProcessingErr> {
        if !matches!(event, SupervisionEvent::ActorTerminated(..)) {
            return Ok(());
        }
        if spawns.meter.add(1) {
            return spawns.start_a_child(&myself).await;
        }
        if let Some(done) = spawns.done.take() {
            let _ = done.send(over(&spawns.meter)?);
        }
        myself.stop(None);
        Ok(())
    }
}

enum Work {
    Fail,
    Ask(RpcReplyPort<u64>),
}

struct Worker;

impl Actor for Worker {
    type Msg = Work;
    type State = u64;
    type Arguments = u64;

    async fn pre_start(&self, _: ActorRef<Work>, before: u64) -> Result<u64, ActorProcessingErr> {
        Ok(before)
    }

    async fn handle(
        &self,
        _: ActorRef<Work>,
        work: Work,
        before: &mut u64,
    ) -> Result<(), ActorProcessingErr> {
        match work {
            Work::Fail => return Err("as it was told".into()),
            Work::Ask(reply) => {
                let _ = reply.send(*before);
            }
        }
        Ok(())
    }
}

struct Supervisor;

struct Restarts {
    before: u64,
    started: UnboundedSender<ActorRef<Work>>,
}

impl Restarts {
    async fn start_a_worker(&self, myself: &ActorRef<()>) -> Result<(), ActorProcessingErr> {
        let (worker, _) = Actor::spawn_linked(None, Worker, self.before, myself.get_cell()).await?;
        let _ = self.started.send(worker);
        Ok(())
    }
}

impl Actor for Supervisor {
    type Msg = ();
    type State = Restarts;
    type Arguments = UnboundedSender<ActorRef<Work>>;

    async fn pre_start(
        &self,
        _: ActorRef<()>,
        started: UnboundedSender<ActorRef<Work>>,
    ) -> Result<Restarts, ActorProcessingErr> {
        Ok(Restarts { before: 0, started })
    }

    async fn post_start(
        &self,
        myself: ActorRef<()>,
        restarts: &mut Restarts,
    ) -> Result<(), ActorProcessingErr> {
        restarts.start_a_worker(&myself).await
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<()>,
        event: SupervisionEvent,
        restarts: &mut Restarts,
    ) -> Result<(), ActorProcessingErr> {
        if matches!(event, SupervisionEvent::ActorFailed(..)) {
            restarts.before += 1;
            restarts.start_a_worker(&myself).await?;
        }
        Ok(())
    }
}

/// A supervisor that only has children.
struct Head;

impl Actor for Head {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        _: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

async fn snapshots(slice: Duration, crowd: usize) -> Result<Outcome> {
    let (head, _) = Actor::spawn(None, Head, ()).await?;
    let sum = Sum::default();
    for _ in 0..crowd {
        Actor::spawn_linked(None, Adder, sum.clone(), head.get_cell()).await?;
    }
    settle().await;
    let outcome = cases::lists(crowd, slice, async || {
        let list: Vec<_> =
            head.get_children().iter().map(|child| (child.get_id(), child.get_status())).collect();
        let length = list.len();
        Ok((black_box(list), length))
    })
    .await;
    head.stop_children(None);
    head.stop(None);
    outcome
}
