use super::*;

#[test]
fn idle_connection_is_granted_without_a_ticket() {
    let mut shard = filled(limits(1));
    let before = shard.counters().clone();
    let grant = lease(&mut shard, A);
    assert_eq!(grant.connection, 0);
    assert_eq!(shard.counters().acquires(), before.acquires() + 1);
    assert_eq!(shard.counters().granted_immediately, before.granted_immediately + 1);
    assert_eq!(shard.counters().capacity_waits, before.capacity_waits);
    assert!(!shard.has_output());
    shard.check_invariants();
}

#[test]
fn waiting_acquire_counts_one_capacity_wait_and_hears_once() {
    let (mut shard, grant) = single(limits(1));
    let before = shard.counters().capacity_waits;
    let waiter = queue(&mut shard, A);
    assert_eq!(shard.counters().capacity_waits, before + 1);
    assert!(is_pending(&mut shard, waiter));
    assert_eq!(notices(&mut shard), []);
    release(&mut shard, grant);
    let notice = shard.poll_notice().expect("the grant is news");
    assert_eq!((notice.waiter, notice.reply), (waiter, A.0));
    assert!(shard.poll_notice().is_none());
    collect(&mut shard, waiter);
    assert!(is_gone(&mut shard, waiter));
}

#[test]
fn most_recently_used_connection_comes_first() {
    let mut shard = filled(limits(3));
    let (first, second, third) = (lease(&mut shard, A), lease(&mut shard, A), lease(&mut shard, A));
    assert_eq!((first.connection, second.connection, third.connection), (2, 1, 0));
    release(&mut shard, second);
    release(&mut shard, first);
    assert_eq!(lease(&mut shard, A).connection, 2);
}

#[test]
fn unusable_idle_connection_is_closed_and_the_next_one_tried() {
    let mut shard = filled(limits(3));
    let Admission::Granted(grant) = shard.handle_acquire(A, |connection| *connection == 0, no_ticket) else {
        panic!("one idle connection is usable");
    };
    assert_eq!(grant.connection, 0);
    let closing: Vec<_> = closes(&mut shard).into_iter().map(|(_, c, reason)| (c, reason)).collect();
    assert_eq!(closing, [(2, CloseReason::Broken), (1, CloseReason::Broken)]);
    assert_eq!(shard.counters().closed_for(CloseReason::Broken), 2);
    shard.check_invariants();
}

#[test]
fn acquire_queues_when_no_idle_connection_is_usable() {
    let mut shard = filled(limits(2));
    let ticket = || Ticket { reply: 9, timeout: None };
    assert!(matches!(shard.handle_acquire(A, |_| false, ticket), Admission::Queued(_)));
    assert_eq!(closes(&mut shard).len(), 2);
    shard.check_invariants();
}

#[test]
fn panic_in_the_usable_check_leaves_the_state_whole() {
    let mut shard = filled(limits(2));
    let attempt = std::panic::AssertUnwindSafe(|| {
        let _ = shard.handle_acquire(A, |_| panic!("a check that panics"), no_ticket);
    });
    assert!(std::panic::catch_unwind(attempt).is_err());
    shard.check_invariants();
    assert_eq!(lease(&mut shard, A).connection, 1);
}

#[test]
fn full_queue_refuses_with_its_limit() {
    let (mut shard, _grant) = single(Limits { max_waiters: 2, ..limits(1) });
    queue(&mut shard, A);
    queue(&mut shard, B);
    assert!(matches!(refusal(&mut shard, A), Refusal::Saturated { limit: 2 }));
    assert_eq!(shard.counters().saturated, 1);
    shard.check_invariants();
}

#[test]
fn bound_of_zero_still_grants_what_is_idle() {
    let mut shard = filled(Limits { max_waiters: 0, ..limits(1) });
    let grant = lease(&mut shard, A);
    assert!(matches!(refusal(&mut shard, A), Refusal::Saturated { limit: 0 }));
    release(&mut shard, grant);
    lease(&mut shard, A);
}

