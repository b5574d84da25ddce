//! What is kept idle, what is closed for its age, and what replaces it.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn keeping(slots: usize, keep: Keep) -> Limits {
    Limits { keep, ..limits(slots) }
}

/// Opens whatever is wanted, and lets it succeed with these connections and those after them.
fn open_all(shard: &mut Shard, now: Instant, mut connection: u32) -> usize {
    let mut opened = 0;
    loop {
        let slots = opens(shard, now);
        if slots.is_empty() {
            shard.check_invariants();
            return opened;
        }
        opened += slots.len();
        for slot in slots {
            shard.handle_connected(slot, connection);
            connection += 1;
        }
    }
}

/// Lets the time pass until then, looking as often as the shard asks for it.
fn pass(shard: &mut Shard, until: Instant) {
    while let Some(due) = shard.next_deadline().filter(|due| *due <= until) {
        shard.handle_deadline(due);
        shard.handle_upkeep(due);
        shard.check_invariants();
        if shard.wants_open() && shard.next_deadline() == Some(due) {
            return;
        }
    }
}

fn close_all(shard: &mut Shard) -> Vec<(u32, CloseReason)> {
    let closed = closes(shard);
    closed.iter().for_each(|(slot, ..)| shard.handle_closed(*slot));
    closed.into_iter().map(|(_, connection, reason)| (connection, reason)).collect()
}

#[test]
fn nothing_is_opened_for_nobody_unless_some_are_to_be_kept() {
    let now = Instant::now();
    assert_eq!(opens(&mut fresh(limits(4)), now), []);
    let mut shard =
        fresh(Limits { max_connecting: 2, ..keeping(4, Keep { min_idle: 3, ..Keep::default() }) });
    assert!(!shard.is_warm());
    assert_eq!(opens(&mut shard, now).len(), 2, "no more at a time than may be");
    assert!(!shard.wants_open());
}

#[test]
fn as_many_are_kept_idle_as_are_to_be_and_no_more() {
    let now = Instant::now();
    let mut shard = fresh(keeping(4, Keep { min_idle: 2, ..Keep::default() }));
    assert_eq!(open_all(&mut shard, now, 0), 2);
    assert!(shard.is_warm());
    let first = lease(&mut shard, A);
    assert!(shard.wants_open(), "one is missing as soon as one is leased");
    assert_eq!(open_all(&mut shard, now, 2), 1);
    let (second, third) = (lease(&mut shard, A), lease(&mut shard, A));
    assert_eq!(open_all(&mut shard, now, 3), 1, "four slots in all");
    assert_eq!(shard.gauges().idle, 1);
    for grant in [first, second, third] {
        release(&mut shard, grant);
    }
    assert_eq!(open_all(&mut shard, now, 9), 0);
    assert_eq!(shard.gauges().idle, 4);
}

#[test]
fn opens_are_for_waiters_and_for_those_that_are_missing_together() {
    let now = Instant::now();
    let mut shard = fresh(keeping(8, Keep { min_idle: 2, ..Keep::default() }));
    let waiter = queue(&mut shard, A);
    let slots = opens(&mut shard, now);
    assert_eq!(slots.len(), 3);
    shard.handle_cancel(waiter);
    assert_eq!(opens(&mut shard, now), []);
    for (connection, slot) in slots.into_iter().enumerate() {
        shard.handle_connected(slot, connection as u32);
    }
    assert_eq!(shard.gauges().idle, 3);
    shard.check_invariants();
}

#[test]
fn a_queue_of_no_places_serves_what_is_kept_idle() {
    let now = Instant::now();
    let mut shard = fresh(Limits { max_waiters: 0, ..keeping(2, Keep { min_idle: 1, ..Keep::default() }) });
    assert!(matches!(refusal(&mut shard, A), Refusal::Saturated { limit: 0 }));
    open_all(&mut shard, now, 0);
    let grant = lease(&mut shard, A);
    open_all(&mut shard, now, 1);
    assert_eq!((grant.connection, lease(&mut shard, A).connection), (0, 1));
}

#[test]
fn what_is_missing_is_tried_again_after_the_pause_and_not_before() {
    let now = Instant::now();
    let mut shard = fresh(keeping(2, Keep { min_idle: 1, ..Keep::default() }));
    let slot = opens(&mut shard, now)[0];
    shard.handle_connect_failed(slot, refused(), now);
    assert_eq!(opens(&mut shard, now), []);
    let until = shard.next_deadline().expect("one is still missing");
    assert_eq!(open_all(&mut shard, until, 0), 1);
    assert_eq!(shard.next_deadline(), None);
}

