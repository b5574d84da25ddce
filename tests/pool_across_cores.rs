//! Acquires for another core's shard: what crosses, crosses once, and what is given up comes back.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelet::pool::{AcquireError, CloseReason, Pool, TcpConnector};
use corelet::runtime::{
    CoreId, Cores, Runtime, RuntimeHandle, core_stats, current_core, sleep, spawn, yield_now,
};
use support::{
    Memory, Random, Upstream, all_settled, block_until, cut_off, echo, on_cores, poll_once, poll_until, set,
    settled, shard, soon, watched,
};

/// Two cores that can be ended one by one: the test runs on the first, and the second ends when told.
fn on_guests<F, Fut>(test: F)
where
    F: FnOnce(RuntimeHandle, Arc<SecondCore>) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    watched(|| {
        let (handle, mut guests) =
            Runtime::builder().cores(Cores::Count(2)).pinned(false).build_guests().unwrap();
        let second = guests.pop().unwrap();
        let first = guests.pop().unwrap();
        let control = Arc::new(SecondCore {
            id: handle.cores()[1],
            end: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&control);
        let thread = std::thread::spawn(move || {
            let mut core = second.start().unwrap();
            while !theirs.end.load(Ordering::SeqCst) {
                if !core.turn().unwrap() {
                    core.park(Some(Duration::from_millis(1))).unwrap();
                }
            }
            drop(core);
            theirs.ended.store(true, Ordering::SeqCst);
        });
        let mut core = first.start().unwrap();
        core.block_on(test(handle, Arc::clone(&control))).unwrap();
        control.end.store(true, Ordering::SeqCst);
        thread.join().unwrap();
    });
}

struct SecondCore {
    id: CoreId,
    end: AtomicBool,
    ended: AtomicBool,
}

impl SecondCore {
    async fn end(&self) {
        self.end.store(true, Ordering::SeqCst);
        poll_until(async || self.ended.load(Ordering::SeqCst)).await;
    }
}

#[test]
fn forwards_and_lends_are_counted_and_the_lease_names_its_home() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).slots_per_core(2).build(&runtime).unwrap();
        let far = pool.handle_on(cores[1]).unwrap();
        let near = pool.handle_on(cores[0]).unwrap();
        assert_eq!((far.home(), near.home()), (cores[1], cores[0]));
        for _ in 0..50 {
            assert_eq!(far.acquire().await.unwrap().home(), cores[1]);
            assert_eq!(near.acquire().await.unwrap().home(), cores[0]);
        }
        poll_until(async || shard(&pool, 1).await.leased == 0).await;
        let stats = pool.stats().await;
        assert_eq!((stats.shards[0].forwards, stats.shards[0].lends), (50, 0));
        assert_eq!((stats.shards[1].forwards, stats.shards[1].lends), (0, 50));
        assert_eq!((stats.shards[0].acquires, stats.shards[1].acquires), (50, 50));
        assert_eq!((stats.shards[0].opens, stats.shards[1].opens), (1, 1));
        pool.close().await;
    });
}

#[test]
fn equal_keys_share_a_home_on_every_core() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).build(&runtime).unwrap();
        let (theirs, far) = (pool.clone(), cores[1]);
        let homes = runtime
            .spawn_on(far, move || async move {
                (0..64).map(|key| theirs.handle_for(&key).home()).collect::<Vec<_>>()
            })
            .unwrap()
            .await
            .unwrap();
        for (key, home) in homes.iter().enumerate() {
            assert_eq!(pool.handle_for(&(key as i32)).home(), *home);
        }
        assert!(cores.iter().all(|core| homes.contains(core)), "both shards are somebody's home");
        pool.close().await;
    });
}

