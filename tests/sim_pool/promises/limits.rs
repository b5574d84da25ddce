//! One limit over all cores, and acquires that go elsewhere: capacity goes where it is asked for, in bounded time, and
//! does not go back and forth.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corelet::pool::{Affinity, PoolStats};
use corelet::runtime::RemoteJoinHandle;
use futures_util::future::join_all;

use super::*;

/// Longer than a core may keep others without any connection, with the time for a few closes and opens.
const TURN: Duration = Duration::from_millis(40);

fn rebalanced(stats: &PoolStats) -> u64 {
    stats.sum(|shard| shard.closed_for(CloseReason::Rebalanced))
}

fn connections(stats: &PoolStats) -> usize {
    stats.shards.iter().map(|shard| shard.connections()).sum()
}

impl Scene {
    /// Starts `count` tasks on each of the given cores that acquire, use and release as fast as they can.
    fn keep_busy(&self, pool: &Pool<TcpConnector>, cores: &[usize], count: usize) -> Busy {
        let rounds: Vec<_> = cores.iter().map(|_| Arc::new(AtomicUsize::new(0))).collect();
        let tasks = cores.iter().zip(&rounds).flat_map(|(core, rounds)| {
            (0..count).map(|_| {
                let (pool, rounds) = (pool.clone(), Arc::clone(rounds));
                let work = move || async move {
                    let handle = pool.handle();
                    loop {
                        let mut lease = handle.acquire().await.unwrap();
                        works(&mut lease, 5).await;
                        drop(lease);
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                };
                self.runtime.spawn_on(self.cores[*core], work).unwrap()
            })
        });
        Busy { _tasks: tasks.collect(), rounds }
    }
}

/// Tasks that work until they are dropped, and how often they have been served, by core.
struct Busy {
    _tasks: Vec<RemoteJoinHandle<()>>,
    rounds: Vec<Arc<AtomicUsize>>,
}

#[test]
fn a_hot_core_gets_all_that_a_cold_one_does_not_use() {
    play(echo, |scene| async move {
        let pool = scene.pool().slots_per_core(4).max_connections(4).build(&scene.runtime).unwrap();
        let cold = pool.handle_on(scene.cores[1]).unwrap();
        drop(join_all((0..4).map(|_| cold.acquire())).await);
        sleep(SETTLED).await;
        assert_eq!(shard(&pool, 1).await.idle, 4);
        let hot = pool.handle();
        let begun = now();
        let leases = timeout(PATIENCE, join_all((0..4).map(|_| hot.acquire()))).await.unwrap();
        assert!(now() - begun < TURN, "after {:?}", now() - begun);
        assert!(leases.iter().all(Result::is_ok));
        let stats = pool.stats().await;
        assert_eq!((rebalanced(&stats), connections(&stats)), (4, 4), "{stats:?}");
        assert_eq!((stats.shards[0].credits, stats.shards[1].credits), (4, 0), "{stats:?}");
        pool.close().await;
    });
}

#[test]
fn a_cold_core_waits_for_a_bounded_time_however_busy_the_hot_one_is() {
    // Fewer connections than cores; one each; and more than that.
    for limit in [1, 2, 3] {
        play(echo, move |scene| async move {
            let pool = scene.pool().slots_per_core(4).max_connections(limit).build(&scene.runtime).unwrap();
            let busy = scene.keep_busy(&pool, &[1], 6);
            sleep(SETTLED).await;
            for _ in 0..2 {
                let begun = now();
                let mut lease = timeout(PATIENCE, pool.acquire()).await.unwrap().unwrap();
                assert!(now() - begun < TURN, "after {:?}", now() - begun);
                works(&mut lease, 1).await;
                drop(lease);
                assert!(connections(&pool.stats().await) <= limit);
                // Long enough to lose it again, if there is but one.
                sleep(SETTLED).await;
            }
            let served = busy.rounds[0].load(Ordering::Relaxed);
            assert!(served > 100, "the hot core goes on: {served}");
            drop(busy);
            assert_whole(&pool).await;
            pool.close().await;
        });
    }
}

#[test]
fn cores_that_are_equally_busy_share_and_leave_each_other_alone() {
    for (limit, tasks) in [(4, 3), (5, 3)] {
        play(echo, move |scene| async move {
            let pool = scene.pool().slots_per_core(6).max_connections(limit).build(&scene.runtime).unwrap();
            let busy = scene.keep_busy(&pool, &[0, 1], tasks);
            sleep(SETTLED).await;
            let before = rebalanced(&pool.stats().await);
            sleep(SETTLED).await;
            let stats = pool.stats().await;
            let (moved, held) = (rebalanced(&stats) - before, [&stats.shards[0], &stats.shards[1]]);
            assert!(moved <= 2, "{moved} connections moved, limit {limit}, {tasks} tasks: {stats:?}");
            assert!(held.iter().all(|shard| shard.credits <= limit.div_ceil(2)), "{stats:?}");
            let [one, other] = [0, 1].map(|core| busy.rounds[core].load(Ordering::Relaxed));
            assert!(one > other / 3 && other > one / 3, "served {one} and {other} times");
            drop(busy);
            pool.close().await;
        });
    }
}

#[test]
fn short_gaps_in_the_work_of_two_cores_have_them_take_nothing_from_each_other() {
    play(echo, |scene| async move {
        let pool = scene.pool().slots_per_core(2).max_connections(2).build(&scene.runtime).unwrap();
        let mut tasks = Vec::new();
        for core in &scene.cores {
            let theirs = pool.clone();
            // Two at a time on each core, with one connection for each, and then a rest.
            let work = move || async move {
                let handle = theirs.handle();
                let end = now() + 4 * SETTLED;
                while now() < end {
                    let once = || async {
                        works(&mut handle.acquire().await.unwrap(), 3).await;
                    };
                    futures_util::future::join(once(), once()).await;
                    sleep(Duration::from_micros(500)).await;
                }
            };
            tasks.push(scene.runtime.spawn_on(*core, work).unwrap());
        }
        for task in tasks {
            task.await.unwrap();
        }
        let stats = pool.stats().await;
        let waits = stats.sum(|shard| shard.capacity_waits);
        assert!(waits > 60 && rebalanced(&stats) <= 4, "{stats:?}");
        pool.close().await;
    });
}

#[test]
fn cores_that_take_turns_cost_a_close_each_and_no_more() {
    play(echo, |scene| async move {
        let pool = scene.pool().slots_per_core(2).max_connections(2).build(&scene.runtime).unwrap();
        for round in 0..10 {
            let (pool, core) = (pool.clone(), scene.cores[round % 2]);
            let both = move || async move {
                let handle = pool.handle();
                drop(join_all([handle.acquire(), handle.acquire()]).await);
            };
            scene.runtime.spawn_on(core, both).unwrap().await.unwrap();
            sleep(SETTLED).await;
        }
        let moved = rebalanced(&pool.stats().await);
        assert!((18..=20).contains(&moved), "{moved}");
        assert_whole(&pool).await;
        pool.close().await;
    });
}

#[test]
fn a_lowered_limit_is_met_as_leases_end_and_nothing_rises_meanwhile() {
    play(echo, |scene| async move {
        let pool = scene.pool().slots_per_core(4).max_connections(8).build(&scene.runtime).unwrap();
        let (near, far) = (pool.handle(), pool.handle_on(scene.cores[1]).unwrap());
        let mut leases: Vec<_> = join_all((0..4).map(|_| near.acquire())).await;
        leases.extend(join_all((0..3).map(|_| far.acquire())).await);
        // Idle ones go first, and at once.
        drop(leases.pop());
        sleep(SETTLED).await;
        pool.set_max_connections(6).unwrap();
        sleep(SETTLED).await;
        let stats = pool.stats().await;
        assert_eq!((connections(&stats), rebalanced(&stats)), (6, 1), "{stats:?}");
        // Waiters do not keep it from falling.
        pool.set_max_connections(2).unwrap();
        let (one, two) = (pool.handle(), pool.handle_on(scene.cores[1]).unwrap());
        let waiting = spawn(async move { join_all([one.acquire(), two.acquire()]).await });
        let mut last = 6;
        while let Some(lease) = leases.pop() {
            sleep(SETTLED).await;
            drop(lease);
            sleep(SETTLED).await;
            let there = connections(&pool.stats().await);
            assert!(there <= last && there <= (leases.len() + 1).max(2), "{there} after {last}");
            last = there;
        }
        let served = timeout(PATIENCE, waiting).await.unwrap().unwrap();
        assert!(served.iter().all(Result::is_ok), "{served:?}");
        drop(served);
        sleep(SETTLED).await;
        let stats = pool.stats().await;
        assert!(connections(&stats) <= 2, "{stats:?}");
        // And up again.
        pool.set_max_connections(8).unwrap();
        let leases: Vec<_> = join_all((0..4).map(|_| near.acquire())).await;
        assert!(leases.iter().all(Result::is_ok));
        drop(leases);
        assert_whole(&pool).await;
        pool.close().await;
    });
}

#[test]
fn a_raised_limit_serves_those_who_wait() {
    play(echo, |scene| async move {
        let pool = scene.pool().slots_per_core(2).max_connections(1).build(&scene.runtime).unwrap();
        let kept = pool.acquire().await.unwrap();
        let (near, far) = (pool.handle(), pool.handle_on(scene.cores[1]).unwrap());
        let waiting = spawn(async move { join_all([near.acquire(), far.acquire()]).await });
        sleep(SETTLED).await;
        assert!(!waiting.is_finished());
        pool.set_max_connections(3).unwrap();
        let served = timeout(SETTLED, waiting).await.unwrap().unwrap();
        assert!(served.iter().all(Result::is_ok), "{served:?}");
        drop((kept, served));
        pool.close().await;
    });
}

#[test]
fn a_killed_core_gives_its_connections_back_to_the_limit() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(3).max_connections(3).build(&scene.runtime).unwrap();
        let theirs = pool.clone();
        let (tell, told) = oneshot::channel();
        // One leased there, one idle there, and one that is lent to here.
        let there = scene.runtime.spawn_on(scene.cores[1], move || async move {
            let handle = theirs.handle();
            let leases = join_all([handle.acquire(), handle.acquire()]).await;
            let (kept, idle) = (leases.into_iter().next(), handle.acquire().await);
            drop(idle);
            tell.send(()).unwrap();
            std::future::pending::<()>().await;
            drop(kept);
        });
        told.await.unwrap();
        let lent = pool.handle_on(scene.cores[1]).unwrap().acquire().await.unwrap();
        let near = pool.handle();
        let waiting = spawn(async move { join_all((0..3).map(|_| near.acquire())).await });
        sleep(scene.random.some_time()).await;
        scene.faults.kill_core(1);
        sleep(SETTLED).await;
        assert!(!waiting.is_finished(), "the lent one still counts");
        let stats = pool.stats().await;
        assert_eq!(stats.shards[0].credits, 2, "{stats:?}");
        drop(lent);
        let leases = timeout(PATIENCE, waiting).await.unwrap().unwrap();
        assert!(leases.iter().all(Result::is_ok), "{leases:?}");
        drop(leases);
        drop(there);
        assert_eq!(shard(&pool, 0).await.credits, 3);
        pool.close().await;
    });
}

