//! When an acquire is told at once that its peer is gone.

use super::*;

fn breaking(failures: u32) -> Limits {
    Limits { backoff: Backoff { breaker: Some(failures), ..BACKOFF }, ..limits(4) }
}

/// An acquire, its open, and its failure.
fn fail_one(shard: &mut Shard, now: Instant) {
    let waiter = queue(shard, A);
    let slots = opens(shard, now);
    assert_eq!(slots.len(), 1);
    shard.handle_connect_failed(slots[0], refused(), now);
    assert_eq!(notices(shard), [waiter]);
    assert!(matches!(collect_refusal(shard, waiter), Refusal::Connect(_)));
}

/// A shard whose peer has failed twice, which is once too often; and the end of the pause.
fn tripped() -> (Shard, Instant) {
    let mut shard = fresh(breaking(2));
    let now = Instant::now();
    fail_one(&mut shard, now);
    let until = shard.paused_until().expect("a failure begins a pause");
    shard.lapse(until);
    fail_one(&mut shard, until);
    let until = shard.paused_until().expect("a failure begins a pause");
    (shard, until)
}

#[test]
fn after_so_many_failures_acquires_are_refused_at_once_with_the_last_error() {
    let (mut shard, until) = tripped();
    for _ in 0..3 {
        shard.lapse(until - MS / 10);
        let Refusal::Connect(error) = refusal(&mut shard, A) else { panic!("the cause is told") };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
    assert_eq!(
        (shard.next_deadline(), shard.wants_open()),
        (None, false),
        "nobody waits for the end of the pause"
    );
    assert_eq!(shard.counters().refused_connect, 5);
    shard.check_invariants();
}

#[test]
fn a_queue_without_places_does_not_hide_why_nothing_is_there() {
    let keep = Keep { min_idle: 1, ..Keep::default() };
    let mut shard = fresh(Limits { keep, max_waiters: 0, ..breaking(2) });
    let mut now = Instant::now();
    for _ in 0..2 {
        assert!(matches!(refusal(&mut shard, A), Refusal::Saturated { limit: 0 }));
        let slot = opens(&mut shard, now)[0];
        shard.handle_connect_failed(slot, refused(), now);
        now = shard.paused_until().expect("a failure begins a pause");
    }
    assert!(matches!(refusal(&mut shard, A), Refusal::Connect(_)));
}

#[test]
fn before_that_they_wait_for_the_end_of_the_pause() {
    let mut shard = fresh(breaking(2));
    let now = Instant::now();
    fail_one(&mut shard, now);
    let waiter = queue(&mut shard, A);
    assert!(is_pending(&mut shard, waiter));
    assert_eq!(opens(&mut shard, now), []);
}

#[test]
fn failures_with_a_success_between_them_are_not_in_a_row() {
    let mut shard = fresh(breaking(2));
    let now = Instant::now();
    fail_one(&mut shard, now);
    let until = shard.paused_until().expect("a failure begins a pause");
    shard.lapse(until);
    let waiter = queue(&mut shard, A);
    let slot = opens(&mut shard, until)[0];
    shard.handle_connected(slot, 1);
    notices(&mut shard);
    let grant = collect(&mut shard, waiter);
    shard.handle_lost(grant.slot, CloseReason::Lost);
    fail_one(&mut shard, until);
    queue(&mut shard, A);
}

#[test]
fn failures_of_one_round_are_one() {
    let mut shard = fresh(breaking(2));
    let now = Instant::now();
    let waiters: Vec<WaiterKey> = (0..4).map(|_| queue(&mut shard, A)).collect();
    for slot in opens(&mut shard, now) {
        shard.handle_connect_failed(slot, refused(), now);
    }
    assert_eq!(notices(&mut shard), waiters);
    queue(&mut shard, A);
}

#[test]
fn after_the_pause_a_single_open_tries_whether_the_peer_is_back() {
    let (mut shard, until) = tripped();
    shard.lapse(until);
    let waiters: Vec<WaiterKey> = (0..3).map(|_| queue(&mut shard, A)).collect();
    let slots = opens(&mut shard, until);
    assert_eq!(slots.len(), 1, "half open");
    shard.handle_connect_failed(slots[0], refused(), until);
    assert_eq!(notices(&mut shard), waiters, "all are told, none waits on");
    assert!(matches!(refusal(&mut shard, A), Refusal::Connect(_)), "and the next pause begins");

    let until = shard.paused_until().expect("a failure begins a pause");
    shard.lapse(until);
    let waiters: Vec<WaiterKey> = (0..3).map(|_| queue(&mut shard, A)).collect();
    let slots = opens(&mut shard, until);
    assert_eq!(slots.len(), 1);
    shard.handle_connected(slots[0], 1);
    assert_eq!(notices(&mut shard), waiters[..1]);
    assert_eq!(opens(&mut shard, until).len(), 2, "closed again");
    shard.check_invariants();
}

#[test]
fn a_connection_that_is_left_is_waited_for_however_often_opens_fail() {
    let (mut shard, mut grants) = exhausted(Limits { slots: 2, ..breaking(1) });
    let now = Instant::now();
    shard.handle_lost(grants.remove(0).slot, CloseReason::Lost);
    let waiter = queue(&mut shard, A);
    let slot = opens(&mut shard, now)[0];
    shard.handle_connect_failed(slot, refused(), now);
    let next = queue(&mut shard, B);
    release(&mut shard, grants.remove(0));
    assert_eq!(notices(&mut shard), [waiter]);
    assert!(is_pending(&mut shard, next));
}

#[test]
fn connections_that_are_missing_try_the_peer_without_an_acquire() {
    let mut shard = fresh(Limits { keep: Keep { min_idle: 3, ..Keep::default() }, ..breaking(1) });
    let now = Instant::now();
    for slot in opens(&mut shard, now) {
        shard.handle_connect_failed(slot, refused(), now);
    }
    assert!(matches!(refusal(&mut shard, A), Refusal::Connect(_)));
    let until = shard.next_deadline().expect("some are missing");
    let slots = opens(&mut shard, until);
    assert_eq!(slots.len(), 1);
    shard.handle_connected(slots[0], 1);
    assert_eq!(opens(&mut shard, until).len(), 2);
}
