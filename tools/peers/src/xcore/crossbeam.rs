//! Two unbounded crossbeam channels, both ends spinning.

use super::{Answers, pair, round_trips};
use crate::meter::Latency;
use anyhow::{Result, bail};
use crossbeam_channel::{Receiver, TryRecvError, unbounded};
use std::time::Duration;

pub fn run(slice: Duration) -> Result<Latency> {
    let (questions, asked) = unbounded::<u64>();
    let (replies, replied) = unbounded::<u64>();
    pair(
        move || {
            let mut answers = Answers::new();
            while let Some(question) = spin(&asked) {
                if replies.send(question).is_err() {
                    break;
                }
                answers.one();
            }
            Ok(answers)
        },
        move || {
            round_trips(slice, || {
                questions.send(1)?;
                if spin(&replied).is_none() {
                    bail!("the answering thread has gone");
                }
                Ok(())
            })
        },
    )
}

/// The next message, or `None` when the other side has gone.
fn spin(messages: &Receiver<u64>) -> Option<u64> {
    loop {
        match messages.try_recv() {
            Ok(message) => return Some(message),
            Err(TryRecvError::Empty) => std::hint::spin_loop(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
}
