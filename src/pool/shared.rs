//! What all shards and handles of one pool share: settings, the way to each shard, and how far each has come.
//!
//! Never: a slot, a waiter or a connection. Those are their core's alone.

use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use crossbeam_channel::{Receiver, Sender, unbounded};
use futures_channel::oneshot;

use super::config::{Affinity, Settings};
use super::connector::Connector;
use super::ledger::{Ledger, Promise};
use super::remote::Command;
use super::scheduler::{CloseReason, HandleId, Lifecycle, Refusal, SlotId};
use super::shard::UNKNOWN;
use super::stats::{PoolStats, ShardStats};
use crate::lock::{Lock, Rank};
use crate::runtime::mesh::Mailbox;
use crate::runtime::{CoreId, RuntimeHandle};

static POOL_IDS: AtomicU64 = AtomicU64::new(1);

pub(crate) struct Shared<C: Connector> {
    pub(crate) id: u64,
    pub(crate) connector: C,
    pub(crate) settings: Settings,
    pub(crate) links: Box<[ShardLink<C>]>,
    pub(crate) ledger: Ledger,
    closing: AtomicBool,
    /// Moves on with every change of what the shards are told here, of any shard's status and of what the ledger asks of
    /// shards, after the change: a shard that sees it unmoved has nothing new to look at.
    epoch: AtomicU64,
    /// Some handle spills: shards are to say what they have to spare.
    hinting: AtomicBool,
    handle_ids: AtomicU64,
    /// How many slots each shard is to have.
    slots: AtomicUsize,
    /// How often the shards were asked to look whether their connections are still of use.
    refreshes: AtomicU64,
    ended: AtomicUsize,
    end_waiters: Lock<Vec<Waker>>,
}

/// Has a pool look which of its connections are still of use, as [`Pool::refresh`](super::Pool::refresh) does. From any
/// thread; does not keep the pool alive.
#[derive(Clone)]
pub struct Refresh(Weak<dyn Refreshable>);

trait Refreshable: Send + Sync {
    fn refresh(&self);
}

impl Refresh {
    pub(crate) fn of<C: Connector>(shared: &Arc<Shared<C>>) -> Refresh {
        let shared: Weak<Shared<C>> = Arc::downgrade(shared);
        Refresh(shared)
    }

    /// Has every core's connections looked at, soon.
    pub fn notify(&self) {
        if let Some(pool) = self.0.upgrade() {
            pool.refresh();
        }
    }

    /// Whether the pool has gone.
    pub fn is_stale(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl std::fmt::Debug for Refresh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refresh").field("stale", &self.is_stale()).finish()
    }
}

impl<C: Connector> Refreshable for Shared<C> {
    fn refresh(&self) {
        self.refreshes.fetch_add(1, Ordering::AcqRel);
        self.announce();
    }
}

/// One shard as the other cores see it.
pub(crate) struct ShardLink<C: Connector> {
    pub(crate) core: CoreId,
    mailbox: Arc<Mailbox>,
    commands: Sender<Command<C>>,
    /// Taken by the shard when it is installed.
    inbox: Lock<Option<Receiver<Command<C>>>>,
    lifecycle: AtomicU8,
    ended: AtomicBool,
    /// What the shard has to spare, as of the end of a turn: idle connections in the upper half, waiters in the lower.
    pub(crate) hint: AtomicU64,
    /// Leases that outlive their shard's actor. The end of one may be counted before the actor's, so below zero for a
    /// moment.
    outstanding: AtomicIsize,
    last_stats: Lock<ShardStats>,
}

impl<C: Connector> Shared<C> {
    pub(crate) fn new(connector: C, settings: Settings, runtime: &RuntimeHandle) -> Arc<Shared<C>> {
        let spills = settings.affinity == Affinity::Spill;
        let ledger = Ledger::new(runtime.mailboxes().len(), settings.max_connections);
        let links = runtime
            .mailboxes()
            .iter()
            .map(|mailbox| {
                let (commands, inbox) = unbounded();
                ShardLink {
                    core: mailbox.core(),
                    mailbox: Arc::clone(mailbox),
                    commands,
                    inbox: Lock::new(Rank::Pool, Some(inbox)),
                    lifecycle: AtomicU8::new(Lifecycle::Running as u8),
                    ended: AtomicBool::new(false),
                    hint: AtomicU64::new(UNKNOWN),
                    outstanding: AtomicIsize::new(0),
                    last_stats: Lock::new(Rank::Pool, ShardStats::new(mailbox.core())),
                }
            })
            .collect();
        let slots = settings.slots;
        Arc::new(Shared {
            id: POOL_IDS.fetch_add(1, Ordering::Relaxed),
            connector,
            settings,
            links,
            ledger,
            closing: AtomicBool::new(false),
            hinting: AtomicBool::new(spills),
            epoch: AtomicU64::new(1),
            handle_ids: AtomicU64::new(1),
            slots: AtomicUsize::new(slots),
            refreshes: AtomicU64::new(0),
            ended: AtomicUsize::new(0),
            end_waiters: Lock::new(Rank::Pool, Vec::new()),
        })
    }

