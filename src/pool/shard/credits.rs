//! This shard's dealings with the pool's ledger: credits for its connections, and connections that it gives up because
//! another core needs them more.
//!
//! A shard holds one credit for each slot that is not vacant. What is asked of it, it looks at when it is told that
//! something has changed, and keeps looking for as long as something is asked; an acquire and a release that meet an
//! idle connection and nobody's hunger have no part in it.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use super::{Reply, Shard};
use crate::pool::carrier::Carrier;
use crate::pool::connector::Connector;
use crate::pool::ledger::{Call, Promise};
use crate::pool::scheduler::{CloseReason, Lifecycle, SlotId, State};
use crate::pool::shared::Credit;

/// A connection that was not used for as long is given to a core that waits for one. Shorter, and two busy cores would
/// take connections from each other all the time.
const GRACE: Duration = Duration::from_millis(2);
/// For as long a core may keep others without any connection, if it has no more than its share. Then it gives one up,
/// however busy it is.
const QUANTUM: Duration = Duration::from_millis(20);

/// A shard that goes without sees this soon whether anybody still waits, and then less and less often.
const FIRST_DOUBT: Duration = Duration::from_millis(1);
const LAST_DOUBT: Duration = Duration::from_millis(8);

/// A shard that does without some idle connections, for want of credits, tries for them as often.
const RETRY: Duration = Duration::from_millis(100);

pub(super) struct Credits {
    held: Cell<usize>,
    /// It has asked for one that has not come.
    hungry: Cell<bool>,
    /// When it will see whether it still needs one, and how long after the look before.
    doubt: Cell<Option<(Instant, Duration)>>,
    hungry_waits: Cell<u64>,
    /// When it will see whether it can have what it did without.
    retry: Cell<Option<Instant>>,
    /// What this shard's closes under way are for.
    promises: RefCell<Vec<Promise>>,
    /// What was asked of this shard when it last looked.
    call: Cell<Call>,
    /// The next lease to end gives its connection up.
    yields: Cell<bool>,
    /// When all that was idle was marked as unused since.
    marked_at: Cell<Option<Instant>>,
    /// Since when some shard is known to have no connection at all.
    starving_since: Cell<Option<Instant>>,
    /// When to look again, though nothing has changed.
    due: Cell<Option<Instant>>,
}

impl Credits {
    pub(super) fn new() -> Credits {
        Credits {
            held: Cell::new(0),
            hungry: Cell::new(false),
            doubt: Cell::new(None),
            hungry_waits: Cell::new(0),
            retry: Cell::new(None),
            promises: RefCell::new(Vec::new()),
            call: Cell::new(Call::Nothing),
            yields: Cell::new(false),
            marked_at: Cell::new(None),
            starving_since: Cell::new(None),
            due: Cell::new(None),
        }
    }

    /// When the actor has to look at the clock for these.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.due.get(), self.retry.get(), self.doubt.get().map(|(at, _)| at)].into_iter().flatten().min()
    }

    pub(super) fn hungry_waits(&self) -> u64 {
        self.hungry_waits.get()
    }

    fn pledge(&self, promise: Option<Promise>) -> bool {
        self.promises.borrow_mut().extend(promise);
        promise.is_some()
    }
}

impl<C: Connector> Shard<C> {
    /// Whether there may be something to open.
    pub(crate) fn wants_open(&self) -> bool {
        // With a credit of its own, it is not for the want of one.
        self.state.borrow().wants_open() || self.spare_credits() > 0
    }

    /// A slot in which a connection is to be opened now, with the credit for it.
    pub(crate) fn begin_open(&self, now: Instant) -> Option<SlotId> {
        let mut spare = self.spare_credits();
        while spare > 0 && self.credits.yields.get() && self.promise() {
            spare -= 1;
        }
        if spare > 0 {
            self.with_state(|state| state.block_opens(false));
        }
        if !self.with_state(|state| state.may_open(now)) {
            return None;
        }
        if spare == 0 {
            if !self.shared.ledger.take(self.index) {
                let waited_for = self.state.borrow().opens_for_waiters();
                if waited_for {
                    self.go_hungry(now);
                } else {
                    self.go_without(now);
                }
                return None;
            }
            self.credits.held.set(self.credits.held.get() + 1);
        }
        self.with_state(|state| state.poll_open(now))
    }

