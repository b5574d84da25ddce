//! What the cores of one simulation share: the clock, the network, and which operation completes when.
//!
//! An operation waits until its condition holds and is then due at a time drawn from the seed. It is carried out by its
//! own core's port, which alone knows the memory it points at; if another operation was quicker and nothing is left
//! for it, it waits again. So the order of completions is drawn, while the bytes of one stream keep theirs.
//!
//! Never: read a clock, look at an address in memory, or iterate over anything in an order that differs between runs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use socket2::SockAddr;

use super::network::{Door, Network, Outcome};
use super::random::Random;
use super::trace::{Trace, TraceEvent, TraceKind};
use crate::runtime::driver::op::OpKey;

pub(crate) type SharedWorld = Arc<Mutex<World>>;

/// A panic under the lock ends the test anyhow; its clean-up must not panic again.
pub(crate) fn lock(world: &SharedWorld) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names an operation: its socket, then its place in the order of submission, which is also its number.
pub(super) type OperationId = (RawFd, u64);

/// What has to hold before an operation can be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    None,
    /// Tried at once, and again whenever a listener takes connections again.
    Connect,
    Accept,
    Receive,
    Send,
    Poll(u32),
}

#[derive(Debug)]
struct Operation {
    core: usize,
    key: OpKey,
    condition: Condition,
    due: bool,
    cancelled: bool,
}

/// Ordered by time; those of the same instant by the order in which they came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Duration,
    order: u64,
    id: OperationId,
}

#[derive(Debug)]
pub(crate) struct World {
    start: Instant,
    /// Since the start.
    time: Duration,
    random: Random,
    network: Network,
    operations: BTreeMap<OperationId, Operation>,
    /// For each core, what it may carry out and from when on.
    due: Vec<BinaryHeap<Reverse<Due>>>,
    submitted: u64,
    scheduled: u64,
    /// Cores to be dropped before the next turn.
    doomed_cores: Vec<usize>,
    trace: Trace,
}

impl World {
    pub(crate) fn new(seed: u64, cores: usize) -> SharedWorld {
        Arc::new(Mutex::new(World {
            start: Instant::now(),
            time: Duration::ZERO,
            random: Random::new(seed),
            network: Network::new(),
            operations: BTreeMap::new(),
            due: (0..cores).map(|_| BinaryHeap::new()).collect(),
            submitted: 0,
            scheduled: 0,
            doomed_cores: Vec::new(),
            trace: Trace::default(),
        }))
    }

    /// Moves the clock; it never goes back.
    pub(crate) fn advance_to(&mut self, time: Duration) {
        self.time = self.time.max(time);
    }

    pub(crate) fn doom_core(&mut self, core: usize) {
        self.doomed_cores.push(core);
    }

