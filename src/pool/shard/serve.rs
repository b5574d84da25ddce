//! Acquires and releases of this core's own tasks.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::ending::{FailOnUnwind, LoseOnUnwind};
use super::observe::Waiting;
use super::{Applicant, Granted, Reply, Shard};
use crate::pool::carrier::Carrier;
use crate::pool::connector::Connector;
use crate::pool::remote::Command;
use crate::pool::scheduler::{
    Admission, Asker, CloseReason, HandleId, Holder, Notice, Refusal, Taken, Ticket, WaiterKey,
};
use crate::runtime::context;

/// Whether an idle connection of its own shard is fit for its next lease.
pub(super) fn is_usable<C: Connector>(carrier: &mut Box<Carrier<C>>) -> bool {
    Rc::clone(&carrier.shard).may_lease(carrier)
}

impl<C: Connector> Shard<C> {
    /// An acquire of this core's own shard that an idle connection serves; otherwise nothing has been decided.
    #[inline(always)]
    pub(crate) fn acquire_idle(&self, holder: impl FnOnce() -> Holder) -> Option<Box<Carrier<C>>> {
        let guard = FailOnUnwind(self);
        let grant = self.state.borrow_mut().grant_idle(holder, |carrier| self.may_lease(carrier));
        guard.disarm();
        let grant = grant?;
        self.watch_lease();
        debug_assert_eq!(grant.slot, grant.connection.slot, "a carrier knows its slot");
        Some(grant.connection)
    }

    /// Whether an idle connection is fit for its next lease.
    #[inline(always)]
    pub(crate) fn may_lease(&self, carrier: &mut Carrier<C>) -> bool {
        carrier.is_quiet()
            && carrier.connection.as_mut().is_some_and(|it| self.shared.connector.before_lease(it))
    }

    /// Whether the connector still has a use for this connection.
    pub(crate) fn is_current(&self, carrier: &Carrier<C>) -> bool {
        carrier.connection.as_ref().is_some_and(|connection| self.shared.connector.is_current(connection))
    }

    /// Whether a connection is fit for further leases after one that ended. The connector's word is asked for outside
    /// the guard, so that a panic in there costs the connection and not the shard.
    #[inline(always)]
    pub(super) fn may_keep(&self, carrier: &mut Carrier<C>) -> bool {
        let guard = FailOnUnwind(self);
        let quiet = carrier.clean && carrier.is_quiet();
        guard.disarm();
        quiet && self.after_return(carrier)
    }

    #[inline(always)]
    pub(super) fn after_return(&self, carrier: &mut Carrier<C>) -> bool {
        carrier.connection.as_mut().is_some_and(|connection| self.shared.connector.after_return(connection))
    }

    /// The end of a pause that nobody waited for is noticed by the next acquire.
    pub(super) fn lapse_pause(&self) {
        let paused = self.state.borrow().paused_until().is_some();
        if paused {
            let now = self.local.now();
            self.state.borrow_mut().lapse(now);
        }
    }