#[test]
fn what_finds_its_core_exhausted_is_served_by_another_and_counted_once() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).affinity(Affinity::Spill).build(&scene.runtime).unwrap();
        drop(pool.handle_on(scene.cores[1]).unwrap().acquire().await.unwrap());
        sleep(SETTLED).await;
        let handle = pool.handle();
        let near = handle.acquire().await.unwrap();
        let mut far = timeout(SETTLED, handle.acquire()).await.unwrap().unwrap();
        assert_eq!((near.home(), far.home()), (scene.cores[0], scene.cores[1]));
        works(&mut far, 7).await;
        // Nothing is idle anywhere: it waits at home, and is served there.
        let mut third = handle.acquire();
        poll_once(&mut third).await;
        sleep(scene.random.some_time()).await;
        drop(near);
        let third = timeout(SETTLED, third).await.unwrap().unwrap();
        assert_eq!(third.home(), scene.cores[0]);
        drop((far, third));
        assert_whole(&pool).await;
        let stats = pool.stats().await;
        let [here, there] = [&stats.shards[0], &stats.shards[1]];
        assert_eq!((here.acquires, there.acquires), (3, 1), "{stats:?}");
        assert_eq!((here.spills, here.spills_granted, there.lends), (1, 1, 2), "{stats:?}");
        pool.close().await;
    });
}

