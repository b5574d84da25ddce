//! A core's home of one pool: the scheduler's state, what local handles call directly, and the hand-over to the actor.
//!
//! Reached on its own core's thread only. The state is borrowed for the length of one transition; wakers and drops of
//! connections run afterwards. A panic inside a transition fails the shard, whoever made the call.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use super::actor;
use super::carrier::Carrier;
use super::connection::Connection;
use super::connector::Connector;
use super::remote::{Cancelled, Command, Detached, Forwards, Lent, RemoteGrant, Token};
use super::scheduler::{
    Admission, CloseReason, HandleId, Lifecycle, Refusal, SlotId, State, Taken, Ticket, WaiterKey,
};
use super::shared::{Loan, Shared};
use super::stats::ShardStats;
use crate::runtime::executor::contain;
use crate::runtime::local::Local;
use crate::runtime::watch::WatchList;
use crate::runtime::{RawPid, context};

/// How a queued waiter is told.
#[derive(Debug)]
pub(crate) enum Reply {
    Local(Waker),
    Remote { shard: usize, token: Token },
}

/// Where a connection that leaves this core goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Destination {
    /// Lent to a task of another core.
    Asker { shard: usize, token: Token },
    /// Back from a lease on this core.
    Home { shard: usize },
    /// Nowhere: it is closed, and its home told why.
    Close { shard: usize, reason: CloseReason },
}

/// A connection on its way out, until nothing is in flight on it.
pub(crate) struct Departure<C: Connector> {
    pub(crate) slot: SlotId,
    pub(crate) connection: C::Connection,
    pub(crate) to: Destination,
    pub(crate) loan: Loan<C>,
}

/// What this shard knows of other cores' dealings with it.
#[derive(Default)]
struct Abroad {
    /// Their queued acquires, to be found by a cancel.
    waiters: FxHashMap<(usize, Token), WaiterKey>,
    /// Their granted acquires whose connection is not yet fit to leave; a cancel takes them out.
    leaving: FxHashSet<(usize, Token)>,
    lends: u64,
}

pub(crate) struct Shard<C: Connector> {
    pub(crate) index: usize,
    pub(crate) local: Rc<Local>,
    pub(crate) shared: Arc<Shared<C>>,
    state: RefCell<State<Box<Carrier<C>>, Reply>>,
    forwards: RefCell<Forwards<Lent<C>>>,
    abroad: RefCell<Abroad>,
    departures: RefCell<Vec<Departure<C>>>,
    /// Carriers whose connection has gone, for the next one that comes.
    spares: RefCell<Vec<Box<Carrier<C>>>>,
    watch: Rc<WatchList>,
    actor: Cell<Option<RawPid>>,
    port: Cell<Option<usize>>,
    /// The shared epoch that was last looked at.
    seen_epoch: Cell<u64>,
    /// Acquires were queued or forwarded since their clocks were last started.
    unclocked: Cell<bool>,
    /// When the actor will look at the deadlines next.
    actor_wakes_at: Cell<Option<Instant>>,
    ended: Cell<bool>,
    spawns: Cell<u64>,
    failures: Cell<u64>,
}

impl<C: Connector> Shard<C> {
    /// The shard of the current core, made and given its actor by the first call.
    pub(crate) fn of(local: &Rc<Local>, shared: &Arc<Shared<C>>) -> Option<Rc<Shard<C>>> {
        if let Some(installed) = local.extension(shared.id) {
            return installed.downcast().ok();
        }
        let index = shared.shard_on(local.id())?;
        let inbox = shared.take_inbox(index);
        let shard = Rc::new(Shard {
            index,
            local: Rc::clone(local),
            shared: Arc::clone(shared),
            state: RefCell::new(State::new(shared.settings.limits())),
            forwards: RefCell::new(Forwards::new()),
            abroad: RefCell::new(Abroad::default()),
            departures: RefCell::new(Vec::new()),
            spares: RefCell::new(Vec::new()),
            watch: WatchList::new(),
            actor: Cell::new(None),
            port: Cell::new(None),
            seen_epoch: Cell::new(0),
            unclocked: Cell::new(false),
            actor_wakes_at: Cell::new(None),
            ended: Cell::new(false),
            spawns: Cell::new(0),
            failures: Cell::new(0),
        });
        match inbox {
            Some(inbox) => {
                let actor = actor::start(&shard, inbox);
                shard.spawns.set(1);
                shard.actor.set(Some(actor));
                shard.watch.set_task(actor);
                local.set_extension(shared.id, Rc::clone(&shard) as Rc<dyn std::any::Any>);
            }
            // Its actor has ended: only the refusals are left.
            None => {
                shard.ended.set(true);
                shard.state.borrow_mut().drain_for_shutdown(shared.lifecycle(index).max(Lifecycle::Closed));
            }
        }
        Some(shard)
    }

