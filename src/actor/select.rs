//! Waiting for several futures at once, by priority.
//!
//! Arms are values and the winner an enum, so the branches are an ordinary `match`. There is no pass that takes losing arms
//! back: they are dropped, and each takes back what it has (a channel has nothing, an operation is cancelled).

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::runtime::{context, timeout};

/// Waits for several things at once and gives what the first one gives that is ready: Erlang's `receive` with several
/// patterns. A tuple of two to eight futures gives an [`Arm`]; an array or a vector of futures, the index of the winner and
/// what it gave.
///
/// Whatever is a future can be an arm: [`recv`](super::channel::Receiver::recv) of any number of channels, monitors, trapped
/// exits, sleeps, join handles, answers, a [lock](super::Mutex::lock), [descriptors](crate::net::wait_readable), a stream's
/// [`receive`](crate::net::Stream::receive), a pool's acquire, another select.
///
/// # Priority
/// The lowest arm that is ready wins, always: nothing is fair, and nothing random. What must not wait (a stop, the end of a
/// child) goes before what may. An arm that is always ready keeps those behind it from ever being looked at; and a closed
/// channel is always ready, with [`Disconnected`](super::channel::Disconnected), so leave its arm out from then on.
///
/// Winning takes a step of the task's cooperative budget. When that is spent, the task lets others run before it looks at
/// an arm: one that is ready is never taken for one that is not.
///
/// # Losing arms
/// They are dropped. To wait on for one in the next round, lend it: `&mut sleep`, `&mut monitor`, `pinned.as_mut()`. From a
/// losing channel there is nothing to take back; that it wakes the task later costs one poll, and means nothing. A losing
/// descriptor or receive is cancelled in the kernel.
///
/// # Errors
/// Each arm gives its own: a select over channels cannot fail, and the error of a descriptor is what its arm gives.
///
/// # Cancel safety
/// As cancel safe as its arms, and so are the arms that lose: everything named above is.
///
/// # Panics
/// Whatever its arms panic with.
///
/// # Compared with tokio
/// `tokio::select!` with `biased` does the same for code written in its branches. Here the result is an enum, and the
/// branches are an ordinary `match`, in which `break`, `?` and the borrow checker are as everywhere.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use corelet::actor::{Arm, channel, select, select_timeout};
/// use corelet::runtime::{Cores, Runtime, sleep};
///
/// # let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// runtime.block_on(|| async {
///     let (control, mut controls) = channel::unbounded();
///     let (sender, mut inbox) = channel::unbounded();
///     sender.send("work").unwrap();
///     control.send("stop").unwrap();
///
///     let mut tick = sleep(Duration::from_secs(60));
///     match select((controls.recv(), inbox.recv(), &mut tick)).await {
///         Arm::First(control) => assert_eq!(control, Ok("stop")),
///         Arm::Second(message) => panic!("control comes first, and then {message:?}"),
///         Arm::Third(()) => panic!("a minute has not passed"),
///     }
///
///     inbox.recv().await.unwrap();
///     let limit = Duration::from_millis(1);
///     assert!(select_timeout(limit, (controls.recv(), inbox.recv())).await.is_none());
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn select<A: Arms>(arms: A) -> A::Output {
    arms.first_ready().await
}

/// As [`select`], for at most `limit`, counted from the first time that it has to wait; none when the time is over. An arm
/// that is ready when the time is over wins.
///
/// # Cancel safety
/// As cancel safe as its arms; no timer is left.
///
/// # Panics
/// When it has to wait and is not polled on a core; otherwise as [`select`].
pub async fn select_timeout<A: Arms>(limit: Duration, arms: A) -> Option<A::Output> {
    timeout(limit, select(arms)).await.ok()
}

/// The arm of a [`select`] that won, and what it gave. Arms that there are not need no branch in a `match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm<
    A,
    B = Infallible,
    C = Infallible,
    D = Infallible,
    E = Infallible,
    F = Infallible,
    G = Infallible,
    H = Infallible,
