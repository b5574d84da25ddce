use std::num::NonZeroU32;

use super::*;
use crate::pool::scheduler::Stage;

fn limited(handle: HandleId, limit: u32) -> Asker {
    under(handle, Rules { limit: NonZeroU32::new(limit), shedding: None })
}

fn lease_under(shard: &mut Shard, asker: Asker) -> Grant<u32> {
    match shard.handle_acquire(&asker, any, no_ticket) {
        Admission::Granted(grant) => grant,
        other => panic!("expected an immediate grant, got {other:?}"),
    }
}

fn queue_under(shard: &mut Shard, asker: Asker, now: Instant, timeout: Option<Duration>) -> WaiterKey {
    let admission = shard.handle_acquire(&asker, any, || Ticket { reply: asker.handle.0, timeout });
    shard.start_clocks(now);
    match admission {
        Admission::Queued(waiter) => waiter,
        other => panic!("expected to wait, got {other:?}"),
    }
}

#[test]
fn a_handle_at_its_limit_waits_beside_an_idle_connection_and_others_do_not() {
    for limits in [limits(3), round_robin(3)] {
        let now = Instant::now();
        let mut shard = filled(limits);
        let a = limited(A, 1);
        let grant = lease_under(&mut shard, a);
        let held_back = queue_under(&mut shard, a, now, None);
        assert_eq!((shard.gauges().idle, shard.gauges().waiting, shard.gauges().held_back), (2, 1, 1));
        assert_eq!(shard.counters().limit_waits, 1);
        assert!(!shard.wants_open(), "an open would not serve it");
        // Others pass by.
        let other = lease(&mut shard, B);
        release(&mut shard, other);
        assert!(is_pending(&mut shard, held_back));
        release(&mut shard, grant);
        assert_eq!(notices(&mut shard), [held_back]);
        collect(&mut shard, held_back);
        shard.check_invariants();
    }
}

#[test]
fn each_lease_that_ends_lets_one_more_in_whatever_way_it_ends() {
    let now = Instant::now();
    let mut shard = filled(limits(4));
    let a = limited(A, 3);
    let grants: Vec<_> = (0..3).map(|_| lease_under(&mut shard, a)).collect();
    let waiters: Vec<_> = (0..4).map(|_| queue_under(&mut shard, a, now, None)).collect();
    let [released, discarded, lost] = <[Grant<u32>; 3]>::try_from(grants).unwrap();
    release(&mut shard, released);
    assert_eq!(notices(&mut shard), [waiters[0]]);
    shard.handle_discard(discarded.slot, discarded.connection, CloseReason::Dirty);
    assert_eq!(notices(&mut shard), [waiters[1]], "by the idle connection");
    shard.handle_lost(lost.slot, CloseReason::Lost);
    assert_eq!(notices(&mut shard), []);
    assert!(shard.wants_open(), "one may have a lease, and no connection is there");
    // A grant that is not collected counts until it is given up.
    shard.handle_cancel(waiters[0]);
    assert_eq!(notices(&mut shard), [waiters[2]]);
    assert_eq!(shard.gauges().held_back, 0);
    shard.check_invariants();
}

/// Who was held back meets connections that were idle all the time: the one case in which a sweep finds any.
#[test]
fn one_that_was_held_back_gets_no_connection_that_an_acquire_would_not_get() {
    let now = Instant::now();
    let mut shard = filled(limits(4));
    shard.usable = |connection| *connection != 2;
    let a = limited(A, 1);
    let grant = lease_under(&mut shard, a);
    assert_eq!(grant.connection, 3);
    let held_back = queue_under(&mut shard, a, now, None);
    shard.handle_discard(grant.slot, grant.connection, CloseReason::Dirty);
    assert_eq!(collect(&mut shard, held_back).connection, 1);
    let closed: Vec<_> =
        closes(&mut shard).into_iter().map(|(_, connection, reason)| (connection, reason)).collect();
    assert_eq!(closed, [(3, CloseReason::Dirty), (2, CloseReason::Broken)]);
    shard.check_invariants();
}

#[test]
fn a_lease_is_awaited_by_those_whom_its_end_lets_in() {
    let now = Instant::now();
    let mut shard = filled(limits(4));
    let a = limited(A, 2);
    let (mine, other) = (lease_under(&mut shard, a), lease(&mut shard, B));
    let second = lease_under(&mut shard, a);
    assert!(!shard.has_waiters_for(mine.slot), "nobody waits");
    let held_back = queue_under(&mut shard, a, now, None);
    assert!(shard.has_waiters_for(mine.slot) && shard.has_waiters_for(second.slot));
    assert!(!shard.has_waiters_for(other.slot), "another handle's lets nobody in");
    // Its limit has become smaller: the next end lets nobody in either.
    let narrower = limited(A, 1);
    let also_held_back = queue_under(&mut shard, narrower, now, None);
    assert!(!shard.has_waiters_for(mine.slot));
    release(&mut shard, mine);
    assert_eq!(notices(&mut shard), []);
    assert!(shard.has_waiters_for(second.slot));
    release(&mut shard, second);
    assert_eq!(notices(&mut shard), [held_back]);
    shard.handle_cancel(also_held_back);
}

