use super::*;

#[test]
fn opens_never_exceed_the_waiters() {
    let now = Instant::now();
    let mut shard = fresh(limits(8));
    assert_eq!(opens(&mut shard, now), [], "nobody waits");
    for waiting in 1..=8 {
        queue(&mut shard, A);
        assert!(shard.wants_open());
        assert_eq!(opens(&mut shard, now).len(), 1);
        assert_eq!(shard.gauges().opening, waiting);
        assert!(!shard.wants_open());
    }
    shard.check_invariants();
}

#[test]
fn opens_never_exceed_max_connecting_or_the_slots() {
    let now = Instant::now();
    let mut shard = fresh(Limits { max_connecting: 2, ..limits(3) });
    for _ in 0..8 {
        queue(&mut shard, A);
    }
    let slots = opens(&mut shard, now);
    assert_eq!(slots.len(), 2);
    shard.handle_connected(slots[0], 0);
    shard.handle_connected(slots[1], 1);
    assert_eq!(opens(&mut shard, now).len(), 1, "three slots in all");
    shard.check_invariants();
}

#[test]
fn connection_without_a_waiter_lands_idle() {
    let mut shard = fresh(limits(1));
    let waiter = queue(&mut shard, A);
    let slot = opens(&mut shard, Instant::now())[0];
    shard.handle_cancel(waiter);
    shard.handle_connected(slot, 5);
    assert_eq!(shard.gauges().idle, 1);
    assert_eq!(notices(&mut shard), []);
    assert_eq!(lease(&mut shard, B).connection, 5);
    shard.check_invariants();
}

#[test]
fn redundant_sweeps_mint_no_grant() {
    let (mut shard, grant) = single(limits(1));
    let (first, second) = (queue(&mut shard, A), queue(&mut shard, B));
    release(&mut shard, grant);
    for _ in 0..1_000 {
        shard.sweep();
    }
    assert_eq!(notices(&mut shard), [first]);
    assert!(is_pending(&mut shard, second));
    let grant = collect(&mut shard, first);
    for _ in 0..1_000 {
        shard.sweep();
        shard.handle_closed(grant.slot);
        shard.handle_connected(grant.slot, 99);
        shard.handle_evict(grant.slot);
    }
    assert!(is_pending(&mut shard, second));
    assert_eq!(opens(&mut shard, Instant::now()), []);
    shard.check_invariants();
}

#[test]
fn discarded_connection_holds_its_slot_until_it_is_closed() {
    let now = Instant::now();
    let (mut shard, grant) = single(limits(1));
    let waiter = queue(&mut shard, A);
    shard.handle_discard(grant.slot, grant.connection, CloseReason::Dirty);
    assert!(shard.has_output());
    assert_eq!(opens(&mut shard, now), []);
    shard.handle_closed(grant.slot);
    assert_eq!(opens(&mut shard, now), [], "a close that has not been fetched is not finished");
    assert_eq!(closes(&mut shard), [(grant.slot, 0, CloseReason::Dirty)]);
    assert_eq!(opens(&mut shard, now), [], "the peer may still count it");
    shard.handle_closed(grant.slot);
    let slot = opens(&mut shard, now)[0];
    assert_ne!(slot, grant.slot);
    shard.handle_connected(slot, 1);
    assert_eq!(collect(&mut shard, waiter).connection, 1);
    assert_eq!(shard.counters().closed_for(CloseReason::Dirty), 1);
    shard.check_invariants();
}

#[test]
fn freed_connection_is_handed_to_the_next_waiter_with_its_notice() {
    let (mut shard, grant) = single(limits(1));
    let (first, second) = (queue(&mut shard, A), queue(&mut shard, B));
    let (slot, connection) = (grant.slot, grant.connection);
    let notice = shard.hand_over(slot, connection).expect("somebody waits");
    assert_eq!((notice.waiter, notice.reply), (first, A.0));
    assert!(shard.poll_notice().is_none(), "the notice is not given twice");
    assert_eq!(shard.hand_over(slot, 66).err(), Some(66), "the slot is the waiter's now");
    let grant = collect(&mut shard, first);
    assert_eq!(grant.connection, connection);
    shard.handle_cancel(second);
    assert_eq!(shard.hand_over(grant.slot, grant.connection).err(), Some(connection), "nobody waits");
    shard.check_invariants();
}

