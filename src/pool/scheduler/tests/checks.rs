//! Which idle connections are checked, and what becomes of them and of those who ask meanwhile.

use super::*;

const EVERY: Duration = Duration::from_secs(1);

/// A shard with as many idle connections, the one with the highest number used last, at that moment.
fn checking(slots: usize, now: Instant) -> Shard {
    let keep = Keep { check_interval: Some(EVERY), ..Keep::default() };
    let mut shard = fresh(Limits { keep, ..limits(slots) });
    let waiters: Vec<WaiterKey> = (0..slots).map(|_| queue(&mut shard, A)).collect();
    for (connection, slot) in opens(&mut shard, now).into_iter().enumerate() {
        shard.handle_connected(slot, connection as u32);
    }
    for waiter in waiters {
        let grant = collect(&mut shard, waiter);
        release(&mut shard, grant);
    }
    notices(&mut shard);
    shard
}

fn pass(shard: &mut Shard, until: Instant) -> Vec<(SlotId, u32)> {
    let mut begun = Vec::new();
    while let Some(due) = shard.next_deadline().filter(|due| *due <= until) {
        shard.handle_upkeep(due);
        begun.extend(std::iter::from_fn(|| shard.poll_check()));
        shard.check_invariants();
    }
    begun
}

fn numbers(checks: &[(SlotId, u32)]) -> Vec<u32> {
    checks.iter().map(|(_, connection)| *connection).collect()
}

#[test]
fn what_was_idle_for_long_is_checked_and_what_was_used_is_not() {
    let now = Instant::now();
    let mut shard = checking(3, now);
    assert_eq!(pass(&mut shard, now + EVERY / 2), []);
    let grant = lease(&mut shard, A);
    release(&mut shard, grant);
    let checks = pass(&mut shard, now + EVERY + EVERY / 4);
    assert_eq!(numbers(&checks), [0, 1]);
    assert_eq!(shard.gauges().checking, 2);
    for (slot, connection) in checks {
        shard.handle_checked(slot, connection);
    }
    shard.check_invariants();
    // The order in which they were used is as it was.
    let order: Vec<u32> = (0..3).map(|_| lease(&mut shard, A).connection).collect();
    assert_eq!(order, [2, 1, 0]);
}

#[test]
fn a_check_is_repeated_after_as_long_again() {
    let now = Instant::now();
    let mut shard = checking(1, now);
    let mut since = now;
    for round in 1..=3 {
        assert_eq!(pass(&mut shard, since + EVERY - EVERY / 100), [], "round {round}");
        since += EVERY + EVERY / 4;
        let checks = pass(&mut shard, since);
        assert_eq!(numbers(&checks), [0], "round {round}");
        shard.handle_checked(checks[0].0, 0);
    }
}

#[test]
fn one_that_is_stuck_in_its_check_keeps_nobody_from_the_others() {
    let now = Instant::now();
    let mut shard = checking(2, now);
    let grant = lease(&mut shard, A);
    let stuck = pass(&mut shard, now + 2 * EVERY);
    assert_eq!(numbers(&stuck), [0]);
    release(&mut shard, grant);
    assert_eq!(lease(&mut shard, A).connection, 1);
    let waiter = queue(&mut shard, B);
    assert_eq!(opens(&mut shard, now + 2 * EVERY), [], "it still has its slot");
    shard.handle_checked(stuck[0].0, 0);
    assert_eq!(collect(&mut shard, waiter).connection, 0, "a waiter has it as soon as it passes");
    shard.check_invariants();
}

#[test]
fn one_that_fails_its_check_is_closed() {
    let now = Instant::now();
    let mut shard = checking(1, now);
    let checks = pass(&mut shard, now + 2 * EVERY);
    let waiter = queue(&mut shard, A);
    shard.handle_unhealthy(checks[0].0, 0, CloseReason::Unhealthy);
    let closing = closes(&mut shard);
    assert_eq!(closing, [(checks[0].0, 0, CloseReason::Unhealthy)]);
    shard.handle_closed(closing[0].0);
    let slot = opens(&mut shard, now)[0];
    shard.handle_connected(slot, 1);
    assert_eq!(collect(&mut shard, waiter).connection, 1);
    // A late word about the one that has gone does nothing.
    shard.handle_checked(checks[0].0, 0);
    shard.handle_unhealthy(checks[0].0, 0, CloseReason::Unhealthy);
    shard.check_invariants();
}

#[test]
fn no_more_are_checked_at_a_time_than_may_be_opened() {
    let now = Instant::now();
    let mut shard = checking(5, now);
    shard.max_connecting = 2;
    let first = pass(&mut shard, now + 2 * EVERY);
    assert_eq!(numbers(&first), [0, 1]);
    shard.handle_checked(first[1].0, first[1].1);
    assert_eq!(numbers(&Vec::from_iter(shard.poll_check())), [2]);
    shard.check_invariants();
}

#[test]
fn a_check_that_ends_after_the_pool_has_closed_closes_its_connection() {
    let now = Instant::now();
    let mut shard = checking(1, now);
    let checks = pass(&mut shard, now + 2 * EVERY);
    shard.drain_for_shutdown(Lifecycle::Closed);
    assert_eq!(shard.next_deadline(), None);
    shard.handle_checked(checks[0].0, 0);
    assert_eq!(closes(&mut shard), [(checks[0].0, 0, CloseReason::Shutdown)]);
    shard.check_invariants();
}

#[test]
fn a_pool_without_connections_has_nothing_to_check_and_no_timer() {
    let now = Instant::now();
    let mut shard = checking(1, now);
    let slot = shard.slots.newest_idle().expect("it is idle");
    shard.handle_evict(slot);
    closes(&mut shard);
    shard.handle_closed(slot);
    assert_eq!(pass(&mut shard, now + 2 * EVERY), []);
    assert_eq!(shard.next_deadline(), None);
}