#[test]
fn who_is_held_back_goes_to_the_end_of_the_queue_when_a_lease_ends() {
    let now = Instant::now();
    let (mut shard, mut grants) = exhausted(limits(2));
    let a = limited(A, 1);
    release(&mut shard, grants.remove(0));
    let mine = lease_under(&mut shard, a);
    let first = queue_under(&mut shard, a, now, None);
    let second = queue_under(&mut shard, a, now, None);
    let other = queue(&mut shard, B);
    assert_eq!(shard.position(other), Some(0));
    assert_eq!((shard.position(first), shard.position(second)), (Some(1), Some(2)));
    release(&mut shard, mine);
    assert_eq!(notices(&mut shard), [other], "first was not eligible when it came");
    let newcomer = queue(&mut shard, D);
    release(&mut shard, grants.remove(0));
    assert_eq!(notices(&mut shard), [first], "and from then on no newcomer overtakes it");
    assert!(is_pending(&mut shard, newcomer) && is_pending(&mut shard, second));
    shard.check_invariants();
}

#[test]
fn who_is_held_back_keeps_its_deadline_and_its_place_in_the_bound() {
    let now = Instant::now();
    let mut shard = filled(Limits { max_waiters: 2, ..limits(2) });
    let a = limited(A, 1);
    let grant = lease_under(&mut shard, a);
    let late = queue_under(&mut shard, a, now, Some(MS));
    let waiter = queue_under(&mut shard, a, now, None);
    let refused = shard.handle_acquire(&a, any, no_ticket);
    assert!(matches!(refused, Admission::Refused(Refusal::Saturated { limit: 2 })));
    shard.handle_deadline(now + MS);
    match collect_refusal(&mut shard, late) {
        Refusal::TimedOut { stage, position, queued, .. } => {
            assert_eq!((stage, position, queued), (Stage::Limited, 0, 2));
        }
        other => panic!("expected a time-out, got {other:?}"),
    }
    release(&mut shard, grant);
    assert_eq!(notices(&mut shard), [waiter]);
    shard.check_invariants();
}

#[test]
fn a_handle_that_goes_takes_those_held_back_along_and_its_leases_stay_counted() {
    let now = Instant::now();
    let mut shard = filled(limits(2));
    let a = limited(A, 1);
    let grant = lease_under(&mut shard, a);
    let waiters: Vec<_> = (0..3).map(|_| queue_under(&mut shard, a, now, None)).collect();
    shard.handle_deregister(A);
    shard.handle_deregister(A);
    assert_eq!(notices(&mut shard), waiters);
    for waiter in waiters {
        assert!(matches!(collect_refusal(&mut shard, waiter), Refusal::Deregistered));
    }
    // It may come back, and still has its lease.
    let again = queue_under(&mut shard, a, now, None);
    shard.handle_deregister(A);
    assert!(matches!(collect_refusal(&mut shard, again), Refusal::Deregistered));
    shard.check_invariants();
    release(&mut shard, grant);
    assert!(!shard.has_claims(), "nothing of the handle is left");
    shard.check_invariants();
}

#[test]
fn ten_thousand_limited_handles_that_came_and_went_leave_nothing() {
    let mut shard = filled(limits(1));
    for n in 1..10_000 {
        let grant = lease_under(&mut shard, limited(HandleId(n), 1));
        release(&mut shard, grant);
    }
    assert!(!shard.has_claims());
    shard.check_invariants();
}

#[test]
fn shutdown_tells_those_who_are_held_back() {
    let now = Instant::now();
    let mut shard = filled(limits(2));
    let a = limited(A, 1);
    let grant = lease_under(&mut shard, a);
    let waiter = queue_under(&mut shard, a, now, None);
    shard.drain_for_shutdown(Lifecycle::Closed);
    assert!(matches!(collect_refusal(&mut shard, waiter), Refusal::Closed));
    release(&mut shard, grant);
    shard.check_invariants();
}

#[test]
fn a_counted_lease_that_is_its_connections_last_counts_until_it_ends() {
    let now = Instant::now();
    let mut shard = filled(limits(3));
    let a = limited(A, 2);
    let (first, second) = (lease_under(&mut shard, a), lease_under(&mut shard, a));
    let waiter = queue_under(&mut shard, a, now, None);
    shard.handle_refresh(|_| false);
    assert!(shard.is_in_question(first.slot) && shard.is_in_question(second.slot));
    shard.check_invariants();
    // Of use after all: it still counts.
    shard.pardon(first.slot);
    shard.check_invariants();
    assert!(is_pending(&mut shard, waiter));
    release(&mut shard, second);
    assert_eq!(shard.gauges().held_back, 0);
    for (slot, ..) in closes(&mut shard) {
        shard.handle_closed(slot);
    }
    assert!(shard.wants_open(), "the connection was closed, and the waiter may have another");
    shard.check_invariants();
    release(&mut shard, first);
    assert_eq!(notices(&mut shard), [waiter]);
    collect(&mut shard, waiter);
    shard.check_invariants();
}

#[test]
fn a_counted_grant_is_passed_on_when_it_is_given_up_even_if_its_connection_goes() {
    let now = Instant::now();
    let mut shard = filled(limits(2));
    let a = limited(A, 1);
    let grant = lease_under(&mut shard, a);
    let waiters = [0; 2].map(|_| queue_under(&mut shard, a, now, None));
    release(&mut shard, grant);
    shard.handle_refresh(|connection| *connection == 0);
    // The grant's connection is closed, and the next of the handle gets the one that is idle.
    shard.handle_cancel(waiters[0]);
    shard.check_invariants();
    let told = notices(&mut shard);
    assert_eq!(told.last(), Some(&waiters[1]));
    assert_eq!(collect(&mut shard, waiters[1]).connection, 0);
    shard.check_invariants();
}