#[test]
fn cancelled_waiter_consumes_no_bound() {
    let (mut shard, _grant) = single(Limits { max_waiters: 1, ..limits(1) });
    for _ in 0..100 {
        let waiter = queue(&mut shard, A);
        assert_eq!(shard.handle_cancel(waiter), Some(A.0));
    }
    assert_eq!(shard.counters().saturated, 0);
    assert_eq!(shard.gauges().waiting, 0);
    shard.check_invariants();
}

#[test]
fn cancelled_waiter_is_never_granted() {
    for place in 0..3 {
        let (mut shard, mut grant) = single(limits(1));
        let mut waiters: Vec<WaiterKey> = (0..3).map(|_| queue(&mut shard, A)).collect();
        let cancelled = waiters.remove(place);
        shard.handle_cancel(cancelled);
        shard.check_invariants();
        for waiter in waiters {
            release(&mut shard, grant);
            assert_eq!(notices(&mut shard), [waiter]);
            grant = collect(&mut shard, waiter);
        }
        release(&mut shard, grant);
        assert_eq!(notices(&mut shard), []);
        assert!(is_gone(&mut shard, cancelled));
        assert_eq!(shard.gauges().idle, 1);
    }
}

#[test]
fn grant_whose_waiter_cancels_goes_to_the_next_waiter() {
    // Before and after the owner has heard of the grant.
    for heard in [false, true] {
        let (mut shard, grant) = single(limits(1));
        let (first, second) = (queue(&mut shard, A), queue(&mut shard, B));
        release(&mut shard, grant);
        if heard {
            assert_eq!(notices(&mut shard), [first]);
        }
        assert_eq!(shard.handle_cancel(first), (!heard).then_some(A.0));
        shard.check_invariants();
        assert_eq!(notices(&mut shard), [second], "the cancelled waiter is not notified");
        assert!(is_gone(&mut shard, first));
        collect(&mut shard, second);
        assert_eq!(shard.counters().cancelled, 1);
        shard.check_invariants();
    }
}

#[test]
fn grant_whose_only_waiter_cancels_lands_idle() {
    let (mut shard, grant) = single(limits(1));
    let waiter = queue(&mut shard, A);
    release(&mut shard, grant);
    shard.handle_cancel(waiter);
    assert_eq!((shard.gauges().idle, shard.gauges().leased), (1, 0));
    assert_eq!(lease(&mut shard, B).connection, 0);
    shard.check_invariants();
}

#[test]
fn cancel_after_collecting_does_nothing() {
    let (mut shard, grant) = single(limits(1));
    let waiter = queue(&mut shard, A);
    release(&mut shard, grant);
    let grant = collect(&mut shard, waiter);
    assert_eq!(shard.handle_cancel(waiter), None);
    assert_eq!(shard.gauges().leased, 1);
    assert_eq!(shard.counters().cancelled, 0);
    release(&mut shard, grant);
    shard.check_invariants();
}

#[test]
fn stale_waiter_key_never_reaches_the_next_user_of_its_entry() {
    let (mut shard, _grant) = single(limits(1));
    let stale = queue(&mut shard, A);
    shard.handle_cancel(stale);
    let fresh = queue(&mut shard, B);
    assert_eq!(fresh.index, stale.index, "the entry is reused");
    assert_eq!(shard.handle_cancel(stale), None);
    assert!(is_gone(&mut shard, stale));
    assert_eq!(shard.reply_mut(stale), None);
    assert!(is_pending(&mut shard, fresh));
    shard.check_invariants();
}

#[test]
fn reply_address_can_be_changed_until_the_fate_is_known() {
    let (mut shard, grant) = single(limits(1));
    let waiter = queue(&mut shard, A);
    *shard.reply_mut(waiter).expect("the waiter is queued") = 77;
    release(&mut shard, grant);
    assert_eq!(shard.reply_mut(waiter), None);
    assert_eq!(shard.poll_notice().map(|notice| notice.reply), Some(77));
}

#[test]
fn collecting_before_the_notice_is_polled_withdraws_the_notice() {
    let (mut shard, grant) = single(limits(1));
    let waiter = queue(&mut shard, A);
    release(&mut shard, grant);
    collect(&mut shard, waiter);
    assert_eq!(notices(&mut shard), []);
    shard.check_invariants();
}