#[test]
fn lost_connection_frees_its_slot_at_once() {
    let (mut shard, grant) = single(limits(1));
    queue(&mut shard, A);
    shard.handle_lost(grant.slot, CloseReason::Lost);
    assert_eq!(shard.counters().closed_for(CloseReason::Lost), 1);
    assert!(!shard.has_output());
    assert_eq!(opens(&mut shard, Instant::now()).len(), 1);
    shard.check_invariants();
}

#[test]
fn evicted_idle_connection_is_closed_and_never_leased() {
    let mut shard = filled(limits(3));
    let (newest, middle) = (lease(&mut shard, A), lease(&mut shard, A));
    let (newest_slot, middle_slot) = (newest.slot, middle.slot);
    release(&mut shard, middle);
    release(&mut shard, newest);
    shard.handle_evict(middle_slot);
    shard.handle_evict(middle_slot);
    assert_eq!(closes(&mut shard), [(middle_slot, 1, CloseReason::Broken)]);
    assert_eq!(lease(&mut shard, A).slot, newest_slot);
    assert_eq!(lease(&mut shard, A).connection, 0);
    shard.check_invariants();
}

#[test]
fn eviction_of_a_leased_connection_does_nothing() {
    let mut shard = filled(limits(1));
    let grant = lease(&mut shard, A);
    shard.handle_evict(grant.slot);
    assert!(!shard.has_output());
    release(&mut shard, grant);
    assert_eq!(shard.gauges().idle, 1);
}

#[test]
fn stale_slot_ids_do_nothing() {
    let now = Instant::now();
    let (mut shard, grant) = single(limits(1));
    let stale = grant.slot;
    shard.handle_lost(stale, CloseReason::Lost);
    queue(&mut shard, A);
    let fresh = opens(&mut shard, now)[0];
    assert_eq!(fresh.index, stale.index, "the slot is reused");
    let assault = |shard: &mut Shard| {
        let before = (shard.gauges(), shard.counters().clone());
        shard.handle_release(stale, 66);
        shard.handle_discard(stale, 66, CloseReason::Dirty);
        shard.handle_lost(stale, CloseReason::Lost);
        shard.handle_evict(stale);
        shard.handle_connected(stale, 66);
        shard.handle_connect_failed(stale, refused(), now);
        shard.handle_closed(stale);
        shard.check_invariants();
        assert_eq!((shard.gauges(), shard.counters().clone()), before);
    };
    assault(&mut shard);
    shard.handle_connected(fresh, 1);
    assault(&mut shard);
    let waiter = notices(&mut shard)[0];
    let grant = collect(&mut shard, waiter);
    assault(&mut shard);
    release(&mut shard, grant);
    assault(&mut shard);
    shard.handle_evict(fresh);
    assault(&mut shard);
    closes(&mut shard);
    assault(&mut shard);
}

#[test]
fn reserved_connection_cannot_be_taken_from_under_its_waiter() {
    let (mut shard, grant) = single(limits(1));
    let waiter = queue(&mut shard, A);
    let slot = grant.slot;
    release(&mut shard, grant);
    shard.handle_lost(slot, CloseReason::Lost);
    shard.handle_discard(slot, 66, CloseReason::Dirty);
    shard.handle_release(slot, 66);
    shard.handle_evict(slot);
    assert_eq!(collect(&mut shard, waiter).connection, 0);
    shard.check_invariants();
}