    /// Credits without a connection that are promised to nobody.
    pub(super) fn spare_credits(&self) -> usize {
        let unused = self.credits.held.get().saturating_sub(self.state.borrow().occupied());
        unused.saturating_sub(self.credits.promises.borrow().len())
    }

    fn go_hungry(&self, now: Instant) {
        let Credits { hungry, hungry_waits, doubt, .. } = &self.credits;
        self.with_state(|state| state.block_opens(true));
        if !hungry.replace(true) {
            hungry_waits.set(hungry_waits.get() + 1);
            doubt.set(Some((now + FIRST_DOUBT, FIRST_DOUBT)));
            self.shared.ledger.go_hungry(self.index);
            self.shared.pass_credits();
            self.shared.appeal(self.index);
        }
    }

    /// Connections that are merely to be kept idle are not worth another core's; whether one is free is seen later.
    fn go_without(&self, now: Instant) {
        self.with_state(|state| state.forgo_missing(true));
        self.credits.retry.set(Some(now + RETRY));
    }

    /// Sees whether connections that are to be kept idle can be had now.
    pub(crate) fn retry_missing(&self, now: Instant) {
        if self.credits.retry.get().is_some_and(|at| at <= now) {
            self.credits.retry.set(None);
            self.with_state(|state| state.forgo_missing(false));
        }
    }

    /// Takes the request for a credit back if nobody waits any more. Not at once: those who come and go all the time
    /// would have the other cores look as often.
    pub(crate) fn doubt_hunger(&self, now: Instant) {
        let Credits { hungry, doubt, .. } = &self.credits;
        let Some((_, pause)) = doubt.get().filter(|(at, _)| *at <= now) else { return };
        let pause = (pause * 2).min(LAST_DOUBT);
        let waited_for = self.state.borrow().has_waiters();
        doubt.set(waited_for.then_some((now + pause, pause)));
        // One that cannot be taken back is being seen to.
        if !waited_for && self.shared.ledger.withdraw(self.index) {
            hungry.set(false);
            self.with_state(|state| state.block_opens(false));
        }
    }

    /// A credit has come from elsewhere. One that is not needed any more leaves by
    /// [`return_credits`](Shard::return_credits).
    pub(super) fn receive_credit(&self, credit: Credit<C>) {
        credit.arrived();
        let Credits { held, hungry, doubt, starving_since, yields, .. } = &self.credits;
        held.set(held.get() + 1);
        hungry.set(false);
        doubt.set(None);
        // What has just come is kept for a while.
        starving_since.set(None);
        yields.set(false);
        self.with_state(|state| state.block_opens(false));
    }

    /// Gives back what no connection needs.
    pub(crate) fn return_credits(&self) {
        let Credits { held, promises, .. } = &self.credits;
        let occupied = self.state.borrow().occupied();
        while held.get() > occupied {
            held.set(held.get() - 1);
            let promise = promises.borrow_mut().pop();
            self.shared.give_credit(self.index, promise);
        }
    }

    /// The shard ends. The leases that are out keep their credits, and give them back one by one.
    pub(super) fn end_credits(&self, outstanding: usize) {
        let Credits { held, promises, .. } = &self.credits;
        for _ in outstanding..held.replace(0) {
            let promise = promises.borrow_mut().pop();
            self.shared.give_credit(self.index, promise);
        }
        for promise in promises.take() {
            self.shared.ledger.break_promise(promise);
        }
    }

    /// Has the actor look at what is asked of this shard.
    pub(crate) fn listen(&self) {
        self.credits.call.set(self.credits.call.get().max(Call::Spare));
    }

    /// Does what is asked of this shard, as far as it can be done now.
    pub(crate) fn answer_calls(&self) {
        if self.credits.call.get() != Call::Nothing {
            self.answer_calls_now();
        }
    }

