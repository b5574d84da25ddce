//! Refusing what cannot be served in time, and shedding what does not get served.

use proptest::prelude::{prop_assert, proptest};

use super::*;
use crate::pool::scheduler::Shedding;

fn patient(handle: HandleId, patience: Duration) -> Asker {
    Asker { patience: Patience::of(Some(patience)), ..asker(handle) }
}

fn exact(service_time: Option<Duration>) -> Overload {
    Overload { exact: true, service_time, ..Overload::default() }
}

fn try_queue(shard: &mut Shard, asker: Asker) -> Result<WaiterKey, Refusal> {
    match shard.handle_acquire(&asker, any, || Ticket { reply: 0, timeout: None }) {
        Admission::Queued(waiter) => Ok(waiter),
        Admission::Refused(refusal) => Err(refusal),
        Admission::Granted(grant) => panic!("{grant:?} for nobody"),
    }
}

/// One grant every `interval`, each at the end of a turn, with `backlog` waiting throughout.
fn serve_at_a_constant_rate(
    shard: &mut Shard,
    grant: &mut Option<Grant<u32>>,
    now: &mut Instant,
    interval: Duration,
    grants: usize,
) {
    for _ in 0..grants {
        *now += interval;
        release(shard, grant.take().unwrap());
        let told = notices(shard);
        *grant = Some(collect(shard, told[0]));
        shard.start_clocks(*now);
    }
}

#[test]
fn a_miss_is_foretold_exactly_at_the_boundary() {
    let (mut shard, _grants) = exhausted(Limits { overload: exact(Some(MS * 10)), ..limits(2) });
    for n in 0..4 {
        // Two are served in each round of 10 ms.
        assert!(try_queue(&mut shard, patient(HandleId(n), MS * 10 * (n as u32 / 2))).is_ok());
    }
    match try_queue(&mut shard, patient(A, MS * 20 - Duration::from_micros(1))) {
        Err(Refusal::WouldMiss { position, predicted }) => assert_eq!((position, predicted), (4, MS * 20)),
        other => panic!("expected to be refused, got {other:?}"),
    }
    assert_eq!((shard.counters().would_miss, shard.gauges().waiting), (1, 4));
    assert!(try_queue(&mut shard, patient(A, MS * 20)).is_ok());
    assert!(try_queue(&mut shard, asker(B)).is_ok(), "who has no deadline misses none");
    shard.check_invariants();
}

#[test]
fn the_position_of_a_newcomer_is_that_of_its_turn() {
    let (mut shard, _grant) = single(Limits { overload: exact(Some(MS)), ..round_robin(1) });
    for _ in 0..50 {
        try_queue(&mut shard, asker(A)).unwrap();
    }
    // Its first acquire comes second, the next one fourth.
    assert!(try_queue(&mut shard, patient(B, MS)).is_ok());
    assert!(matches!(try_queue(&mut shard, patient(B, MS * 2)), Err(Refusal::WouldMiss { position: 3, .. })));
}

#[test]
fn nobody_is_refused_before_a_rate_is_known() {
    let (mut shard, _grant) = single(Limits { overload: exact(None), ..limits(1) });
    for _ in 0..20 {
        assert!(try_queue(&mut shard, patient(A, Duration::ZERO)).is_ok());
    }
}

#[test]
fn nobody_is_refused_while_an_open_could_serve() {
    let now = Instant::now();
    let (mut shard, mut grants) = exhausted(Limits { overload: exact(Some(MS * 10)), ..limits(2) });
    try_queue(&mut shard, asker(A)).unwrap();
    try_queue(&mut shard, asker(A)).unwrap();
    assert!(try_queue(&mut shard, patient(B, MS)).is_err());
    shard.handle_lost(grants.remove(0).slot, CloseReason::Lost);
    assert!(try_queue(&mut shard, patient(B, MS)).is_ok(), "a slot is vacant");
    let opening = opens(&mut shard, now);
    assert!(try_queue(&mut shard, patient(B, MS)).is_ok(), "a connection is being opened");
    shard.handle_connected(opening[0], 7);
    assert!(try_queue(&mut shard, patient(B, MS)).is_err());
}

