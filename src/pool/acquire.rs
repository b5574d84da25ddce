//! An acquire from its first poll to its end, wherever it is served.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::connection::Connection;
use super::connector::Connector;
use super::error::AcquireError;
use super::handle::Handle;
use super::lease::Lease;
use super::remote::{Answer, Lent, RemoteGrant, Token};
use super::scheduler::{Admission, Asker, Elsewhere, Holder, Patience, Site, WaiterKey};

// With a tag of its own, and those first that the ways of an acquire without a wait ask about: each question is one
// comparison then.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Stage {
    New,
    /// New, with a time limit of its own.
    Within(Duration),
    Done,
    Waiting(WaiterKey),
    Forwarded(Token),
    /// Offered to another shard.
    Spilled(Token),
    /// Queued after it was declined there, when so much time had gone by.
    Returned(WaiterKey, Duration),
}

/// An acquire under way; made by [`Handle::acquire`].
#[must_use = "an acquire does nothing unless it is awaited"]
pub struct Acquire<'a, C: Connector> {
    handle: &'a Handle<C>,
    stage: Stage,
    site: Site,
}

impl<'a, C: Connector> Acquire<'a, C> {
    #[inline]
    pub(super) fn new(handle: &'a Handle<C>, within: Option<Duration>, site: Site) -> Acquire<'a, C> {
        Acquire { handle, stage: within.map_or(Stage::New, Stage::Within), site }
    }
}

impl<C: Connector> Acquire<'_, C> {
    /// How many acquires are served before this one, as the queue stands: others may leave it, and under round robin
    /// others may come before. Who is held back by a [limit](Handle::limited) comes after all who are not. `None` when
    /// it does not wait: it was not polled yet, has been decided, or waits at another core, whose queue cannot be seen
    /// from here.
    ///
    /// Takes a step for each of those before it, and under round robin one for each handle that waits.
    pub fn position(&self) -> Option<usize> {
        match self.stage {
            Stage::Waiting(waiter) | Stage::Returned(waiter, _) => self.handle.shard.position(waiter),
            _ => None,
        }
    }

    /// Whatever is not an acquire that an idle connection of this core serves.
    #[inline(never)]
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<Lease<C>, AcquireError>> {
        let (timeout, patience) = match self.stage {
            Stage::Waiting(waiter) => match self.handle.shard.collect(waiter) {
                Some(carrier) => {
                    self.stage = Stage::Done;
                    return Poll::Ready(Ok(Lease::new(carrier)));
                }
                None => return self.proceed(cx),
            },
            Stage::New => (self.handle.timeout, self.handle.patience),
            Stage::Within(limit) => (Some(limit), Patience::of(Some(limit))),
            _ => return self.proceed(cx),
        };
        if !self.handle.shard.local.executor().spend_budget() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.begin(timeout, patience, cx)
    }

