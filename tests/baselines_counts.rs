//! What each design of the ownership baselines spawns, calls and allocates, exactly, whatever the machine.
#![cfg(all(feature = "pool", feature = "service"))]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

#[path = "../benches/common/mod.rs"]
mod common;
#[path = "../benches/ownership/mod.rs"]
mod ownership;
mod support;

use std::rc::Rc;
use std::time::Duration;

use corelet::pool::Fairness;
use corelet::service::push::Priority;
use ownership::connection::{self, Borrowed, Cancel, FRAMES, Source, World};
use ownership::counts::Counter;
use ownership::pool::actor::Actor;
use ownership::pool::cloned_graph::ClonedGraph;
use ownership::pool::spawn_on_demand::SpawnOnDemand;
use ownership::pool::{self, Phases, Subject};
use ownership::push::{self, CoreOwned, MutexShared};
use ownership::startup::{self, FactoryPerConnection, MIDDLEWARE, PreparedOnce, ROUTES};
use support::watched;

const OPERATIONS: u64 = 1_000;
const POLICIES: [Fairness; 2] = [Fairness::Fifo, Fairness::RoundRobin];

/// Runs a scenario on a core of its own.
fn on_core<F: Future<Output: 'static> + 'static>(scenario: impl FnOnce() -> F) -> F::Output {
    common::core(Duration::ZERO).block_on(scenario()).unwrap()
}

fn uncontended<S: Subject>() {
    for slots in [1, 4, 16] {
        let counts = on_core(|| pool::count_uncontended::<S>(slots, OPERATIONS));
        counts
            .expect(Counter::TasksSpawned, OPERATIONS * S::TASKS_PER_LEASE)
            .expect(Counter::CapacityWaits, 0);
        if S::TASKS_PER_LEASE == 0 {
            counts.expect_allocations(0);
        } else {
            // Each task is one, and each reply.
            assert!(counts.allocations >= OPERATIONS * (S::TASKS_PER_LEASE + 1), "{counts:?}");
        }
    }
}

#[test]
fn an_uncontended_lease_spawns_and_allocates_nothing_unless_it_is_served_on_demand() {
    watched(|| {
        uncontended::<Actor>();
        uncontended::<ClonedGraph<Actor>>();
        uncontended::<SpawnOnDemand>();
    });
}

fn contended<S: Subject>() {
    for fairness in POLICIES {
        let counts = on_core(|| pool::count_contended::<S>(4, fairness, OPERATIONS));
        counts.expect(Counter::TasksSpawned, OPERATIONS * S::TASKS_PER_LEASE);
        assert!(counts.of(Counter::CapacityWaits) >= 1, "nobody waited, so nothing was contended");
        let latency = on_core(|| pool::latency_contended::<S>(4, fairness, OPERATIONS));
        assert_eq!(latency.len(), OPERATIONS, "each acquire is in the distribution");
        assert!(latency.at(100.0) >= latency.at(50.0));
    }
}

#[test]
fn a_contended_pool_is_seen_to_be_contended() {
    watched(|| {
        contended::<Actor>();
        contended::<ClonedGraph<Actor>>();
        contended::<SpawnOnDemand>();
    });
}

/// The order in which the tasks of two handles are served while one lease is out.
fn order<S: Subject>(fairness: Fairness) -> Vec<u32> {
    on_core(|| async move {
        let pool = pool::open::<S>(1, fairness).await;
        let handles = [Rc::new(pool.handle()), Rc::new(pool.handle())];
        let out = S::acquire(&handles[0]).await;
        let served = Rc::new(std::cell::RefCell::new(Vec::new()));
        let mut tasks = Vec::new();
        for (name, handle) in [(1, 0), (2, 0), (3, 0), (4, 1)] {
            let (handle, served) = (Rc::clone(&handles[handle]), Rc::clone(&served));
            tasks.push(corelet::runtime::spawn(async move {
                let lease = S::acquire(&handle).await;
                served.borrow_mut().push(name);
                corelet::runtime::yield_now().await;
                drop(lease);
            }));
        }
        pool::settle().await;
        drop(out);
        for task in tasks {
            task.await.unwrap();
        }
        served.take()
    })
}

#[test]
fn all_pools_keep_the_same_order() {
    watched(|| {
        let expected = [(Fairness::Fifo, [1, 2, 3, 4]), (Fairness::RoundRobin, [1, 4, 2, 3])];
        for (fairness, expected) in expected {
            let orders = [
                order::<Actor>(fairness),
                order::<ClonedGraph<Actor>>(fairness),
                order::<SpawnOnDemand>(fairness),
            ];
            for order in orders {
                assert_eq!(order, expected, "{fairness:?}");
            }
        }
    });
}

fn life<S: Subject>(schedulers: u64) -> Phases {
    let phases = on_core(|| pool::phases::<S>(4, OPERATIONS));
    phases
        .construction
        .expect(Counter::TasksSpawned, schedulers)
        .expect(Counter::SchedulerSpawns, schedulers);
    phases
        .acquisition
        .expect(Counter::TasksSpawned, OPERATIONS * S::TASKS_PER_LEASE)
        .expect(Counter::SchedulerSpawns, 0);
    phases.close.expect(Counter::LiveTasks, 0);
    phases
}

#[test]
fn a_pool_spawns_its_scheduler_when_it_is_made_and_nothing_after_that() {
    watched(|| {
        life::<Actor>(1);
        life::<ClonedGraph<Actor>>(1);
        life::<SpawnOnDemand>(0);
    });
}

