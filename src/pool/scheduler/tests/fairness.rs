use super::*;

/// Hands the one connection round until nobody waits, and gives the order in which it was had.
fn serve_all(shard: &mut Shard, mut grant: Grant<u32>) -> Vec<WaiterKey> {
    let mut order = Vec::new();
    loop {
        release(shard, grant);
        shard.check_invariants();
        let Some(notice) = shard.poll_notice() else {
            return order;
        };
        order.push(notice.waiter);
        grant = collect(shard, notice.waiter);
    }
}

#[test]
fn fifo_grants_in_order_of_arrival() {
    let (mut shard, grant) = single(limits(1));
    let waiters: Vec<WaiterKey> = (0..20).map(|n| queue(&mut shard, HandleId(n % 3))).collect();
    assert_eq!(serve_all(&mut shard, grant), waiters);
}

#[test]
fn newcomer_never_overtakes_a_queued_waiter() {
    for limits in [limits(1), round_robin(1)] {
        let (mut shard, grant) = single(limits);
        let waiter = queue(&mut shard, A);
        release(&mut shard, grant);
        // The connection is on its way to the waiter, who has not collected it.
        let newcomer = queue(&mut shard, B);
        assert!(is_pending(&mut shard, newcomer));
        let grant = collect(&mut shard, waiter);
        // One who comes back at once stands behind the one who waited.
        let again = queue(&mut shard, A);
        assert_eq!(serve_all(&mut shard, grant), [newcomer, again]);
    }
}

#[test]
fn round_robin_interleaves_three_handles() {
    let (mut shard, grant) = single(round_robin(1));
    let a: Vec<WaiterKey> = (0..4).map(|_| queue(&mut shard, A)).collect();
    let b: Vec<WaiterKey> = (0..2).map(|_| queue(&mut shard, B)).collect();
    let d: Vec<WaiterKey> = (0..3).map(|_| queue(&mut shard, D)).collect();
    let expected = [a[0], b[0], d[0], a[1], b[1], d[1], a[2], d[2], a[3]];
    assert_eq!(serve_all(&mut shard, grant), expected);
}

#[test]
fn round_robin_starts_a_returning_handle_at_the_back() {
    let (mut shard, grant) = single(round_robin(1));
    let a1 = queue(&mut shard, A);
    let b: Vec<WaiterKey> = (0..2).map(|_| queue(&mut shard, B)).collect();
    release(&mut shard, grant);
    let grant = collect(&mut shard, a1);
    let a2 = queue(&mut shard, A);
    assert_eq!(serve_all(&mut shard, grant), [b[0], a2, b[1]]);
}

#[test]
fn round_robin_skips_a_handle_whose_waiters_all_cancelled() {
    let (mut shard, grant) = single(round_robin(1));
    let a = queue(&mut shard, A);
    let b: Vec<WaiterKey> = (0..2).map(|_| queue(&mut shard, B)).collect();
    let d = queue(&mut shard, D);
    shard.handle_cancel(b[0]);
    shard.handle_cancel(b[1]);
    assert_eq!(serve_all(&mut shard, grant), [a, d]);
}

#[test]
fn round_robin_keeps_the_turn_of_a_handle_whose_oldest_waiter_cancels() {
    let (mut shard, grant) = single(round_robin(1));
    let a: Vec<WaiterKey> = (0..2).map(|_| queue(&mut shard, A)).collect();
    let b = queue(&mut shard, B);
    shard.handle_cancel(a[0]);
    assert_eq!(serve_all(&mut shard, grant), [a[1], b]);
}

#[test]
fn one_handle_is_first_in_first_out_under_both_policies() {
    for limits in [limits(1), round_robin(1)] {
        let (mut shard, grant) = single(limits);
        let waiters: Vec<WaiterKey> = (0..9).map(|_| queue(&mut shard, A)).collect();
        assert_eq!(serve_all(&mut shard, grant), waiters);
    }
}

#[test]
fn ten_thousand_handles_that_came_and_went_leave_nothing_in_the_rotation() {
    let (mut shard, grant) = single(Limits { max_waiters: 1, ..round_robin(1) });
    for n in 0..10_000 {
        let waiter = queue(&mut shard, HandleId(n));
        shard.handle_cancel(waiter);
    }
    let waiter = queue(&mut shard, A);
    assert_eq!(serve_all(&mut shard, grant), [waiter]);
    shard.check_invariants();
}