#[test]
fn a_lease_from_the_other_core_does_its_io_on_this_one() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle_on(cores[1]).unwrap();
        let mut lease = handle.acquire().await.unwrap();
        let far_submitted = || {
            let task =
                runtime.spawn_on(cores[1], || async { core_stats().unwrap().driver.submitted }).unwrap();
            async move { task.await.unwrap() }
        };
        let (here, there) = (core_stats().unwrap().driver.submitted, far_submitted().await);
        const ROUNDS: u64 = 100;
        for _ in 0..ROUNDS {
            let core = lease
                .exchange(async |stream| {
                    echo(stream, b"whose ring?").await?;
                    std::io::Result::Ok(current_core())
                })
                .await
                .unwrap();
            assert_eq!(core, Some(cores[0]));
        }
        let (here, there) = (core_stats().unwrap().driver.submitted - here, far_submitted().await - there);
        assert!(here >= 2 * ROUNDS, "{here} entries here");
        assert!(there < ROUNDS / 2, "{there} entries there");
        drop(lease);
        pool.close().await;
    });
}

#[test]
fn a_cancel_before_the_grant_takes_the_waiter_out_of_the_far_queue() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).max_waiters(1).build(&runtime).unwrap();
        let handle = pool.handle_on(cores[1]).unwrap();
        let lease = handle.acquire().await.unwrap();
        for _ in 0..10 {
            let mut waiting = handle.acquire();
            assert!(poll_once(&mut waiting).await.is_pending());
            poll_until(async || shard(&pool, 1).await.waiting == 1).await;
            assert!(matches!(soon(handle.acquire()).await, Err(AcquireError::Saturated { limit: 1 })));
            drop(waiting);
            poll_until(async || shard(&pool, 1).await.waiting == 0).await;
        }
        drop(lease);
        drop(soon(handle.acquire()).await.unwrap());
        settled(&pool, 1).await;
        pool.close().await;
    });
}

#[test]
fn a_grant_that_arrives_for_a_cancelled_acquire_goes_home() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle_on(cores[1]).unwrap();
        drop(handle.acquire().await.unwrap());
        poll_until(async || shard(&pool, 1).await.idle == 1).await;
        // The connection stays on its way out for as long as this is set.
        set(&script.hold_quiesce, true);
        let mut acquire = handle.acquire();
        assert!(poll_once(&mut acquire).await.is_pending());
        poll_until(async || shard(&pool, 1).await.lends == 2).await;
        drop(acquire);
        set(&script.hold_quiesce, false);
        poll_until(async || shard(&pool, 1).await.idle == 1).await;
        settled(&pool, 1).await;
        assert_eq!((script.live(), script.connects()), (1, 1));
        pool.close().await;
    });
}

