use super::*;
use crate::pool::scheduler::Stage;

#[test]
fn deadline_is_exact_and_names_the_stage_the_time_and_the_queue() {
    let start = Instant::now();
    let (mut shard, _grant) = single(limits(1));
    let late = queue_until(&mut shard, A, start, Some(start + MS * 9));
    let soon = queue_until(&mut shard, B, start, Some(start + MS * 5));
    assert_eq!(shard.next_deadline(), Some(start + MS * 5));
    shard.handle_deadline(start + MS * 5 - Duration::from_nanos(1));
    assert!(is_pending(&mut shard, soon));
    shard.handle_deadline(start + MS * 5);
    assert_eq!(notices(&mut shard), [soon]);
    match collect_refusal(&mut shard, soon) {
        Refusal::TimedOut { stage, waited, queued, position, last_connect_error } => {
            assert_eq!((stage, waited, queued, position), (Stage::Waiting, MS * 5, 2, 1));
            assert!(last_connect_error.is_none());
        }
        other => panic!("expected a time-out, got {other:?}"),
    }
    assert_eq!(shard.next_deadline(), Some(start + MS * 9));
    assert!(is_pending(&mut shard, late));
    assert_eq!(shard.counters().timed_out, 1);
    shard.check_invariants();
}

#[test]
fn granted_or_cancelled_waiter_leaves_no_deadline() {
    let now = Instant::now();
    let (mut shard, grant) = single(limits(1));
    let granted = queue_until(&mut shard, A, now, Some(now + MS));
    let cancelled = queue_until(&mut shard, A, now, Some(now + MS));
    release(&mut shard, grant);
    shard.handle_cancel(cancelled);
    assert_eq!(shard.next_deadline(), None);
    shard.handle_deadline(now + MS);
    collect(&mut shard, granted);
    shard.check_invariants();
}

fn stage_of(shard: &mut Shard, waiter: WaiterKey) -> Stage {
    match collect_refusal(shard, waiter) {
        Refusal::TimedOut { stage, .. } => stage,
        other => panic!("expected a time-out, got {other:?}"),
    }
}

#[test]
fn stage_is_connecting_for_those_whom_an_open_would_serve() {
    let now = Instant::now();
    let (mut shard, mut grants) = exhausted(limits(2));
    shard.handle_lost(grants.remove(0).slot, CloseReason::Lost);
    // One slot can be opened: the second in the queue would have to wait for the lease.
    queue(&mut shard, A);
    let second = queue_until(&mut shard, B, now, Some(now + MS));
    assert_eq!(opens(&mut shard, now).len(), 1);
    shard.handle_deadline(now + MS);
    assert_eq!(stage_of(&mut shard, second), Stage::Waiting);

    let mut shard = fresh(limits(1));
    let first = queue_until(&mut shard, A, now, Some(now + MS));
    assert_eq!(opens(&mut shard, now).len(), 1);
    shard.handle_deadline(now + MS);
    assert_eq!(stage_of(&mut shard, first), Stage::Connecting);
}

