//! Waiting for time to pass: sleeps, time-outs and intervals, on the clock of the current core.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use super::context;
use super::local::{Due, Local};
use super::timer::DeadlineKey;

/// The present time on the current core's clock; in a simulation that is the simulated one.
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn now() -> Instant {
    context::current().now()
}

/// Waits until `duration` has passed since this call. Never ends early.
///
/// # Cancel safety
/// Cancel safe; dropping it disarms the timer.
///
/// # Panics
/// When not called on a core.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use corelet::runtime::{Cores, Runtime, now, sleep, timeout};
///
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// runtime.block_on(|| async {
///     let begun = now();
///     sleep(Duration::from_millis(2)).await;
///     assert!(now() - begun >= Duration::from_millis(2));
///
///     let limit = Duration::from_millis(1);
///     assert!(timeout(limit, sleep(Duration::from_secs(60))).await.is_err());
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn sleep(duration: Duration) -> Sleep {
    let local = context::current();
    let deadline = far(local.now(), duration);
    Sleep { local, deadline, armed: Armed::Not }
}

/// Waits until `deadline`; a past one is over at the next turn.
///
/// # Cancel safety
/// Cancel safe; dropping it disarms the timer.
///
/// # Panics
/// When not called on a core.
#[track_caller]
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { local: context::current(), deadline, armed: Armed::Not }
}

/// A duration too long for the clock is a wait of thirty years.
pub(crate) fn far(now: Instant, duration: Duration) -> Instant {
    const THIRTY_YEARS: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    now.checked_add(duration).unwrap_or_else(|| now + THIRTY_YEARS)
}

#[derive(Clone, Copy)]
enum Armed {
    Not,
    Yes(DeadlineKey),
    Fired,
}

/// Ends at its deadline; made by [`sleep`] and [`sleep_until`].
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    local: Rc<Local>,
    deadline: Instant,
    armed: Armed,
}

impl Sleep {
    /// When it ends.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    #[cfg_attr(not(feature = "pool"), allow(dead_code))]
    pub(crate) fn on(local: &Rc<Local>, deadline: Instant) -> Sleep {
        Sleep { local: Rc::clone(local), deadline, armed: Armed::Not }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.armed {
            Armed::Fired => Poll::Ready(()),
            Armed::Not => {
                self.armed = Armed::Yes(self.local.arm_timer(self.deadline, Due::Wake(cx.waker().clone())));
                Poll::Pending
            }
            // The queue lets go of a timer only when its time has come.
            Armed::Yes(key) if self.local.update_timer(key, cx.waker()) => Poll::Pending,
            Armed::Yes(_) => {
                self.armed = Armed::Fired;
                Poll::Ready(())
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Armed::Yes(key) = self.armed {
            self.local.disarm_timer(key);
        }
    }
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// The time given to [`timeout`] was not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timed out after {after:?}")]
pub struct Elapsed {
    /// How long was waited.
    pub after: Duration,
}

/// Gives `future` at most `duration`, counted from the first time that it has to wait. A result that is there together
/// with the deadline wins. What is ready at once costs neither a timer nor a look at the clock.
///
/// # Errors
/// [`Elapsed`] when the time is over; `future` has then been dropped.
///
/// # Cancel safety
/// As safe as `future`.
///
/// # Panics
/// When not called on a core.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout { future: Some(future), after: duration, limit: None }
}

pin_project! {
    /// A future with a limit on its time; made by [`timeout`].
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is awaited"]
    pub struct Timeout<F> {
        // None when it is over.
        #[pin]
        future: Option<F>,
        after: Duration,
        // From the first time that the future had to wait.
        limit: Option<Sleep>,
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(future) = this.future.as_mut().as_pin_mut() else {
            panic!("a time-out was polled after its end")
        };
        if let Poll::Ready(output) = future.poll(cx) {
            this.future.set(None);
            *this.limit = None;
            return Poll::Ready(Ok(output));
        }
        ready!(Pin::new(this.limit.get_or_insert_with(|| sleep(*this.after))).poll(cx));
        // The result may be there and be held back only because the task must let others run first.
        if context::is_budget_spent() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.future.set(None);
        Poll::Ready(Err(Elapsed { after: *this.after }))
    }
}

/// Ticks every `period`, the first time one period from now.
///
/// # Panics
/// When `period` is zero, or when not called on a core.
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval needs a period above zero");
    let local = context::current();
    let next = far(local.now(), period);
    Interval { sleep: Sleep { local, deadline: next, armed: Armed::Not }, period }
}

/// A steady beat; made by [`interval`].
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
}

impl Interval {
    /// Waits for the next tick and gives the time it was due. Ticks keep their phase however late they are taken;
    /// those that were missed are left out.
    ///
    /// # Cancel safety
    /// Cancel safe: a tick that was not taken is given to the next call.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| Pin::new(&mut self.sleep).poll(cx)).await;
        let due = self.sleep.deadline;
        let late = self.sleep.local.now().saturating_duration_since(due);
        let missed = (late.as_nanos() / self.period.as_nanos()) as u32;
        self.sleep.deadline = far(due, self.period.saturating_mul(missed.saturating_add(1)));
        self.sleep.armed = Armed::Not;
        due
    }
}
