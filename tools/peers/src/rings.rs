//! Bare io_uring, for the subjects and the echo server that use the ring without a runtime.
//!
//! The only place that pushes entries; nothing here decides what they are.
#![allow(unsafe_code)]

use anyhow::{Context, Result, ensure};
use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, squeue};
use std::io;

/// A ring for the current thread alone, with the flags that make it fastest: completions run in the
/// thread's own enter call instead of interrupting it, and one bad entry does not hold up the others.
pub fn ring(entries: u32) -> Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .setup_cqsize(entries * 4)
        .build(entries)
        .context("cannot build an io_uring (single issuer, deferred task run: Linux 6.1 or newer)")
}

/// The three parts of a ring, in use by the thread that made it.
pub struct Parts<'ring> {
    submitter: Submitter<'ring>,
    submissions: SubmissionQueue<'ring>,
    completions: CompletionQueue<'ring>,
}

impl<'ring> Parts<'ring> {
    /// Registers the ring's descriptor, which saves a table look-up in every enter call.
    pub fn of(ring: &'ring mut IoUring) -> Result<Self> {
        let (mut submitter, submissions, completions) = ring.split();
        submitter.register_ring_fd().context("cannot register the ring's descriptor")?;
        Ok(Self { submitter, submissions, completions })
    }

    /// Queues `entry` for the next [`wait`](Self::wait).
    ///
    /// # Safety
    /// What the entry points to stays valid, and untouched by others, until the operation has ended.
    pub unsafe fn push(&mut self, entry: &squeue::Entry) -> Result<()> {
        // SAFETY: passed on to the caller.
        let pushed = unsafe { self.submissions.push(entry) };
        ensure!(pushed.is_ok(), "the submission queue is full: it was made too small");
        Ok(())
    }

    /// Submits what was pushed, without waiting.
    pub fn submit(&mut self) -> Result<()> {
        self.enter(0)
    }

    /// Submits what was pushed and waits for a completion, in one kernel entry.
    pub fn wait(&mut self) -> Result<()> {
        self.enter(1)
    }

    /// The completion of the only operation in flight.
    pub fn wait_for_one(&mut self) -> Result<cqueue::Entry> {
        loop {
            // A wait that also submitted reports what it submitted even when a signal cut it short.
            self.wait()?;
            if let Some(completion) = self.next() {
                return Ok(completion);
            }
        }
    }

    fn enter(&mut self, completions: usize) -> Result<()> {
        self.submissions.sync();
        loop {
            match self.submitter.submit_and_wait(completions) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("io_uring_enter"),
            }
        }
        self.submissions.sync();
        self.completions.sync();
        Ok(())
    }

    /// The next completion of those the last [`wait`](Self::wait) saw.
    pub fn next(&mut self) -> Option<cqueue::Entry> {
        self.completions.next()
    }
}

/// The completion's outcome in the usual Rust form.
pub fn outcome(completion: &cqueue::Entry) -> io::Result<usize> {
    usize::try_from(completion.result()).map_err(|_| io::Error::from_raw_os_error(-completion.result()))
}
