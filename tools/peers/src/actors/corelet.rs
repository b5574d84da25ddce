//! corelet: servers on one core, or on two of one runtime. Beside them, as `corelet_bare`, tasks with an address, which
//! loop over their mailbox themselves, as in `by_hand`.
//!
//! Mailboxes have no bound. A parent monitors its child; the exit signal is the monitor's `Down`. A supervisor's
//! child is a task with an address, which tells the caller its address as it starts; the limit of restarts is out of reach.

use super::cases::{self, CASTS, Kit, Sum, Supervising, over, settle};
use super::xcore::{pair, sides};
use super::{Case, Outcome};
use crate::meter::{Meter, Throughput};
use crate::rounds::Plan;
use crate::runtimes::{Runtime as _, corelet::Corelet as Core, in_task};
use crate::xcore::Mode;
use anyhow::{Context as _, Result, ensure};
use corelet::actor::channel::Receiver;
use corelet::actor::server::{self, Context, Server, ServerRef};
use corelet::actor::supervisor::{ChildRef, ChildSpec, Supervisor};
use corelet::actor::{self, Addressable, ExitReason, Pid, Reply};
use corelet::runtime::{Cores, Runtime};
use futures::StreamExt;
use futures::channel::mpsc::unbounded;
use std::convert::Infallible;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub fn run(case: Case, plan: &Plan) -> Result<Outcome> {
    match case {
        Case::CallXcore(mode) => across::<Servers>(mode, 1, plan.slice),
        Case::CastXcore(mode) => across::<Servers>(mode, CASTS, plan.slice),
        Case::Snapshot => {
            let (slice, crowd) = (plan.slice, plan.crowd);
            Servers::run(move |_| snapshots(slice, crowd))?
        }
        _ => cases::run::<Servers>(case, plan),
    }
}

pub fn run_bare(case: Case, plan: &Plan) -> Result<Outcome> {
    match case {
        Case::CallXcore(mode) => across::<Bare>(mode, 1, plan.slice),
        Case::CastXcore(mode) => across::<Bare>(mode, CASTS, plan.slice),
        _ => cases::run_unsupervised::<Bare>(case, plan),
    }
}

#[derive(Default)]
struct Servers;

impl Kit for Servers {
    type Address = ServerRef<Adder>;

    fn run<T, F>(main: impl FnOnce(Self) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        Core::run(move || in_task::<Core, _>(main(Self)))
    }

    async fn adder(&self, sum: Sum) -> Result<Self::Address> {
        Ok(server::start(Adder(sum)))
    }

    async fn call(adder: &Self::Address, number: u64) -> Result<u64> {
        Ok(adder.call(number).await?)
    }

    async fn cast(adder: &Self::Address, number: u64) -> Result<()> {
        Ok(adder.cast(number)?)
    }

    async fn spawns(&self, meter: Meter) -> Result<Throughput> {
        let sum = Sum::default();
        while meter.add(1) {
            let child = server::start(Adder(sum.clone()));
            let end = actor::monitor(child.pid());
            // A server that nobody refers to ends.
            drop(child);
            ensure!(end.await.reason == ExitReason::Normal, "the child has failed");
        }
        over(&meter)
    }
}

pub struct Adder(Sum);

impl Server for Adder {
    type Call = u64;
    type Reply = u64;
    type Cast = u64;
    type Info = Infallible;

    async fn handle_call(&mut self, number: u64, reply: Reply<u64>, _: &Context<Self>) {
        reply.send(self.0.add(number));
    }

    async fn handle_cast(&mut self, number: u64, _: &Context<Self>) {
        self.0.add(number);
    }
}

