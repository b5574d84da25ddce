//! corelet: actors with an address on one core, or on two of one runtime.
//!
//! Mailboxes have no bound. A parent monitors its child; the exit signal is the monitor's `Down`.

use super::cases::{self, CASTS, Kit, Sum, over};
use super::xcore::{pair, sides};
use super::{Case, Outcome};
use crate::meter::{Meter, Throughput};
use crate::rounds::Plan;
use crate::runtimes::{Runtime as _, corelet::Corelet as Core, in_task};
use crate::xcore::Mode;
use anyhow::{Context, Result, bail, ensure};
use corelet::actor::{self, Addressable, ExitReason, Pid, Reply};
use corelet::runtime::{Cores, Runtime};
use std::future::Future;
use std::time::Duration;

pub fn run(case: Case, plan: &Plan) -> Result<Outcome> {
    match case {
        Case::CallXcore(mode) => across(mode, 1, plan.slice),
        Case::CastXcore(mode) => across(mode, CASTS, plan.slice),
        _ => cases::run::<Corelet>(case, plan),
    }
}

pub struct Corelet;

pub enum Adder {}

pub enum Message {
    Add(u64),
    Ask(u64, Reply<u64>),
    Stop,
}

impl Addressable for Adder {
    type Msg = Message;
}

impl Kit for Corelet {
    type Address = Pid<Adder>;

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

    async fn restarts(&self, _: Meter) -> Result<Throughput> {
        bail!("corelet has no supervisors")
    }
}

fn add_up(sum: Sum) -> Pid<Adder> {
    actor::spawn_addr::<Adder, _, _>(async move |mut inbox| {
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

fn across(mode: Mode, messages: u64, slice: Duration) -> Result<Outcome> {
    let busy_poll = match mode {
        Mode::Spinning => Duration::from_secs(1),
        Mode::Asleep => Duration::ZERO,
    };
    let builder = Runtime::builder().cores(Cores::Count(2)).pinned(false).busy_poll(busy_poll);
    let (_handle, mut guests) = builder.build_guests().context("cannot build corelet")?;
    let (there, here) = (guests.pop().context("two cores")?, guests.pop().context("two cores")?);
    let (asker, answerer) = sides(messages, slice);
    pair(
        move || there.start()?.block_on(in_task::<Core, _>(answerer.answer(Corelet)))?,
        move || here.start()?.block_on(in_task::<Core, _>(asker.ask::<Corelet>()))?,
    )
}
