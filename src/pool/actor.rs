//! The scheduler actor: one long-lived task per shard that drains commands, opens and closes connections, keeps
//! deadlines, and ends the shard.
//!
//! Never: any I/O of a request; waiting for another core.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use crossbeam_channel::Receiver;
use futures_util::stream::{FuturesUnordered, Stream};

use super::carrier::Carrier;
use super::connection::Connection;
use super::connector::Connector;
use super::errands::{self, Check, ClosedAbroad, Closing, Leaving, Opening};
use super::event::EventKind;
use super::remote::Command;
use super::scheduler::{CloseReason, Lifecycle, SlotId};
use super::shard::{Departure, Destination, Shard};
use crate::runtime::executor::contain;
use crate::runtime::local::Port;
use crate::runtime::{RawPid, Sleep, context};

/// Commands handled before the rest of the core has its turn.
const COMMANDS_PER_POLL: usize = 256;

/// Starts the actor of `shard` on its core.
pub(crate) fn start<C: Connector>(shard: &Rc<Shard<C>>, inbox: Receiver<Command<C>>) -> RawPid {
    let port = Rc::new(Mail { shard: Rc::clone(shard), inbox: inbox.clone() });
    let mut actor = Actor {
        shard: Rc::clone(shard),
        inbox,
        openings: FuturesUnordered::new(),
        checks: FuturesUnordered::new(),
        closings: FuturesUnordered::new(),
        leavings: FuturesUnordered::new(),
        closed_abroad: FuturesUnordered::new(),
        timer: None,
        fired: Vec::new(),
        polling: false,
    };
    let pid = shard.local.executor().spawn(poll_fn(move |cx| actor.poll(cx))).pid();
    shard.set_port(shard.local.add_port(pid, port));
    crate::actor::label(&shard.local, pid, format!("scheduler of pool {}", shard.shared.id));
    pid
}

/// What the core looks at for the actor.
struct Mail<C: Connector> {
    shard: Rc<Shard<C>>,
    inbox: Receiver<Command<C>>,
}

impl<C: Connector> Port for Mail<C> {
    #[inline]
    fn has_mail(&self) -> bool {
        !self.inbox.is_empty() || self.shard.has_new_epoch()
    }

    #[inline]
    fn turn_ends(&self) {
        self.shard.end_turn();
        self.shard.publish_hint();
        self.shard.publish();
    }
}

struct Actor<C: Connector> {
    shard: Rc<Shard<C>>,
    inbox: Receiver<Command<C>>,
    openings: FuturesUnordered<Opening<C>>,
    checks: FuturesUnordered<Check<C>>,
    closings: FuturesUnordered<Closing>,
    leavings: FuturesUnordered<Leaving<C>>,
    closed_abroad: FuturesUnordered<ClosedAbroad<C>>,
    timer: Option<Sleep>,
    fired: Vec<u64>,
    /// Set while a poll is under way: a drop that finds it set is that of a panicked actor.
    polling: bool,
}