#[test]
fn stage_is_connecting_in_back_off_and_the_last_error_is_named() {
    let now = Instant::now();
    let mut shard = fresh(limits(1));
    queue(&mut shard, A);
    let slot = opens(&mut shard, now)[0];
    shard.handle_connect_failed(slot, refused(), now);
    notices(&mut shard);
    let waiter = queue_until(&mut shard, A, now, Some(now));
    shard.handle_deadline(now);
    match collect_refusal(&mut shard, waiter) {
        Refusal::TimedOut { stage: Stage::Connecting, last_connect_error: Some(error), .. } => {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
        other => panic!("expected a time-out while connecting, got {other:?}"),
    }
}

#[test]
fn stage_follows_the_order_of_service_under_round_robin() {
    let now = Instant::now();
    let deadline = Some(now + MS);
    // In order of service: a1 b1 d1 a2 d2 a3. The first `openable` of them are served by opens.
    for openable in 0..=6 {
        let mut shard = fresh(round_robin(6));
        for _ in 0..6 {
            queue(&mut shard, HandleId(9));
        }
        for slot in opens(&mut shard, now) {
            shard.handle_connected(slot, 0);
        }
        let grants: Vec<_> = notices(&mut shard).into_iter().map(|w| collect(&mut shard, w)).collect();
        let a: Vec<_> = (0..3).map(|_| queue(&mut shard, A)).collect();
        let b = queue(&mut shard, B);
        let d: Vec<_> = (0..2).map(|_| queue(&mut shard, D)).collect();
        for grant in grants.iter().take(openable) {
            shard.handle_lost(grant.slot, CloseReason::Lost);
        }
        for (place, handle) in
            [(a[0], A), (b, B), (d[0], D), (a[1], A), (d[1], D), (a[2], A)].iter().enumerate()
        {
            let waiter = handle.0;
            assert_eq!(shard.waiters.is_among_next(openable, waiter), place < openable);
        }
        // One of them for real.
        shard.handle_cancel(a[2]);
        let last = queue_until(&mut shard, A, now, deadline);
        shard.handle_deadline(now + MS);
        let expected = if openable == 6 { Stage::Connecting } else { Stage::Waiting };
        assert_eq!(stage_of(&mut shard, last), expected);
    }
}

#[test]
fn deregistration_ends_the_handles_waiters_and_no_others() {
    for limits in [limits(1), round_robin(1)] {
        let (mut shard, grant) = single(limits);
        let mine: Vec<WaiterKey> = (0..3).map(|_| queue(&mut shard, A)).collect();
        let other = queue(&mut shard, B);
        let last = queue(&mut shard, A);
        shard.handle_deregister(A);
        shard.check_invariants();
        assert_eq!(notices(&mut shard), [mine[0], mine[1], mine[2], last]);
        for waiter in mine.into_iter().chain([last]) {
            assert!(matches!(collect_refusal(&mut shard, waiter), Refusal::Deregistered));
        }
        release(&mut shard, grant);
        assert_eq!(notices(&mut shard), [other]);
        collect(&mut shard, other);
        assert_eq!(shard.counters().deregistered, 4);
        shard.check_invariants();
    }
}

#[test]
fn deregistering_twice_or_an_unknown_handle_does_nothing() {
    for limits in [limits(1), round_robin(1)] {
        let (mut shard, _grant) = single(limits);
        queue(&mut shard, A);
        shard.handle_deregister(A);
        let before = (shard.gauges(), shard.counters().clone());
        shard.handle_deregister(A);
        shard.handle_deregister(HandleId(u64::MAX));
        assert_eq!((shard.gauges(), shard.counters().clone()), before);
        assert_eq!(notices(&mut shard).len(), 1);
        shard.check_invariants();
    }
}

#[test]
fn deregistration_passes_an_uncollected_grant_on_to_another_handle() {
    for limits in [limits(1), round_robin(1)] {
        for heard in [false, true] {
            let (mut shard, grant) = single(limits);
            let granted = queue(&mut shard, A);
            let queued = queue(&mut shard, A);
            let other = queue(&mut shard, B);
            release(&mut shard, grant);
            if heard {
                assert_eq!(notices(&mut shard), [granted]);
            }
            shard.handle_deregister(A);
            shard.check_invariants();
            let told = if heard { vec![queued, other] } else { vec![granted, queued, other] };
            assert_eq!(notices(&mut shard), told, "nobody hears twice");
            assert!(matches!(collect_refusal(&mut shard, granted), Refusal::Deregistered));
            assert!(matches!(collect_refusal(&mut shard, queued), Refusal::Deregistered));
            assert_eq!(collect(&mut shard, other).connection, 0);
            shard.check_invariants();
        }
    }
}

#[test]
fn shutdown_refuses_the_queue_and_closes_what_is_idle() {
    let (mut shard, mut grants) = exhausted(limits(2));
    let (first, second) = (queue(&mut shard, A), queue(&mut shard, B));
    shard.drain_for_shutdown(Lifecycle::Closed);
    assert_eq!(shard.lifecycle(), Lifecycle::Closed);
    assert_eq!(notices(&mut shard), [first, second]);
    assert!(matches!(collect_refusal(&mut shard, first), Refusal::Closed));
    assert!(matches!(collect_refusal(&mut shard, second), Refusal::Closed));
    assert!(matches!(refusal(&mut shard, A), Refusal::Closed));
    assert!(!shard.is_quiet(), "leases outlive the shutdown");
    while let Some(grant) = grants.pop() {
        release(&mut shard, grant);
    }
    for (slot, _, reason) in closes(&mut shard) {
        assert_eq!(reason, CloseReason::Shutdown);
        shard.handle_closed(slot);
    }
    assert!(shard.is_quiet());
    shard.check_invariants();

    let mut shard = filled(limits(3));
    shard.drain_for_shutdown(Lifecycle::Closed);
    shard.drain_for_shutdown(Lifecycle::Closed);
    let closing: Vec<CloseReason> = closes(&mut shard).into_iter().map(|(_, _, reason)| reason).collect();
    assert_eq!(closing, [CloseReason::Shutdown; 3]);
    assert_eq!(shard.counters().closed_for(CloseReason::Shutdown), 3);
    shard.check_invariants();
}

#[test]
fn grant_can_be_collected_or_cancelled_after_shutdown() {
    let (mut shard, mut grants) = exhausted(limits(2));
    let (first, second) = (queue(&mut shard, A), queue(&mut shard, B));
    while let Some(grant) = grants.pop() {
        release(&mut shard, grant);
    }
    shard.drain_for_shutdown(Lifecycle::Closed);
    let grant = collect(&mut shard, first);
    shard.handle_cancel(second);
    shard.check_invariants();
    assert_eq!(closes(&mut shard).len(), 1, "what was cancelled is closed, not shelved");
    release(&mut shard, grant);
    assert_eq!(closes(&mut shard).len(), 1);
    shard.check_invariants();
}

#[test]
fn open_that_ends_after_shutdown_is_closed_or_forgotten() {
    let now = Instant::now();
    let mut shard = fresh(limits(2));
    queue(&mut shard, A);
    queue(&mut shard, A);
    let slots = opens(&mut shard, now);
    shard.drain_for_shutdown(Lifecycle::Closed);
    assert_eq!(opens(&mut shard, now), []);
    notices(&mut shard);
    shard.handle_connected(slots[0], 3);
    shard.handle_connect_failed(slots[1], refused(), now);
    assert_eq!(closes(&mut shard), [(slots[0], 3, CloseReason::Shutdown)]);
    shard.handle_closed(slots[0]);
    assert!(shard.is_quiet());
    shard.check_invariants();
}

#[test]
fn failed_outranks_closed() {
    let mut shard = fresh(limits(1));
    shard.drain_for_shutdown(Lifecycle::Running);
    assert_eq!(shard.lifecycle(), Lifecycle::Running);
    shard.drain_for_shutdown(Lifecycle::Closed);
    assert!(matches!(refusal(&mut shard, A), Refusal::Closed));
    shard.drain_for_shutdown(Lifecycle::Failed);
    assert!(matches!(refusal(&mut shard, A), Refusal::Failed));
    shard.drain_for_shutdown(Lifecycle::Closed);
    assert!(matches!(refusal(&mut shard, A), Refusal::Failed));
    assert_eq!((shard.counters().refused_closed, shard.counters().refused_failed), (1, 2));
    shard.check_invariants();

    let (mut shard, _grant) = single(limits(1));
    let waiter = queue(&mut shard, A);
    shard.drain_for_shutdown(Lifecycle::Failed);
    assert!(matches!(collect_refusal(&mut shard, waiter), Refusal::Failed));
}

#[test]
fn every_acquire_is_counted_in_exactly_one_fate() {
    let now = Instant::now();
    let (mut shard, grant) = single(Limits { max_waiters: 4, ..limits(1) });
    let base = shard.counters().clone();
    let timed = queue_until(&mut shard, A, now, Some(now));
    let cancelled = queue(&mut shard, A);
    let deregistered = queue(&mut shard, B);
    let granted = queue(&mut shard, D);
    refusal(&mut shard, A);
    shard.handle_deadline(now);
    shard.handle_cancel(cancelled);
    shard.handle_deregister(B);
    release(&mut shard, grant);
    let grant = collect(&mut shard, granted);
    release(&mut shard, grant);
    let grant = lease(&mut shard, A);
    queue(&mut shard, A);
    shard.drain_for_shutdown(Lifecycle::Closed);
    refusal(&mut shard, A);
    release(&mut shard, grant);
    for waiter in [timed, deregistered] {
        collect_refusal(&mut shard, waiter);
    }
    let counters = shard.counters();
    assert_eq!(counters.acquires() - base.acquires(), 8);
    assert_eq!(counters.settled(), counters.acquires());
    let fates = [
        counters.granted_immediately - base.granted_immediately,
        counters.granted_after_wait - base.granted_after_wait,
        counters.cancelled,
        counters.timed_out,
        counters.saturated,
        counters.deregistered,
        counters.refused_closed,
    ];
    assert_eq!(fates, [1, 1, 1, 1, 1, 1, 2]);
    shard.check_invariants();
}
