//! Two eventfds, each read by a ring: one thread writes the other's, then sleeps in its own ring until
//! its own is written.
#![allow(unsafe_code)]

use super::{Answers, pair, round_trips};
use crate::meter::Latency;
use crate::rings::{self, Parts};
use anyhow::{Context, Result, bail, ensure};
use io_uring::{opcode, types};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Duration;

const GO: u64 = 1;
/// Far from any number of `GO`s, because an eventfd adds up what is written before it is read.
const STOP: u64 = 1 << 32;

pub fn run(slice: Duration) -> Result<Latency> {
    let question = eventfd()?;
    let reply = eventfd()?;
    pair(
        || {
            let answered = answer(&question, &reply);
            ring_bell(&reply, STOP)?;
            answered
        },
        || {
            let asked = ask(slice, &question, &reply);
            ring_bell(&question, STOP)?;
            asked
        },
    )
}

fn answer(question: &File, reply: &File) -> Result<Answers> {
    let mut ring = rings::ring(8)?;
    let mut parts = Parts::of(&mut ring)?;
    let mut answers = Answers::new();
    while sleep_until_rung(&mut parts, question)? == GO {
        ring_bell(reply, GO)?;
        answers.one();
    }
    Ok(answers)
}

fn ask(slice: Duration, question: &File, reply: &File) -> Result<Latency> {
    let mut ring = rings::ring(8)?;
    let mut parts = Parts::of(&mut ring)?;
    round_trips(slice, || {
        ring_bell(question, GO)?;
        ensure!(sleep_until_rung(&mut parts, reply)? == GO, "the answering thread has gone");
        Ok(())
    })
}

fn eventfd() -> Result<File> {
    // SAFETY: no pointers are involved.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error()).context("eventfd");
    }
    // SAFETY: the descriptor was made just above and has no other owner.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// A plain write, as any thread would ring: through the ring it measures the same or worse, because a
/// blocking eventfd is not written inline there.
fn ring_bell(mut bell: &File, value: u64) -> Result<()> {
    bell.write_all(&value.to_ne_bytes()).context("writing an eventfd")
}

fn sleep_until_rung(parts: &mut Parts<'_>, bell: &File) -> Result<u64> {
    let value = Cell::new(0_u64);
    let descriptor = types::Fd(bell.as_raw_fd());
    let read = opcode::Read::new(descriptor, value.as_ptr().cast(), size_of::<u64>() as u32).build();
    // SAFETY: `value` outlives the read: this function leaves only once the read has completed, or on an
    // error of the ring itself, after which the kernel has taken nothing.
    unsafe { parts.push(&read)? };
    let completion = parts.wait_for_one()?;
    match rings::outcome(&completion).context("reading an eventfd")? {
        8 => Ok(value.get()),
        length => bail!("an eventfd gave {length} bytes"),
    }
}
