//! compio-actor: a `Cluster` of one worker, which has the calling thread's affinity. The measuring task runs on the worker
//! too, for the actors can run nowhere else.
//!
//! Mailboxes hold 64 messages, as by default, which is not exceeded. A parent is told of its children's start and end by
//! supervision events. A supervisor restarts by starting another child, and tells the caller its address.

use super::cases::{Kit, Sum, Supervising, over};
use crate::meter::{Meter, Throughput};
use anyhow::{Context, Result, anyhow, ensure};
use compio_actor::supervisor::SupervisionEvent;
use compio_actor::{Actor, Call, Cluster, Handler, Mailbox};
use compio_dispatcher::Dispatcher;
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::channel::oneshot;
use std::convert::Infallible;
use std::future::Future;
use std::num::NonZeroUsize;

pub struct CompioActor(Cluster);

impl Kit for CompioActor {
    type Address = Mailbox<Adder>;

    fn run<T, F>(main: impl FnOnce(Self) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let dispatcher =
            Dispatcher::builder().worker_threads(NonZeroUsize::MIN).build().context("cannot start compio")?;
        let (give, given) = oneshot::channel();
        let outcome = dispatcher
            .dispatch(move || async { Some(main(CompioActor(given.await.ok()?)).await) })
            .map_err(|_| anyhow!("compio's worker has gone"))?;
        let cluster = Cluster::from_dispatcher(dispatcher);
        let _ = give.send(cluster.clone());
        futures::executor::block_on(async {
            let outcome = outcome.await;
            cluster.join().await?;
            outcome.ok().flatten().context("the measuring task has panicked")
        })
    }

    async fn adder(&self, sum: Sum) -> Result<Self::Address> {
        let (adder, _) = self.0.spawn(|| Adder, sum).await?;
        Ok(adder)
    }

    async fn call(adder: &Self::Address, number: u64) -> Result<u64> {
        adder.call(number).await.map_err(|error| anyhow!("{error}"))
    }

    async fn cast(adder: &Self::Address, number: u64) -> Result<()> {
        adder.send(number).map_err(|error| anyhow!("{error}"))
    }

    async fn spawns(&self, meter: Meter) -> Result<Throughput> {
        let (done, outcome) = oneshot::channel();
        self.0.spawn(|| Parent, (meter, done)).await.map_err(|error| anyhow!("{error}"))?;
        outcome.await.context("the parent has failed")
    }
}

impl Supervising for CompioActor {
    async fn restarts(&self, meter: Meter) -> Result<Throughput> {
        let (started, mut starts) = unbounded();
        let (supervisor, _) =
            self.0.spawn(|| Supervisor, started).await.map_err(|error| anyhow!("{error}"))?;
        let mut worker = starts.next().await.context("the supervisor has gone")?;
        let mut failed = 0;
        while meter.add(1) {
            worker.send(Fail).map_err(|error| anyhow!("{error}"))?;
            failed += 1;
            worker = starts.next().await.context("the supervisor has gone")?;
            let answer: u64 = worker.call(Before).await.map_err(|error| anyhow!("{error}"))?;
            ensure!(answer == failed, "not the new worker has answered");
        }
        supervisor.stop();
        over(&meter)
    }
}

pub struct Adder;

impl Actor for Adder {
    type State = Sum;
    type Arguments = Sum;
    type Error = Infallible;

    async fn pre_start(&self, _: &Mailbox<Self>, sum: Sum) -> Result<Sum, Infallible> {
        Ok(sum)
    }
}

impl Handler<u64> for Adder {
    async fn handle(&self, _: &Mailbox<Self>, number: u64, sum: &mut Sum) -> Result<(), Infallible> {
        sum.add(number);
        Ok(())
    }
}

impl Handler<Call<u64, u64>> for Adder {
    async fn handle(&self, _: &Mailbox<Self>, call: Call<u64, u64>, sum: &mut Sum) -> Result<(), Infallible> {
        let sum = sum.add(*call.message());
        let _ = call.reply(sum);
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
    async fn start_a_child(&self, myself: &Mailbox<Parent>) -> Result<()> {
        let (child, _) = Cluster::current().spawn(|| Adder, self.sum.clone()).with_supervisor(myself).await?;
        child.stop();
        Ok(())
    }
}

impl Actor for Parent {
    type State = Spawns;
    type Arguments = (Meter, oneshot::Sender<Throughput>);
    type Error = anyhow::Error;

    async fn pre_start(&self, _: &Mailbox<Self>, (meter, done): Self::Arguments) -> Result<Spawns> {
        Ok(Spawns { sum: Sum::default(), meter, done: Some(done) })
    }

    async fn post_start(&self, myself: &Mailbox<Self>, spawns: &mut Spawns) -> Result<()> {
        spawns.start_a_child(myself).await
    }
}

impl Handler<SupervisionEvent<Adder>> for Parent {
    async fn handle(
        &self,
        myself: &Mailbox<Self>,
        event: SupervisionEvent<Adder>,
        spawns: &mut Spawns,
    ) -> Result<()> {
        if !matches!(event, SupervisionEvent::ActorTerminated(_)) {
            return Ok(());
        }
        if spawns.meter.add(1) {
            return spawns.start_a_child(myself).await;
        }
        if let Some(done) = spawns.done.take() {
            let _ = done.send(over(&spawns.meter)?);
        }
        myself.stop();
        Ok(())
    }
}

struct Worker;

struct Fail;

struct Before;

impl Actor for Worker {
    type State = u64;
    type Arguments = u64;
    type Error = &'static str;

    async fn pre_start(&self, _: &Mailbox<Self>, before: u64) -> Result<u64, &'static str> {
        Ok(before)
    }
}

impl Handler<Fail> for Worker {
    async fn handle(&self, _: &Mailbox<Self>, _: Fail, _: &mut u64) -> Result<(), &'static str> {
        Err("as it was told")
    }
}

impl Handler<Call<Before, u64>> for Worker {
    async fn handle(
        &self,
        _: &Mailbox<Self>,
        call: Call<Before, u64>,
        before: &mut u64,
    ) -> Result<(), &'static str> {
        let _ = call.reply(*before);
        Ok(())
    }
}

struct Supervisor;

struct Restarts {
    before: u64,
    started: UnboundedSender<Mailbox<Worker>>,
}

impl Restarts {
    async fn start_a_worker(&self, myself: &Mailbox<Supervisor>) -> Result<()> {
        let (worker, _) = Cluster::current()
            .spawn(|| Worker, self.before)
            .with_supervisor(myself)
            .await
            .map_err(|error| anyhow!("{error}"))?;
        let _ = self.started.unbounded_send(worker);
        Ok(())
    }
}

impl Actor for Supervisor {
    type State = Restarts;
    type Arguments = UnboundedSender<Mailbox<Worker>>;
    type Error = anyhow::Error;

    async fn pre_start(&self, _: &Mailbox<Self>, started: Self::Arguments) -> Result<Restarts> {
        Ok(Restarts { before: 0, started })
    }

    async fn post_start(&self, myself: &Mailbox<Self>, restarts: &mut Restarts) -> Result<()> {
        restarts.start_a_worker(myself).await
    }
}

impl Handler<SupervisionEvent<Worker>> for Supervisor {
    async fn handle(
        &self,
        myself: &Mailbox<Self>,
        event: SupervisionEvent<Worker>,
        restarts: &mut Restarts,
    ) -> Result<()> {
        if matches!(event, SupervisionEvent::ActorFailed(_)) {
            restarts.before += 1;
            restarts.start_a_worker(myself).await?;
        }
        Ok(())
    }
}