    /// An acquire of this core's own shard.
    #[inline(always)]
    pub(crate) fn acquire(
        &self,
        handle: HandleId,
        timeout: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Admission<Box<Carrier<C>>> {
        let guard = FailOnUnwind(self);
        let admission = self.state.borrow_mut().handle_acquire(
            handle,
            |carrier: &Box<Carrier<C>>| carrier.is_quiet(),
            || Ticket { reply: Reply::Local(cx.waker().clone()), timeout },
        );
        guard.disarm();
        if !matches!(admission, Admission::Granted(_)) {
            self.after_queueing();
        }
        admission
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
            Taken::Granted(grant) => Poll::Ready(Ok(grant.connection)),
            Taken::Refused(refusal) => Poll::Ready(Err(refusal)),
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

    /// The caller of a queued acquire has gone.
    pub(crate) fn cancel_waiter(&self, waiter: WaiterKey) {
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

    /// What comes back after the actor has ended was counted among the leases that outlive it.
    fn close_late(&self) {
        loop {
            let Some((_, carrier, _)) = self.with_state(|state| state.poll_close()) else { return };
            self.give_back_late(carrier);
        }
    }

    /// A lease of this shard's own slot has ended.
    #[inline(always)]
    pub(crate) fn give_back(&self, mut carrier: Box<Carrier<C>>) {
        if self.ended.get() {
            return self.give_back_late(carrier);
        }
        let slot = carrier.slot;
        let slot_guard = LoseOnUnwind(self, slot);
        let guard = FailOnUnwind(self);
        let mut state = self.state.borrow_mut();
        if carrier.clean && carrier.is_quiet() {
            // A connection that goes to a waiter at once is not idle, and so is not armed either.
            if !carrier.armed && !state.has_waiters() {
                carrier.arm();
                if !context::is_inside(&self.local) {
                    // What was armed is to be submitted.
                    self.wake_actor();
                }
            }
            state.handle_release(slot, carrier);
        } else {
            let reason = if carrier.armed { CloseReason::Broken } else { CloseReason::Dirty };
            state.handle_discard(slot, carrier, reason);
        }
        let quiet = !state.has_output();
        drop(state);
        guard.disarm();
        slot_guard.disarm();
        if !quiet {
            self.flush();
        }
    }

    #[cold]
    fn give_back_late(&self, carrier: Box<Carrier<C>>) {
        contain("a pooled connection", || drop(carrier));
        self.shared.late_lease_ended(self.index);
    }

    /// Tells the waiters whose fate is known, and has the actor do what is left.
    #[cold]
    pub(crate) fn flush(&self) {
        if self.ended.get() {
            return self.close_late();
        }
        loop {
            let Some(notice) = self.state.borrow_mut().poll_notice() else { break };
            match notice.reply {
                Reply::Local(waker) => waker.wake(),
                Reply::Remote { shard, token } => {
                    self.abroad.borrow_mut().waiters.remove(&(shard, token));
                    let taken = self.state.borrow_mut().take(notice.waiter);
                    match taken {
                        Taken::Granted(grant) => self.lend(shard, token, grant.connection),
                        Taken::Refused(refusal) => {
                            self.shared.send(shard, Command::Refuse { token, refusal });
                        }
                        Taken::Pending | Taken::Gone => {}
                    }
                }
            }
        }
        let state = self.state.borrow();
        if state.has_output() || state.wants_open() {
            drop(state);
            self.wake_actor();
        }
    }

    #[cold]
    fn after_queueing(&self) {
        self.unclocked.set(true);
        self.flush();
    }

    /// At the end of a turn: what was queued in it, and still is, counts its time from now. An acquire that is served
    /// within its turn never costs a look at the clock.
    #[inline]
    pub(crate) fn start_clocks(&self) {
        if self.unclocked.replace(false) {
            self.start_clocks_now();
        }
    }

    #[cold]
    fn start_clocks_now(&self) {
        let now = self.local.now();
        self.state.borrow_mut().start_clocks(now);
        self.forwards.borrow_mut().start_clocks(now);
        let due = self.next_deadline();
        if due.is_some_and(|due| self.actor_wakes_at.get().is_none_or(|at| due < at)) {
            self.wake_actor();
        }
    }

    pub(crate) fn set_port(&self, port: usize) {
        self.port.set(Some(port));
    }

    #[inline]
    pub(crate) fn has_new_epoch(&self) -> bool {
        self.shared.epoch() != self.seen_epoch.get()
    }

    /// Notes the epoch; true when it had moved on.
    pub(crate) fn see_epoch(&self) -> bool {
        let epoch = self.shared.epoch();
        self.seen_epoch.replace(epoch) != epoch
    }

    /// When the actor has to look at the clock.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let here = self.state.borrow().next_deadline();
        let forwarded = self.forwards.borrow().next_deadline();
        match (here, forwarded) {
            (Some(here), Some(forwarded)) => Some(here.min(forwarded)),
            (here, forwarded) => here.or(forwarded),
        }
    }

    pub(crate) fn set_actor_wakes_at(&self, at: Option<Instant>) {
        self.actor_wakes_at.set(at);
    }

    pub(crate) fn wake_actor(&self) {
        if let Some(actor) = self.actor.get() {
            // Not by the executor directly: outside a turn the core may have announced that it sleeps.
            context::wake(actor.into());
        }
    }

    /// Runs one transition of the state; a panic in it fails the shard.
    pub(crate) fn with_state<R>(
        &self,
        transition: impl FnOnce(&mut State<Box<Carrier<C>>, Reply>) -> R,
    ) -> R {
        let guard = FailOnUnwind(self);
        let result = transition(&mut self.state.borrow_mut());
        guard.disarm();
        result
    }

    pub(crate) fn watch(&self) -> &Rc<WatchList> {
        &self.watch
    }

    /// Publishes that the scheduler is broken, before anybody is told anything; then ends all that waits.
    #[cold]
    pub(crate) fn fail(&self) {
        if self.ended.get() || self.state.borrow().lifecycle() == Lifecycle::Failed {
            return;
        }
        self.shared.publish(self.index, Lifecycle::Failed);
        self.failures.set(self.failures.get() + 1);
        tracing::error!(
            pool = self.shared.id,
            core = %self.local.id(),
            "a pool shard's scheduler panicked; this shard grants nothing any more"
        );
        self.state.borrow_mut().drain_for_shutdown(Lifecycle::Failed);
        self.flush();
        self.wake_actor();
    }

    /// The actor has gone: no transition comes after this.
    pub(crate) fn end(&self) {
        self.local.remove_extension(self.shared.id);
        if let Some(port) = self.port.take() {
            self.local.remove_port(port);
        }
        let mut stats = self.stats();
        // With the actor go the attempts it had under way, and what it had not finished closing.
        stats.connect_failures += stats.opening as u64;
        (stats.opening, stats.closing) = (0, 0);
        self.ended.set(true);
        let departures = self.departures.take();
        contain("pooled connections", || drop(departures));
        drop(self.spares.take());
        let outstanding = stats.leased as isize;
        let idle = self.with_state(|state| std::iter::from_fn(|| state.poll_close()).collect::<Vec<_>>());
        contain("pooled connections", || drop(idle));
        let refusal = self.end_refusal();
        for home in 0..self.shared.links.len() {
            self.fail_home(home, &refusal);
        }
        self.shared.actor_ended(self.index, stats, outstanding);
    }

    /// What acquires get that this core, without its actor, can no longer forward.
    fn end_refusal(&self) -> Refusal {
        self.shared.refusal(self.index).unwrap_or(Refusal::Closed)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.get()
    }

    pub(crate) fn deregister(&self, home: usize, handle: HandleId) {
        if home != self.index {
            return self.shared.send(home, Command::Deregister { handle });
        }
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

    pub(crate) fn stats(&self) -> ShardStats {
        let state = self.state.borrow();
        let mut stats = ShardStats::collect(self.local.id(), state.counters(), state.gauges());
        stats.forwards = self.forwards.borrow().total;
        stats.lends = self.abroad.borrow().lends;
        stats.scheduler_spawns = self.spawns.get();
        stats.scheduler_failures = self.failures.get();
        stats
    }
}

/// Dealings with other cores.
impl<C: Connector> Shard<C> {
    /// Sends an acquire to its home shard.
    pub(crate) fn forward(
        &self,
        home: usize,
        handle: HandleId,
        timeout: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Result<Token, Refusal> {
        if let Some(refusal) = self.shared.refusal(home) {
            return Err(refusal);
        }
        if self.ended.get() {
            return Err(self.end_refusal());
        }
        let token = self.forwards.borrow_mut().begin(home, cx.waker().clone(), timeout);
        self.unclocked.set(true);
        self.shared.send(home, Command::Acquire { handle, from: self.index, token });
        Ok(token)
    }

    pub(crate) fn poll_forward(
        &self,
        token: Token,
        cx: &mut Context<'_>,
    ) -> Poll<Result<RemoteGrant<Lent<C>>, Refusal>> {
        self.forwards.borrow_mut().poll(token, cx.waker())
    }

    pub(crate) fn cancel_forward(&self, token: Token) {
        let cancelled = self.forwards.borrow_mut().cancel(token);
        match cancelled {
            Cancelled::Tell { home } => {
                self.shared.send(home, Command::Cancel { from: self.index, token });
            }
            Cancelled::SendHome(grant) => self.return_unused(grant),
            Cancelled::Nothing => {}
        }
    }

    fn return_unused(&self, grant: RemoteGrant<Lent<C>>) {
        let RemoteGrant { home, slot, connection: Lent { connection, loan } } = grant;
        loan.settled();
        let end = self.shared.lease_end(home);
        self.shared.send(home, Command::Return { slot, connection, end });
    }

    pub(crate) fn tell_gone(&self, home: usize, slot: SlotId, reason: CloseReason, loan: Loan<C>) {
        loan.settled();
        let end = self.shared.lease_end(home);
        self.shared.send(home, Command::Gone { slot, reason, end });
    }

    /// A lease of another core's slot has ended on this core.
    pub(crate) fn send_home(&self, carrier: Box<Carrier<C>>) {
        let (shard, slot) = (carrier.home, carrier.slot);
        // First, so that a panic in `is_quiet` does not cost the slot.
        let loan = Loan::new(&self.shared, shard, slot);
        let to = match carrier.clean && carrier.is_quiet() {
            true => Destination::Home { shard },
            false => Destination::Close { shard, reason: CloseReason::Dirty },
        };
        if let Some(connection) = self.unload(carrier) {
            self.depart(Departure { slot, connection, to, loan });
        }
    }

    /// Puts a connection into a carrier on this core.
    pub(crate) fn load(
        self: &Rc<Self>,
        home: usize,
        slot: SlotId,
        connection: C::Connection,
    ) -> Box<Carrier<C>> {
        let spare = self.spares.borrow_mut().pop();
        let connection = Some(connection);
        match spare {
            Some(mut carrier) => {
                carrier.home = home;
                carrier.slot = slot;
                carrier.connection = connection;
                carrier.armed = false;
                carrier.clean = true;
                carrier
            }
            None => {
                let shard = Rc::clone(self);
                Box::new(Carrier { shard, home, slot, connection, armed: false, clean: true })
            }
        }
    }

    /// Takes a connection out of its carrier, which is kept for the next one.
    pub(crate) fn unload(&self, mut carrier: Box<Carrier<C>>) -> Option<C::Connection> {
        let connection = carrier.connection.take();
        let mut spares = self.spares.borrow_mut();
        if !self.ended.get() && spares.len() < self.shared.settings.slots {
            spares.push(carrier);
        }
        connection
    }

    /// Sends a connection to another core, at once when nothing is in flight on it.
    fn depart(&self, departure: Departure<C>) {
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
            | Destination::Asker { shard, .. }
            | Destination::Close { shard, .. }) = to;
            contain("a pooled connection", || drop(connection));
            return self.tell_gone(shard, slot, CloseReason::Shutdown, loan);
        }
        self.departures.borrow_mut().push(Departure { slot, connection, to, loan });
        self.wake_actor();
    }

    pub(crate) fn dispatch(&self, slot: SlotId, connection: Detached<C>, to: Destination, loan: Loan<C>) {
        match to {
            Destination::Asker { shard, token } => {
                self.abroad.borrow_mut().leaving.remove(&(shard, token));
                let connection = Lent { connection, loan };
                let grant = Command::Grant { token, home: self.index, slot, connection };
                self.shared.send(shard, grant);
            }
            Destination::Home { shard } => {
                loan.settled();
                let end = self.shared.lease_end(shard);
                self.shared.send(shard, Command::Return { slot, connection, end });
            }
            Destination::Close { .. } => unreachable!("what is to be closed is not detached"),
        }
    }

    pub(crate) fn take_departures(&self) -> Vec<Departure<C>> {
        self.departures.take()
    }

    /// Hands a granted connection to a task of another core.
    fn lend(&self, shard: usize, token: Token, carrier: Box<Carrier<C>>) {
        let slot = carrier.slot;
        {
            let mut abroad = self.abroad.borrow_mut();
            abroad.lends += 1;
            abroad.leaving.insert((shard, token));
        }
        let loan = Loan::new(&self.shared, self.index, slot);
        if let Some(connection) = self.unload(carrier) {
            self.depart(Departure { slot, connection, to: Destination::Asker { shard, token }, loan });
        }
    }

    /// A connection that was to be lent turned out unfit: its acquire is decided anew.
    pub(crate) fn lend_failed(
        self: &Rc<Self>,
        slot: SlotId,
        connection: C::Connection,
        shard: usize,
        token: Token,
    ) {
        let carrier = self.load(self.index, slot, connection);
        self.with_state(|state| state.handle_discard(slot, carrier, CloseReason::Broken));
        if self.abroad.borrow_mut().leaving.remove(&(shard, token)) {
            self.acquire_for(HandleId::RETRIED, shard, token);
        }
    }

    /// An acquire of a task on another core.
    fn acquire_for(&self, handle: HandleId, from: usize, token: Token) {
        if self.shared.has_ended(from) {
            // Nobody is left there to take the answer.
            return;
        }
        let admission = self.with_state(|state| {
            state.handle_acquire(
                handle,
                |carrier: &Box<Carrier<C>>| carrier.is_quiet(),
                || Ticket {
                    reply: Reply::Remote { shard: from, token },
                    // The asking core keeps the deadline.
                    timeout: None,
                },
            )
        });
        match admission {
            Admission::Granted(grant) => self.lend(from, token, grant.connection),
            Admission::Refused(refusal) => self.shared.send(from, Command::Refuse { token, refusal }),
            Admission::Queued(waiter) => {
                self.abroad.borrow_mut().waiters.insert((from, token), waiter);
                self.after_queueing();
            }
        }
    }

    /// A connection comes home from another core.
    fn returned(self: &Rc<Self>, slot: SlotId, detached: Detached<C>) {
        let slot_guard = LoseOnUnwind(self, slot);
        let mut carrier = self.load(self.index, slot, C::Connection::attach(detached));
        self.with_state(|state| {
            if !state.has_waiters() {
                carrier.arm();
            }
            state.handle_release(slot, carrier);
        });
        slot_guard.disarm();
        self.flush();
    }

    fn gone(&self, slot: SlotId, reason: CloseReason) {
        self.with_state(|state| state.handle_lost(slot, reason));
        self.flush();
    }

    /// What another shard, or a user anywhere, has sent.
    pub(crate) fn handle_command(self: &Rc<Self>, command: Command<C>) {
        match command {
            Command::Acquire { handle, from, token } => self.acquire_for(handle, from, token),
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
                end.noticed();
                self.returned(slot, connection);
            }
            Command::Gone { slot, reason, end } => {
                end.noticed();
                self.gone(slot, reason);
            }
            Command::Grant { token, home, slot, connection } => {
                let grant = RemoteGrant { home, slot, connection };
                let resolved = self.forwards.borrow_mut().resolve(token, Ok(grant));
                match resolved {
                    Ok(waker) => waker.wake(),
                    Err(Ok(unwanted)) => self.return_unused(unwanted),
                    Err(Err(_)) => {}
                }
            }
            Command::Refuse { token, refusal } => {
                let resolved = self.forwards.borrow_mut().resolve(token, Err(refusal));
                if let Ok(waker) = resolved {
                    waker.wake();
                }
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

    fn fail_home(&self, home: usize, refusal: &Refusal) {
        let wakers = self.forwards.borrow_mut().fail_home(home, refusal);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Fails the shard when it is dropped by a panic.
struct FailOnUnwind<'a, C: Connector>(&'a Shard<C>);

impl<C: Connector> FailOnUnwind<'_, C> {
    #[inline]
    fn disarm(self) {
        std::mem::forget(self);
    }
}

impl<C: Connector> Drop for FailOnUnwind<'_, C> {
    #[cold]
    fn drop(&mut self) {
        contain("a failed shard", || self.0.fail());
    }
}

/// Counts a slot's connection as lost when it is dropped by a panic that has taken the connection with it: nobody else
/// ever would, and a drain would wait for that lease.
struct LoseOnUnwind<'a, C: Connector>(&'a Shard<C>, SlotId);

impl<C: Connector> LoseOnUnwind<'_, C> {
    #[inline]
    fn disarm(self) {
        std::mem::forget(self);
    }
}

impl<C: Connector> Drop for LoseOnUnwind<'_, C> {
    #[cold]
    fn drop(&mut self) {
        contain("a failed shard", || self.0.gone(self.1, CloseReason::Broken));
    }
}