#[test]
fn failed_open_with_nothing_left_fails_every_waiter_at_once() {
    let now = Instant::now();
    let mut shard = fresh(limits(2));
    let waiters: Vec<WaiterKey> = (0..5).map(|_| queue(&mut shard, A)).collect();
    let slots = opens(&mut shard, now);
    shard.handle_connect_failed(slots[0], refused(), now);
    assert_eq!(notices(&mut shard), [], "another open is under way");
    shard.handle_connect_failed(slots[1], refused(), now);
    assert_eq!(notices(&mut shard), waiters);
    for waiter in waiters {
        let Refusal::Connect(error) = collect_refusal(&mut shard, waiter) else {
            panic!("the connect error reaches the waiter");
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
    assert_eq!(shard.counters().refused_connect, 5);
    assert_eq!(shard.counters().connect_failures, 2);
    assert!(shard.is_quiet());
    shard.check_invariants();
}

#[test]
fn failed_open_beside_a_live_lease_keeps_the_waiters() {
    let now = Instant::now();
    let (mut shard, mut grants) = exhausted(limits(2));
    let lost = grants.remove(0);
    let waiter = queue(&mut shard, A);
    shard.handle_lost(lost.slot, CloseReason::Lost);
    let slot = opens(&mut shard, now)[0];
    shard.handle_connect_failed(slot, refused(), now);
    assert!(is_pending(&mut shard, waiter));
    release(&mut shard, grants.remove(0));
    assert_eq!(collect(&mut shard, waiter).connection, 1);
    shard.check_invariants();
}

#[test]
fn back_off_doubles_to_its_limit_and_ends_with_a_success() {
    let (mut shard, mut grants) = exhausted(limits(2));
    shard.handle_lost(grants.remove(0).slot, CloseReason::Lost);
    let waiter = queue(&mut shard, A);
    let mut now = Instant::now();
    for pause in [1, 2, 4, 8, 8] {
        let slot = opens(&mut shard, now)[0];
        shard.handle_connect_failed(slot, refused(), now);
        assert!(shard.wants_open());
        let until = shard.next_deadline().expect("an open waits for the end of the pause");
        assert!(
            (now + MS * pause / 2..=now + MS * pause).contains(&until),
            "half is certain, the rest is drawn"
        );
        assert_eq!(opens(&mut shard, until - Duration::from_nanos(1)), []);
        now = until;
    }
    let slot = opens(&mut shard, now)[0];
    shard.handle_connected(slot, 7);
    let grant = collect(&mut shard, waiter);
    shard.handle_lost(grant.slot, CloseReason::Lost);
    queue(&mut shard, A);
    let slot = opens(&mut shard, now)[0];
    shard.handle_connect_failed(slot, refused(), now);
    assert!(shard.next_deadline() <= Some(now + MS), "the pause starts over");
    shard.check_invariants();
}

#[test]
fn simultaneous_failures_are_one_step_of_back_off() {
    let now = Instant::now();
    let mut shard = fresh(limits(8));
    for _ in 0..8 {
        queue(&mut shard, A);
    }
    for slot in opens(&mut shard, now) {
        shard.handle_connect_failed(slot, refused(), now);
    }
    queue(&mut shard, A);
    assert!(shard.next_deadline() <= Some(now + MS));
}

#[test]
fn pauses_of_shards_that_fail_together_do_not_end_together() {
    let now = Instant::now();
    let ends: std::collections::BTreeSet<Instant> = (0..20)
        .map(|seed| {
            let mut shard = fresh(Limits { keep: Keep { seed, ..Keep::default() }, ..limits(1) });
            queue(&mut shard, A);
            let slot = opens(&mut shard, now)[0];
            shard.handle_connect_failed(slot, refused(), now);
            queue(&mut shard, A);
            shard.next_deadline().expect("an open waits for the end of the pause")
        })
        .collect();
    assert!(ends.len() > 15, "{ends:?}");
}

#[test]
fn end_of_back_off_is_no_deadline_while_nobody_waits() {
    let now = Instant::now();
    let mut shard = fresh(limits(1));
    queue(&mut shard, A);
    let slot = opens(&mut shard, now)[0];
    shard.handle_connect_failed(slot, refused(), now);
    assert_eq!(shard.next_deadline(), None, "an idle pool is not woken up");
}
