//! What a shard does because of the others of its pool.

use super::*;

#[test]
fn a_shard_that_has_no_connection_to_spare_opens_none_and_sleeps() {
    let now = Instant::now();
    let mut shard = fresh(limits(2));
    let waiter = queue(&mut shard, A);
    shard.block_opens(true);
    assert!(!shard.wants_open() && shard.next_deadline().is_none());
    assert!(opens(&mut shard, now).is_empty());
    shard.block_opens(false);
    let slot = opens(&mut shard, now)[0];
    shard.handle_connected(slot, 1);
    assert_eq!(collect(&mut shard, waiter).connection, 1);
}

#[test]
fn what_times_out_while_opens_are_held_back_was_waiting_for_a_lease() {
    let now = Instant::now();
    let mut shard = fresh(limits(2));
    shard.block_opens(true);
    let waiter = queue_until(&mut shard, A, now, Some(now + MS));
    shard.handle_deadline(now + MS);
    let refusal = collect_refusal(&mut shard, waiter);
    assert!(matches!(refusal, Refusal::TimedOut { stage: crate::pool::Stage::Waiting, .. }), "{refusal:?}");
}

#[test]
fn the_connection_given_up_is_the_one_not_used_for_the_longest_time() {
    let mut shard = filled(limits(3));
    assert!(shard.give_up_oldest() && shard.give_up_oldest());
    let reasons: Vec<_> =
        closes(&mut shard).into_iter().map(|(_, connection, why)| (connection, why)).collect();
    assert_eq!(reasons, [(0, CloseReason::Rebalanced), (1, CloseReason::Rebalanced)]);
    assert_eq!(lease(&mut shard, A).connection, 2);
    assert!(!shard.give_up_oldest());
}

#[test]
fn a_release_that_is_heeded_takes_neither_short_cut() {
    let (mut shard, grant) = single(limits(1));
    shard.heed_releases(true);
    let connection = shard.release_idle(grant.slot, grant.connection).unwrap();
    let waiter = queue(&mut shard, A);
    let connection = shard.hand_over(grant.slot, connection).unwrap_err();
    shard.handle_release(grant.slot, connection);
    let grant = collect(&mut shard, waiter);
    shard.heed_releases(false);
    assert!(shard.release_idle(grant.slot, grant.connection).is_none());
}

#[test]
fn a_stopped_shard_heeds_its_releases_whatever_it_is_told() {
    let (mut shard, grant) = single(limits(1));
    shard.drain_for_shutdown(Lifecycle::Closed);
    shard.heed_releases(false);
    assert!(shard.release_idle(grant.slot, grant.connection).is_some());
}

#[test]
fn a_shard_is_exhausted_when_only_the_end_of_a_lease_could_serve_another_acquire() {
    let now = Instant::now();
    let (mut shard, grant) = single(Limits { slots: 2, ..limits(2) });
    assert!(shard.is_exhausted(true));
    release(&mut shard, grant);
    assert!(!shard.is_exhausted(false), "one is idle");
    let mut shard = fresh(limits(1));
    assert!(!shard.is_exhausted(true), "one can be opened");
    assert!(shard.is_exhausted(false), "but not if the pool has none to spare");
    let waiter = queue(&mut shard, A);
    let slot = opens(&mut shard, now)[0];
    assert!(shard.is_exhausted(true), "the open is for another");
    shard.handle_cancel(waiter);
    assert!(!shard.is_exhausted(true), "the open is for nobody");
    shard.handle_connect_failed(slot, refused(), now);
    assert!(shard.is_exhausted(true), "in back-off");
}