> {
    /// The arm with the highest priority.
    First(A),
    /// The second one.
    Second(B),
    /// The third one.
    Third(C),
    /// The fourth one.
    Fourth(D),
    /// The fifth one.
    Fifth(E),
    /// The sixth one.
    Sixth(F),
    /// The seventh one.
    Seventh(G),
    /// The eighth one.
    Eighth(H),
}

/// What can be given to [`select`]: tuples of futures of any kind, and arrays and vectors of futures that can be moved.
/// An empty array or vector is never ready.
pub trait Arms: sealed::Sealed {
    /// Which arm won, and what it gave.
    type Output;

    #[doc(hidden)]
    fn first_ready(self) -> impl Future<Output = Self::Output>;
}

mod sealed {
    pub trait Sealed {}
}

/// Looks at one arm; break ends the poll of the whole.
#[inline]
fn look<F: Future + ?Sized>(arm: Pin<&mut F>, cx: &mut Context<'_>) -> ControlFlow<Poll<F::Output>> {
    // An arm that was polled without budget might be ready and not say so, and one behind it would win.
    if context::is_budget_spent() {
        cx.waker().wake_by_ref();
        return ControlFlow::Break(Poll::Pending);
    }
    match arm.poll(cx) {
        Poll::Ready(output) => {
            // A loop around an arm that is always ready must let others run at times. The next poll asks whether it must.
            context::spend_budget();
            ControlFlow::Break(Poll::Ready(output))
        }
        Poll::Pending => ControlFlow::Continue(()),
    }
}

macro_rules! tuple {
    ($($future:ident $arm:ident $place:ident),+) => {
        impl<$($future: Future),+> sealed::Sealed for ($($future,)+) {}

        impl<$($future: Future),+> Arms for ($($future,)+) {
            type Output = Arm<$($future::Output),+>;

            async fn first_ready(self) -> Self::Output {
                let ($($arm,)+) = self;
                $(let mut $arm = pin!($arm);)+
                poll_fn(move |cx| {
                    $(if let ControlFlow::Break(polled) = look($arm.as_mut(), cx) {
                        return polled.map(Arm::$place);
                    })+
                    Poll::Pending
                })
                .await
            }
        }
    };
}

tuple!(A a First, B b Second);
tuple!(A a First, B b Second, C c Third);
tuple!(A a First, B b Second, C c Third, D d Fourth);
tuple!(A a First, B b Second, C c Third, D d Fourth, E e Fifth);
tuple!(A a First, B b Second, C c Third, D d Fourth, E e Fifth, F f Sixth);
tuple!(A a First, B b Second, C c Third, D d Fourth, E e Fifth, F f Sixth, G g Seventh);
tuple!(A a First, B b Second, C c Third, D d Fourth, E e Fifth, F f Sixth, G g Seventh, H h Eighth);

/// Looks at arms of one kind, in order.
fn look_at_all<F: Future + Unpin>(arms: &mut [F], cx: &mut Context<'_>) -> Poll<(usize, F::Output)> {
    for (index, arm) in arms.iter_mut().enumerate() {
        if let ControlFlow::Break(polled) = look(Pin::new(arm), cx) {
            return polled.map(|output| (index, output));
        }
    }
    Poll::Pending
}

impl<F: Future + Unpin, const N: usize> sealed::Sealed for [F; N] {}

impl<F: Future + Unpin, const N: usize> Arms for [F; N] {
    type Output = (usize, F::Output);

    async fn first_ready(mut self) -> (usize, F::Output) {
        poll_fn(|cx| look_at_all(&mut self, cx)).await
    }
}

impl<F: Future + Unpin> sealed::Sealed for Vec<F> {}

impl<F: Future + Unpin> Arms for Vec<F> {
    type Output = (usize, F::Output);

    async fn first_ready(mut self) -> (usize, F::Output) {
        poll_fn(|cx| look_at_all(&mut self, cx)).await
    }
}