#[test]
fn two_cores_that_hammer_each_others_shard_lose_nothing() {
    async fn hammer(pool: Pool<Memory>, homes: Vec<CoreId>, seed: u64) {
        let mut tasks = Vec::new();
        for lane in 0..8 {
            let (pool, homes) = (pool.clone(), homes.clone());
            tasks.push(spawn(async move {
                let mut random = Random::seeded(seed.wrapping_add(lane));
                for _ in 0..400 {
                    let home = homes[random.below(2) as usize];
                    let handle = pool.handle_on(home).unwrap();
                    let cut =
                        if random.below(2) == 0 { support::Cut::AtOnce } else { support::Cut::WhenWoken };
                    let polls = if random.below(3) == 0 { usize::MAX } else { random.below(4) as usize };
                    let outcome = cut_off(polls, cut, handle.acquire()).await;
                    if let Some(result) = outcome {
                        let mut lease = result.unwrap();
                        assert_eq!(lease.home(), home);
                        let used = random.below(3);
                        let exchange = lease.exchange(async |_| {
                            for _ in 0..used {
                                yield_now().await;
                            }
                            Ok::<_, ()>(())
                        });
                        let _ = cut_off(1 + random.below(3) as usize, support::Cut::AtOnce, exchange).await;
                    }
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    }
    on_cores(2, async move |runtime, cores| {
        let mut random = Random::new();
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(2).max_waiters(64).build(&runtime).unwrap();
        let (theirs, homes, seed) = (pool.clone(), cores.clone(), random.next());
        let far = runtime.spawn_on(cores[1], move || hammer(theirs, homes, seed)).unwrap();
        hammer(pool.clone(), cores.clone(), random.next()).await;
        far.await.unwrap();
        for shard in &all_settled(&pool).await.shards {
            assert!(shard.forwards > 100 && shard.lends > 100, "{shard:?}");
            assert_eq!((shard.scheduler_spawns, shard.scheduler_failures), (1, 0));
        }
        assert!(
            script.peak() <= 2 * 2 + 2,
            "{} at one time, and two may be between two cores",
            script.peak()
        );
        pool.close().await;
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn a_panicked_task_gives_its_far_lease_and_its_place_in_the_far_queue_back() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        let far = cores[1];
        let theirs = pool.clone();
        let holder = spawn(async move {
            let handle = theirs.handle_on(far).unwrap();
            let _lease = handle.acquire().await.unwrap();
            let mut waiting = handle.acquire();
            assert!(poll_once(&mut waiting).await.is_pending());
            poll_until(async || shard(&theirs, 1).await.waiting == 1).await;
            panic!("on purpose");
        });
        assert!(holder.await.unwrap_err().is_panic());
        poll_until(async || {
            let stats = shard(&pool, 1).await;
            (stats.leased, stats.waiting) == (0, 0)
        })
        .await;
        drop(soon(pool.handle_on(far).unwrap().acquire()).await.unwrap());
        pool.close().await;
    });
}

#[test]
fn the_end_of_the_home_core_ends_the_waits_for_it() {
    on_guests(async move |runtime, second| {
        let memory = Memory::default();
        let script = memory.0.clone();
        set(&script.hold_connects, true);
        let pool = Pool::builder(memory).slots_per_core(1).no_acquire_timeout().build(&runtime).unwrap();
        let handle = pool.handle_on(second.id).unwrap();
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let (pool, home) = (pool.clone(), second.id);
                spawn(async move { pool.handle_on(home).unwrap().acquire().await.map(drop) })
            })
            .collect();
        poll_until(async || shard(&pool, 1).await.waiting == 3).await;
        second.end().await;
        for waiter in waiters {
            assert!(matches!(soon(waiter).await.unwrap(), Err(AcquireError::Closed)));
        }
        assert!(matches!(soon(handle.acquire()).await, Err(AcquireError::Closed)));
        set(&script.hold_connects, false);
        drop(soon(pool.handle().acquire()).await.unwrap());
        soon(pool.close()).await;
        poll_until(async || script.live() == 0).await;
    });
}

#[test]
fn a_lease_outlives_its_home_core() {
    on_guests(async move |runtime, second| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle_on(second.id).unwrap();
        let mut lease = soon(handle.acquire()).await.unwrap();
        second.end().await;
        assert_eq!(lease.exchange(async |stream| echo(stream, b"alone").await).await.unwrap(), b"alone");
        assert!(pool.drain(Duration::from_millis(20)).await.is_err(), "a lease is out");
        drop(lease);
        soon(pool.drain(support::PATIENCE)).await.unwrap();
        poll_until(async || upstream.live() == 0).await;
    });
}

#[test]
fn the_end_of_the_asking_core_frees_what_it_had_leased() {
    on_guests(async move |runtime, second| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(2).build(&runtime).unwrap();
        let (theirs, home) = (pool.clone(), current_core().unwrap());
        runtime
            .spawn_on(second.id, move || async move {
                let handle = theirs.handle_on(home).unwrap();
                let lease = handle.acquire().await.unwrap();
                sleep(Duration::from_secs(3600)).await;
                drop(lease);
            })
            .unwrap()
            .detach();
        poll_until(async || shard(&pool, 0).await.lends == 1).await;
        second.end().await;
        settled(&pool, 0).await;
        let handle = pool.handle();
        let both = (soon(handle.acquire()).await.unwrap(), soon(handle.acquire()).await.unwrap());
        drop(both);
        soon(pool.drain(support::PATIENCE)).await.unwrap();
        poll_until(async || script.live() == 0).await;
    });
}

#[test]
fn the_end_of_the_asking_core_takes_its_waiters_out_of_the_queue() {
    on_guests(async move |runtime, second| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(1).max_waiters(3).build(&runtime).unwrap();
        let handle = pool.handle();
        let lease = handle.acquire().await.unwrap();
        for _ in 0..3 {
            let (theirs, home) = (pool.clone(), current_core().unwrap());
            runtime
                .spawn_on(second.id, move || async move {
                    // A handle that is never dropped, such as one in a static, tells nobody either.
                    let handle = Box::leak(Box::new(theirs.handle_on(home).unwrap()));
                    let _ = handle.acquire().await;
                })
                .unwrap()
                .detach();
        }
        poll_until(async || shard(&pool, 0).await.waiting == 3).await;
        second.end().await;
        // Else nobody could wait any more, and the freed connection would go to the dead.
        poll_until(async || shard(&pool, 0).await.waiting == 0).await;
        let mut waiting = handle.acquire();
        assert!(poll_once(&mut waiting).await.is_pending());
        let lends = shard(&pool, 0).await.lends;
        drop(lease);
        drop(soon(waiting).await.unwrap());
        let stats = settled(&pool, 0).await;
        assert_eq!((stats.lends, stats.opens), (lends, 1));
        soon(pool.close()).await;
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn a_connection_on_its_way_to_a_core_that_ends_is_not_lost() {
    on_guests(async move |runtime, second| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle();
        drop(handle.acquire().await.unwrap());
        set(&script.hold_quiesce, true);
        let (theirs, home) = (pool.clone(), current_core().unwrap());
        runtime
            .spawn_on(second.id, move || async move {
                let _ = theirs.handle_on(home).unwrap().acquire().await;
            })
            .unwrap()
            .detach();
        poll_until(async || shard(&pool, 0).await.lends == 1).await;
        second.end().await;
        set(&script.hold_quiesce, false);
        drop(soon(handle.acquire()).await.unwrap());
        settled(&pool, 0).await;
        soon(pool.drain(support::PATIENCE)).await.unwrap();
        poll_until(async || script.live() == 0).await;
    });
}

#[test]
fn a_close_ends_forwarded_acquires_that_wait() {
    on_cores(2, async move |runtime, cores| {
        let pool =
            Pool::builder(Memory::default()).slots_per_core(1).no_acquire_timeout().build(&runtime).unwrap();
        let handle = pool.handle_on(cores[1]).unwrap();
        let lease = handle.acquire().await.unwrap();
        let waiters: Vec<_> = (0..10)
            .map(|_| {
                let (pool, home) = (pool.clone(), cores[1]);
                spawn(async move { pool.handle_on(home).unwrap().acquire().await.map(drop) })
            })
            .collect();
        poll_until(async || shard(&pool, 1).await.waiting == 10).await;
        soon(pool.close()).await;
        for waiter in waiters {
            assert!(matches!(soon(waiter).await.unwrap(), Err(AcquireError::Closed)));
        }
        drop(lease);
        soon(pool.drain(support::PATIENCE)).await.unwrap();
    });
}

#[test]
fn a_forward_to_a_parked_core_is_answered_at_once() {
    on_cores(2, async move |runtime, cores| {
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle_on(cores[1]).unwrap();
        drop(handle.acquire().await.unwrap());
        let answered = Rc::new(Cell::new(0));
        for _ in 0..100 {
            // Both cores have nothing to do meanwhile, so the far one sleeps.
            sleep(Duration::from_millis(1)).await;
            drop(soon(handle.acquire()).await.unwrap());
            answered.set(answered.get() + 1);
        }
        assert_eq!(answered.get(), 100);
        pool.close().await;
    });
}

#[test]
fn a_connection_that_fails_on_its_way_out_is_replaced() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle_on(cores[1]).unwrap();
        drop(handle.acquire().await.unwrap());
        poll_until(async || shard(&pool, 1).await.idle == 1).await;
        set(&script.fail_quiesce, true);
        let mut acquire = handle.acquire();
        assert!(poll_once(&mut acquire).await.is_pending());
        poll_until(async || shard(&pool, 1).await.closed_for(CloseReason::Broken) >= 1).await;
        set(&script.fail_quiesce, false);
        drop(soon(acquire).await.unwrap());
        settled(&pool, 1).await;
        assert!(script.connects() >= 2);
        pool.close().await;
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn a_connection_that_fails_on_its_way_to_nobody_leaves_no_waiter() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle_on(cores[1]).unwrap();
        drop(handle.acquire().await.unwrap());
        poll_until(async || shard(&pool, 1).await.idle == 1).await;
        set(&script.hold_quiesce, true);
        let mut acquire = handle.acquire();
        assert!(poll_once(&mut acquire).await.is_pending());
        poll_until(async || shard(&pool, 1).await.lends == 2).await;
        drop(acquire);
        // Read behind the cancel.
        let acquires = shard(&pool, 1).await.acquires;
        set(&script.hold_connects, true);
        set(&script.fail_quiesce, true);
        set(&script.hold_quiesce, false);
        poll_until(async || shard(&pool, 1).await.closed_for(CloseReason::Broken) == 1).await;
        let stats = shard(&pool, 1).await;
        assert_eq!((stats.waiting, stats.acquires), (0, acquires));
        set(&script.hold_connects, false);
        set(&script.fail_quiesce, false);
        drop(soon(handle.acquire()).await.unwrap());
        pool.close().await;
    });
}

