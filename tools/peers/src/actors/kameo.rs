//! kameo: actors on a current-thread tokio.
//!
//! Mailboxes without a bound; `send()` on a request, which spares the box of awaiting the request itself. A parent is linked
//! to its child and learns of its end by `on_link_died`. A supervisor restarts the child in its place, with its mailbox and
//! under the same address; the limit of restarts is set out of reach.

use super::cases::{Kit, Sum, Supervising, over};
use crate::meter::{Meter, Throughput};
use anyhow::{Context as _, Result, ensure};
use kameo::Actor;
use kameo::actor::{ActorId, ActorRef, Spawn, WeakActorRef};
use kameo::error::{ActorStopReason, Infallible};
use kameo::mailbox;
use kameo::message::{Context, Message};
use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

pub struct Kameo;

impl Kit for Kameo {
    type Address = ActorRef<Adder>;

    fn run<T, F>(main: impl FnOnce(Self) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        super::tokio::run(move || main(Self))
    }

    async fn adder(&self, sum: Sum) -> Result<Self::Address> {
        Ok(Adder::spawn_with_mailbox(Adder(sum), mailbox::unbounded()))
    }

    async fn call(adder: &Self::Address, number: u64) -> Result<u64> {
        Ok(adder.ask(Ask(number)).send().await?)
    }

    async fn cast(adder: &Self::Address, number: u64) -> Result<()> {
        Ok(adder.tell(Add(number)).send().await?)
    }

    async fn spawns(&self, meter: Meter) -> Result<Throughput> {
        let (done, outcome) = oneshot::channel();
        let spawns = Parent { sum: Sum::default(), meter, done: Some(done) };
        let _parent = Parent::spawn_with_mailbox(spawns, mailbox::unbounded());
        outcome.await.context("the parent has failed")
    }
}

impl Supervising for Kameo {
    async fn restarts(&self, meter: Meter) -> Result<Throughput> {
        let starts = Arc::new(AtomicU64::new(0));
        let supervisor = Supervisor::spawn_with_mailbox(Supervisor, mailbox::unbounded());
        let worker = Worker::supervise_with(&supervisor, move || Worker {
            before: starts.fetch_add(1, Ordering::Relaxed),
        })
        .restart_limit(u32::MAX, Duration::from_secs(1))
        .spawn_with_mailbox(mailbox::unbounded())
        .await;
        // What comes with a failure before the start is over is lost with it.
        worker.wait_for_startup().await;
        let mut failed = 0;
        while meter.add(1) {
            worker.tell(Fail).send().await?;
            failed += 1;
            ensure!(worker.ask(Before).send().await? == failed, "not the new worker has answered");
        }
        supervisor.kill();
        over(&meter)
    }
}

#[derive(Actor)]
pub struct Adder(Sum);

pub struct Add(u64);

pub struct Ask(u64);

impl Message<Add> for Adder {
    type Reply = ();

    async fn handle(&mut self, Add(number): Add, _: &mut Context<Self, ()>) {
        self.0.add(number);
    }
}

impl Message<Ask> for Adder {
    type Reply = u64;

    async fn handle(&mut self, Ask(number): Ask, _: &mut Context<Self, u64>) -> u64 {
        self.0.add(number)
    }
}

struct Parent {
    sum: Sum,
    meter: Meter,
    done: Option<oneshot::Sender<Throughput>>,
}

impl Parent {
    /// `mut` because a meter may be sent to another thread, but not shared.
    async fn start_a_child(&mut self, myself: &ActorRef<Self>) {
        let child = Adder(self.sum.clone());
        let child = Adder::spawn_link_with_mailbox(myself, child, mailbox::unbounded()).await;
        // It fails if the child has stopped, which it does not by itself.
        let _ = child.stop_gracefully().await;
    }
}

impl Actor for Parent {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(mut spawns: Self, myself: ActorRef<Self>) -> Result<Self, Infallible> {
        spawns.start_a_child(&myself).await;
        Ok(spawns)
    }

    async fn on_link_died(
        &mut self,
        myself: WeakActorRef<Self>,
        _: ActorId,
        _: ActorStopReason,
    ) -> Result<ControlFlow<ActorStopReason>, Infallible> {
        if self.meter.add(1)
            && let Some(myself) = myself.upgrade()
        {
            self.start_a_child(&myself).await;
            return Ok(ControlFlow::Continue(()));
        }
        if let (Some(done), Some(outcome)) = (self.done.take(), self.meter.outcome()) {
            let _ = done.send(outcome);
        }
        Ok(ControlFlow::Break(ActorStopReason::Normal))
    }
}

#[derive(Actor)]
struct Supervisor;

#[derive(Actor)]
struct Worker {
    before: u64,
}

struct Fail;

struct Before;

impl Message<Fail> for Worker {
    /// An error in reply to a message that nobody waits for ends the actor.
    type Reply = Result<(), &'static str>;

    async fn handle(&mut self, _: Fail, _: &mut Context<Self, Self::Reply>) -> Self::Reply {
        Err("as it was told")
    }
}

impl Message<Before> for Worker {
    type Reply = u64;

    async fn handle(&mut self, _: Before, _: &mut Context<Self, u64>) -> u64 {
        self.before
    }
}