    pub(crate) fn take_doomed_cores(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.doomed_cores)
    }

    pub(crate) fn record(&mut self, core: usize, kind: TraceKind) {
        self.trace.record(TraceEvent { at: self.time, core, kind });
    }

    /// Breaks the connections made by way of the listeners on `address`; tells how many there were.
    pub(crate) fn reset_connections(&mut self, address: &SockAddr) -> usize {
        self.network(|network, _| {
            let accepted = network.accepted_by(address);
            accepted.iter().for_each(|number| network.reset(*number));
            accepted.len()
        })
    }

    pub(crate) fn set_door(&mut self, address: &SockAddr, door: Door) -> usize {
        self.network(|network, _| network.set_door(address, door))
    }

    /// Calls `change` on the network and schedules what that has made possible.
    pub(super) fn network<T>(&mut self, change: impl FnOnce(&mut Network, &mut Random) -> T) -> T {
        let result = change(&mut self.network, &mut self.random);
        self.settle();
        result
    }

    /// Takes an operation in; its condition decides when it is due.
    pub(super) fn start(
        &mut self,
        core: usize,
        key: OpKey,
        number: RawFd,
        condition: Condition,
        name: &'static str,
    ) -> OperationId {
        let id = (number, self.number_operation(core, name));
        self.operations.insert(id, Operation { core, key, condition, due: false, cancelled: false });
        let at_once = matches!(condition, Condition::None | Condition::Connect);
        if at_once || self.is_ready(id, condition) {
            self.schedule(id);
        }
        id
    }

    /// Records an operation that is decided on the spot, and gives its number.
    pub(super) fn number_operation(&mut self, core: usize, name: &'static str) -> u64 {
        let operation = self.submitted;
        self.submitted += 1;
        self.record(core, TraceKind::Submitted { operation, name });
        operation
    }

    /// Sees to an operation's end, soon; with what, is decided when it is due. Nothing when it has ended.
    pub(super) fn cancel(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        if std::mem::replace(&mut operation.cancelled, true) {
            return;
        }
        let (core, due) = (operation.core, operation.due);
        self.record(core, TraceKind::CancelAsked { operation: id.1 });
        if !due {
            self.schedule(id);
        }
    }

    /// An operation of `core` that is due now.
    pub(super) fn take_due(&mut self, core: usize) -> Option<(OperationId, OpKey)> {
        if !self.has_due(core) {
            return None;
        }
        let Reverse(due) = self.due[core].pop()?;
        let operation = self.operations.get_mut(&due.id)?;
        operation.due = false;
        Some((due.id, operation.key))
    }

    /// Whether a cancelled operation loses the race against its cancel now.
    pub(super) fn cancel_wins(&mut self, id: OperationId) -> bool {
        self.is_cancelled(id) && self.random.one_in(2)
    }

    /// An operation could not be carried out: it waits again.
    pub(super) fn put_back(&mut self, id: OperationId) {
        if let Some(operation) = self.operations.get(&id)
            && self.is_ready(id, operation.condition)
        {
            self.schedule(id);
        }
    }

    /// An operation has a result, its last one unless `more` follow.
    pub(super) fn complete(&mut self, core: usize, id: OperationId, result: i32, more: bool) {
        self.record(core, TraceKind::Completed { operation: id.1, result, more });
        if more {
            // A cancelled one must end even if nothing happens on its socket any more.
            if self.is_cancelled(id) {
                self.schedule(id)
            } else {
                self.put_back(id)
            }
            return;
        }
        self.operations.remove(&id);
        // The next sender in line may be waiting for this one.
        self.network.changed.push(id.0);
        self.settle();
    }

    /// Forgets every operation of a core that ends; gives them in the order of their sockets.
    pub(super) fn close_core(&mut self, core: usize) -> Vec<OpKey> {
        self.due[core].clear();
        let ended: Vec<(OperationId, OpKey)> = self
            .operations
            .iter()
            .filter(|(_, operation)| operation.core == core)
            .map(|(id, operation)| (*id, operation.key))
            .collect();
        for (id, _) in &ended {
            self.complete(core, *id, -libc::ECANCELED, false);
        }
        ended.into_iter().map(|(_, key)| key).collect()
    }

    pub(super) fn connect(&mut self, number: RawFd, to: &SockAddr) -> Outcome<()> {
        self.network(|network, random| network.connect(number, to, random))
    }

    pub(super) fn accept(&mut self, number: RawFd) -> Outcome<RawFd> {
        self.network(|network, _| network.accept(number))
    }

    /// What a receive would get now; sometimes less than is there.
    pub(super) fn peek(&mut self, number: RawFd, max: usize) -> Outcome<Vec<u8>> {
        let mut peeked = self.network.peek(number, max);
        if let Poll::Ready(Ok(bytes)) = &mut peeked {
            let count = self.shorten(bytes.len(), 4);
            bytes.truncate(count);
        }
        peeked
    }

    /// Sends some of `bytes`; one time in `shortness` less than there is room for.
    pub(super) fn send(&mut self, number: RawFd, bytes: &[u8], shortness: usize) -> Outcome<usize> {
        let count = self.shorten(bytes.len(), shortness);
        self.network(|network, random| network.send(number, &bytes[..count], random))
    }

    /// Whether a send is in line for this socket.
    pub(super) fn has_sender(&self, number: RawFd) -> bool {
        self.first_sender(number).is_some()
    }

    pub(super) fn is_next_sender(&self, id: OperationId) -> bool {
        self.first_sender(id.0) == Some(id)
    }

    /// The poll bits that hold now, of those asked for and those that are always told.
    pub(super) fn events(&self, number: RawFd, asked: u32) -> u32 {
        self.network.events(number) & (asked | (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) as u32)
    }

    /// Some draws that the kernel's moods decide elsewhere.
    pub(super) fn chance(&mut self, one_in: usize) -> bool {
        self.random.one_in(one_in)
    }

    pub(super) fn address(&self, number: RawFd, of_peer: bool) -> Result<SockAddr, i32> {
        if of_peer { self.network.peer_address(number) } else { self.network.local_address(number) }
    }

    pub(super) fn is_cancelled(&self, id: OperationId) -> bool {
        self.operations.get(&id).is_some_and(|operation| operation.cancelled)
    }

    pub(super) fn has_due(&self, core: usize) -> bool {
        self.due[core].peek().is_some_and(|Reverse(due)| due.at <= self.time)
    }

    /// When the next operation is due, on whatever core.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.due.iter().filter_map(|queue| queue.peek()).map(|Reverse(due)| due.at).min()
    }

    /// Simulated time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.time
    }

    pub(crate) fn start_instant(&self) -> Instant {
        self.start
    }

    pub(crate) fn now(&self) -> Instant {
        self.start + self.time
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.random.draw()
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    #[cfg(test)]
    pub(super) fn open_sockets(&self) -> usize {
        self.network.len()
    }

    /// Schedules what the changes of the network have made possible.
    fn settle(&mut self) {
        for number in std::mem::take(&mut self.network.changed) {
            let ready: Vec<OperationId> = self
                .operations
                .range((number, 0)..=(number, u64::MAX))
                .filter(|(id, operation)| !operation.due && self.is_ready(**id, operation.condition))
                .map(|(id, _)| *id)
                .collect();
            ready.into_iter().for_each(|id| self.schedule(id));
        }
        if std::mem::take(&mut self.network.doors_changed) {
            let attempts: Vec<OperationId> = self
                .operations
                .iter()
                .filter(|(_, operation)| !operation.due && operation.condition == Condition::Connect)
                .map(|(id, _)| *id)
                .collect();
            attempts.into_iter().for_each(|id| self.schedule(id));
        }
    }

    fn is_ready(&self, id: OperationId, condition: Condition) -> bool {
        let number = id.0;
        match condition {
            Condition::None => true,
            Condition::Connect => false,
            Condition::Accept => self.network.accept_is_ready(number),
            Condition::Receive => self.network.peek(number, 1).is_ready(),
            // One sender at a time, or the bytes of two would mix.
            Condition::Send => self.first_sender(number) == Some(id) && self.network.send_is_ready(number),
            Condition::Poll(asked) => self.events(number, asked) != 0,
        }
    }

    fn first_sender(&self, number: RawFd) -> Option<OperationId> {
        self.operations
            .range((number, 0)..=(number, u64::MAX))
            .find(|(_, operation)| operation.condition == Condition::Send)
            .map(|(id, _)| *id)
    }

    fn schedule(&mut self, id: OperationId) {
        let at = self.time + self.latency();
        let Some(operation) = self.operations.get_mut(&id) else { return };
        debug_assert!(!operation.due, "an operation is due once at a time");
        operation.due = true;
        self.due[operation.core].push(Reverse(Due { at, order: self.scheduled, id }));
        self.scheduled += 1;
    }

    /// Often none, mostly little, at times long enough for a time-out to be quicker.
    fn latency(&mut self) -> Duration {
        match self.random.below(16) {
            0..=2 => Duration::ZERO,
            15 => Duration::from_nanos(self.random.below(5_000_000) as u64),
            _ => Duration::from_nanos(1 + self.random.below(100_000) as u64),
        }
    }

    fn shorten(&mut self, len: usize, one_in: usize) -> usize {
        if len > 1 && self.random.one_in(one_in) { 1 + self.random.below(len) } else { len }
    }
}