#[test]
fn an_idle_connection_is_closed_between_its_time_and_a_quarter_more() {
    let begun = Instant::now();
    for offset in 0..40 {
        let mut shard = fresh(keeping(1, Keep { idle_timeout: Some(SECOND), ..Keep::default() }));
        let waiter = queue(&mut shard, A);
        open_all(&mut shard, begun, 0);
        let grant = collect(&mut shard, waiter);
        // The lease lasts long past the time, and ends anywhere between two ticks.
        let idle_since = begun + 3 * SECOND + MS * offset * 7;
        pass(&mut shard, idle_since);
        assert!(!shard.has_output(), "a leased connection is not idle");
        release(&mut shard, grant);
        pass(&mut shard, idle_since + SECOND - MS / 1000);
        assert!(!shard.has_output(), "not before its time");
        pass(&mut shard, idle_since + SECOND + SECOND / 4);
        assert_eq!(close_all(&mut shard), [(0, CloseReason::Idle)]);
        pass(&mut shard, idle_since + 2 * SECOND);
        assert_eq!(shard.next_deadline(), None, "nothing is left to look after");
    }
}

#[test]
fn the_longest_idle_go_first_and_those_to_be_kept_never() {
    let begun = Instant::now();
    let keep = Keep { min_idle: 2, idle_timeout: Some(SECOND), ..Keep::default() };
    let mut shard = fresh(keeping(5, keep));
    let waiters: Vec<WaiterKey> = (0..5).map(|_| queue(&mut shard, A)).collect();
    open_all(&mut shard, begun, 0);
    for waiter in waiters {
        let grant = collect(&mut shard, waiter);
        release(&mut shard, grant);
    }
    for beat in 1..=20 {
        // One of them is used all the time.
        pass(&mut shard, begun + SECOND / 4 * beat);
        let grant = lease(&mut shard, B);
        assert_eq!(grant.connection, 4);
        release(&mut shard, grant);
    }
    assert_eq!(
        close_all(&mut shard).iter().map(|(connection, _)| *connection).collect::<Vec<_>>(),
        [0, 1, 2]
    );
    assert_eq!(shard.gauges().idle, 2);
    assert_eq!((shard.next_deadline(), shard.wants_open()), (None, false), "no churn, and no timer");
    assert_eq!(shard.counters().opens, 5);
}

#[test]
fn the_timer_starts_again_with_the_first_connection_too_many() {
    let begun = Instant::now();
    let keep = Keep { min_idle: 1, idle_timeout: Some(SECOND), ..Keep::default() };
    let mut shard = fresh(keeping(3, keep));
    for round in 0..3 {
        let now = begun + 10 * SECOND * round;
        open_all(&mut shard, now, 10 * round);
        assert_eq!(shard.next_deadline(), None);
        let kept = lease(&mut shard, A);
        open_all(&mut shard, now, 10 * round + 1);
        assert!(shard.next_deadline().is_some());
        release(&mut shard, kept);
        pass(&mut shard, now + 2 * SECOND);
        assert_eq!(close_all(&mut shard).len(), 1);
        pass(&mut shard, now + 3 * SECOND);
        assert_eq!((shard.gauges().idle, shard.next_deadline()), (1, None));
    }
}

fn mortal(jitter: f64, min_idle: usize) -> Keep {
    Keep { max_lifetime: Some(100 * SECOND), lifetime_jitter: jitter, min_idle, ..Keep::default() }
}

#[test]
fn lifetimes_are_spread_as_the_jitter_says() {
    let now = Instant::now();
    for jitter in [0.0, 0.1, 0.5, 1.0] {
        let mut shard = fresh(keeping(1000, Keep { seed: 7, ..mortal(jitter, 0) }));
        shard.max_connecting = 1000;
        let waiters: Vec<WaiterKey> = (0..64).map(|_| queue(&mut shard, A)).collect();
        let mut ages = Vec::new();
        for waiter in waiters {
            open_all(&mut shard, now, 0);
            collect(&mut shard, waiter);
        }
        while let Some(due) = shard.next_deadline() {
            ages.push((due - now).as_secs_f64());
            shard.handle_upkeep(due);
        }
        let shortest = 100.0 * (1.0 - jitter);
        assert!(ages.iter().all(|age| (shortest - 0.001..=100.001).contains(age)), "{jitter}: {ages:?}");
        let (least, most) = (ages[0], ages[ages.len() - 1]);
        assert!(most - least >= 0.8 * (100.0 - shortest), "{jitter}: from {least} to {most}");
    }
}