#[test]
fn the_rate_is_that_of_serving_and_not_of_idling() {
    let (mut shard, grant) = single(Limits { overload: exact(None), ..limits(1) });
    let (mut grant, mut now) = (Some(grant), Instant::now());
    for _ in 0..30 {
        try_queue(&mut shard, asker(A)).unwrap();
    }
    serve_at_a_constant_rate(&mut shard, &mut grant, &mut now, MS, 30);
    // Nobody waits for a while.
    now += MS * 500;
    for _ in 0..30 {
        try_queue(&mut shard, asker(A)).unwrap();
    }
    shard.start_clocks(now);
    serve_at_a_constant_rate(&mut shard, &mut grant, &mut now, MS, 10);
    match try_queue(&mut shard, patient(B, MS * 19)) {
        Err(Refusal::WouldMiss { position, predicted }) => assert_eq!((position, predicted), (20, MS * 20)),
        other => panic!("expected to be refused, got {other:?}"),
    }
}

#[test]
fn a_rate_that_is_long_past_is_forgotten() {
    let (mut shard, grant) = single(Limits { overload: exact(None), ..limits(1) });
    let (mut grant, mut now) = (Some(grant), Instant::now());
    for _ in 0..20 {
        try_queue(&mut shard, asker(A)).unwrap();
    }
    serve_at_a_constant_rate(&mut shard, &mut grant, &mut now, MS, 18);
    assert!(try_queue(&mut shard, patient(B, MS)).is_err());
    now += Duration::from_secs(2);
    shard.start_clocks(now);
    assert!(try_queue(&mut shard, patient(B, MS)).is_ok());
}

proptest! {
    #[test]
    fn nobody_is_refused_who_would_have_been_served_in_time_at_a_constant_rate(
        interval in 1_u32..50_000,
        backlog in 12_usize..40,
        offset in 0.0_f64..1.0,
        patience in 0_u32..2_000_000,
    ) {
        let interval = Duration::from_micros(interval.into());
        let (mut shard, grant) = single(Limits { overload: exact(None), ..limits(1) });
        let (mut grant, mut now) = (Some(grant), Instant::now());
        for _ in 0..backlog {
            try_queue(&mut shard, asker(A)).unwrap();
        }
        serve_at_a_constant_rate(&mut shard, &mut grant, &mut now, interval, 10);
        let ahead = shard.gauges().waiting as u32;
        let came = now + interval.mul_f64(offset);
        let served = now + interval * (ahead + 1);
        let patience = Duration::from_micros(patience.into());
        let verdict = try_queue(&mut shard, patient(B, patience));
        if came + patience >= served {
            prop_assert!(verdict.is_ok(), "{:?} though it is served {:?} before", verdict, came + patience - served);
        }
        // And who is admitted is at most one grant too late.
        if verdict.is_ok() {
            prop_assert!(came + patience + interval * 2 >= served);
        }
    }
}

const TARGET: Duration = Duration::from_millis(5);
const INTERVAL: Duration = Duration::from_millis(100);

fn shedding(handle: HandleId) -> Asker {
    under(handle, Rules { limit: None, shedding: Some(Shedding::new(TARGET, INTERVAL)) })
}

/// Serves one waiter every millisecond, and gives when those that were shed were so, in milliseconds.
fn serve_and_shed(shard: &mut Shard, mut grant: Grant<u32>, start: Instant, until: u32) -> Vec<u32> {
    let mut shed = Vec::new();
    for tick in 1..=until {
        let now = start + MS * tick;
        shard.tell_time(now);
        release(shard, grant);
        let mut next = None;
        for waiter in notices(shard) {
            match shard.take(waiter) {
                Taken::Granted(granted) => next = Some(granted),
                Taken::Refused(Refusal::Shed { waited }) => {
                    assert!(waited >= TARGET);
                    shed.push(tick);
                }
                other => panic!("{other:?}"),
            }
        }
        grant = next.expect("shedding leaves somebody to be served");
        shard.check_invariants();
    }
    shed
}

#[test]
fn a_standing_queue_is_shed_by_the_control_law() {
    let start = Instant::now();
    let (mut shard, grant) = single(Limits { max_waiters: 1000, ..limits(1) });
    for _ in 0..1000 {
        try_queue(&mut shard, shedding(A)).unwrap();
    }
    shard.start_clocks(start);
    let shed = serve_and_shed(&mut shard, grant, start, 500);
    // Above the target from 5 ms on, so the first goes at 105 ms; then after 100/sqrt(n) ms more each, rounded up to the
    // tick of a grant.
    let mut expected = Vec::new();
    let (mut at, mut count) = (105.0_f64, 1.0_f64);
    while at.ceil() <= 500.0 {
        expected.push(at.ceil() as u32);
        at += 100.0 / count.sqrt();
        count += 1.0;
    }
    assert_eq!(shed, expected);
    assert_eq!(shard.counters().shed, shed.len() as u64);
}

