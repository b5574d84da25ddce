//! More slots, fewer slots, and connections that are of no use any more.

use super::*;

#[test]
fn more_slots_serve_the_waiters_at_once() {
    let (mut shard, grants) = exhausted(limits(1));
    let waiters: Vec<WaiterKey> = (0..3).map(|_| queue(&mut shard, A)).collect();
    assert!(!shard.wants_open());
    shard.handle_resize(3);
    shard.check_invariants();
    let slots = opens(&mut shard, Instant::now());
    assert_eq!(slots.len(), 2);
    for (slot, connection) in slots.into_iter().zip(1..) {
        shard.handle_connected(slot, connection);
    }
    assert_eq!(notices(&mut shard), waiters[..2]);
    assert_eq!((shard.gauges().leased, grants.len()), (3, 1));
    shard.check_invariants();
}

#[test]
fn vacant_slots_go_first_then_the_longest_idle() {
    let mut shard = filled(limits(3));
    shard.handle_resize(5);
    shard.handle_resize(3);
    assert!(!shard.has_output(), "two were vacant");
    shard.handle_resize(1);
    shard.check_invariants();
    let closing = closes(&mut shard);
    let closed: Vec<_> = closing.iter().map(|(_, connection, reason)| (*connection, *reason)).collect();
    assert_eq!(closed, [(0, CloseReason::Resized), (1, CloseReason::Resized)]);
    assert_eq!(lease(&mut shard, A).connection, 2);
    queue(&mut shard, B);
    assert!(!shard.wants_open());
    closing.into_iter().for_each(|(slot, ..)| shard.handle_closed(slot));
    assert!(!shard.wants_open(), "their slots are gone");
    shard.check_invariants();
}

#[test]
fn no_lease_is_broken_and_what_is_too_many_goes_when_its_lease_ends() {
    let (mut shard, mut grants) = exhausted(limits(3));
    shard.handle_resize(1);
    shard.check_invariants();
    assert_eq!((shard.gauges().leased, shard.has_output()), (3, false));
    let waiter = queue(&mut shard, A);
    let mut closed = 0;
    while let Some(grant) = grants.pop() {
        release(&mut shard, grant);
        for (slot, _, reason) in closes(&mut shard) {
            assert_eq!(reason, CloseReason::Resized);
            shard.handle_closed(slot);
            closed += 1;
        }
        shard.check_invariants();
    }
    assert_eq!(closed, 2);
    let grant = collect(&mut shard, waiter);
    release(&mut shard, grant);
    assert_eq!((shard.gauges().idle, shard.slots.vacant()), (1, 0));
}

#[test]
fn an_open_that_arrives_at_a_smaller_shard_is_closed() {
    let now = Instant::now();
    let mut shard = fresh(limits(3));
    let waiters: Vec<WaiterKey> = (0..3).map(|_| queue(&mut shard, A)).collect();
    let slots = opens(&mut shard, now);
    shard.handle_resize(1);
    shard.handle_connected(slots[0], 0);
    shard.handle_connect_failed(slots[1], refused(), now);
    assert_eq!(notices(&mut shard), [], "one is still to come");
    shard.handle_connected(slots[2], 2);
    assert_eq!(notices(&mut shard), waiters[..1]);
    assert_eq!(closes(&mut shard), [(slots[0], 0, CloseReason::Resized)]);
    shard.check_invariants();
}

#[test]
fn what_is_being_opened_goes_before_what_is_leased() {
    let now = Instant::now();
    let (mut shard, mut grants) = exhausted(limits(1));
    shard.handle_resize(2);
    let waiter = queue(&mut shard, A);
    let slot = opens(&mut shard, now)[0];
    shard.handle_resize(1);
    shard.handle_connected(slot, 7);
    assert_eq!(closes(&mut shard), [(slot, 7, CloseReason::Resized)]);
    shard.handle_closed(slot);
    release(&mut shard, grants.remove(0));
    assert_eq!(collect(&mut shard, waiter).connection, 0);
    shard.check_invariants();
}

#[test]
fn slots_that_were_to_go_are_there_again_when_they_are_wanted() {
    let (mut shard, grants) = exhausted(limits(3));
    let mut sizes = [1, 3, 2, 1, 4, 1, 2, 3].into_iter().cycle();
    for _ in 0..100 {
        shard.handle_resize(sizes.next().unwrap_or(1));
        shard.check_invariants();
    }
    shard.handle_resize(3);
    for grant in grants {
        release(&mut shard, grant);
    }
    closes(&mut shard).into_iter().for_each(|(slot, ..)| shard.handle_closed(slot));
    for _ in 0..3 {
        if shard.gauges().idle > 0 {
            lease(&mut shard, A);
        } else {
            queue(&mut shard, A);
        }
    }
    opens(&mut shard, Instant::now());
    assert_eq!(shard.gauges().leased + shard.gauges().opening, 3);
    shard.check_invariants();
}