    pub(crate) fn next_handle_id(&self) -> HandleId {
        HandleId(self.handle_ids.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn shard_on(&self, core: CoreId) -> Option<usize> {
        self.links.iter().position(|link| link.core == core)
    }

    /// Sends to a shard. Where its actor has ended the command is dropped; who waits for an answer learns of the end
    /// by the [`epoch`](Shared::epoch).
    pub(crate) fn send(&self, shard: usize, command: Command<C>) {
        let link = &self.links[shard];
        if link.commands.send(command).is_ok() {
            link.mailbox.nudge();
        }
    }

    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// After a change: has every shard look.
    fn announce(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        for link in &self.links {
            link.mailbox.nudge();
        }
    }

    /// How often the shards were asked to look whether their connections are still of use.
    pub(crate) fn refreshes(&self) -> u64 {
        self.refreshes.load(Ordering::Acquire)
    }

    /// Has every shard look whether its connections are still of use.
    pub(crate) fn refresh(&self) {
        Refreshable::refresh(self);
    }

    /// How many slots each shard is to have.
    pub(crate) fn slots(&self) -> usize {
        self.slots.load(Ordering::Acquire)
    }

    /// Has every shard have so many slots. Not behind any command; of two in a row only the last may be seen.
    pub(crate) fn resize(&self, slots: usize) {
        if self.slots.swap(slots, Ordering::AcqRel) != slots {
            self.announce();
        }
    }

    /// Has every shard close. Not behind any command.
    pub(crate) fn close(&self) {
        if !self.closing.swap(true, Ordering::AcqRel) {
            self.announce();
        }
    }

    /// Has every shard say from now on what it has to spare.
    pub(crate) fn want_hints(&self) {
        if !self.hinting.load(Ordering::Relaxed) && !self.hinting.swap(true, Ordering::AcqRel) {
            self.announce();
        }
    }

    pub(crate) fn wants_hints(&self) -> bool {
        self.hinting.load(Ordering::Acquire)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// How far a shard has come, as it has published it.
    pub(crate) fn lifecycle(&self, shard: usize) -> Lifecycle {
        match self.links[shard].lifecycle.load(Ordering::Acquire) {
            0 => Lifecycle::Running,
            1 => Lifecycle::Closed,
            _ => Lifecycle::Failed,
        }
    }

    /// Why that shard refuses, if it does.
    pub(crate) fn refusal(&self, shard: usize) -> Option<Refusal> {
        match self.lifecycle(shard) {
            Lifecycle::Running if self.is_closing() => Some(Refusal::Closed),
            Lifecycle::Running => None,
            Lifecycle::Closed => Some(Refusal::Closed),
            Lifecycle::Failed => Some(Refusal::Failed),
        }
    }

    /// Whether the shard's actor has ended.
    pub(crate) fn has_ended(&self, shard: usize) -> bool {
        self.links[shard].ended.load(Ordering::Acquire)
    }

    /// Publishes how far a shard has come; never back.
    pub(crate) fn publish(&self, shard: usize, lifecycle: Lifecycle) {
        self.links[shard].lifecycle.fetch_max(lifecycle as u8, Ordering::AcqRel);
        self.announce();
    }

    /// The shard's actor has ended, with this many leases still out.
    pub(crate) fn actor_ended(&self, shard: usize, stats: ShardStats, outstanding: isize) {
        self.ledger.retire(shard);
        let link = &self.links[shard];
        link.hint.store(0, Ordering::Relaxed);
        *link.last_stats.lock() = stats;
        link.outstanding.fetch_add(outstanding, Ordering::AcqRel);
        link.ended.store(true, Ordering::Release);
        self.ended.fetch_add(1, Ordering::AcqRel);
        self.announce();
        self.wake_end_waiters();
    }

    /// A lease that had outlived its actor is gone.
    pub(crate) fn late_lease_ended(self: &Arc<Self>, shard: usize) {
        self.give_credit(shard, None);
        self.links[shard].outstanding.fetch_sub(1, Ordering::AcqRel);
        self.wake_end_waiters();
    }

    /// A shard gives one credit back. Whoever goes without has it at once.
    pub(crate) fn give_credit(self: &Arc<Self>, shard: usize, promise: Option<Promise>) {
        if let Some(to) = self.ledger.give(shard, promise) {
            self.send_credit(to);
        }
        self.pass_credits();
    }

    /// Sends free credits to the shards that go without.
    pub(crate) fn pass_credits(self: &Arc<Self>) {
        while let Some(to) = self.ledger.sweep() {
            self.send_credit(to);
        }
    }

    fn send_credit(self: &Arc<Self>, to: usize) {
        self.send(to, Command::Credit(Credit { shared: Some(Arc::clone(self)), holder: to }));
    }

    /// Has every other shard look whether it has a connection for one that goes without.
    pub(crate) fn appeal(&self, shard: usize) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        for link in self.links.iter().enumerate().filter(|(other, _)| *other != shard).map(|(_, link)| link) {
            link.mailbox.nudge();
        }
    }

    pub(crate) fn set_max_connections(self: &Arc<Self>, limit: usize) {
        self.ledger.set_limit(limit);
        self.pass_credits();
        self.announce();
    }

    fn wake_end_waiters(&self) {
        let waiters = std::mem::take(&mut *self.end_waiters.lock());
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Ready when every actor has ended and, with `leases`, every lease is gone too.
    pub(crate) fn poll_ended(&self, leases: bool, cx: &mut Context<'_>) -> Poll<()> {
        // Registered before the look, so that an end in between is not missed.
        self.end_waiters.lock().push(cx.waker().clone());
        let actors = self.ended.load(Ordering::Acquire) == self.links.len();
        let out = || self.links.iter().any(|link| link.outstanding.load(Ordering::Acquire) > 0);
        if actors && !(leases && out()) { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(crate) fn take_inbox(&self, shard: usize) -> Option<Receiver<Command<C>>> {
        self.links[shard].inbox.lock().take()
    }

    /// What each shard says of itself at its next turn; of an ended one, its last counts.
    pub(crate) async fn stats(&self) -> PoolStats {
        let mut answers = Vec::new();
        for shard in 0..self.links.len() {
            let (reply, answer) = oneshot::channel();
            self.send(shard, Command::Stats { reply });
            answers.push(answer);
        }
        let mut shards = Vec::new();
        for (shard, answer) in answers.into_iter().enumerate() {
            shards.push(answer.await.unwrap_or_else(|_| self.last_stats(shard)));
        }
        PoolStats { pool: self.id, shards }
    }

    /// The counts of an ended shard, and which of its leases are still out.
    pub(crate) fn last_stats(&self, shard: usize) -> ShardStats {
        let link = &self.links[shard];
        let mut stats = link.last_stats.lock().clone();
        let out = usize::try_from(link.outstanding.load(Ordering::Acquire)).unwrap_or(0);
        // With a lease that has outlived its shard's actor ends its connection.
        stats.closes[CloseReason::Shutdown as usize] += stats.leased.saturating_sub(out) as u64;
        (stats.leased, stats.credits) = (out, out);
        stats
    }
}

/// Travels with a lease's end to its home shard. Dropped on the way, because that shard has ended, it counts the lease
/// as gone.
pub(crate) struct LeaseEnd<C: Connector> {
    shared: Option<Arc<Shared<C>>>,
    home: usize,
}

impl<C: Connector> LeaseEnd<C> {
    pub(crate) fn new(shared: Arc<Shared<C>>, home: usize) -> LeaseEnd<C> {
        LeaseEnd { shared: Some(shared), home }
    }

    /// The home shard has taken notice. Gives the reference back, to be used again.
    pub(crate) fn noticed(mut self) -> Option<Arc<Shared<C>>> {
        self.shared.take()
    }
}

impl<C: Connector> Drop for LeaseEnd<C> {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.late_lease_ended(self.home);
        }
    }
}

/// A credit on its way to the shard that holds it. Dropped on the way, because that shard has ended, it goes to the
/// next.
pub(crate) struct Credit<C: Connector> {
    shared: Option<Arc<Shared<C>>>,
    holder: usize,
}

impl<C: Connector> Credit<C> {
    pub(crate) fn arrived(mut self) {
        self.shared = None;
    }
}

impl<C: Connector> Drop for Credit<C> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.give_credit(self.holder, None);
        }
    }
}

/// Travels with a connection away from its home shard. Dropped on the way, because a shard has ended or the
/// connection's own code has panicked, it tells the home shard that the connection is lost.
pub(crate) struct Loan<C: Connector> {
    shared: Option<Arc<Shared<C>>>,
    home: usize,
    slot: SlotId,
}

impl<C: Connector> Loan<C> {
    pub(crate) fn new(shared: Arc<Shared<C>>, home: usize, slot: SlotId) -> Loan<C> {
        Loan { shared: Some(shared), home, slot }
    }

    /// The home shard, and its slot.
    pub(crate) fn lender(&self) -> (usize, SlotId) {
        (self.home, self.slot)
    }

    /// The connection has arrived, or the home shard hears of it in another way. Gives the reference back, to be used
    /// again.
    pub(crate) fn settled(mut self) -> Option<Arc<Shared<C>>> {
        self.shared.take()
    }
}

impl<C: Connector> Drop for Loan<C> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            let end = LeaseEnd::new(Arc::clone(&shared), self.home);
            shared.send(self.home, Command::Gone { slot: self.slot, reason: CloseReason::Lost, end });
        }
    }
}