    #[inline(never)]
    fn answer_calls_now(&self) {
        let Credits { call, yields, starving_since, due, .. } = &self.credits;
        due.set(None);
        let running = self.state.borrow().lifecycle() == Lifecycle::Running;
        loop {
            // A shard that has stopped gives up everything as it is.
            call.set(if running { self.shared.ledger.call(self.index) } else { Call::Nothing });
            if call.get() != Call::Turn {
                starving_since.set(None);
            }
            let idle = self.state.borrow_mut().oldest_idle_mut().is_some();
            let now = match call.get() {
                Call::Nothing => {
                    yields.set(false);
                    return self.with_state(|state| state.heed_releases(false));
                }
                Call::Share | Call::Overdrawn if idle => {
                    self.give_up_oldest(call.get());
                    continue;
                }
                Call::Share | Call::Overdrawn => None,
                Call::Spare | Call::Turn => Some(self.local.now()),
            };
            if let Some(now) = now.filter(|_| idle)
                && self.is_unused(now)
            {
                self.give_up_oldest(Call::Spare);
                continue;
            }
            yields.set(match now {
                None => true,
                Some(now) => call.get() == Call::Turn && self.has_kept_for_long(now),
            });
            #[cfg(feature = "framed")]
            if yields.get() {
                due.set(due.get().into_iter().chain(self.recall_one(QUANTUM)).min());
            }
            // An idle connection is looked at again when its time has come. Otherwise a release is what to wait for.
            return self.with_state(|state| state.heed_releases(!idle || yields.get()));
        }
    }

    /// Whether the oldest idle connection was not used for long enough. If not, sees to it that it is looked at again.
    fn is_unused(&self, now: Instant) -> bool {
        let Credits { marked_at, due, .. } = &self.credits;
        let rested = self.state.borrow_mut().oldest_idle_mut().is_some_and(|carrier| carrier.rested);
        if !rested {
            self.state.borrow_mut().for_each_idle(|carrier| carrier.rested = true);
            marked_at.set(Some(now));
        }
        let until = marked_at.get().map_or(now, |marked| marked + GRACE);
        if until > now {
            due.set(Some(until));
        }
        until <= now
    }

    /// Whether some shard has gone without any connection for long enough. If not, sees to it that this is looked at
    /// again.
    fn has_kept_for_long(&self, now: Instant) -> bool {
        let Credits { starving_since, due, .. } = &self.credits;
        let until = starving_since.get().unwrap_or(now) + QUANTUM;
        if starving_since.get().is_none() {
            starving_since.set(Some(now));
        }
        if until > now {
            due.set(Some(due.get().map_or(until, |due| due.min(until))));
        }
        until <= now
    }

    fn give_up_oldest(&self, call: Call) {
        if self.credits.pledge(self.shared.ledger.promise(self.index, call)) {
            self.with_state(|state| state.give_up_oldest());
        }
    }

    /// A lease has ended well: gives its connection up, if it is to be, or gives it back to be put to use here.
    pub(super) fn yield_or_release(
        &self,
        state: &mut State<Box<Carrier<C>>, Reply>,
        slot: SlotId,
        carrier: Box<Carrier<C>>,
    ) {
        if state.is_in_question(slot) && self.is_current(&carrier) {
            state.pardon(slot);
        }
        if self.credits.yields.get() && self.promise() {
            state.handle_discard(slot, carrier, CloseReason::Rebalanced);
        } else {
            state.handle_release(slot, carrier);
        }
    }

    /// Promises the next credit that falls free to whom it is owed, if it still is.
    fn promise(&self) -> bool {
        let least = if self.credits.call.get() == Call::Turn { Call::Turn } else { Call::Share };
        self.credits.pledge(self.shared.ledger.promise(self.index, least))
    }

    /// Whether something is asked of this shard: its actor must hear of a connection that has become idle.
    pub(super) fn is_called(&self) -> bool {
        self.credits.call.get() != Call::Nothing
    }
}
