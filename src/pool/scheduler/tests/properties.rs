//! Long random runs.

use std::num::NonZeroU32;

use proptest::prelude::any;
use proptest::prelude::*;

use super::world::{Step, World};
use super::*;

fn handle() -> impl Strategy<Value = HandleId> {
    (0_u64..5).prop_map(HandleId)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => handle().prop_map(Step::Acquire),
        1 => handle().prop_map(Step::AcquireUnusable),
        6 => (handle(), 0_u32..12).prop_map(|(handle, ticks)| Step::AcquireUntil(handle, ticks)),
        5 => (0_usize..8).prop_map(Step::Cancel),
        2 => (0_usize..3).prop_map(Step::CancelGranted),
        1 => Just(Step::CancelHeldBack),
        2 => (0_usize..8).prop_map(Step::Look),
        6 => (0_usize..3).prop_map(Step::Take),
        1 => Just(Step::Forward),
        1 => handle().prop_map(Step::Deregister),
        8 => (0_usize..4).prop_map(Step::Release),
        2 => (0_usize..4).prop_map(Step::Discard),
        1 => (0_usize..4).prop_map(Step::Lose),
        1 => Just(Step::Evict),
        6 => Just(Step::Connected),
        2 => Just(Step::ConnectFailed),
        3 => Just(Step::Closed),
        3 => (0_u32..6).prop_map(Step::Advance),
        2 => (1_usize..6).prop_map(Step::Resize),
        1 => (0_usize..3).prop_map(Step::ExpireLeased),
        1 => Just(Step::ExpireIdle),
        1 => any::<bool>().prop_map(Step::Refresh),
        3 => any::<bool>().prop_map(Step::Checked),
        2 => any::<bool>().prop_map(Step::Block),
        1 => any::<bool>().prop_map(Step::Heed),
        1 => Just(Step::GiveUp),
        1 => Just(Step::LendIdle),
        1 => Just(Step::ServedElsewhere),
    ]
}

fn any_limits() -> impl Strategy<Value = Limits> {
    let fairness = prop_oneof![Just(Fairness::Fifo), Just(Fairness::RoundRobin)];
    let time = || prop::option::of((1_u64..20).prop_map(Duration::from_millis));
    let keep = (0_usize..3, time(), time(), time(), any::<u64>()).prop_map(
        |(min_idle, idle_timeout, max_lifetime, check_interval, seed)| Keep {
            min_idle,
            idle_timeout,
            max_lifetime,
            lifetime_jitter: 0.5,
            check_interval,
            seed,
        },
    );
    let breaker = prop::option::of(1_u32..4);
    (1_usize..5, 0_usize..10, 0_usize..4, fairness, keep, breaker).prop_map(
        |(slots, max_waiters, max_connecting, fairness, keep, breaker)| Limits {
            slots,
            max_waiters,
            max_connecting,
            fairness,
            backoff: Backoff { breaker, ..BACKOFF },
            keep,
            overload: Overload::default(),
        },
    )
}

proptest! {
    #[test]
    fn any_run_keeps_the_promises_and_comes_to_rest(
        limits in any_limits(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = World::new(limits);
        for step in steps {
            world.apply(step);
        }
        world.wind_up();
    }

    #[test]
    fn any_run_under_limits_keeps_the_promises_and_comes_to_rest(
        limits in any_limits(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        // Handle 0 is not limited, 1 has one lease, 2 has two, and so on.
        let mut world = World::limited(limits, |handle| NonZeroU32::new(handle.0 as u32));
        for step in steps {
            world.apply(step);
        }
        world.wind_up();
    }

    #[test]
    fn random_cancels_never_let_the_queue_exceed_its_bound(
        fairness in prop_oneof![Just(Fairness::Fifo), Just(Fairness::RoundRobin)],
        max_waiters in 0_usize..12,
        choices in prop::collection::vec((0_u8..4, handle(), any::<prop::sample::Index>()), 1..400),
    ) {
        let (mut shard, _grant) = single(Limits { fairness, max_waiters, ..limits(1) });
        let mut live: Vec<WaiterKey> = Vec::new();
        for (choice, handle, which) in choices {
            if choice == 0 && !live.is_empty() {
                let waiter = live.remove(which.index(live.len()));
                shard.handle_cancel(waiter);
            } else {
                let ticket = || Ticket { reply: 0, timeout: None };
                match shard.handle_acquire(&asker(handle), |_| true, ticket) {
                    Admission::Queued(waiter) => live.push(waiter),
                    // Refused exactly when the queue is full of the living.
                    other => {
                        let saturated = matches!(other, Admission::Refused(Refusal::Saturated { .. }));
                        prop_assert!(saturated && live.len() == max_waiters, "{:?}", other);
                    }
                }
            }
            prop_assert!(shard.gauges().waiting <= max_waiters);
            prop_assert_eq!(shard.gauges().waiting, live.len());
            shard.check_invariants();
        }
    }
}