#[test]
fn no_more_are_kept_idle_than_there_are_slots() {
    let now = Instant::now();
    let keep = Keep { min_idle: 3, ..Keep::default() };
    let mut shard = fresh(Limits { keep, ..limits(3) });
    for (slot, connection) in opens(&mut shard, now).into_iter().zip(0..) {
        shard.handle_connected(slot, connection);
    }
    shard.handle_resize(1);
    closes(&mut shard).into_iter().for_each(|(slot, ..)| shard.handle_closed(slot));
    assert_eq!((shard.gauges().idle, shard.wants_open(), shard.is_warm()), (1, false, true));
    shard.handle_resize(2);
    assert_eq!(opens(&mut shard, now).len(), 1);
    shard.check_invariants();
}

#[test]
fn a_stopped_shard_is_not_resized() {
    let (mut shard, grant) = single(limits(1));
    shard.drain_for_shutdown(Lifecycle::Closed);
    shard.handle_resize(5);
    shard.handle_refresh(|_| false);
    release(&mut shard, grant);
    assert_eq!(closes(&mut shard).len(), 1);
    shard.check_invariants();
}

#[test]
fn connections_of_no_use_are_closed_when_they_are_not_leased() {
    let mut shard = filled(limits(3));
    let grant = lease(&mut shard, A);
    assert_eq!(grant.connection, 2);
    // Numbers 0 and 2 lead to the old address.
    shard.handle_refresh(|connection| connection % 2 == 1);
    let closing = closes(&mut shard);
    assert_eq!(
        closing.iter().map(|close| (close.1, close.2)).collect::<Vec<_>>(),
        [(0, CloseReason::Superseded)]
    );
    assert!(shard.is_in_question(grant.slot), "nobody can look at a leased one");
    assert_eq!(shard.release_idle(grant.slot, grant.connection), Some(2));
    release(&mut shard, grant);
    assert_eq!(closes(&mut shard)[0].2, CloseReason::Superseded);
    assert_eq!(lease(&mut shard, A).connection, 1);
    shard.check_invariants();
}

#[test]
fn a_leased_connection_that_proves_to_be_of_use_stays() {
    let (mut shard, mut grants) = exhausted(limits(2));
    shard.handle_refresh(|_| panic!("nobody can look at a leased one"));
    let (first, second) = (grants.remove(0), grants.remove(0));
    shard.pardon(first.slot);
    assert_eq!(shard.release_idle(first.slot, first.connection), None);
    shard.handle_resize(1);
    shard.pardon(second.slot);
    release(&mut shard, second);
    // The idle one went when the shard became smaller: that left one slot, and the second one is in it.
    assert_eq!(closes(&mut shard).len(), 1);
    assert_eq!(shard.gauges().idle, 1);
    shard.check_invariants();
}

#[test]
fn a_pardon_does_not_bring_back_what_is_too_many() {
    let (mut shard, grants) = exhausted(limits(2));
    shard.handle_refresh(|_| true);
    shard.handle_resize(1);
    for grant in grants {
        shard.pardon(grant.slot);
        release(&mut shard, grant);
    }
    assert_eq!(closes(&mut shard).len(), 1);
    assert_eq!(shard.gauges().idle, 1);
    shard.check_invariants();
}

#[test]
fn an_acquire_whose_connection_fails_on_its_way_keeps_its_place_and_is_counted_once() {
    for fairness in [Fairness::Fifo, Fairness::RoundRobin] {
        let mut shard = filled(Limits { fairness, ..limits(1) });
        let before = shard.counters().clone();
        let grant = lease(&mut shard, A);
        let slot = grant.slot;
        let later: Vec<WaiterKey> = [B, A].into_iter().map(|handle| queue(&mut shard, handle)).collect();
        shard.handle_discard(slot, grant.connection, CloseReason::Broken);
        let ticket = || Ticket { reply: A.0, timeout: None };
        let Admission::Queued(again) = shard.handle_readmission(&asker(A), false, any, ticket) else {
            panic!("nothing is idle")
        };
        shard.check_invariants();
        assert_eq!(shard.counters().acquires(), before.acquires() + 3);
        assert_eq!(shard.counters().granted_immediately, before.granted_immediately);
        closes(&mut shard);
        shard.handle_closed(slot);
        let slot = opens(&mut shard, Instant::now())[0];
        shard.handle_connected(slot, 1);
        if fairness == Fairness::Fifo {
            assert_eq!(notices(&mut shard), [again]);
        } else {
            // It joins the line that its handle has; the turn is that line's.
            assert_eq!(notices(&mut shard), [later[0]]);
        }
    }
}

#[test]
fn an_acquire_that_is_served_at_last_has_waited_once() {
    let (mut shard, grant) = single(limits(1));
    let waiter = queue(&mut shard, A);
    release(&mut shard, grant);
    let grant = collect(&mut shard, waiter);
    let before = shard.counters().clone();
    shard.handle_resize(2);
    shard.handle_discard(grant.slot, grant.connection, CloseReason::Broken);
    let ticket = || Ticket { reply: A.0, timeout: None };
    let Admission::Queued(again) = shard.handle_readmission(&asker(A), true, any, ticket) else {
        panic!("nothing is idle")
    };
    let slot = opens(&mut shard, Instant::now())[0];
    shard.handle_connected(slot, 1);
    assert_eq!(collect(&mut shard, again).connection, 1);
    let after = shard.counters();
    assert_eq!(
        (after.acquires(), after.granted_after_wait, after.capacity_waits),
        (before.acquires(), before.granted_after_wait, before.capacity_waits)
    );
    shard.check_invariants();
}