#[test]
fn the_first_handle_that_spills_need_not_wait_for_the_others_to_hear_of_it() {
    play(echo, |scene| async move {
        let pool = scene.pool().slots_per_core(1).build(&scene.runtime).unwrap();
        drop(pool.handle_on(scene.cores[1]).unwrap().acquire().await.unwrap());
        let strict = pool.handle();
        let near = strict.acquire().await.unwrap();
        sleep(SETTLED).await;
        assert!(strict.acquire_within(SETTLED).await.is_err());
        let handle = pool.handle().with_affinity(Affinity::Spill);
        let far = timeout(SETTLED, handle.acquire()).await.unwrap().unwrap();
        assert_eq!(far.home(), scene.cores[1]);
        drop((near, far));
        assert_whole(&pool).await;
        pool.close().await;
    });
}

#[test]
fn a_spilled_acquire_may_be_given_up_at_any_moment() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).affinity(Affinity::Spill).build(&scene.runtime).unwrap();
        let cold = pool.handle_on(scene.cores[1]).unwrap();
        let handle = pool.handle();
        let near = handle.acquire().await.unwrap();
        for round in 0..20 {
            drop(cold.acquire().await.unwrap());
            sleep(SETTLED).await;
            if round % 4 == 3 {
                // Taken away while it is under way: declined, and queued here.
                let (theirs, wait) = (pool.clone(), scene.random.up_to(Duration::from_micros(20)));
                let thief = scene.runtime.spawn_on(scene.cores[1], move || async move {
                    sleep(wait).await;
                    let lease = theirs.acquire().await.unwrap();
                    sleep(Duration::from_millis(1)).await;
                    drop(lease);
                });
                thief.unwrap().detach();
            }
            match scene.random.below(3) {
                0 => {
                    let cut = Cut::After(scene.random.up_to(Duration::from_micros(60)));
                    drop(cut.apply(handle.acquire()).await);
                }
                1 => {
                    let within = scene.random.up_to(Duration::from_micros(60));
                    drop(handle.acquire_within(within).await);
                }
                _ => {
                    let gone = pool.handle();
                    let mut acquire = gone.acquire();
                    let polled = poll_fn(|cx| std::task::Poll::Ready(Pin::new(&mut acquire).poll(cx))).await;
                    assert!(polled.is_pending());
                    sleep(scene.random.up_to(Duration::from_micros(60))).await;
                    gone.deregister();
                    let ended = timeout(SETTLED, acquire).await.unwrap();
                    assert!(matches!(ended, Ok(_) | Err(AcquireError::Deregistered)), "{ended:?}");
                }
            }
        }
        drop(near);
        assert_whole(&pool).await;
        let stats = pool.stats().await;
        let fates = |shard: &ShardStats| {
            shard.granted_immediately
                + shard.granted_after_wait
                + shard.cancelled
                + shard.timed_out
                + shard.saturated
                + shard.refused
        };
        assert!(stats.shards.iter().all(|shard| shard.acquires == fates(shard)), "{stats:?}");
        assert_eq!(stats.sum(|shard| shard.acquires), 46, "{stats:?}");
        pool.close().await;
    });
}