    /// An acquire of this core's own shard.
    pub(crate) fn acquire(
        &self,
        asker: &Asker,
        timeout: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Admission<Box<Carrier<C>>> {
        let guard = FailOnUnwind(self);
        self.lapse_pause();
        let admission = self.state.borrow_mut().handle_acquire(
            asker,
            |carrier| self.may_lease(carrier),
            || Ticket { reply: Reply::Local(cx.waker().clone()), timeout },
        );
        guard.disarm();
        match &admission {
            Admission::Granted(_) => self.watch_lease(),
            Admission::Queued(waiter) => {
                self.begin_span(Waiting::Here(*waiter), asker);
                self.after_queueing();
            }
            Admission::Refused(refusal) => {
                self.after_queueing();
                self.observe_refusal(refusal);
            }
        }
        admission
    }

    /// The connection that a queued acquire was granted; otherwise nothing has changed.
    #[inline]
    pub(crate) fn collect(&self, waiter: WaiterKey) -> Option<Box<Carrier<C>>> {
        let guard = FailOnUnwind(self);
        let collected = self.state.borrow_mut().collect(waiter);
        guard.disarm();
        if collected.is_some() {
            self.note_lease_after_wait();
            self.end_span(Waiting::Here(waiter));
        }
        collected
    }

    /// The fate of a queued acquire.
    pub(crate) fn poll_waiter(
        &self,
        waiter: WaiterKey,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Box<Carrier<C>>, Refusal>> {
        let guard = FailOnUnwind(self);
        let taken = self.state.borrow_mut().take(waiter);
        guard.disarm();
        match taken {
            Taken::Granted(grant) => {
                self.note_lease_after_wait();
                self.end_span(Waiting::Here(waiter));
                Poll::Ready(Ok(grant.connection))
            }
            Taken::Refused(refusal) => {
                self.end_span(Waiting::Here(waiter));
                self.observe_refusal(&refusal);
                Poll::Ready(Err(refusal))
            }
            Taken::Gone => Poll::Ready(Err(Refusal::Deregistered)),
            Taken::Pending => {
                let replaced = match self.state.borrow_mut().reply_mut(waiter) {
                    Some(Reply::Local(kept)) if !kept.will_wake(cx.waker()) => {
                        Some(std::mem::replace(kept, cx.waker().clone()))
                    }
                    _ => None,
                };
                drop(replaced);
                Poll::Pending
            }
        }
    }

    /// How many are served before a queued acquire.
    pub(crate) fn position(&self, waiter: WaiterKey) -> Option<usize> {
        self.state.borrow().position(waiter)
    }

    /// The caller of a queued acquire has gone.
    pub(crate) fn cancel_waiter(&self, waiter: WaiterKey) {
        self.end_span(Waiting::Here(waiter));
        let guard = FailOnUnwind(self);
        let reply = {
            let mut state = self.state.borrow_mut();
            let reply = state.handle_cancel(waiter);
            // A grant that was not collected may have put its connection back on the shelf.
            if let Some(carrier) = state.newest_idle_mut() {
                carrier.arm();
            }
            reply
        };
        guard.disarm();
        drop(reply);
        self.flush();
    }

    /// A lease of this shard's own slot has ended.
    #[inline(always)]
    pub(crate) fn give_back(&self, mut carrier: Box<Carrier<C>>) {
        // Nothing has happened to the connection since it was idle, and nobody waits for it.
        if carrier.armed && carrier.clean {
            let slot = carrier.slot;
            let slot_guard = LoseOnUnwind(self, slot);
            let fit = self.may_keep(&mut carrier);
            let guard = FailOnUnwind(self);
            let back = match fit {
                true => self.state.borrow_mut().release_idle(slot, carrier),
                false => Some(carrier),
            };
            guard.disarm();
            slot_guard.disarm();
            if let Some(carrier) = back {
                self.settle_lease(carrier, Some(fit));
            }
        } else {
            self.settle_lease(carrier, None);
        }
    }

    /// Ends a lease whose connection does not simply become idle again. `fit` says whether it may be kept, if that has
    /// been found out.
    #[inline(never)]
    fn settle_lease(&self, mut carrier: Box<Carrier<C>>, fit: Option<bool>) {
        if self.ended.get() {
            return self.give_back_late(carrier);
        }
        let slot = carrier.slot;
        let slot_guard = LoseOnUnwind(self, slot);
        let fit = fit.unwrap_or_else(|| self.may_keep(&mut carrier));
        let guard = FailOnUnwind(self);
        let mut state = self.state.borrow_mut();
        let awaited = state.has_waiters_for(slot);
        // A waiter gets only what an acquire would get.
        if fit && (!awaited || self.may_lease(&mut carrier)) {
            let may_shed = state.wants_time();
            if may_shed {
                state.tell_time(self.local.now());
            }
            // A connection that goes to a waiter at once is not idle, and so is not armed either.
            if !carrier.armed && !awaited {
                carrier.arm();
                if !context::is_inside(&self.local) {
                    // What was armed is to be submitted.
                    self.wake_actor();
                }
            }
            match state.hand_over(slot, carrier) {
                Ok(next) => {
                    drop(state);
                    guard.disarm();
                    slot_guard.disarm();
                    self.tell(next);
                    // One waiter fewer, and one connection as before: nothing else follows, unless others were shed.
                    if may_shed {
                        self.flush();
                    }
                    return;
                }
                Err(carrier) => self.yield_or_release(&mut state, slot, carrier),
            }
        } else {
            // Fit, and yet not for the waiter: its last lease is not to blame.
            let reason = if carrier.armed || fit { CloseReason::Broken } else { CloseReason::Dirty };
            state.handle_discard(slot, carrier, reason);
        }
        let settled = !state.has_output() && !state.wants_open();
        let tell_actor = self.is_called() && state.newest_idle_mut().is_some();
        drop(state);
        guard.disarm();
        slot_guard.disarm();
        if !settled {
            self.flush();
        }
        if tell_actor {
            self.wake_actor();
        }
    }

    /// Tells the waiters whose fate is known, and has the actor do what is left.
    #[inline(never)]
    pub(crate) fn flush(&self) {
        if self.ended.get() {
            return self.close_late();
        }
        if !self.has_more_to_do() {
            return;
        }
        loop {
            let notice = self.state.borrow_mut().poll_notice();
            match notice {
                Some(notice) => self.tell(notice),
                None => break,
            }
        }
        if self.state.borrow().has_output() || self.can_open() {
            self.wake_actor();
        }
    }

    /// Whether there is something to open now. In a back-off the actor's timer is enough: woken at once, it could only
    /// look again, and again.
    fn can_open(&self) -> bool {
        let state = self.state.borrow();
        let wakes_at = self.actor_wakes_at.get();
        let paused = || state.paused_until().is_some_and(|until| wakes_at.is_some_and(|at| at <= until));
        state.wants_open() && !paused()
    }

    #[inline(always)]
    fn tell(&self, notice: Notice<Reply>) {
        match notice.reply {
            Reply::Local(waker) => waker.wake(),
            Reply::Remote { shard, token, handle } => {
                let shard = shard as usize;
                let asker = Applicant { shard, token, handle };
                self.abroad.borrow_mut().waiters.remove(&(shard, token));
                let taken = self.state.borrow_mut().take(notice.waiter);
                match taken {
                    Taken::Granted(grant) => {
                        self.note_lease_after_wait();
                        self.lend(asker, Granted::AfterWait, grant.connection);
                    }
                    Taken::Refused(refusal) => {
                        self.observe_refusal(&refusal);
                        self.shared.send(shard, Command::Refuse { token, refusal: Box::new(refusal) })
                    }
                    Taken::Pending | Taken::Gone => {}
                }
            }
        }
    }

    #[inline]
    pub(super) fn after_queueing(&self) {
        self.unclocked.set(true);
        if self.ended.get() || self.has_more_to_do() {
            self.flush();
        }
    }

    #[inline]
    fn has_more_to_do(&self) -> bool {
        let state = self.state.borrow();
        state.has_output() || state.wants_open()
    }

    /// At the end of a turn: what was queued in it, and still is, counts its time from now, and idle connections that
    /// were leased in it are replaced. An acquire that is served within its turn never costs a look at the clock, and
    /// one that ends in it no connection.
    #[inline]
    pub(crate) fn end_turn(&self) {
        if self.unclocked.replace(false) {
            self.start_clocks_now();
        }
        if self.keeps_idle && self.can_open() {
            self.wake_actor();
        }
    }

    #[inline(never)]
    pub(super) fn start_clocks_now(&self) {
        let now = self.local.now();
        self.state.borrow_mut().start_clocks(now);
        self.measure_waits(now);
        self.forwards.borrow_mut().start_clocks(now);
        let due = self.next_deadline();
        if due.is_some_and(|due| self.actor_wakes_at.get().is_none_or(|at| due < at)) {
            self.wake_actor();
        }
    }

    pub(crate) fn deregister(&self, home: usize, handle: HandleId) {
        if home != self.index {
            return self.shared.send(home, Command::Deregister { handle });
        }
        self.deregister_spilled(handle);
        if self.ended.get() || !self.state.borrow().has_claims() {
            return;
        }
        self.with_state(|state| {
            state.handle_deregister(handle);
            // Grants that were not collected have put their connections back on the shelf.
            state.for_each_idle(|carrier| carrier.arm());
        });
        self.flush();
    }
}
