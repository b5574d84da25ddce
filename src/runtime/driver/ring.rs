//! The io_uring ring of one core: the only file that enters the kernel for it.
//!
//! Rules:
//! 1. The ring is built and used on one thread.
//! 2. An entry that was pushed is the kernel's, even when the call that should submit it fails: its cell stays.
//! 3. Pushing never fails and never drops an entry: what the submission queue has no room for waits in order behind it.
//! 4. EINTR, EAGAIN and EBUSY are ordinary: the caller reaps and comes back.
//! 5. Completions that overflowed the completion queue are fetched before anyone concludes that there are none.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::entrance::Entrance;
use super::op::{Completion, OpKey, Ops, Request};
use super::probe::{self, Features};
use super::{DriverStats, EnterCall, EnterHook, RingConfig};
use crate::runtime::error::StartError;

/// `user_data` of entries whose completion nobody needs.
const IGNORED: u64 = u64::MAX;
/// `user_data` of the alarms.
const ALARM: u64 = u64::MAX - 2;
/// `user_data` of the doorbell's read.
const DOORBELL: u64 = u64::MAX - 1;

/// A wait with a time limit costs the kernel a timer of its own, each time. A limit further off than this is left to an
/// alarm, a timer operation that stays armed over many waits.
const LONG_WAIT: Duration = Duration::from_millis(5);

const LONGEST_ALARM: Duration = Duration::from_secs(24 * 3600);

const BUFFER_GROUP: u16 = 0;
const GETEVENTS: u32 = 1;
const EXT_ARG: u32 = 1 << 3;
/// `ioprio` flag of receives: look at the socket only when it is said to be ready.
const POLL_FIRST: u16 = 1;

/// The kernel's `struct io_uring_getevents_arg`.
#[repr(C)]
#[derive(Default)]
struct GetEventsArg {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_usec: u32,
    timespec: u64,
}

pub(crate) struct Ring {
    // Goes before the ring that it enters.
    entrance: Entrance,
    ring: IoUring,
    backlog: VecDeque<squeue::Entry>,
    pushed: u64,
    bell: RawFd,
    bell_count: Box<u64>,
    bell_armed: bool,
    alarm_time: Box<types::Timespec>,
    /// Alarms in flight, and when the earliest of them rings at the latest.
    alarms: u32,
    alarm_at: Option<Instant>,
    /// The latest alarm's place among the staged entries.
    unread_alarm: u64,
    /// Whether completions signal the registered eventfd; none when there is no such thing.
    signals: Option<bool>,
    features: Features,
    hook: Option<EnterHook>,
}

impl Ring {
    /// Builds the ring of the calling thread, with the best flags that this kernel takes.
    pub(crate) fn new(config: &RingConfig, bell: RawFd) -> Result<Ring, StartError> {
        let (ring, mut features) = probe::build(config)?;
        let entrance = Entrance::new(ring.as_raw_fd());
        features.registered_ring = entrance.is_registered();
        Ok(Ring {
            entrance,
            ring,
            backlog: VecDeque::new(),
            pushed: 0,
            bell,
            bell_count: Box::new(0),
            bell_armed: false,
            alarm_time: Box::new(types::Timespec::new()),
            alarms: 0,
            alarm_at: None,
            unread_alarm: 0,
            signals: None,
            features,
            hook: config.hook.clone(),
        })
    }

    pub(crate) fn features(&self) -> Features {
        self.features
    }

    pub(crate) fn register_buffers(&self, ring_address: u64, entries: u16) -> io::Result<()> {
        // SAFETY: the address is that of a mapping of `entries` ring entries, which the driver keeps until the ring
        // is closed.
        unsafe { self.ring.submitter().register_buf_ring_with_flags(ring_address, entries, BUFFER_GROUP, 0) }
    }

    /// Has the ring signal `eventfd` with every completion, for a thread that waits for the core in a loop of its own.
    pub(crate) fn register_eventfd(&mut self, eventfd: RawFd) -> io::Result<()> {
        if self.signals.is_none() {
            self.ring.submitter().register_eventfd(eventfd)?;
            self.signals = Some(true);
        }
        Ok(())
    }

    /// Switches the signals to a registered eventfd. A ring that waits by itself must not give them: the eventfd is
    /// also the doorbell that it reads, so every completed read would complete the next one.
    pub(crate) fn signal_eventfd(&mut self, on: bool) {
        if self.signals != Some(!on) {
            return;
        }
        self.signals = Some(on);
        let completion = self.ring.completion();
        if on { completion.enable_eventfd() } else { completion.disable_eventfd() }
    }

    /// Stages one request.
    ///
    /// # Safety
    /// What the request points at stays valid until its terminal completion, and `fd` stays open until then.
    pub(crate) unsafe fn push(&mut self, key: OpKey, fd: RawFd, request: Request) {
        self.stage(self.entry(fd, request).user_data(key.user_data()));
    }