#[test]
fn a_connection_that_panics_on_its_way_home_frees_its_slot() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(1).build(&runtime).unwrap();
        let (theirs, home, panics) = (pool.clone(), cores[1], script.clone());
        let task = spawn(async move {
            let lease = theirs.handle_on(home).unwrap().acquire().await.unwrap();
            set(&panics.panic_is_quiet, true);
            drop(lease);
        });
        assert!(soon(task).await.unwrap_err().is_panic());
        set(&script.panic_is_quiet, false);
        drop(soon(pool.handle_on(cores[1]).unwrap().acquire()).await.unwrap());
        let stats = all_settled(&pool).await;
        assert_eq!(stats.sum(|shard| shard.scheduler_failures), 0, "no scheduler was at work");
        pool.close().await;
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn a_connection_that_panics_on_arrival_frees_its_slot() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(1).build(&runtime).unwrap();
        set(&script.panic_attach, true);
        let (theirs, home) = (pool.clone(), cores[1]);
        let asked = spawn(async move { theirs.handle_on(home).unwrap().acquire().await.map(drop) });
        assert!(soon(asked).await.unwrap_err().is_panic());
        set(&script.panic_attach, false);
        drop(soon(pool.handle_on(cores[1]).unwrap().acquire()).await.unwrap());
        settled(&pool, 1).await;
        pool.close().await;
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn a_core_that_never_starts_does_not_hold_up_the_close() {
    watched(|| {
        let (handle, mut guests) =
            Runtime::builder().cores(Cores::Count(2)).pinned(false).build_guests().unwrap();
        let never = guests.pop().unwrap();
        let mut core = guests.pop().unwrap().start().unwrap();
        let pool =
            core.block_on(async move { Pool::builder(Memory::default()).build(&handle).unwrap() }).unwrap();
        drop(never);
        core.block_on(async move {
            let far = soon(pool.stats()).await.shards[1].core;
            let asked = soon(pool.handle_on(far).unwrap().acquire()).await;
            assert!(matches!(asked, Err(AcquireError::Closed)));
            drop(soon(pool.handle().acquire()).await.unwrap());
            soon(pool.close()).await;
        })
        .unwrap();
    });
}

