//! How cores and foreign threads reach a core: its mailbox, its doorbell, and the table that finds both by core id.
//!
//! Data travels in the mailbox's channel; the doorbell, an eventfd that the core's ring reads, only ends its sleep and
//! is rung only when the core sleeps (see [`park`](super::park)). Nobody ever waits in here: sending is lock-free and
//! unbounded.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use crossbeam_channel::{Receiver, Sender, unbounded};

use super::error::StartError;
use super::executor::waker::{MAX_CORES, WakeTarget};
use super::identity::{CoreId, RawPid};
use super::park::SleepFlag;
use crate::lock::{Lock, Rank};

/// What is sent to a core.
pub(crate) enum Mail {
    Wake(WakeTarget),
    Stop(RawPid),
    /// Runs on the core, inside a turn.
    Run(Box<dyn FnOnce() + Send>),
    /// Opened on the core, inside a turn.
    Letter(Box<dyn Letter>),
    /// To be answered with a count of the core's activity once the core has nothing left to run.
    WhenIdle(Sender<u64>),
    /// Ends the core.
    End,
}

/// A message that comes back whole when it cannot be delivered. One that is dropped unopened was on its way to a core
/// that ended.
pub(crate) trait Letter: Any + Send {
    fn open(self: Box<Self>);
}

/// A core as its senders see it.
pub(crate) struct Mailbox {
    core: CoreId,
    mail: Sender<Mail>,
    sleep: SleepFlag,
    bell: OwnedFd,
    _reservation: Reservation,
}

impl Mailbox {
    /// Reserves a core id and opens its mailbox; it is found by that id once it is published.
    pub(crate) fn open() -> Result<(Arc<Mailbox>, Receiver<Mail>), StartError> {
        let reservation = Reservation::take()?;
        let bell = eventfd().map_err(StartError::from_ring)?;
        let (mail, inbox) = unbounded();
        let core = reservation.0;
        let mailbox =
            Arc::new(Mailbox { core, mail, sleep: SleepFlag::new(), bell, _reservation: reservation });
        Ok((mailbox, inbox))
    }

    pub(crate) fn publish(self: &Arc<Mailbox>) {
        TABLE[usize::from(self.core.0)].store(Some(Arc::clone(self)));
    }

    /// Nobody finds the core by its id any more.
    pub(crate) fn unpublish(&self) {
        TABLE[usize::from(self.core.0)].store(None);
    }

    pub(crate) fn core(&self) -> CoreId {
        self.core
    }

    pub(crate) fn sleep_flag(&self) -> &SleepFlag {
        &self.sleep
    }

    pub(crate) fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    pub(crate) fn bell_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Sends from any thread. The mail comes back when the core has ended.
    pub(crate) fn send(&self, mail: Mail) -> Result<(), Mail> {
        self.mail.send(mail).map_err(|refused| refused.0)?;
        self.nudge();
        Ok(())
    }

    /// Something for this core lies in a queue that it looks at: has it look.
    #[inline]
    pub(crate) fn nudge(&self) {
        if self.sleep.must_ring() {
            self.ring();
        }
    }

    #[allow(unsafe_code)]
    fn ring(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: writes eight bytes from a live array to a descriptor that this value owns. It cannot fail but by
        // overflow of the counter, which means that the bell has rung already.
        unsafe { libc::write(self.bell(), one.as_ptr().cast(), one.len()) };
    }

    /// Takes the rings back, for a core whose ring does not read them.
    #[allow(unsafe_code)]
    pub(crate) fn silence(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: reads eight bytes into a live array; the descriptor is non-blocking, so an unrung bell is an error
        // of no interest.
        unsafe { libc::read(self.bell(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// The live cores of the process, by id. Wakers, which carry nothing but an identity, find their core here.
static TABLE: [ArcSwapOption<Mailbox>; MAX_CORES] = [const { ArcSwapOption::const_empty() }; MAX_CORES];

/// Sends to a core by its id; nothing when it has ended.
pub(crate) fn send_to(core: CoreId, mail: Mail) {
    if let Some(mailbox) = &*TABLE[usize::from(core.0)].load() {
        // Refused by a core that ends right now: what was meant for it is gone with it.
        let _ = mailbox.send(mail);
    }
}

/// Sends a letter to a core by its id; it comes back when the core has ended.
pub(crate) fn post<L: Letter>(core: CoreId, letter: L) -> Result<(), Box<L>> {
    let letter = Box::new(letter);
    let mailbox = TABLE[usize::from(core.0)].load();
    let Some(mailbox) = &*mailbox else { return Err(letter) };
    match mailbox.send(Mail::Letter(letter)) {
        Ok(()) => Ok(()),
        Err(Mail::Letter(letter)) => match (letter as Box<dyn Any>).downcast() {
            Ok(letter) => Err(letter),
            Err(_) => unreachable!("what was sent comes back"),
        },
        Err(_) => unreachable!("what was sent comes back"),
    }
}

/// A core id that nobody else has, until it is dropped.
struct Reservation(CoreId);

static RESERVED: Lock<[bool; MAX_CORES]> = Lock::new(Rank::Cores, [false; MAX_CORES]);

impl Reservation {
    fn take() -> Result<Reservation, StartError> {
        let mut reserved = RESERVED.lock();
        match reserved.iter().position(|taken| !taken) {
            Some(free) => {
                reserved[free] = true;
                Ok(Reservation(CoreId(free as u16)))
            }
            None => Err(StartError::TooManyCores { limit: MAX_CORES }),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        RESERVED.lock()[usize::from(self.0.0)] = false;
    }
}

#[allow(unsafe_code)]
fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: makes a new descriptor and touches no memory.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and is owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
