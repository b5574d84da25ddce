//! The scheduler's promises, tried without a runtime, a ring or a clock.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{
    Admission, Asker, Backoff, CloseReason, Elsewhere, Grant, HandleId, Keep, Lifecycle, Limits, Overload,
    Patience, Refusal, Rules, SlotId, State, Taken, Ticket, WaiterKey,
};
use crate::pool::Fairness;

mod admission;
mod breaker;
mod capacity;
mod checks;
mod ending;
mod exhaustive;
mod fairness;
mod life;
mod limits;
mod others;
mod overload;
mod properties;
mod resize;
mod watching;
mod world;

/// Connections and reply addresses are numbers, to tell them apart.
type Shard = State<u32, u64>;

const A: HandleId = HandleId(1);
const B: HandleId = HandleId(2);
const D: HandleId = HandleId(4);

const MS: Duration = Duration::from_millis(1);
const BACKOFF: Backoff = Backoff { initial: MS, max: Duration::from_millis(8), breaker: None };

fn limits(slots: usize) -> Limits {
    Limits {
        slots,
        max_waiters: 64,
        max_connecting: 64,
        fairness: Fairness::Fifo,
        backoff: BACKOFF,
        overload: Overload::default(),
        keep: Keep::default(),
    }
}

fn round_robin(slots: usize) -> Limits {
    Limits { fairness: Fairness::RoundRobin, ..limits(slots) }
}

/// A handle that is held to nothing.
fn asker(handle: HandleId) -> Asker {
    under(handle, Rules::default())
}

fn under(handle: HandleId, rules: Rules) -> Asker {
    Asker { handle, site: std::panic::Location::caller(), patience: Patience::of(None), rules }
}

fn any(_: &mut u32) -> bool {
    true
}

/// A running shard without connections.
fn fresh(limits: Limits) -> Shard {
    Shard::new(limits, any)
}

fn no_ticket() -> Ticket<u64> {
    panic!("an acquire that does not queue reads no clock and makes no reply address")
}

fn refused() -> Arc<io::Error> {
    Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused))
}

/// Acquires from an idle connection.
fn lease(shard: &mut Shard, handle: HandleId) -> Grant<u32> {
    match shard.handle_acquire(&asker(handle), any, no_ticket) {
        Admission::Granted(grant) => grant,
        other => panic!("expected an immediate grant, got {other:?}"),
    }
}

/// Acquires when nothing is idle.
fn queue(shard: &mut Shard, handle: HandleId) -> WaiterKey {
    queue_until(shard, handle, Instant::now(), None)
}

fn queue_until(shard: &mut Shard, handle: HandleId, now: Instant, deadline: Option<Instant>) -> WaiterKey {
    let timeout = deadline.map(|deadline| deadline.saturating_duration_since(now));
    let admission = shard.handle_acquire(&asker(handle), any, || Ticket { reply: handle.0, timeout });
    shard.start_clocks(now);
    match admission {
        Admission::Queued(waiter) => waiter,
        other => panic!("expected to wait, got {other:?}"),
    }
}

fn refusal(shard: &mut Shard, handle: HandleId) -> Refusal {
    match shard.handle_acquire(&asker(handle), any, no_ticket) {
        Admission::Refused(refusal) => refusal,
        other => panic!("expected to be refused, got {other:?}"),
    }
}

fn collect(shard: &mut Shard, waiter: WaiterKey) -> Grant<u32> {
    match shard.take(waiter) {
        Taken::Granted(grant) => grant,
        other => panic!("expected a grant to collect, got {other:?}"),
    }
}

fn collect_refusal(shard: &mut Shard, waiter: WaiterKey) -> Refusal {
    match shard.take(waiter) {
        Taken::Refused(refusal) => refusal,
        other => panic!("expected a refusal to collect, got {other:?}"),
    }
}

fn is_pending(shard: &mut Shard, waiter: WaiterKey) -> bool {
    matches!(shard.take(waiter), Taken::Pending)
}

fn is_gone(shard: &mut Shard, waiter: WaiterKey) -> bool {
    matches!(shard.take(waiter), Taken::Gone)
}

fn release(shard: &mut Shard, grant: Grant<u32>) {
    shard.handle_release(grant.slot, grant.connection);
}

/// The waiters whose fate has become known since the last call.
fn notices(shard: &mut Shard) -> Vec<WaiterKey> {
    std::iter::from_fn(|| shard.poll_notice()).map(|notice| notice.waiter).collect()
}

fn closes(shard: &mut Shard) -> Vec<(SlotId, u32, CloseReason)> {
    std::iter::from_fn(|| shard.poll_close()).collect()
}

fn opens(shard: &mut Shard, now: Instant) -> Vec<SlotId> {
    std::iter::from_fn(|| shard.poll_open(now)).collect()
}

/// A shard whose every slot is leased, with connections 0, 1, 2 and so on.
fn exhausted(limits: Limits) -> (Shard, Vec<Grant<u32>>) {
    let now = Instant::now();
    let mut shard = fresh(Limits { max_waiters: limits.slots, max_connecting: limits.slots, ..limits });
    let waiters: Vec<WaiterKey> = (0..limits.slots).map(|_| queue(&mut shard, HandleId(0))).collect();
    for (connection, slot) in opens(&mut shard, now).into_iter().enumerate() {
        shard.handle_connected(slot, connection as u32);
    }
    assert_eq!(notices(&mut shard), waiters);
    let grants = waiters.into_iter().map(|waiter| collect(&mut shard, waiter)).collect();
    shard.max_waiters = limits.max_waiters;
    shard.max_connecting = limits.max_connecting;
    shard.check_invariants();
    (shard, grants)
}

/// A shard whose every slot holds an idle connection, the one with the highest number used last.
fn filled(limits: Limits) -> Shard {
    let (mut shard, grants) = exhausted(limits);
    for grant in grants {
        release(&mut shard, grant);
    }
    shard.check_invariants();
    shard
}

/// A shard with one slot, and its lease.
fn single(limits: Limits) -> (Shard, Grant<u32>) {
    let (shard, mut grants) = exhausted(Limits { slots: 1, ..limits });
    let grant = grants.remove(0);
    (shard, grant)
}
