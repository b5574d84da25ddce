//! The four workloads, written once for all runtimes.

use super::Case;
use crate::meter::{Meter, Throughput};
use crate::runtimes::{Timers, in_task, wake_itself};
use anyhow::{Context, Result};
use local_sync::mpsc::unbounded;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

const YIELDING_TASKS: usize = 64;
const SPAWN_BATCH: usize = 100;
const PAIRS: usize = 100;
const PENDING_TIMERS: usize = 100;
const TIMER: Duration = Duration::from_secs(1);

pub fn run<R: Timers>(case: Case, slice: Duration) -> Result<Throughput> {
    let outcome = match case {
        Case::Yield => R::run(move || in_task::<R, _>(yields::<R>(slice)))?,
        Case::Spawn => R::run(move || in_task::<R, _>(spawns::<R>(slice)))?,
        Case::PingPong => R::run(move || in_task::<R, _>(ping_pong::<R>(slice)))?,
        Case::Timers => R::run(move || in_task::<R, _>(timers::<R>(slice)))?,
    };
    outcome.context("the tasks ended before the slice was over")
}

async fn yields<R: Timers>(slice: Duration) -> Option<Throughput> {
    let meter = Rc::new(Meter::new(slice));
    let tasks: Vec<_> = (0..YIELDING_TASKS)
        .map(|_| {
            let meter = meter.clone();
            R::spawn(async move {
                loop {
                    R::yield_in_turn().await;
                    if !meter.add(1) {
                        break;
                    }
                }
                R::leave_turns();
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    meter.outcome()
}

async fn spawns<R: Timers>(slice: Duration) -> Option<Throughput> {
    let meter = Meter::new(slice);
    let mut tasks = Vec::with_capacity(SPAWN_BATCH);
    while meter.add(SPAWN_BATCH as u64) {
        tasks.extend((0..SPAWN_BATCH).map(|_| R::spawn(async {})));
        for task in tasks.drain(..) {
            task.await;
        }
    }
    meter.outcome()
}

async fn ping_pong<R: Timers>(slice: Duration) -> Option<Throughput> {
    let meter = Rc::new(Meter::new(slice));
    let mut tasks = Vec::with_capacity(2 * PAIRS);
    for _ in 0..PAIRS {
        let (ping, mut pinged) = unbounded::channel::<u64>();
        let (pong, mut ponged) = unbounded::channel::<u64>();
        let answering = R::spawn(async move {
            while let Some(message) = pinged.recv().await {
                if pong.send(message).is_err() {
                    break;
                }
            }
        });
        let meter = meter.clone();
        let asking = R::spawn(async move {
            let mut message = 0;
            // Two messages a round trip. Leaving drops the sender, which ends the other task.
            while meter.add(2) && ping.send(message).is_ok() {
                match ponged.recv().await {
                    Some(reply) => message = reply + 1,
                    None => break,
                }
            }
        });
        // Boxed because the two tasks have different types; outside the measured time.
        tasks.push(Box::pin(async move {
            asking.await;
            answering.await;
        }));
    }
    for task in tasks {
        task.await;
    }
    meter.outcome()
}

/// Replaces the oldest of the pending sleeps by a new one, in place, so that no box per sleep is part of
/// the figure.
async fn timers<R: Timers>(slice: Duration) -> Option<Throughput> {
    let mut pending: Vec<Pin<Box<Option<_>>>> = (0..PENDING_TIMERS).map(|_| Box::pin(None)).collect();
    let meter = Meter::new(slice);
    loop {
        let fired = poll_fn(|context| {
            let mut fired = false;
            for slot in &mut pending {
                slot.set(Some(R::sleep(TIMER)));
                let armed = slot.as_mut().as_pin_mut().expect("just set");
                fired |= armed.poll(context).is_ready();
            }
            Poll::Ready(fired)
        })
        .await;
        assert!(!fired, "a sleep of a second ended at once");
        if !meter.add(PENDING_TIMERS as u64) {
            return meter.outcome();
        }
        // A runtime that tidies up after cancelled timers in its own turn gets that turn.
        wake_itself().await;
    }
}
