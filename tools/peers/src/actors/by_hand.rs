//! No library: a task on tokio's `LocalSet` with an unbounded channel, a one-shot channel for each reply, and a `JoinSet`
//! that tells the parent which of its tasks has ended. An address is the channel's sender; the identity is tokio's of the
//! task.

use super::cases::{Kit, Sum, Supervising, over};
use crate::meter::{Meter, Throughput};
use crate::runtimes::{Runtime, in_task, tokio::Tokio};
use anyhow::{Context, Result, ensure};
use std::future::Future;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, spawn_local};

pub struct ByHand;

pub enum Message {
    Add(u64),
    Ask(u64, oneshot::Sender<u64>),
}

enum Work {
    Fail,
    Ask(oneshot::Sender<u64>),
}

impl Kit for ByHand {
    type Address = UnboundedSender<Message>;

    fn run<T, F>(main: impl FnOnce(Self) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        Tokio::run(move || in_task::<Tokio, _>(main(Self)))
    }

    async fn adder(&self, sum: Sum) -> Result<Self::Address> {
        let (address, inbox) = unbounded_channel();
        spawn_local(add_up(sum, inbox));
        Ok(address)
    }

    async fn call(adder: &Self::Address, number: u64) -> Result<u64> {
        let (reply, replied) = oneshot::channel();
        adder.send(Message::Ask(number, reply)).ok().context("the adder has gone")?;
        Ok(replied.await?)
    }

    async fn cast(adder: &Self::Address, number: u64) -> Result<()> {
        adder.send(Message::Add(number)).ok().context("the adder has gone")
    }

    async fn spawns(&self, meter: Meter) -> Result<Throughput> {
        let sum = Sum::default();
        let mut children = JoinSet::new();
        while meter.add(1) {
            let (address, inbox) = unbounded_channel();
            let child = children.spawn_local(add_up(sum.clone(), inbox)).id();
            // An inbox without senders ends the task.
            drop(address);
            let (ended, ()) = children.join_next_with_id().await.context("the child was not started")??;
            ensure!(ended == child, "another child has ended");
        }
        over(&meter)
    }
}

impl Supervising for ByHand {
    async fn restarts(&self, meter: Meter) -> Result<Throughput> {
        let (started, mut starts) = unbounded_channel();
        let supervisor = spawn_local(supervise(started));
        let mut worker = starts.recv().await.context("the supervisor has gone")?;
        let mut failed = 0;
        while meter.add(1) {
            worker.send(Work::Fail).ok().context("the worker has gone")?;
            failed += 1;
            worker = starts.recv().await.context("the supervisor has gone")?;
            let (reply, replied) = oneshot::channel();
            worker.send(Work::Ask(reply)).ok().context("the worker has gone")?;
            ensure!(replied.await? == failed, "not the new worker has answered");
        }
        supervisor.abort();
        over(&meter)
    }
}

async fn add_up(sum: Sum, mut inbox: UnboundedReceiver<Message>) {
    while let Some(message) = inbox.recv().await {
        match message {
            Message::Add(number) => {
                sum.add(number);
            }
            Message::Ask(number, reply) => {
                let _ = reply.send(sum.add(number));
            }
        }
    }
}

async fn supervise(started: UnboundedSender<UnboundedSender<Work>>) {
    let mut children = JoinSet::new();
    let mut before = 0;
    loop {
        let (address, mut inbox) = unbounded_channel();
        children.spawn_local(async move {
            while let Some(work) = inbox.recv().await {
                match work {
                    Work::Fail => return Err(()),
                    Work::Ask(reply) => {
                        let _ = reply.send(before);
                    }
                }
            }
            Ok(())
        });
        if started.send(address).is_err() {
            return;
        }
        match children.join_next().await {
            Some(Ok(Ok(()))) | None => return,
            Some(_) => before += 1,
        }
    }
}
