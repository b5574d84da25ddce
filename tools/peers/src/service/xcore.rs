//! `push_xcore`: pushes from core 0 into queues on core 1, [`WINDOW`] at a time; after each of these, one comes back.

use super::Outcome;
use crate::meter::{Latency, LatencyMeter};
use crate::runtimes::{Runtime as _, tokio::Tokio};
use crate::xcore::{Answers, Mode, pair, round_trips};
use anyhow::{Context as _, Result, ensure};
use corelet::runtime::{Cores, Runtime, spawn};
use corelet::service::push::{PushBuilder, PushHandle};
use futures::channel::oneshot;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Pushes under way at once at most.
const WINDOW: u64 = 64;
/// Twice as many as are ever under way: some may be in the hand of the queue's own core when the next window begins.
const PLACES: usize = 2 * WINDOW as usize;

/// What the numbers of the first `windows` add up to.
fn sum(windows: u64) -> u64 {
    let last = windows * WINDOW;
    last * (last + 1) / 2
}

/// The pushing side's numbers, and what the sum of all must be when it comes back.
#[derive(Default)]
struct Numbers {
    windows: u64,
}

impl Numbers {
    fn window(&mut self) -> impl Iterator<Item = u64> + use<> {
        let before = self.windows * WINDOW;
        self.windows += 1;
        before + 1..=before + WINDOW
    }

    fn check(&self, came_back: u64) -> Result<()> {
        ensure!(came_back == sum(self.windows), "not what was pushed was received");
        Ok(())
    }
}

/// The receiving side's sum, and the allocations made there, by windows.
struct Received {
    sum: u64,
    count: u64,
    answers: Answers,
}

impl Received {
    fn new() -> Self {
        Self { sum: 0, count: 0, answers: Answers::new() }
    }

    /// Adds a number; the sum, if it is to be sent back.
    #[inline]
    fn add(&mut self, number: u64) -> Option<u64> {
        self.sum += number;
        self.count += 1;
        if !self.count.is_multiple_of(WINDOW) {
            return None;
        }
        self.answers.one();
        Some(self.sum)
    }
}

fn outcome(latency: Latency) -> Outcome {
    // The median, as in `xcore`.
    Outcome::in_memory(latency.p50_us * 1000.0 / WINDOW as f64, latency.allocs_per_op / WINDOW as f64)
}

pub fn corelet(mode: Mode, slice: Duration) -> Result<Outcome> {
    let busy_poll = match mode {
        Mode::Spinning => Duration::from_secs(1),
        Mode::Asleep => Duration::ZERO,
    };
    let builder = Runtime::builder().cores(Cores::Count(2)).pinned(false).busy_poll(busy_poll);
    let (_, mut guests) = builder.build_guests().context("cannot build corelet")?;
    let (there, here) = (guests.pop().context("two cores")?, guests.pop().context("two cores")?);
    let settings = PushBuilder::<u64>::new().high_capacity(PLACES).validate()?;
    let (settings_there, settings_here) = (settings.clone(), settings);
    let (there_is, handle_there) = oneshot::channel();
    let (here_is, handle_here) = oneshot::channel::<PushHandle<u64>>();
    let (over, ended) = oneshot::channel::<()>();
    let latency = pair(
        move || {
            there
                .start()?
                .block_on(async move {
                    let (handle, mut pushed) = settings_there.build();
                    // The other side may have ended early; this one ends as well, then.
                    let _ = there_is.send(handle);
                    let received = Rc::new(RefCell::new(Received::new()));
                    let adding = received.clone();
                    spawn(async move {
                        let Ok(back) = handle_here.await else { return };
                        loop {
                            let Some((_, number)) = pushed.recv().await else { return };
                            let sum = adding.borrow_mut().add(number);
                            if let Some(sum) = sum
                                && back.high(sum).is_err()
                            {
                                return;
                            }
                        }
                    })
                    .detach();
                    let _ = ended.await;
                    received.replace(Received::new()).answers
                })
                .map_err(Into::into)
        },
        move || {
            here.start()?.block_on(async move {
                let (handle, mut back) = settings_here.build();
                let there = handle_there.await.context("the other core did not start")?;
                let _ = here_is.send(handle);
                let (meter, mut numbers, mut began) =
                    (LatencyMeter::new(slice), Numbers::default(), Instant::now());
                loop {
                    for number in numbers.window() {
                        there.high(number)?;
                    }
                    let (_, sum) = back.recv().await.context("the queues are closed")?;
                    numbers.check(sum)?;
                    match meter.lap(began) {
                        Some(next) => began = next,
                        None => break,
                    }
                }
                drop(over);
                meter.outcome().context("the slice ended without an outcome")
            })?
        },
    )?;
    Ok(outcome(latency))
}

/// tokio's bounded channel. Asleep: between two runtimes. Spinning: between two threads that do nothing but look.
pub fn tokio(mode: Mode, slice: Duration) -> Result<Outcome> {
    let (push, pushed) = mpsc::channel(PLACES);
    let (push_back, back) = mpsc::channel(PLACES);
    let latency = match mode {
        Mode::Asleep => tokio_asleep(push, pushed, push_back, back, slice),
        Mode::Spinning => tokio_spinning(push, pushed, push_back, back, slice),
    };
    Ok(outcome(latency?))
}

fn tokio_asleep(
    push: mpsc::Sender<u64>,
    mut pushed: mpsc::Receiver<u64>,
    push_back: mpsc::Sender<u64>,
    mut back: mpsc::Receiver<u64>,
    slice: Duration,
) -> Result<Latency> {
    pair(
        move || {
            Tokio::run(move || async move {
                let mut received = Received::new();
                while let Some(number) = pushed.recv().await {
                    if let Some(sum) = received.add(number)
                        && push_back.try_send(sum).is_err()
                    {
                        break;
                    }
                }
                received.answers
            })
        },
        move || {
            Tokio::run(move || async move {
                let (meter, mut numbers, mut began) =
                    (LatencyMeter::new(slice), Numbers::default(), Instant::now());
                loop {
                    for number in numbers.window() {
                        push.try_send(number)?;
                    }
                    numbers.check(back.recv().await.context("the answering thread has gone")?)?;
                    match meter.lap(began) {
                        Some(next) => began = next,
                        None => return meter.outcome().context("the slice ended without an outcome"),
                    }
                }
            })?
        },
    )
}

fn tokio_spinning(
    push: mpsc::Sender<u64>,
    mut pushed: mpsc::Receiver<u64>,
    push_back: mpsc::Sender<u64>,
    mut back: mpsc::Receiver<u64>,
    slice: Duration,
) -> Result<Latency> {
    pair(
        move || {
            let mut received = Received::new();
            while let Some(number) = spin(&mut pushed) {
                if let Some(sum) = received.add(number)
                    && push_back.try_send(sum).is_err()
                {
                    break;
                }
            }
            Ok(received.answers)
        },
        move || {
            let mut numbers = Numbers::default();
            round_trips(slice, || {
                for number in numbers.window() {
                    push.try_send(number)?;
                }
                numbers.check(spin(&mut back).context("the answering thread has gone")?)
            })
        },
    )
}

/// The next number; none when there will be none.
fn spin(receiver: &mut mpsc::Receiver<u64>) -> Option<u64> {
    loop {
        match receiver.try_recv() {
            Ok(number) => return Some(number),
            Err(mpsc::error::TryRecvError::Empty) => std::hint::spin_loop(),
            Err(mpsc::error::TryRecvError::Disconnected) => return None,
        }
    }
}
