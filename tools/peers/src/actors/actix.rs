//! actix: actors on its `System`, a current-thread tokio with a `LocalSet`.
//!
//! `do_send` casts without regard to the mailbox's bound; a call obeys it, and does not meet it here. There are no links
//! and no exit signals: the child tells its parent as it stops. `Supervisor` does not replace a stopped actor but has it
//! take up again, with its address and mailbox.

use super::cases::{Kit, Sum, Supervising, over};
use crate::meter::{Meter, Throughput};
use crate::runtimes::{in_task, tokio::Tokio};
use actix::{Actor, ActorContext, Addr, Context, Handler, Message, Supervised, Supervisor, System};
use anyhow::{Context as _, Result, ensure};
use std::future::Future;
use tokio::sync::oneshot;

pub struct Actix;

impl Kit for Actix {
    type Address = Addr<Adder>;

    fn run<T, F>(main: impl FnOnce(Self) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        // Its `LocalSet` is tokio's, and so are its tasks.
        Ok(System::new().block_on(async { in_task::<Tokio, _>(main(Self)).await }))
    }

    async fn adder(&self, sum: Sum) -> Result<Self::Address> {
        Ok(Adder(sum).start())
    }

    async fn call(adder: &Self::Address, number: u64) -> Result<u64> {
        Ok(adder.send(Ask(number)).await?)
    }

    async fn cast(adder: &Self::Address, number: u64) -> Result<()> {
        adder.do_send(Add(number));
        Ok(())
    }

    async fn spawns(&self, meter: Meter) -> Result<Throughput> {
        let (done, outcome) = oneshot::channel();
        let _parent = Parent { meter, done: Some(done), child: None }.start();
        outcome.await.context("the parent has failed")
    }
}

impl Supervising for Actix {
    async fn restarts(&self, meter: Meter) -> Result<Throughput> {
        let worker = Supervisor::start(|_| Worker { before: 0 });
        let mut failed = 0;
        while meter.add(1) {
            worker.do_send(Fail);
            failed += 1;
            ensure!(worker.send(Before).await? == failed, "not the restarted worker has answered");
        }
        over(&meter)
    }
}

pub struct Adder(Sum);

#[derive(Message)]
#[rtype(result = "()")]
struct Add(u64);

#[derive(Message)]
#[rtype(result = "u64")]
struct Ask(u64);

impl Actor for Adder {
    type Context = Context<Self>;
}

impl Handler<Add> for Adder {
    type Result = ();

    fn handle(&mut self, Add(number): Add, _: &mut Context<Self>) {
        self.0.add(number);
    }
}

impl Handler<Ask> for Adder {
    type Result = u64;

    fn handle(&mut self, Ask(number): Ask, _: &mut Context<Self>) -> u64 {
        self.0.add(number)
    }
}

struct Parent {
    meter: Meter,
    done: Option<oneshot::Sender<Throughput>>,
    /// Kept, for an actor without an address stops by itself.
    child: Option<Addr<Child>>,
}

struct Child {
    parent: Addr<Parent>,
}

#[derive(Message)]
#[rtype(result = "()")]
struct Stop;

#[derive(Message)]
#[rtype(result = "()")]
struct Stopped;

impl Parent {
    fn start_a_child(&mut self, parent: Addr<Parent>) {
        let child = Child { parent }.start();
        child.do_send(Stop);
        self.child = Some(child);
    }
}

impl Actor for Parent {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Context<Self>) {
        self.start_a_child(actix::AsyncContext::address(context));
    }
}

impl Handler<Stopped> for Parent {
    type Result = ();

    fn handle(&mut self, _: Stopped, context: &mut Context<Self>) {
        if self.meter.add(1) {
            self.start_a_child(actix::AsyncContext::address(context));
            return;
        }
        if let (Some(done), Some(outcome)) = (self.done.take(), self.meter.outcome()) {
            let _ = done.send(outcome);
        }
        context.stop();
    }
}

impl Actor for Child {
    type Context = Context<Self>;

    fn stopped(&mut self, _: &mut Context<Self>) {
        self.parent.do_send(Stopped);
    }
}

impl Handler<Stop> for Child {
    type Result = ();

    fn handle(&mut self, _: Stop, context: &mut Context<Self>) {
        context.stop();
    }
}

struct Worker {
    before: u64,
}

#[derive(Message)]
#[rtype(result = "()")]
struct Fail;

#[derive(Message)]
#[rtype(result = "u64")]
struct Before;

impl Actor for Worker {
    type Context = Context<Self>;
}

impl Supervised for Worker {
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.before += 1;
    }
}

impl Handler<Fail> for Worker {
    type Result = ();

    fn handle(&mut self, _: Fail, context: &mut Context<Self>) {
        context.stop();
    }
}

impl Handler<Before> for Worker {
    type Result = u64;

    fn handle(&mut self, _: Before, _: &mut Context<Self>) -> u64 {
        self.before
    }
}
