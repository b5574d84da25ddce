//! Two tokio current-thread runtimes and its unbounded mpsc channels; both sleep in epoll.

use super::{Answers, pair};
use crate::meter::{Latency, LatencyMeter};
use crate::runtimes::{Runtime, tokio::Tokio};
use anyhow::{Context, Result};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::unbounded_channel;

pub fn run(slice: Duration) -> Result<Latency> {
    let (questions, mut asked) = unbounded_channel::<u64>();
    let (replies, mut replied) = unbounded_channel::<u64>();
    pair(
        move || {
            Tokio::run(move || async move {
                let mut answers = Answers::new();
                while let Some(question) = asked.recv().await {
                    if replies.send(question).is_err() {
                        break;
                    }
                    answers.one();
                }
                answers
            })
        },
        move || {
            Tokio::run(move || async move {
                let meter = LatencyMeter::new(slice);
                let mut began = Instant::now();
                loop {
                    questions.send(1)?;
                    replied.recv().await.context("the answering thread has gone")?;
                    match meter.lap(began) {
                        Some(next) => began = next,
                        None => return meter.outcome().context("the slice ended without an outcome"),
                    }
                }
            })?
        },
    )
}
