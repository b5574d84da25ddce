//! An adder on core 1, as a task on core 0 sees it.

use super::Outcome;
use super::cases::{Kit, Sum};
use crate::alloc;
use crate::cores::{self, SERVER};
use crate::meter::{Latency, LatencyMeter};
use anyhow::{Context, Result, anyhow};
use futures::channel::oneshot;
use std::time::{Duration, Instant};

/// Operations of the asking side before the allocations are counted, while queues grow.
const WARM: usize = 64;

/// Round trips that are `messages` messages each; all but the last have no reply.
pub fn run<K: Kit>(messages: u64, slice: Duration) -> Result<Outcome> {
    let (asker, answerer) = sides(messages, slice);
    pair(move || K::run(|kit| answerer.answer(kit))?, move || K::run(|_: K| asker.ask::<K>())?)
}

/// The two sides' ends of what they tell each other. Each ends when the other has gone.
pub fn sides<A>(messages: u64, slice: Duration) -> (Asker<A>, Answerer<A>) {
    let (address, adder) = oneshot::channel();
    let (warm, warmed) = oneshot::channel();
    let (over, ended) = oneshot::channel();
    (Asker { messages, slice, adder, warm, over }, Answerer { address, warmed, ended })
}

pub struct Asker<A> {
    messages: u64,
    slice: Duration,
    adder: oneshot::Receiver<A>,
    warm: oneshot::Sender<()>,
    over: oneshot::Sender<()>,
}

pub struct Asked {
    messages: u64,
    latency: Latency,
    /// Since the answering side counts its allocations.
    round_trips: u64,
}

impl<A> Asker<A> {
    pub async fn ask<K: Kit<Address = A>>(self) -> Result<Asked> {
        let adder = self.adder.await.context("the answering side did not start")?;
        for _ in 0..WARM {
            round_trip::<K>(&adder, self.messages).await?;
        }
        let _ = self.warm.send(());
        let meter = LatencyMeter::new(self.slice);
        let mut began = Instant::now();
        let mut round_trips = 0;
        loop {
            round_trip::<K>(&adder, self.messages).await?;
            round_trips += 1;
            match meter.lap(began) {
                Some(next) => began = next,
                None => break,
            }
        }
        drop(self.over);
        let latency = meter.outcome().context("the slice is not over")?;
        Ok(Asked { messages: self.messages, latency, round_trips })
    }
}

async fn round_trip<K: Kit>(adder: &K::Address, messages: u64) -> Result<()> {
    for _ in 1..messages {
        K::cast(adder, 1).await?;
    }
    K::call(adder, 1).await.map(drop)
}

pub struct Answerer<A> {
    address: oneshot::Sender<A>,
    warmed: oneshot::Receiver<()>,
    ended: oneshot::Receiver<()>,
}

impl<A> Answerer<A> {
    /// The allocations of the answering side's thread while the other one measures.
    pub async fn answer<K: Kit<Address = A>>(self, kit: K) -> Result<u64> {
        let adder = kit.adder(Sum::default()).await?;
        let _ = self.address.send(adder);
        let _ = self.warmed.await;
        let when_warm = alloc::on_this_thread();
        let _ = self.ended.await;
        Ok(alloc::on_this_thread() - when_warm)
    }
}

/// Runs `answer` on core 1 while `ask` runs here.
pub fn pair(
    answer: impl FnOnce() -> Result<u64> + Send,
    ask: impl FnOnce() -> Result<Asked>,
) -> Result<Outcome> {
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            cores::pin(SERVER)?;
            answer()
        });
        let asked = ask();
        let allocations =
            answering.join().map_err(|_| anyhow!("the answering thread panicked"))?.context("answering")?;
        let Asked { messages, mut latency, round_trips } = asked?;
        latency.allocs_per_op += allocations as f64 / round_trips as f64;
        Ok(outcome(latency, messages))
    })
}

/// Of round trips that are `messages` messages each.
pub fn outcome(latency: Latency, messages: u64) -> Outcome {
    // The median, as in `xcore`.
    Outcome {
        ns_per_op: latency.p50_us * 1000.0 / messages as f64,
        allocs_per_op: latency.allocs_per_op / messages as f64,
        bytes_per_item: None,
    }
}