impl<C: Connector> Actor<C> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.polling = true;
        let more = self.turn(cx);
        let ended = self.has_ended();
        if more && !ended {
            cx.waker().wake_by_ref();
        }
        self.polling = false;
        if ended { Poll::Ready(()) } else { Poll::Pending }
    }

    /// One round: shutdown first, then capacity, then commands, then I/O. True when there is more at once.
    fn turn(&mut self, cx: &mut Context<'_>) -> bool {
        self.look_at_epoch();
        self.evict();
        let mut more = self.handle_commands();
        if self.shard.next_deadline().is_some() || self.shard.watches_leases() {
            let now = self.shard.local.now();
            self.shard.with_state(|state| {
                state.handle_deadline(now);
                state.handle_upkeep(now);
            });
            self.shard.expire_forwards(now);
            self.shard.look_for_leaks(now);
            self.shard.doubt_hunger(now);
            self.shard.retry_missing(now);
        }
        self.shard.answer_calls();
        self.shard.flush();
        self.start_closing();
        self.start_checking();
        self.start_opening();
        self.shard.return_credits();
        self.start_leaving();
        if self.has_io() {
            more |= self.poll_io(cx);
            self.shard.flush();
        }
        self.shard.settle_warmups();
        #[cfg(feature = "framed")]
        self.shard.tell_holders();
        self.arm_timer(cx);
        more
    }

    fn has_io(&self) -> bool {
        !(self.openings.is_empty()
            && self.checks.is_empty()
            && self.closings.is_empty()
            && self.leavings.is_empty()
            && self.closed_abroad.is_empty())
    }

    fn look_at_epoch(&mut self) {
        if !self.shard.see_epoch() {
            return;
        }
        let shared = &self.shard.shared;
        let running = self.shard.with_state(|state| state.lifecycle()) == Lifecycle::Running;
        if shared.is_closing() && running {
            // Status first: whoever is refused from here on learns the true cause.
            shared.publish(self.shard.index, Lifecycle::Closed);
            self.shard.with_state(|state| state.drain_for_shutdown(Lifecycle::Closed));
        }
        self.shard.follow();
        self.shard.look_at_others();
        self.shard.listen();
        self.shard.start_hinting();
    }

    /// Idle connections on which something has arrived.
    fn evict(&mut self) {
        self.shard.watch().take_fired(&mut self.fired);
        if !self.fired.is_empty() {
            let fired = &mut self.fired;
            self.shard.with_state(|state| {
                for slot in fired.drain(..) {
                    state.handle_evict(SlotId::from_bits(slot));
                }
            });
        }
    }

    fn handle_commands(&mut self) -> bool {
        for _ in 0..COMMANDS_PER_POLL {
            // Looking is cheaper than trying.
            if self.inbox.is_empty() {
                return false;
            }
            if let Ok(command) = self.inbox.try_recv() {
                self.shard.handle_command(command);
            }
        }
        true
    }

    fn start_opening(&mut self) {
        if !self.shard.wants_open() {
            return;
        }
        let now = self.shard.local.now();
        while let Some(slot) = self.shard.begin_open(now) {
            let span =
                tracing::debug_span!("connect", pool = self.shard.shared.id, core = %self.shard.local.id());
            self.openings.push(errands::open(&self.shard.shared, slot, self.shard.refreshes(), span));
        }
    }

    fn start_checking(&mut self) {
        while let Some((slot, carrier)) = self.shard.with_state(|state| state.poll_check()) {
            self.checks.push(errands::check(&self.shard.shared, slot, self.shard.refreshes(), carrier));
        }
    }

    fn start_closing(&mut self) {
        while let Some((slot, carrier, reason)) = self.shard.with_state(|state| state.poll_close()) {
            let Some(connection) = self.shard.unload(carrier) else { continue };
            let (pool, core) = (self.shard.shared.id, self.shard.local.id());
            tracing::debug!(pool, %core, reason = reason.name(), "closing a connection");
            self.shard.observe(|| EventKind::Closed { reason });
            self.closings.push(errands::close(&self.shard.shared, slot, connection, reason));
        }
    }

    fn start_leaving(&mut self) {
        let shared = &self.shard.shared;
        for departure in self.shard.take_departures() {
            if let Destination::Close { reason, .. } = departure.to {
                self.closed_abroad.push(errands::close_abroad(shared, departure, reason));
            } else {
                self.leavings.push(errands::leave(shared, departure));
            }
        }
    }

    /// Collects what has been opened, checked, closed or made ready to leave; true when something was.
    fn poll_io(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while let Poll::Ready(Some((slot, refreshes, connected))) = Pin::new(&mut self.openings).poll_next(cx)
        {
            progress = true;
            self.connected(slot, refreshes, connected);
        }
        while let Poll::Ready(Some((slot, refreshes, carrier, passed))) =
            Pin::new(&mut self.checks).poll_next(cx)
        {
            progress = true;
            self.checked(slot, refreshes, carrier, passed);
        }
        while let Poll::Ready(Some(slot)) = Pin::new(&mut self.closings).poll_next(cx) {
            progress = true;
            self.shard.with_state(|state| state.handle_closed(slot));
        }
        while let Poll::Ready(Some((departure, quiesced))) = Pin::new(&mut self.leavings).poll_next(cx) {
            progress = true;
            self.leave(departure, quiesced);
        }
        while let Poll::Ready(Some((slot, to, loan))) = Pin::new(&mut self.closed_abroad).poll_next(cx) {
            progress = true;
            if let Destination::Close { shard, reason } = to {
                self.shard.tell_gone(shard, slot, reason, loan);
            }
        }
        progress
    }

    fn connected(&self, slot: SlotId, refreshes: u64, connected: io::Result<C::Connection>) {
        let shard = &self.shard;
        let (pool, core) = (shard.shared.id, shard.local.id());
        match connected {
            Ok(connection) => {
                tracing::debug!(pool, %core, "a connection was opened");
                shard.observe(|| EventKind::Opened);
                let mut carrier = shard.load(shard.index, slot, connection);
                shard.with_state(|state| {
                    if refreshes != shard.refreshes() && !shard.is_current(&carrier) {
                        return state.handle_connected_in_vain(slot, carrier);
                    }
                    if !state.has_waiters() {
                        carrier.arm();
                    }
                    state.handle_connected(slot, carrier);
                });
            }
            Err(error) => {
                tracing::debug!(pool, %core, %error, "a connection could not be opened");
                let (error, now) = (Arc::new(error), shard.local.now());
                shard.observe(|| EventKind::ConnectFailed { error: Arc::clone(&error) });
                shard.with_state(|state| state.handle_connect_failed(slot, Arc::clone(&error), now));
                shard.fail_warmups(&error);
            }
        }
    }

    fn checked(&self, slot: SlotId, refreshes: u64, mut carrier: Box<Carrier<C>>, passed: io::Result<()>) {
        let shard = &self.shard;
        shard.with_state(|state| match passed {
            Ok(()) if refreshes != shard.refreshes() && !shard.is_current(&carrier) => {
                state.handle_unhealthy(slot, carrier, CloseReason::Superseded);
            }
            Ok(()) if carrier.is_quiet() => {
                match state.has_waiters() {
                    true if !shard.may_lease(&mut carrier) => {
                        return state.handle_unhealthy(slot, carrier, CloseReason::Broken);
                    }
                    true => {}
                    false => carrier.arm(),
                }
                state.handle_checked(slot, carrier);
            }
            _ => state.handle_unhealthy(slot, carrier, CloseReason::Unhealthy),
        });
    }

    fn leave(&self, departure: Departure<C>, quiesced: io::Result<()>) {
        let Departure { slot, connection, to, loan } = departure;
        let connection = match quiesced {
            Ok(()) => match connection.detach() {
                Ok(detached) => return self.shard.dispatch(slot, detached, to, loan),
                Err(connection) => connection,
            },
            Err(_) => connection,
        };
        self.shard.keep_reference(loan.settled());
        match to {
            Destination::Asker { asker, grant } => {
                self.shard.lend_failed(slot, connection, asker, grant);
            }
            Destination::Home { shard } | Destination::Close { shard, .. } => {
                let mut carrier = self.shard.load(shard, slot, connection);
                carrier.clean = false;
                self.shard.send_home(carrier);
            }
        }
    }

    /// Sees to it that the actor is woken when the next deadline comes. A timer for an earlier one stays as it is:
    /// most deadlines are met long before, and looking once in vain costs less than arming anew each time.
    fn arm_timer(&mut self, cx: &mut Context<'_>) {
        if let Some(timer) = &mut self.timer
            && Pin::new(timer).poll(cx).is_ready()
        {
            self.timer = None;
            self.shard.set_actor_wakes_at(None);
        }
        let Some(due) = self.shard.next_deadline() else { return };
        if self.timer.as_ref().is_none_or(|timer| due < timer.deadline()) {
            let timer = self.timer.insert(Sleep::on(&self.shard.local, due));
            self.shard.set_actor_wakes_at(Some(due));
            // Armed by its first poll, which is never its last.
            let _ = Pin::new(timer).poll(cx);
        }
    }

    /// Shut down, and nothing left to close.
    fn has_ended(&self) -> bool {
        let running = self.shard.with_state(|state| state.lifecycle()) == Lifecycle::Running;
        !running
            && self.closings.is_empty()
            && self.closed_abroad.is_empty()
            && self.leavings.is_empty()
            && !self.shard.with_state(|state| state.has_output())
    }
}

impl<C: Connector> Drop for Actor<C> {
    fn drop(&mut self) {
        let shard = Rc::clone(&self.shard);
        if self.polling {
            shard.fail();
        } else if !shard.has_ended() {
            // The core ends, or the run: everybody who waits is told.
            shard.shared.publish(shard.index, Lifecycle::Closed);
            shard.with_state(|state| state.drain_for_shutdown(Lifecycle::Closed));
            shard.flush();
        }
        context::enter(&shard.local.clone(), || {
            // What is on these counts until it is dropped.
            contain("pooled connections", || self.openings.clear());
            contain("pooled connections", || self.checks.clear());
            contain("pooled connections", || self.closings.clear());
            contain("pooled connections", || self.leavings.clear());
            contain("pooled connections", || self.closed_abroad.clear());
            shard.end();
        });
    }
}
