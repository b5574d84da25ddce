//! A core's turns as a future of tokio's.
//!
//! No wake is lost between a turn and the wait. The core's descriptor is watched by its edges: each ring makes one, also
//! of a bell that has rung before and was not silenced. An edge that was seen is cleared *before* the turn, which looks
//! at everything that was rung for until then; a ring after that makes another edge, and the turn announces sleep last,
//! so that every later sender rings.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::task::yield_now;
use ::tokio::time::{Sleep, sleep_until};

use super::hosted::{Hosted, Seat};
use crate::runtime::core::Core;
use crate::runtime::mesh::Mailbox;

/// Has the tokio runtime that the caller runs in drive `core`, by a future that is to be polled beside the others on
/// this thread, for example as a task of its own (`spawn_local`).
///
/// # Errors
/// When the ring or the runtime refuses the core's descriptor.
///
/// # Panics
/// When not called inside a tokio runtime with I/O and time enabled.
///
/// # Examples
/// In a loop that runs already:
/// ```
/// use corelet::runtime::{Cores, Runtime, current_core, host};
///
/// # async fn service() -> Result<(), Box<dyn std::error::Error>> {
/// let (runtime, mut guests) = Runtime::builder().cores(Cores::Count(1)).build_guests()?;
/// let drive = host::drive(guests.remove(0).start()?)?;
/// let core = drive.hosted();
/// let driving = tokio::task::spawn_local(drive);
///
/// assert_eq!(core.on_core(async { current_core() }).await?, Some(runtime.cores()[0]));
///
/// core.end();
/// driving.await??;
/// # Ok(())
/// # }
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # tokio::task::LocalSet::new().block_on(&runtime, service())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn drive(core: Core) -> io::Result<Drive> {
    core.event_fd()?;
    let bell = Bell(Arc::clone(core.local().mailbox()));
    // Deprecated by tokio 1.54 for what a `Bell` does not do: close its descriptor, or name another one.
    #[allow(deprecated)]
    let bell = AsyncFd::with_interest(bell, Interest::READABLE)?;
    Ok(Drive {
        bell,
        sleep: Box::pin(sleep_until(Instant::now().into())),
        sleeps_until: None,
        seat: Seat::take_on(core.local()),
        core: Some(core),
    })
}

/// Turns a core whenever there is something to do; made by [`drive`]. Done when the core was asked to end, or has failed.
///
/// # Cancel safety
/// Dropping it ends the core.
///
/// # Drop
/// As for [`Core`]: drops the core's tasks, cancels operations in flight and waits for their end.
#[must_use = "a core inside a host runs only while its drive is polled"]
pub struct Drive {
    core: Option<Core>,
    seat: Rc<Seat>,
    bell: AsyncFd<Bell>,
    sleep: Pin<Box<Sleep>>,
    /// The deadline that `sleep` is armed for. It stays armed when nobody wants it any more, and then fires in vain.
    sleeps_until: Option<Instant>,
}

/// A core's descriptor, which stays open for as long as it is watched.
struct Bell(Arc<Mailbox>);

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.bell()
    }
}

impl Drive {
    /// The core, for the host's other futures on this thread.
    ///
    /// # Panics
    /// When the drive is done.
    pub fn hosted(&self) -> Hosted {
        match &self.core {
            Some(core) => Hosted::new(Rc::clone(core.local()), Rc::clone(&self.seat)),
            None => panic!("the core has ended"),
        }
    }

    fn end(&mut self) {
        if let Some(core) = self.core.take() {
            self.seat.give_up();
            drop(core);
            self.seat.core_ended();
        }
    }

    /// Turns until the host is to go on. True when there is no more to come.
    fn poll_core(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(core) = &mut self.core else { panic!("a drive was polled after its end") };
        while let Poll::Ready(rung) = self.bell.poll_read_ready(cx) {
            rung?.clear_ready();
        }
        if self.sleep.is_elapsed() {
            self.sleeps_until = None;
        }
        let more = core.turn_rung()?;
        if core.is_ending() || self.seat.ending.get() {
            return Poll::Ready(Ok(()));
        }
        self.seat.sit_down(cx.waker());
        let due = !more
            && core.next_deadline().is_some_and(|at| {
                if self.sleeps_until.is_none_or(|until| at < until) {
                    self.sleeps_until = Some(at);
                    self.sleep.as_mut().reset(at.into());
                }
                self.sleep.as_mut().poll(cx).is_ready()
            });
        if more || due {
            // Behind the host's other tasks, and behind a look at its events.
            let _ = pin!(yield_now()).poll(cx);
        }
        Poll::Pending
    }
}

impl Future for Drive {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = ready!(self.poll_core(cx));
        self.end();
        Poll::Ready(outcome)
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive").field("core", &self.core).finish_non_exhaustive()
    }
}