    fn begin(
        &mut self,
        timeout: Option<Duration>,
        patience: Patience,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Lease<C>, AcquireError>> {
        let Handle { shard, home, spills, .. } = self.handle;
        let asker = self.asker(patience);
        if *home != shard.index {
            return self.forward(asker, timeout, cx);
        }
        if *spills && let Some(token) = shard.spill(&asker, timeout, cx) {
            self.stage = Stage::Spilled(token);
            return Poll::Pending;
        }
        self.ask_home(&asker, timeout, None, cx)
    }

    fn asker(&self, patience: Patience) -> Asker {
        let Handle { id, rules, .. } = self.handle;
        Asker { handle: *id, site: self.site, patience, rules: *rules }
    }

    /// Asks the shard of this core, after `spent` with another one.
    #[inline(always)]
    fn ask_home(
        &mut self,
        asker: &Asker,
        timeout: Option<Duration>,
        spent: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Lease<C>, AcquireError>> {
        match self.handle.shard.acquire(asker, timeout, cx) {
            Admission::Granted(grant) => {
                debug_assert_eq!(grant.slot, grant.connection.slot, "a carrier knows its slot");
                self.stage = Stage::Done;
                Poll::Ready(Ok(Lease::new(grant.connection)))
            }
            Admission::Queued(waiter) => {
                self.stage = spent.map_or(Stage::Waiting(waiter), |spent| Stage::Returned(waiter, spent));
                Poll::Pending
            }
            Admission::Refused(refusal) => {
                self.stage = Stage::Done;
                Poll::Ready(Err(refusal.into()))
            }
        }
    }

    fn forward(
        &mut self,
        asker: Asker,
        timeout: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Lease<C>, AcquireError>> {
        if !C::Connection::MOVES {
            self.stage = Stage::Done;
            return Poll::Ready(Err(AcquireError::OtherCore));
        }
        let Handle { shard, home, .. } = self.handle;
        match shard.forward(*home, asker, timeout, cx) {
            Ok(token) => {
                self.stage = Stage::Forwarded(token);
                Poll::Pending
            }
            Err(refusal) => {
                self.stage = Stage::Done;
                Poll::Ready(Err(refusal.into()))
            }
        }
    }

    fn proceed(&mut self, cx: &mut Context<'_>) -> Poll<Result<Lease<C>, AcquireError>> {
        let Handle { shard, .. } = self.handle;
        let polled = match self.stage {
            Stage::Waiting(waiter) => shard.poll_waiter(waiter, cx).map_ok(Lease::new),
            Stage::Returned(waiter, spent) => {
                shard.poll_waiter(waiter, cx).map_ok(Lease::new).map_err(|refusal| refusal.after(spent))
            }
            Stage::Forwarded(token) => match shard.poll_forward(token, cx) {
                Poll::Ready(Answer::Granted(grant)) => Poll::Ready(Ok(self.receive(grant))),
                Poll::Ready(Answer::Refused(refusal)) => Poll::Ready(Err(refusal)),
                Poll::Ready(Answer::Declined { .. }) => unreachable!("only what was spilled is declined"),
                Poll::Pending => Poll::Pending,
            },
            Stage::Spilled(token) => match shard.poll_forward(token, cx) {
                Poll::Ready(Answer::Granted(grant)) => {
                    // First, for attaching may panic.
                    self.stage = Stage::Done;
                    shard.count_spill(Elsewhere::Served);
                    Poll::Ready(Ok(self.receive(grant)))
                }
                Poll::Ready(Answer::Refused(refusal)) => {
                    shard.count_spill(Elsewhere::Refused(&refusal));
                    Poll::Ready(Err(refusal))
                }
                Poll::Ready(Answer::Declined { since, timeout }) => {
                    self.stage = Stage::Done;
                    let now = shard.local.now();
                    let spent = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
                    let left = timeout.map(|limit| limit.saturating_sub(spent));
                    return self.ask_home(&self.asker(Patience::of(left)), left, Some(spent), cx);
                }
                Poll::Pending => Poll::Pending,
            },
            Stage::New | Stage::Within(_) | Stage::Done => panic!("an acquire was polled after its end"),
        };
        if polled.is_ready() {
            self.stage = Stage::Done;
        }
        polled.map_err(AcquireError::from)
    }

    // Apart, so that dropping an acquire that has ended is a comparison.
    #[cold]
    #[inline(never)]
    fn give_up(&mut self) {
        match self.stage {
            Stage::New | Stage::Within(_) | Stage::Done => {}
            Stage::Waiting(waiter) | Stage::Returned(waiter, _) => self.handle.shard.cancel_waiter(waiter),
            Stage::Forwarded(token) => self.handle.shard.cancel_forward(token),
            Stage::Spilled(token) => {
                self.handle.shard.cancel_forward(token);
                self.handle.shard.count_spill(Elsewhere::Cancelled);
            }
        }
    }

    /// A connection has come from another core.
    fn receive(&self, grant: RemoteGrant<Lent<C>>) -> Lease<C> {
        let Handle { shard, .. } = self.handle;
        let Lent { connection, loan } = grant.connection;
        let connection = C::Connection::attach(connection);
        // From here on the lease sends it home.
        shard.keep_reference(loan.settled());
        Lease::new(shard.load(grant.home, grant.slot, connection))
    }
}

impl<C: Connector> Future for Acquire<'_, C> {
    type Output = Result<Lease<C>, AcquireError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Handle { shard, plain, id, .. } = self.handle;
        if matches!(self.stage, Stage::New | Stage::Within(_))
            && *plain
            && shard.local.executor().spend_budget()
            && let Some(carrier) = shard.acquire_idle(|| Holder { handle: *id, site: self.site })
        {
            self.stage = Stage::Done;
            return Poll::Ready(Ok(Lease::new(carrier)));
        }
        self.advance(cx)
    }
}

impl<C: Connector> Drop for Acquire<'_, C> {
    #[inline(always)]
    fn drop(&mut self) {
        if !matches!(self.stage, Stage::New | Stage::Within(_) | Stage::Done) {
            self.give_up();
        }
    }
}
