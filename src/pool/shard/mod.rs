//! A core's home of one pool: the scheduler's state, what local handles call directly, and the hand-over to the actor.
//!
//! Reached on its own core's thread only. The state is borrowed for the length of one transition; wakers and drops of
//! connections run afterwards. A panic inside a transition fails the shard, whoever made the call.

mod abroad;
mod credits;
mod ending;
mod observe;
mod serve;
mod spill;
mod upkeep;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};

use super::actor;
use super::carrier::Carrier;
use super::connector::Connector;
use super::metrics::ShardMetrics;
use super::remote::{Forwards, Lent, Token, Warmup};
use super::scheduler::{CloseReason, HandleId, Lifecycle, SlotId, State, Wait, WaiterKey};
use super::shared::{Loan, Shared};
use super::stats::ShardStats;
#[cfg(feature = "framed")]
use crate::runtime::Watch;
use crate::runtime::local::Local;
use crate::runtime::watch::WatchList;
use crate::runtime::{RawPid, context};
use credits::Credits;
use ending::FailOnUnwind;
use observe::Waiting;
use spill::Spills;
pub(crate) use spill::UNKNOWN;

/// Whose acquire it is that another core has sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Applicant {
    pub(crate) shard: usize,
    pub(crate) token: Token,
    pub(crate) handle: HandleId,
}

/// How an acquire that another core has sent came to be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Granted {
    AtOnce,
    AfterWait,
    /// At once, to one that was spilled: it counts there.
    Spilled,
}

/// How a queued waiter is told.
#[derive(Debug)]
pub(crate) enum Reply {
    Local(Waker),
    // Not an `Applicant`, to be as small as that: every waiter has room for a reply.
    Remote { shard: u32, token: Token, handle: HandleId },
}

impl From<Applicant> for Reply {
    fn from(Applicant { shard, token, handle }: Applicant) -> Reply {
        // A process has at most 1,024 cores.
        Reply::Remote { shard: shard as u32, token, handle }
    }
}

/// Where a connection that leaves this core goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Destination {
    /// Lent to a task of another core.
    Asker { asker: Applicant, grant: Granted },
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
    credits: Credits,
    spills: Spills,
    departures: RefCell<Vec<Departure<C>>>,
    /// Carriers whose connection has gone, for the next one that comes.
    spares: RefCell<Vec<Box<Carrier<C>>>>,
    /// For loans and the ends of leases.
    references: RefCell<Vec<Arc<Shared<C>>>>,
    watch: Rc<WatchList>,
    actor: Cell<Option<RawPid>>,
    port: Cell<Option<usize>>,
    /// The shared epoch that was last looked at.
    seen_epoch: Cell<u64>,
    /// How many of the shared refreshes were carried out.
    refreshes: Cell<u64>,
    /// Acquires were queued or forwarded since their clocks were last started.
    unclocked: Cell<bool>,
    /// When the actor will look at the deadlines next.
    actor_wakes_at: Cell<Option<Instant>>,
    /// Some connections are to be kept idle, so that the end of each turn is a time to see whether some are missing.
    keeps_idle: bool,
    /// To be told when as many connections are open as are to be kept.
    warmups: RefCell<Vec<Warmup>>,
    /// Who keeps a lease for long, and wants to know when it should end.
    #[cfg(feature = "framed")]
    holders: RefCell<Vec<(SlotId, Watch)>>,
    /// Whose long lease was last asked to end for another core, and when.
    #[cfg(feature = "framed")]
    recalled: Cell<Option<(SlotId, Instant)>>,
    ended: Cell<bool>,
    spawns: Cell<u64>,
    failures: Cell<u64>,
    metrics: ShardMetrics,
    /// For the waits that are told of at the end of a turn.
    waits: RefCell<Vec<Wait>>,
    slow_acquires: Cell<u64>,
    leaks: Cell<u64>,
    /// Of the acquires of this core that wait, while a subscriber is interested.
    spans: RefCell<FxHashMap<Waiting, tracing::Span>>,
    has_spans: Cell<bool>,
    /// The next lease has the actor look at those that are out, as it does from then on until none is.
    unwatched: Cell<bool>,
    /// When it does next.
    next_look: Cell<Option<Instant>>,
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
            state: RefCell::new(State::new(shared.settings.limits(local.seed()), serve::is_usable)),
            forwards: RefCell::new(Forwards::new(shared.links.len())),
            abroad: RefCell::new(Abroad::default()),
            credits: Credits::new(),
            spills: Spills::new(),
            departures: RefCell::new(Vec::new()),
            spares: RefCell::new(Vec::new()),
            references: RefCell::new(Vec::new()),
            watch: WatchList::new(),
            actor: Cell::new(None),
            port: Cell::new(None),
            seen_epoch: Cell::new(0),
            refreshes: Cell::new(shared.refreshes()),
            unclocked: Cell::new(false),
            actor_wakes_at: Cell::new(None),
            keeps_idle: shared.settings.keep.min_idle > 0,
            warmups: RefCell::new(Vec::new()),
            #[cfg(feature = "framed")]
            holders: RefCell::new(Vec::new()),
            #[cfg(feature = "framed")]
            recalled: Cell::new(None),
            ended: Cell::new(false),
            spawns: Cell::new(0),
            failures: Cell::new(0),
            metrics: ShardMetrics::new(shared.id, local.id()),
            waits: RefCell::new(Vec::new()),
            slow_acquires: Cell::new(0),
            leaks: Cell::new(0),
            spans: RefCell::default(),
            has_spans: Cell::new(false),
            unwatched: Cell::new(shared.settings.detect_leaks.is_some()),
            next_look: Cell::new(None),
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
        [here, forwarded, self.credits.due(), self.next_look.get()].into_iter().flatten().min()
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

    pub(crate) fn stats(&self) -> ShardStats {
        let state = self.state.borrow();
        let mut stats = ShardStats::collect(self.local.id(), state.counters(), state.gauges());
        stats.forwards = self.forwards.borrow().total;
        stats.spills = self.spills.asked.get();
        stats.spills_granted = self.spills.granted.get();
        stats.lends = self.abroad.borrow().lends;
        stats.credits = self.shared.ledger.held(self.index);
        stats.hungry_waits = self.credits.hungry_waits();
        stats.scheduler_spawns = self.spawns.get();
        stats.scheduler_failures = self.failures.get();
        stats.waits = state.waits().clone();
        stats.slow_acquires = self.slow_acquires.get();
        stats.leaks = self.leaks.get();
        stats
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
                carrier.rested = false;
                carrier.clean = true;
                carrier
            }
            None => {
                let shard = Rc::clone(self);
                Box::new(Carrier { shard, home, slot, connection, armed: false, rested: false, clean: true })
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
}