#[test]
fn an_expired_lease_is_the_connections_last_and_is_not_broken() {
    let now = Instant::now();
    let mut shard = fresh(keeping(1, mortal(0.0, 0)));
    let waiter = queue(&mut shard, A);
    open_all(&mut shard, now, 0);
    let grant = collect(&mut shard, waiter);
    pass(&mut shard, now + 100 * SECOND);
    assert!(!shard.has_output());
    assert_eq!(shard.gauges().leased, 1);
    let (slot, next) = (grant.slot, queue(&mut shard, B));
    assert_eq!(shard.release_idle(slot, 0), Some(0), "the hot path leaves it to the other");
    assert_eq!(shard.hand_over(slot, 0).err(), Some(0));
    release(&mut shard, grant);
    assert_eq!(close_all(&mut shard), [(0, CloseReason::Expired)]);
    open_all(&mut shard, now, 1);
    assert_eq!(collect(&mut shard, next).connection, 1);
    shard.check_invariants();
}

#[test]
fn a_grant_that_expires_before_it_is_collected_is_good_for_one_lease() {
    let now = Instant::now();
    let mut shard = fresh(keeping(1, mortal(0.0, 0)));
    let waiter = queue(&mut shard, A);
    open_all(&mut shard, now, 0);
    pass(&mut shard, now + 100 * SECOND);
    let grant = collect(&mut shard, waiter);
    shard.check_invariants();
    release(&mut shard, grant);
    assert_eq!(close_all(&mut shard), [(0, CloseReason::Expired)]);

    let waiter = queue(&mut shard, A);
    open_all(&mut shard, now, 1);
    pass(&mut shard, now + 100 * SECOND);
    shard.handle_cancel(waiter);
    assert_eq!(close_all(&mut shard), [(1, CloseReason::Expired)]);
    shard.check_invariants();
}

#[test]
fn an_expired_connection_that_would_be_missed_is_used_until_it_is_replaced() {
    let now = Instant::now();
    let late = now + 101 * SECOND;
    let mut shard = fresh(keeping(2, mortal(0.0, 1)));
    open_all(&mut shard, now, 0);
    pass(&mut shard, late);
    assert!(!shard.has_output(), "there is no other");
    let slot = opens(&mut shard, late)[0];
    let old = lease(&mut shard, A);
    assert_eq!(old.connection, 0, "usable until then");
    assert_eq!(shard.release_idle(old.slot, old.connection), None);
    shard.handle_connect_failed(slot, refused(), late);
    assert_eq!(shard.gauges().idle, 1, "a failed replacement costs nothing");
    let again = shard.next_deadline().expect("the replacement is tried again");
    let slot = opens(&mut shard, again)[0];
    shard.handle_connected(slot, 1);
    assert_eq!(close_all(&mut shard), [(0, CloseReason::Expired)]);
    assert_eq!(lease(&mut shard, A).connection, 1);
    shard.check_invariants();
}

#[test]
fn an_expired_connection_that_is_leased_when_its_replacement_comes_goes_after_that_lease() {
    let now = Instant::now();
    let late = now + 101 * SECOND;
    let mut shard = fresh(keeping(2, mortal(0.0, 1)));
    open_all(&mut shard, now, 0);
    pass(&mut shard, late);
    let slot = opens(&mut shard, late)[0];
    let old = lease(&mut shard, A);
    shard.handle_connected(slot, 1);
    assert!(!shard.has_output());
    assert_eq!(shard.release_idle(old.slot, old.connection), Some(0));
    release(&mut shard, old);
    assert_eq!(close_all(&mut shard), [(0, CloseReason::Expired)]);
    shard.check_invariants();
}

#[test]
fn without_a_slot_for_replacements_expired_connections_go_one_by_one() {
    let now = Instant::now();
    let mut shard = fresh(keeping(3, mortal(0.0, 3)));
    open_all(&mut shard, now, 0);
    let late = now + 101 * SECOND;
    pass(&mut shard, late);
    for expected in 0..3 {
        assert_eq!(shard.gauges().idle, 2, "the others stay meanwhile");
        assert_eq!(close_all(&mut shard).len(), 1, "number {expected}");
        open_all(&mut shard, late, 10 + expected);
    }
    assert_eq!((shard.gauges().idle, shard.has_output()), (3, false));
    assert_eq!(shard.counters().closed_for(CloseReason::Expired), 3);
}

#[test]
fn a_stopped_shard_waits_for_no_time() {
    let now = Instant::now();
    let keep = Keep { idle_timeout: Some(SECOND), ..mortal(0.1, 1) };
    let mut shard = fresh(keeping(3, keep));
    let waiter = queue(&mut shard, A);
    open_all(&mut shard, now, 0);
    let grant = collect(&mut shard, waiter);
    shard.drain_for_shutdown(Lifecycle::Closed);
    assert_eq!((shard.next_deadline(), shard.wants_open()), (None, false));
    release(&mut shard, grant);
    close_all(&mut shard);
    assert!(shard.is_quiet());
    shard.check_invariants();
}