    /// Stages a cancel of one request. Its own completion is of no interest.
    pub(crate) fn push_cancel(&mut self, key: OpKey) {
        let entry = opcode::AsyncCancel::new(key.user_data()).build();
        self.stage(entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(IGNORED));
    }

    fn entry(&self, fd: RawFd, request: Request) -> squeue::Entry {
        let fd = types::Fd(fd);
        match request {
            Request::Accept { multishot: false } => {
                opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut())
                    .flags(libc::SOCK_CLOEXEC)
                    .build()
            }
            Request::Accept { multishot: true } => {
                opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build()
            }
            Request::Connect { address } => {
                // SAFETY: the caller of `push` promises that the address is valid, from before the call on.
                let address = unsafe { &*address };
                opcode::Connect::new(fd, address.as_ptr().cast(), address.len()).build()
            }
            Request::Receive { into, len } => opcode::Recv::new(fd, into, len).build(),
            Request::ReceivePooled { multishot: true, .. } => {
                opcode::RecvMulti::new(fd, BUFFER_GROUP).build()
            }
            Request::ReceivePooled { multishot: false, wait_first } => {
                opcode::Recv::new(fd, std::ptr::null_mut(), 0)
                    .buf_group(BUFFER_GROUP)
                    .ioprio(if wait_first { POLL_FIRST } else { 0 })
                    .build()
                    .flags(squeue::Flags::BUFFER_SELECT)
            }
            Request::Send { from, len, all } => {
                let all = if all { libc::MSG_WAITALL } else { 0 };
                opcode::Send::new(fd, from, len).flags(libc::MSG_NOSIGNAL | all).build()
            }
            // With MSG_DONTWAIT the kernel never parks the request, so it is over once it is consumed; MSG_WAITALL
            // makes a short send count as a failure, which posts a completion in spite of SKIP_SUCCESS.
            Request::SendPosted { from, len } => opcode::Send::new(fd, from, len)
                .flags(libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL)
                .build()
                .flags(squeue::Flags::SKIP_SUCCESS),
            Request::SendVectored { message } => {
                opcode::SendMsg::new(fd, message).flags(libc::MSG_NOSIGNAL as u32).build()
            }
            Request::Shutdown { how } => opcode::Shutdown::new(fd, how).build(),
            Request::Poll { events } => opcode::PollAdd::new(fd, events).build(),
        }
    }

    fn stage(&mut self, entry: squeue::Entry) {
        self.pushed += 1;
        // SAFETY: the callers answer for what the entry points at.
        if !self.backlog.is_empty() || unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.backlog.push_back(entry);
        }
    }

    /// How many entries were ever staged.
    pub(crate) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// How many of them the kernel has consumed.
    pub(crate) fn consumed(&mut self) -> u64 {
        self.pushed - (self.ring.submission().len() + self.backlog.len()) as u64
    }

    /// Is there anything to gain from entering the kernel without waiting?
    pub(crate) fn wants_enter(&mut self) -> bool {
        let submission = self.ring.submission();
        !submission.is_empty() || submission.taskrun() || !self.backlog.is_empty()
    }

    /// Has a completion arrived, or will entering the kernel show one? Reads shared memory only.
    pub(crate) fn has_news(&mut self) -> bool {
        let submission = self.ring.submission();
        let hidden = submission.taskrun() || submission.cq_overflow();
        drop(submission);
        hidden || !self.ring.completion().is_empty()
    }

    /// Submits everything staged without waiting for a completion.
    pub(crate) fn submit(&mut self, stats: &mut DriverStats) -> io::Result<()> {
        loop {
            self.refill();
            let before = self.consumed();
            self.enter(0, None, stats)?;
            if self.backlog.is_empty() || self.consumed() == before {
                return Ok(());
            }
        }
    }

    /// Submits everything staged and waits for one completion, for at most `timeout`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>, stats: &mut DriverStats) -> io::Result<()> {
        self.signal_eventfd(false);
        self.arm_doorbell();
        let timeout = self.leave_to_alarm(timeout);
        self.refill();
        if !self.backlog.is_empty() {
            // More than the submission queue holds: sleeping now would leave the rest unsent.
            return self.submit(stats);
        }
        self.enter(1, timeout, stats)
    }

    /// Waits without the doorbell, while closing.
    pub(crate) fn wait_quietly(&mut self, timeout: Duration, stats: &mut DriverStats) -> io::Result<()> {
        self.refill();
        self.enter(1, Some(timeout), stats)
    }

    fn arm_doorbell(&mut self) {
        if !self.bell_armed {
            self.bell_armed = true;
            let entry =
                opcode::Read::new(types::Fd(self.bell), (&raw mut *self.bell_count).cast(), 8).build();
            self.stage(entry.user_data(DOORBELL));
        }
    }

    /// What is left of a time limit when an alarm takes care of it.
    fn leave_to_alarm(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(limit) = timeout.filter(|limit| *limit > LONG_WAIT) else { return timeout };
        let due = Instant::now() + limit.min(LONGEST_ALARM);
        if self.alarm_at.is_none_or(|rings| due < rings) {
            // The kernel reads the time when it takes the entry, so a second alarm must not change it before.
            if self.unread_alarm > self.consumed() {
                return timeout;
            }
            *self.alarm_time = types::Timespec::from(limit.min(LONGEST_ALARM));
            let entry = opcode::Timeout::new(&raw const *self.alarm_time).build();
            self.stage(entry.user_data(ALARM));
            self.unread_alarm = self.pushed;
            self.alarms += 1;
            self.alarm_at = Some(due);
        }
        None
    }

    fn refill(&mut self) {
        let mut submission = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: whoever staged the entry answers for it.
            if unsafe { submission.push(entry) }.is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    fn enter(&mut self, want: u32, timeout: Option<Duration>, stats: &mut DriverStats) -> io::Result<()> {
        let staged = self.ring.submission().len() as u32;
        let mut call = EnterCall { to_submit: staged, min_complete: want };
        stats.enters += 1;
        let injected = match &self.hook {
            Some(hook) => hook.before(&mut call),
            None => None,
        };
        if call.to_submit < staged {
            // As the kernel does when it takes fewer entries than it was given.
            call.min_complete = 0;
        }
        let result = match injected {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => self.enter_kernel(call, timeout),
        };
        match result {
            Ok(submitted) => {
                stats.submitted += submitted as u64;
                Ok(())
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME) => Ok(()),
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => {
                    stats.retried_enters += 1;
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }

    fn enter_kernel(&self, call: EnterCall, timeout: Option<Duration>) -> io::Result<usize> {
        let EnterCall { to_submit, min_complete } = call;
        match timeout {
            // SAFETY: no argument is passed; every staged entry's memory is answered for by whoever staged it.
            None => unsafe { self.entrance.enter::<GetEventsArg>(to_submit, min_complete, GETEVENTS, None) },
            Some(timeout) => {
                let timespec = types::Timespec::from(timeout);
                let arg = GetEventsArg { timespec: (&raw const timespec) as u64, ..GetEventsArg::default() };
                // SAFETY: `arg` is the structure that EXT_ARG announces, and it and the time live across the call.
                unsafe { self.entrance.enter(to_submit, min_complete, GETEVENTS | EXT_ARG, Some(&arg)) }
            }
        }
    }

    /// Files every completion that has arrived, also those that overflowed.
    pub(crate) fn reap(&mut self, ops: &mut Ops, stats: &mut DriverStats) -> io::Result<()> {
        loop {
            let mut completions = 0;
            for entry in self.ring.completion() {
                completions += 1;
                match entry.user_data() {
                    IGNORED => {}
                    DOORBELL => self.bell_armed = false,
                    ALARM => {
                        self.alarms -= 1;
                        self.alarm_at = None;
                    }
                    user_data => ops.complete(
                        OpKey::from_user_data(user_data),
                        Completion {
                            result: entry.result(),
                            buffer: cqueue::buffer_select(entry.flags()),
                            more: cqueue::more(entry.flags()),
                            rest: cqueue::sock_nonempty(entry.flags()),
                        },
                    ),
                }
            }
            stats.completions += completions;
            if !self.ring.submission().cq_overflow() {
                return Ok(());
            }
            stats.overflows += 1;
            let before = stats.retried_enters;
            self.enter_to_flush(stats)?;
            if completions == 0 && stats.retried_enters != before {
                // Injected or transient trouble: the next turn tries again.
                return Ok(());
            }
        }
    }

    /// Has overflowed completions copied into the queue, which only a call with GETEVENTS does.
    fn enter_to_flush(&mut self, stats: &mut DriverStats) -> io::Result<()> {
        self.enter(0, None, stats)
    }

    /// Whether overflowed completions still wait in the kernel.
    pub(crate) fn overflowing(&mut self) -> bool {
        self.ring.submission().cq_overflow()
    }

    /// Stages a cancel of everything in flight, the doorbell included.
    pub(crate) fn push_cancel_all(&mut self) {
        let entry = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
        self.stage(entry.user_data(IGNORED));
    }

    /// Keeps what the doorbell's read writes to for ever.
    pub(crate) fn leak_doorbell(&mut self) {
        std::mem::forget(std::mem::take(&mut self.bell_count));
    }

    /// Whether entries of the ring's own are in flight: the doorbell's read, or alarms.
    pub(crate) fn has_own_entries(&self) -> bool {
        self.bell_armed || self.alarms > 0
    }
}