impl Supervising for Servers {
    async fn restarts(&self, meter: Meter) -> Result<Throughput> {
        let (started, mut starts) = unbounded();
        let (worker, before) = (ChildRef::<Worker>::new(), AtomicU64::new(0));
        let place = worker.clone();
        let child = ChildSpec::addressed("worker", &worker, async move |inbox| {
            let _ = started.unbounded_send(place.pid());
            work(inbox, before.fetch_add(1, Ordering::Relaxed)).await;
        });
        // No time to look back to, so that nothing is kept of the restarts.
        let supervisor =
            Supervisor::builder().intensity(u32::MAX, Duration::ZERO).child(child).start().await?;
        let mut worker = starts.next().await.flatten().context("the supervisor has gone")?;
        let mut failed = 0;
        while meter.add(1) {
            actor::send_to(worker, Work::Fail).ok().context("the worker has gone")?;
            failed += 1;
            worker = starts.next().await.flatten().context("the supervisor has gone")?;
            let answer = actor::call(worker, Work::Ask).await?;
            ensure!(answer == failed, "not the new worker has answered");
        }
        supervisor.shutdown().await;
        over(&meter)
    }
}

enum Worker {}

enum Work {
    Fail,
    Ask(Reply<u64>),
}

impl Addressable for Worker {
    type Msg = Work;
}

async fn work(mut inbox: Receiver<Work>, before: u64) {
    while let Ok(work) = inbox.recv().await {
        match work {
            Work::Fail => actor::exit("as it was told").await,
            Work::Ask(reply) => reply.send(before),
        }
    }
}

#[derive(Default)]
struct Bare;

impl Kit for Bare {
    type Address = Pid<BareAdder>;

    fn run<T, F>(main: impl FnOnce(Self) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        Core::run(move || in_task::<Core, _>(main(Self)))
    }

    async fn adder(&self, sum: Sum) -> Result<Self::Address> {
        Ok(add_up(sum))
    }

    async fn call(adder: &Self::Address, number: u64) -> Result<u64> {
        Ok(actor::call(*adder, |reply| Message::Ask(number, reply)).await?)
    }

    async fn cast(adder: &Self::Address, number: u64) -> Result<()> {
        actor::send_to(*adder, Message::Add(number)).ok().context("the adder has gone")
    }

    async fn spawns(&self, meter: Meter) -> Result<Throughput> {
        let sum = Sum::default();
        while meter.add(1) {
            let child = add_up(sum.clone());
            let end = actor::monitor(child);
            actor::send_to(child, Message::Stop).ok().context("the child has gone")?;
            ensure!(end.await.reason == ExitReason::Normal, "the child has failed");
        }
        over(&meter)
    }
}

pub enum BareAdder {}

pub enum Message {
    Add(u64),
    Ask(u64, Reply<u64>),
    Stop,
}

impl Addressable for BareAdder {
    type Msg = Message;
}

fn add_up(sum: Sum) -> Pid<BareAdder> {
    actor::spawn_addr::<BareAdder, _, _>(async move |mut inbox| {
        while let Ok(message) = inbox.recv().await {
            match message {
                Message::Add(number) => {
                    sum.add(number);
                }
                Message::Ask(number, reply) => reply.send(sum.add(number)),
                Message::Stop => break,
            }
        }
    })
}

async fn snapshots(slice: Duration, crowd: usize) -> Result<Outcome> {
    let sum = Sum::default();
    let _crowd: Vec<_> = (0..crowd).map(|_| server::start(Adder(sum.clone()))).collect();
    settle().await;
    cases::lists(crowd, slice, async || {
        let snapshot = actor::snapshot().await;
        let length = snapshot.actors().count();
        Ok((snapshot, length))
    })
    .await
}

fn across<K: Kit + Default>(mode: Mode, messages: u64, slice: Duration) -> Result<Outcome> {
    let busy_poll = match mode {
        Mode::Spinning => Duration::from_secs(1),
        Mode::Asleep => Duration::ZERO,
    };
    let builder = Runtime::builder().cores(Cores::Count(2)).pinned(false).busy_poll(busy_poll);
    let (_handle, mut guests) = builder.build_guests().context("cannot build corelet")?;
    let (there, here) = (guests.pop().context("two cores")?, guests.pop().context("two cores")?);
    let (asker, answerer) = sides(messages, slice);
    pair(
        move || there.start()?.block_on(in_task::<Core, _>(answerer.answer(K::default())))?,
        move || here.start()?.block_on(in_task::<Core, _>(asker.ask::<K>()))?,
    )
}