/// Polls from a thread that is no core's.
fn poll_blocking<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut answer = None;
    block_until(|| {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            answer = Some(output);
        }
        answer.is_some()
    });
    answer.unwrap()
}

/// Keeps a core from turning until the answer is dropped.
async fn block(runtime: &RuntimeHandle, core: CoreId) -> Blocked {
    let (blocked, release) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (told, until) = (blocked.clone(), release.clone());
    runtime
        .spawn_on(core, move || async move {
            told.store(true, Ordering::SeqCst);
            block_until(|| until.load(Ordering::SeqCst));
        })
        .unwrap()
        .detach();
    poll_until(async || blocked.load(Ordering::SeqCst)).await;
    Blocked(release)
}

struct Blocked(Arc<AtomicBool>);

impl Drop for Blocked {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_deadline_holds_while_the_home_core_is_stuck() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle_on(cores[1]).unwrap();
        drop(soon(handle.acquire()).await.unwrap());
        poll_until(async || shard(&pool, 1).await.idle == 1).await;
        let stuck = block(&runtime, cores[1]).await;
        for _ in 0..3 {
            let late = soon(handle.acquire_within(Duration::from_millis(5))).await;
            assert!(matches!(late, Err(AcquireError::Timeout { .. })));
        }
        drop(stuck);
        poll_until(async || shard(&pool, 1).await.acquires == 4).await;
        settled(&pool, 1).await;
        drop(soon(handle.acquire()).await.unwrap());
        pool.close().await;
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn a_close_is_heard_here_while_the_home_core_is_stuck_behind_thousands_of_acquires() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let pool = Pool::builder(memory).slots_per_core(1).max_waiters(10_000).build(&runtime).unwrap();
        drop(soon(pool.handle_on(cores[1]).unwrap().acquire()).await.unwrap());
        poll_until(async || shard(&pool, 1).await.idle == 1).await;
        let stuck = block(&runtime, cores[1]).await;
        let handle = Rc::new(pool.handle_on(cores[1]).unwrap());
        let waiters: Vec<_> = (0..3000)
            .map(|_| {
                let handle = Rc::clone(&handle);
                spawn(async move { handle.acquire().await.map(drop) })
            })
            .collect();
        yield_now().await;
        let closing = pool.clone();
        let close = spawn(async move { closing.close().await });
        for waiter in waiters {
            assert!(matches!(soon(waiter).await.unwrap(), Err(AcquireError::Closed)));
        }
        assert!(!close.is_finished());
        drop(stuck);
        soon(close).await.unwrap();
        let stats = shard(&pool, 1).await;
        assert_eq!((stats.opens, stats.lends, stats.leased), (1, 1, 0), "nothing is granted after a close");
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn acquires_that_a_home_core_has_not_read_when_it_ends_are_refused() {
    on_guests(async move |runtime, second| {
        let pool = Pool::builder(Memory::default()).no_acquire_timeout().build(&runtime).unwrap();
        // The shard is there, and its core has read all that was sent.
        assert_eq!(shard(&pool, 1).await.scheduler_spawns, 1);
        let stuck = block(&runtime, second.id).await;
        let handle = pool.handle_on(second.id).unwrap();
        let mut waiting = handle.acquire();
        assert!(poll_once(&mut waiting).await.is_pending());
        // It ends from where it is stuck, without another turn.
        second.end.store(true, Ordering::SeqCst);
        drop(stuck);
        second.end().await;
        assert!(matches!(soon(waiting).await, Err(AcquireError::Closed)));
        soon(pool.close()).await;
    });
}

#[test]
fn a_foreign_thread_reads_the_stats_and_closes() {
    watched(|| {
        let runtime = support::runtime(2);
        let pool = Pool::builder(Memory::default()).build(&runtime.handle()).unwrap();
        assert_eq!(poll_blocking(pool.stats()).sum(|shard| shard.scheduler_spawns), 2);
        poll_blocking(pool.close());
        assert_eq!(poll_blocking(pool.stats()).sum(|shard| shard.scheduler_spawns), 2);
    });
}