#[test]
fn a_burst_that_drains_within_the_interval_is_not_shed() {
    let start = Instant::now();
    let (mut shard, grant) = single(limits(1));
    for _ in 0..60 {
        try_queue(&mut shard, shedding(A)).unwrap();
    }
    shard.start_clocks(start);
    assert_eq!(serve_and_shed(&mut shard, grant, start, 60), [] as [u32; 0]);
}

#[test]
fn each_handle_has_its_own_queue_to_answer_for() {
    let start = Instant::now();
    let (mut shard, grant) = single(Limits { max_waiters: 1000, ..round_robin(1) });
    for _ in 0..500 {
        try_queue(&mut shard, shedding(A)).unwrap();
    }
    let mut others: Vec<_> = (0..30).map(|_| try_queue(&mut shard, asker(B)).unwrap()).collect();
    shard.start_clocks(start);
    assert!(!serve_and_shed(&mut shard, grant, start, 300).is_empty());
    others.retain(|waiter| !is_gone(&mut shard, *waiter));
    assert!(others.is_empty(), "who has no rule is served");
}

#[test]
fn who_is_alone_is_never_shed_and_nobody_after_the_queue_has_drained() {
    let start = Instant::now();
    let (mut shard, mut grant) = single(limits(1));
    for round in 0..20 {
        let now = start + MS * 1000 * round;
        let waiter = try_queue(&mut shard, shedding(A)).unwrap();
        shard.start_clocks(now);
        shard.tell_time(now + MS * 900);
        release(&mut shard, grant);
        grant = collect(&mut shard, waiter);
    }
    // A standing queue, which then empties by cancels: whoever comes next finds a new queue.
    let now = start + MS * 20_000;
    let waiters: Vec<_> = (0..4).map(|_| try_queue(&mut shard, shedding(A)).unwrap()).collect();
    shard.start_clocks(now);
    shard.tell_time(now + MS * 50);
    release(&mut shard, grant);
    grant = collect(&mut shard, waiters[0]);
    for waiter in &waiters[1..] {
        shard.handle_cancel(*waiter);
    }
    let later = now + MS * 200;
    let newcomers = [0; 2].map(|_| try_queue(&mut shard, shedding(A)).unwrap());
    shard.start_clocks(later);
    shard.tell_time(later + MS * 10);
    release(&mut shard, grant);
    collect(&mut shard, newcomers[0]);
    assert_eq!(shard.counters().shed, 0);
    shard.handle_deregister(A);
    assert!(!shard.has_claims(), "the handle's state goes with it");
}

#[test]
fn what_is_shed_leaves_the_connection_to_the_next() {
    let start = Instant::now();
    let (mut shard, grant) = single(limits(1));
    let waiters: Vec<_> = (0..40).map(|_| try_queue(&mut shard, shedding(A)).unwrap()).collect();
    shard.start_clocks(start);
    shard.tell_time(start + MS * 10);
    release(&mut shard, grant);
    let grant = collect(&mut shard, waiters[0]);
    shard.tell_time(start + MS * 200);
    let notice = shard.hand_over(grant.slot, grant.connection).unwrap();
    assert_eq!(notice.waiter, waiters[2]);
    assert!(matches!(collect_refusal(&mut shard, waiters[1]), Refusal::Shed { .. }));
    shard.check_invariants();
}

#[test]
fn the_last_waiter_of_a_standing_queue_is_served() {
    let start = Instant::now();
    let (mut shard, grant) = single(limits(1));
    let waiters: Vec<_> = (0..4).map(|_| try_queue(&mut shard, shedding(A)).unwrap()).collect();
    shard.start_clocks(start);
    shard.tell_time(start + MS * 10);
    release(&mut shard, grant);
    let grant = collect(&mut shard, waiters[0]);
    shard.tell_time(start + MS * 200);
    release(&mut shard, grant);
    assert_eq!(notices(&mut shard), [waiters[1], waiters[2]], "one was shed");
    let grant = collect(&mut shard, waiters[2]);
    // The next would be shed by now.
    shard.tell_time(start + MS * 400);
    release(&mut shard, grant);
    collect(&mut shard, waiters[3]);
    assert_eq!(shard.counters().shed, 1);
}