#[test]
fn two_shards_have_two_schedulers_from_the_first_to_the_last_acquire() {
    support::on_cores(2, async |runtime, cores| {
        let spawned = async || {
            let mut spawned = 0;
            for core in &cores {
                let stats = runtime.spawn_on(*core, || async { corelet::runtime::core_stats().unwrap() });
                spawned += stats.unwrap().await.unwrap().executor.spawned;
            }
            spawned
        };
        let pool = common::numbers(&runtime, 4, Fairness::Fifo);
        support::poll_until(async || pool.stats().await.sum(|shard| shard.scheduler_spawns) == 2).await;
        let shards = pool.stats().await.shards;
        assert!(shards.iter().all(|shard| shard.scheduler_spawns == 1), "{shards:?}");
        // What asking spawns is the same each time.
        let (first, second) = (spawned().await, spawned().await);
        pool::uncontended::<Actor>(&pool.handle(), OPERATIONS).await;
        assert_eq!(spawned().await - second, second - first, "tasks spawned on both cores");
        assert_eq!(pool.stats().await.sum(|shard| shard.scheduler_spawns), 2);
        pool.close().await;
    });
}

#[test]
fn a_cloned_graph_allocates_when_a_pool_is_made_and_not_for_a_lease() {
    watched(|| {
        let [borrowed, cloned] = [life::<Actor>(1), life::<ClonedGraph<Actor>>(1)];
        let added = ClonedGraph::<Actor>::allocations_added(4).unwrap();
        assert_eq!(added, 10, "two for the pool and two for each of four slots");
        cloned.construction.expect_allocations(borrowed.construction.allocations + added);
        cloned.acquisition.expect_allocations(borrowed.acquisition.allocations);
    });
}

fn frames<S: connection::Subject>() -> u64 {
    for (source, cancel) in [
        (Source::Pushes, Cancel::Never),
        (Source::Pushes, Cancel::Triggered),
        (Source::Requests, Cancel::Never),
    ] {
        let (counts, mut sent) = on_core(|| async move {
            let world = World::<S>::new(source, cancel);
            (world.count().await, world.sent())
        });
        counts.expect(Counter::FramesQueued, FRAMES).expect(Counter::FramesSent, FRAMES);
        sent.sort_unstable();
        assert!(sent.into_iter().eq(0..FRAMES), "{source:?}, {cancel:?}: each frame once");
    }
    on_core(|| async { World::<S>::new(Source::Pushes, Cancel::Never).count_whole().await })
}

#[test]
fn all_that_is_queued_is_sent_whether_a_connection_is_cancelled_or_not() {
    watched(|| {
        let borrowed = frames::<Borrowed>();
        let cloned = frames::<connection::ClonedGraph>();
        let added = <connection::ClonedGraph as connection::Subject>::ALLOCATIONS_ADDED;
        assert_eq!(cloned - borrowed, added, "allocations of a connection with a graph of its own");
    });
}

#[test]
fn cloning_ownership_allocates_nothing_for_a_frame() {
    watched(|| {
        let count = |count: connection_count::Count| on_core(count);
        let [borrowed, cloned] = connection_count::BOTH.map(count);
        assert_eq!(borrowed, cloned);
    });
}

mod connection_count {
    use super::*;

    pub type Count = fn() -> std::pin::Pin<Box<dyn Future<Output = u64>>>;

    fn pushes<S: connection::Subject>() -> std::pin::Pin<Box<dyn Future<Output = u64>>> {
        Box::pin(async { World::<S>::new(Source::Pushes, Cancel::Never).count().await.allocations })
    }

    pub const BOTH: [Count; 2] = [pushes::<Borrowed>, pushes::<connection::ClonedGraph>];
}

fn queues<S: push::Subject>() {
    for priority in [Priority::High, Priority::Low] {
        let (drained, refused) = on_core(|| async move {
            let drained = |limited| push::count_draining(&mut S::new(limited), priority, OPERATIONS);
            ([drained(false), drained(true)], push::count_refused(&S::new(false), priority, OPERATIONS))
        });
        for drained in drained {
            drained.expect_allocations(0).expect(Counter::TasksSpawned, 0);
        }
        refused.expect_allocations(0).expect(Counter::PushesRefused, OPERATIONS);
    }
}

#[test]
fn a_push_allocates_nothing_and_a_full_queue_gives_each_frame_back() {
    watched(|| {
        queues::<CoreOwned>();
        queues::<MutexShared>();
    });
}

fn startups<S: startup::Subject>(connections: u64) {
    for counts in [
        on_core(|| startup::count_set_up::<S>(ROUTES, connections)),
        on_core(|| startup::count_loopback::<S>(connections)),
    ] {
        let calls = S::factory_calls(connections);
        counts
            .expect(Counter::FactoryCalls, calls)
            .expect(Counter::ApplicationsPrepared, calls)
            .expect(Counter::MiddlewareTransformations, calls * ROUTES * MIDDLEWARE);
    }
}

#[test]
fn the_factory_is_called_once_or_for_each_connection_and_wraps_each_route_each_time() {
    watched(|| {
        for connections in [1, 20] {
            startups::<PreparedOnce>(connections);
            startups::<FactoryPerConnection>(connections);
        }
    });
}

#[test]
fn a_connection_to_a_prepared_application_allocates_the_same_whatever_the_routes() {
    watched(|| {
        let allocations = |routes| {
            let few = on_core(move || startup::count_set_up::<PreparedOnce>(routes, 10)).allocations;
            let many = on_core(move || startup::count_set_up::<PreparedOnce>(routes, 110)).allocations;
            assert_eq!((many - few) % 100, 0, "each allocates the same");
            (many - few) / 100
        };
        assert_eq!(allocations(1), allocations(ROUTES));
        let built =
            |routes| on_core(move || startup::count_set_up::<FactoryPerConnection>(routes, 10)).allocations;
        assert!(built(ROUTES) > built(1) + 10 * (ROUTES - 1), "each route is an allocation at least");
    });
}