#[test]
fn the_better_of_two_keeps_the_load_on_the_other_cores_close_together() {
    const CORES: usize = 9;
    const SLOTS: usize = 8;
    play_on(CORES, echo, |scene| async move {
        let pool =
            scene.pool().slots_per_core(SLOTS).affinity(Affinity::Spill).build(&scene.runtime).unwrap();
        for core in &scene.cores[1..] {
            let handle = pool.handle_on(*core).unwrap();
            drop(join_all((0..SLOTS).map(|_| handle.acquire())).await);
        }
        sleep(SETTLED).await;
        let hot = pool.handle();
        let mut leases = join_all((0..SLOTS).map(|_| hot.acquire())).await;
        // Half of what the others have, in bursts.
        for _ in 0..8 {
            leases.extend(join_all((0..4).map(|_| hot.acquire())).await);
            sleep(SETTLED).await;
        }
        let stats = pool.stats().await;
        let loads: Vec<_> = stats.shards[1..].iter().map(|shard| shard.leased).collect();
        assert_eq!(loads.iter().sum::<usize>(), 32, "{stats:?}");
        // One choice alone has them further apart.
        let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
        assert!(*most - *least <= 3, "{loads:?}");
        drop(leases);
        assert_whole(&pool).await;
        pool.close().await;
    });
}
