//! Dealings with other cores: acquires sent there and received from there, connections that leave and come home.

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::ending::LoseOnUnwind;
use super::observe::Waiting;
use super::{Applicant, Departure, Destination, Granted, Shard};
use crate::pool::carrier::Carrier;
use crate::pool::connection::Connection;
use crate::pool::connector::Connector;
use crate::pool::event::EventKind;
use crate::pool::remote::{Answer, Cancelled, Command, Detached, Lent, RemoteGrant, Token};
use crate::pool::scheduler::{Admission, Asker, CloseReason, Refusal, SlotId, Stage, Ticket};
use crate::pool::shared::{LeaseEnd, Loan, Shared};
use crate::runtime::executor::contain;

/// Spare references kept at most.
const MAX_REFERENCES: usize = 64;

impl<C: Connector> Shard<C> {
    /// Sends an acquire to its home shard.
    pub(crate) fn forward(
        &self,
        home: usize,
        asker: Asker,
        timeout: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Result<Token, Refusal> {
        if let Some(refusal) = self.shared.refusal(home) {
            return Err(refusal);
        }
        if self.ended.get() {
            return Err(self.end_refusal());
        }
        let token = self.forwards.borrow_mut().begin(home, cx.waker().clone(), timeout, None);
        self.unclocked.set(true);
        self.begin_span(Waiting::Elsewhere(token), &asker);
        self.shared.send(home, Command::Acquire { asker, from: self.index, token });
        Ok(token)
    }

    pub(crate) fn poll_forward(&self, token: Token, cx: &mut Context<'_>) -> Poll<Answer<Lent<C>>> {
        let polled = self.forwards.borrow_mut().poll(token, cx.waker());
        if polled.is_ready() {
            self.end_span(Waiting::Elsewhere(token));
        }
        if let Poll::Ready(Answer::Refused(refusal @ Refusal::TimedOut { stage: Stage::Forwarded, .. })) =
            &polled
        {
            // The home shard has told of all others.
            self.observe_refusal(refusal);
        }
        polled
    }

    pub(crate) fn cancel_forward(&self, token: Token) {
        self.end_span(Waiting::Elsewhere(token));
        let cancelled = self.forwards.borrow_mut().cancel(token);
        match cancelled {
            Cancelled::Tell { home } => {
                self.shared.send(home, Command::Cancel { from: self.index, token });
            }
            Cancelled::SendHome(grant) => self.return_unused(grant),
            Cancelled::Nothing => {}
        }
    }

    pub(super) fn return_unused(&self, grant: RemoteGrant<Lent<C>>) {
        let RemoteGrant { home, slot, connection: Lent { connection, loan } } = grant;
        let end = self.lease_end(loan, home);
        self.shared.send(home, Command::Return { slot, connection, end });
    }

    /// The loan has ended here; what tells its home.
    fn lease_end(&self, loan: Loan<C>, home: usize) -> LeaseEnd<C> {
        let reference = loan.settled().unwrap_or_else(|| self.spare_reference());
        LeaseEnd::new(reference, home)
    }

    /// A reference to travel with a loan or a lease's end. They are kept and used again: counting them up here and down
    /// on the other core would have the two cores fight for the count.
    fn spare_reference(&self) -> Arc<Shared<C>> {
        let spare = self.references.borrow_mut().pop();
        spare.unwrap_or_else(|| Arc::clone(&self.shared))
    }

    pub(crate) fn keep_reference(&self, reference: Option<Arc<Shared<C>>>) {
        let mut references = self.references.borrow_mut();
        if !self.ended.get() && references.len() < self.shared.settings.slots.min(MAX_REFERENCES) {
            references.extend(reference);
        }
    }

    pub(crate) fn tell_gone(&self, home: usize, slot: SlotId, reason: CloseReason, loan: Loan<C>) {
        let end = self.lease_end(loan, home);
        self.shared.send(home, Command::Gone { slot, reason, end });
    }

    /// A lease of another core's slot has ended on this core.
    pub(crate) fn send_home(&self, mut carrier: Box<Carrier<C>>) {
        let (shard, slot) = (carrier.home, carrier.slot);
        // First, so that a panic in `is_quiet` does not cost the slot.
        let loan = Loan::new(self.spare_reference(), shard, slot);
        let fit = carrier.clean && carrier.is_quiet() && self.after_return(&mut carrier);
        let to = match fit {
            true => Destination::Home { shard },
            false => Destination::Close { shard, reason: CloseReason::Dirty },
        };
        if let Some(connection) = self.unload(carrier) {
            self.depart(Departure { slot, connection, to, loan });
        }
    }

    /// Sends a connection to another core, at once when nothing is in flight on it.
    pub(super) fn depart(&self, departure: Departure<C>) {
        let Departure { slot, connection, to, loan } = departure;
        if let Destination::Close { shard, reason } = to
            && self.ended.get()
        {
            contain("a pooled connection", || drop(connection));
            return self.tell_gone(shard, slot, reason, loan);
        }
        let connection = match to {
            Destination::Close { .. } => connection,
            _ => match connection.detach() {
                Ok(detached) => return self.dispatch(slot, detached, to, loan),
                Err(connection) => connection,
            },
        };
        if self.ended.get() {
            let (Destination::Home { shard }
            | Destination::Asker { asker: Applicant { shard, .. }, .. }
            | Destination::Close { shard, .. }) = to;
            contain("a pooled connection", || drop(connection));
            return self.tell_gone(shard, slot, CloseReason::Shutdown, loan);
        }
        if let Destination::Asker { asker: Applicant { shard, token, .. }, .. } = to {
            self.abroad.borrow_mut().leaving.insert((shard, token));
        }
        self.departures.borrow_mut().push(Departure { slot, connection, to, loan });
        self.wake_actor();
    }

    pub(crate) fn dispatch(&self, slot: SlotId, connection: Detached<C>, to: Destination, loan: Loan<C>) {
        match to {
            Destination::Asker { asker: Applicant { shard, token, .. }, .. } => {
                let mut abroad = self.abroad.borrow_mut();
                if !abroad.leaving.is_empty() {
                    abroad.leaving.remove(&(shard, token));
                }
                drop(abroad);
                let grant = Command::Grant { token, lent: Lent { connection, loan } };
                self.shared.send(shard, grant);
            }
            Destination::Home { shard } => {
                let end = self.lease_end(loan, shard);
                self.shared.send(shard, Command::Return { slot, connection, end });
            }
            Destination::Close { .. } => unreachable!("what is to be closed is not detached"),
        }
    }

    pub(crate) fn take_departures(&self) -> Vec<Departure<C>> {
        self.departures.take()
    }

    /// Hands a granted connection to a task of another core.
    pub(super) fn lend(&self, asker: Applicant, grant: Granted, carrier: Box<Carrier<C>>) {
        let slot = carrier.slot;
        self.abroad.borrow_mut().lends += 1;
        let loan = Loan::new(self.spare_reference(), self.index, slot);
        if let Some(connection) = self.unload(carrier) {
            self.depart(Departure { slot, connection, to: Destination::Asker { asker, grant }, loan });
        }
    }

    /// A connection that was to be lent turned out unfit: its acquire is decided anew, before those that came after it.
    pub(crate) fn lend_failed(
        self: &Rc<Self>,
        slot: SlotId,
        connection: C::Connection,
        asker: Applicant,
        grant: Granted,
    ) {
        let carrier = self.load(self.index, slot, connection);
        let who = self.with_state(|state| {
            let who = Asker::retried(asker.handle, state.charged_to(slot));
            state.handle_discard(slot, carrier, CloseReason::Broken);
            who
        });
        if !self.abroad.borrow_mut().leaving.remove(&(asker.shard, asker.token)) {
            return;
        }
        if grant == Granted::Spilled {
            return self.answer_spill(who, asker.shard, asker.token);
        }
        let admission = self.with_state(|state| {
            state.handle_readmission(
                &who,
                grant == Granted::AfterWait,
                |carrier| self.may_lease(carrier),
                || Ticket { reply: asker.into(), timeout: None },
            )
        });
        self.answer(asker, true, admission);
    }

    /// An acquire of a task on another core.
    pub(super) fn acquire_for(&self, asker: Asker, from: usize, token: Token) {
        if self.shared.has_ended(from) {
            // Nobody is left there to take the answer.
            return;
        }
        let applicant = Applicant { shard: from, token, handle: asker.handle };
        self.lapse_pause();
        let admission = self.with_state(|state| {
            state.handle_acquire(
                &asker,
                |carrier| self.may_lease(carrier),
                || Ticket {
                    reply: applicant.into(),
                    // The asking core keeps the deadline.
                    timeout: None,
                },
            )
        });
        self.answer(applicant, false, admission);
    }

    fn answer(&self, asker: Applicant, waited: bool, admission: Admission<Box<Carrier<C>>>) {
        let Applicant { shard, token, .. } = asker;
        let how = if waited { Granted::AfterWait } else { Granted::AtOnce };
        match admission {
            Admission::Granted(grant) => {
                self.watch_lease();
                self.lend(asker, how, grant.connection);
            }
            Admission::Refused(refusal) => {
                self.observe_refusal(&refusal);
                self.shared.send(shard, Command::Refuse { token, refusal: Box::new(refusal) })
            }
            Admission::Queued(waiter) => {
                self.abroad.borrow_mut().waiters.insert((shard, token), waiter);
                self.after_queueing();
            }
        }
    }

    /// A connection comes home from another core.
    pub(super) fn returned(self: &Rc<Self>, slot: SlotId, detached: Detached<C>) {
        let slot_guard = LoseOnUnwind(self, slot);
        let mut carrier = self.load(self.index, slot, C::Connection::attach(detached));
        self.with_state(|state| {
            if state.wants_time() {
                state.tell_time(self.local.now());
            }
            match state.has_waiters_for(slot) {
                true if !self.may_lease(&mut carrier) => {
                    return state.handle_discard(slot, carrier, CloseReason::Broken);
                }
                true => {}
                false => carrier.arm(),
            }
            self.yield_or_release(state, slot, carrier);
        });
        slot_guard.disarm();
        self.flush();
    }

    pub(super) fn gone(&self, slot: SlotId, reason: CloseReason) {
        if self.ended.get() {
            return self.shared.late_lease_ended(self.index);
        }
        self.with_state(|state| state.handle_lost(slot, reason));
        self.flush();
        self.observe(|| EventKind::Closed { reason });
    }

    /// What another shard, or a user anywhere, has sent.
    pub(crate) fn handle_command(self: &Rc<Self>, command: Command<C>) {
        match command {
            Command::Acquire { asker, from, token } => self.acquire_for(asker, from, token),
            Command::Spill { asker, from, token } => self.answer_spill(asker, from, token),
            Command::Cancel { from, token } => {
                let waiter = {
                    let mut abroad = self.abroad.borrow_mut();
                    abroad.leaving.remove(&(from, token));
                    abroad.waiters.remove(&(from, token))
                };
                if let Some(waiter) = waiter {
                    self.cancel_waiter(waiter);
                }
            }
            Command::Deregister { handle } => self.deregister(self.index, handle),
            Command::Return { slot, connection, end } => {
                self.keep_reference(end.noticed());
                self.returned(slot, connection);
            }
            Command::Gone { slot, reason, end } => {
                self.keep_reference(end.noticed());
                self.gone(slot, reason);
            }
            Command::Grant { token, lent } => {
                let (home, slot) = lent.loan.lender();
                let grant = RemoteGrant { home, slot, connection: lent };
                let resolved = self.forwards.borrow_mut().resolve(token, Answer::Granted(grant));
                match resolved {
                    Ok(waker) => waker.wake(),
                    Err(Answer::Granted(unwanted)) => self.return_unused(unwanted),
                    Err(_) => {}
                }
            }
            Command::Decline { token } => {
                let declined = self.forwards.borrow_mut().decline(token);
                if let Some(waker) = declined {
                    waker.wake();
                }
            }
            Command::Refuse { token, refusal } => {
                let resolved = self.forwards.borrow_mut().resolve(token, Answer::Refused(*refusal));
                if let Ok(waker) = resolved {
                    waker.wake();
                }
            }
            Command::Credit(credit) => self.receive_credit(credit),
            Command::Prewarm { reply } => self.warmups.borrow_mut().push(reply),
            Command::Leases { reply } => {
                let _ = reply.send(self.outstanding_leases());
            }
            Command::Stats { reply } => {
                // Refused when nobody waits for the answer any more.
                let _ = reply.send(self.stats());
            }
        }
    }

    /// Ends the forwarded acquires whose time is up.
    pub(crate) fn expire_forwards(&self, now: Instant) {
        loop {
            let Some((home, token, waker)) = self.forwards.borrow_mut().pop_due(now) else { return };
            self.shared.send(home, Command::Cancel { from: self.index, token });
            waker.wake();
        }
    }

    /// Looks at how far the other shards have come: what was asked of an ended one ends, and what was asked from there.
    /// What it has borrowed comes back by itself, or its loss is told.
    pub(crate) fn look_at_others(&self) {
        for shard in (0..self.shared.links.len()).filter(|shard| *shard != self.index) {
            let Some(refusal) = self.shared.refusal(shard) else { continue };
            self.fail_home(shard, &refusal);
            if self.shared.has_ended(shard) {
                let mut abroad = self.abroad.borrow_mut();
                let orphans: Vec<_> = abroad.waiters.extract_if(|(from, _), _| *from == shard).collect();
                drop(abroad);
                orphans.into_iter().for_each(|(_, waiter)| self.cancel_waiter(waiter));
            }
        }
    }

    pub(super) fn fail_home(&self, home: usize, refusal: &Refusal) {
        let wakers = self.forwards.borrow_mut().fail_home(home, refusal);
        wakers.into_iter().for_each(Waker::wake);
    }
}
