//! What is measured of waits and leases.

use super::*;

/// A shard with one lease, and nothing to measure.
fn measured_single() -> (Shard, Grant<u32>) {
    let overload = Overload { detailed_waits: true, ..Overload::default() };
    let (mut shard, grant) = single(Limits { overload, ..limits(1) });
    measured(&mut shard, Instant::now());
    (shard, grant)
}

fn measured(shard: &mut Shard, now: Instant) -> Vec<(u64, Duration, u32)> {
    let mut waits = Vec::new();
    shard.measure_waits(now, Duration::ZERO, &mut waits);
    waits.iter().map(|wait| (wait.handle.0, wait.waited, wait.position)).collect()
}

#[test]
fn a_wait_lasts_from_the_end_of_its_turn_to_that_of_its_service() {
    let start = Instant::now();
    let (mut shard, grant) = measured_single();
    let served_before = shard.waits().count();
    let first = queue_until(&mut shard, A, start, None);
    let second = queue_until(&mut shard, B, start, None);
    release(&mut shard, grant);
    let grant = collect(&mut shard, first);
    assert!(shard.has_unmeasured());
    assert_eq!(measured(&mut shard, start + MS * 3), [(A.0, MS * 3, 0)]);
    assert!(!shard.has_unmeasured());
    release(&mut shard, grant);
    let notice = shard.poll_notice().unwrap();
    assert!(shard.collect(notice.waiter).is_some());
    assert_eq!(measured(&mut shard, start + MS * 8), [(B.0, MS * 8, 1)]);
    assert!(is_gone(&mut shard, second));
    assert_eq!((shard.waits().count() - served_before, shard.waits().max()), (2, MS * 8));
}

#[test]
fn who_is_served_within_its_turn_costs_no_clock_and_counts_as_no_wait() {
    let (mut shard, grant) = measured_single();
    let before = shard.waits().clone();
    let waiter = match shard.handle_acquire(&asker(A), any, || Ticket { reply: 0, timeout: None }) {
        Admission::Queued(waiter) => waiter,
        other => panic!("{other:?}"),
    };
    release(&mut shard, grant);
    collect(&mut shard, waiter);
    assert!(!shard.has_unmeasured());
    assert_eq!((shard.waits().count(), shard.waits().sum()), (before.count() + 1, before.sum()));
}

#[test]
fn a_lease_is_told_of_once_and_never_early() {
    let start = Instant::now();
    let overload = Overload { leak_after: Some(MS * 100), ..Overload::default() };
    let mut shard = filled(Limits { overload, ..limits(2) });
    let look = |shard: &mut Shard, at: Duration| {
        let mut leaks = Vec::new();
        let any = shard.look_for_leaks(start + at, &mut leaks);
        (any, leaks.iter().map(|leak| (leak.handle, leak.age)).collect::<Vec<_>>())
    };
    assert_eq!(look(&mut shard, Duration::ZERO), (false, vec![]));
    let grant = lease(&mut shard, A);
    assert_eq!(look(&mut shard, MS * 10), (true, vec![]));
    assert_eq!(look(&mut shard, MS * 109), (true, vec![]));
    assert_eq!(look(&mut shard, MS * 110), (true, vec![(A, MS * 100)]));
    assert_eq!(look(&mut shard, MS * 500), (true, vec![]));
    release(&mut shard, grant);
    assert_eq!(look(&mut shard, MS * 600), (false, vec![]));
    // The slot's next lease is another one.
    let grant = lease(&mut shard, B);
    assert_eq!(look(&mut shard, MS * 601), (true, vec![]));
    release(&mut shard, grant);
    let _grant = lease(&mut shard, D);
    assert_eq!(look(&mut shard, MS * 702), (true, vec![]));
    assert_eq!(look(&mut shard, MS * 802), (true, vec![(D, MS * 100)]));
}

#[test]
fn a_lease_after_a_wait_is_watched_too() {
    let start = Instant::now();
    let overload = Overload { leak_after: Some(MS), ..Overload::default() };
    let (mut shard, grant) = single(Limits { overload, ..limits(1) });
    let waiter = queue(&mut shard, B);
    release(&mut shard, grant);
    let notice = shard.poll_notice().unwrap();
    assert_eq!(notice.waiter, waiter);
    let _connection = shard.collect(waiter).unwrap();
    let mut leaks = Vec::new();
    shard.look_for_leaks(start, &mut leaks);
    shard.look_for_leaks(start + MS, &mut leaks);
    assert_eq!(leaks.iter().map(|leak| leak.handle).collect::<Vec<_>>(), [B]);
}
