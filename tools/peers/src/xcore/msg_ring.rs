//! Two rings that post completions into each other (MSG_RING) and sleep waiting for them.
#![allow(unsafe_code)]

use super::{Answers, pair, round_trips};
use crate::meter::Latency;
use crate::rings::{self, Parts};
use anyhow::{Context, Result, bail};
use io_uring::{IoUring, opcode, squeue, types};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc;
use std::time::Duration;

const GO: u64 = 1;
const STOP: u64 = 2;
/// Marks the sender's own completion, which only a failure posts.
const SENT: u64 = 3;

pub fn run(slice: Duration) -> Result<Latency> {
    // Each thread makes its own ring, because only the maker may use it, and gives the other a duplicate
    // of its descriptor, which stays good for as long as the other may still send to it.
    let (asker, known_asker) = mpsc::channel();
    let (answerer, known_answerer) = mpsc::channel();
    pair(
        move || {
            let mut ring = rings::ring(8)?;
            answerer.send(duplicate(&ring)?)?;
            let asker: OwnedFd = known_asker.recv().context("the asking thread has no ring")?;
            let mut parts = Parts::of(&mut ring)?;
            let answered = answer(&mut parts, &asker);
            // Nobody listens any more if it was the asker who stopped.
            send(&mut parts, &asker, STOP)?;
            parts.submit()?;
            answered
        },
        move || {
            let mut ring = rings::ring(8)?;
            asker.send(duplicate(&ring)?)?;
            let answerer: OwnedFd = known_answerer.recv().context("the answering thread has no ring")?;
            let mut parts = Parts::of(&mut ring)?;
            let asked = round_trips(slice, || {
                send(&mut parts, &answerer, GO)?;
                expect(&mut parts, GO)
            });
            send(&mut parts, &answerer, STOP)?;
            parts.submit()?;
            asked
        },
    )
}

fn duplicate(ring: &IoUring) -> Result<OwnedFd> {
    // SAFETY: the descriptor is open for as long as `ring`, which outlives the borrow.
    let descriptor = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
    descriptor.try_clone_to_owned().context("duplicating a ring's descriptor")
}

fn answer(parts: &mut Parts<'_>, asker: &OwnedFd) -> Result<Answers> {
    let mut answers = Answers::new();
    loop {
        match parts.wait_for_one()?.user_data() {
            GO => {}
            STOP => return Ok(answers),
            other => bail!("a message to the asking thread failed ({other})"),
        }
        answers.one();
        send(parts, asker, GO)?;
    }
}

/// Queued only: the wait that follows submits it in the same kernel entry.
fn send(parts: &mut Parts<'_>, target: &OwnedFd, message: u64) -> Result<()> {
    let entry = opcode::MsgRingData::new(types::Fd(target.as_raw_fd()), 0, message, None)
        .build()
        .flags(squeue::Flags::SKIP_SUCCESS)
        .user_data(SENT);
    // SAFETY: the entry points to no memory.
    unsafe { parts.push(&entry) }
}

fn expect(parts: &mut Parts<'_>, message: u64) -> Result<()> {
    let completion = parts.wait_for_one()?;
    if completion.user_data() != message {
        rings::outcome(&completion).context("MSG_RING")?;
        bail!("the answering thread has gone");
    }
    Ok(())
}
