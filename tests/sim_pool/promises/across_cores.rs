//! Acquires for either core's shard: given up, broken off, cut short by the end of a core, served in order.

use super::*;

#[test]
fn a_forwarded_acquire_may_be_given_up_at_every_moment() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).build(&scene.runtime).unwrap();
        let far = pool.handle_on(scene.cores[1]).unwrap();
        let (theirs, random) = (pool.clone(), Random::new(scene.random.draw()));
        let rival = scene.runtime.spawn_on(scene.cores[1], move || async move {
            let (handle, mut random) = (theirs.handle(), random);
            for question in 0..20 {
                let mut lease = handle.acquire().await.unwrap();
                works(&mut lease, question).await;
                sleep(random.some_time() / 8).await;
                drop(lease);
                yield_now().await;
            }
        });
        for question in 100..140 {
            let cut = match scene.random.below(3) {
                0 => Cut::Polls(1 + scene.random.below(3)),
                1 => Cut::WhenWoken(1 + scene.random.below(2)),
                _ => Cut::After(scene.random.some_time() / 8),
            };
            if let Some(lease) = cut.apply(far.acquire()).await {
                works(&mut lease.unwrap(), question).await;
            }
        }
        rival.unwrap().await.unwrap();
        assert_whole(&pool).await;
        let stats = shard(&pool, 1).await;
        assert_eq!((stats.opens, stats.idle), (1, 1), "a clean connection is not lost: {stats:?}");
        works(&mut timeout(PATIENCE, far.acquire()).await.unwrap().unwrap(), 0).await;
        pool.close().await;
    });
}

#[test]
fn a_forwarded_acquire_that_is_given_up_leaves_the_far_queue() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).build(&scene.runtime).unwrap();
        let far = pool.handle_on(scene.cores[1]).unwrap();
        let lease = far.acquire().await.unwrap();
        let (mut waiting, mut given_up) = (far.acquire(), Vec::new());
        poll_once(&mut waiting).await;
        for _ in 0..4 {
            let mut acquire = far.acquire();
            poll_once(&mut acquire).await;
            given_up.push(acquire);
        }
        sleep(scene.random.some_time() / 8).await;
        drop(given_up);
        sleep(SETTLED).await;
        let stats = shard(&pool, 1).await;
        assert_eq!((stats.waiting, stats.cancelled, stats.leased), (1, 4, 1), "{stats:?}");
        drop(lease);
        works(&mut timeout(PATIENCE, waiting).await.unwrap().unwrap(), 1).await;
        assert_whole(&pool).await;
        assert_eq!(shard(&pool, 1).await.opens, 1);
        pool.close().await;
    });
}

#[test]
fn the_waiters_of_a_core_that_ends_leave_the_far_queue() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).no_acquire_timeout().build(&scene.runtime).unwrap();
        let lease = pool.acquire().await.unwrap();
        let (theirs, here) = (pool.clone(), scene.cores[0]);
        let (tell, told) = oneshot::channel();
        let there = scene.runtime.spawn_on(scene.cores[1], move || async move {
            let handle = theirs.handle_on(here).unwrap();
            let mut waiting: Vec<_> = (0..3).map(|_| handle.acquire()).collect();
            for acquire in &mut waiting {
                poll_once(acquire).await;
            }
            tell.send(()).unwrap();
            futures_util::future::join_all(waiting).await;
        });
        told.await.unwrap();
        sleep(scene.random.some_time() / 8).await;
        scene.faults.kill_core(1);
        assert!(there.unwrap().await.unwrap_err().is_cancelled());
        sleep(SETTLED).await;
        let stats = shard(&pool, 0).await;
        assert_eq!((stats.waiting, stats.leased), (0, 1), "{stats:?}");
        drop(lease);
        sleep(SETTLED).await;
        let stats = shard(&pool, 0).await;
        assert_eq!((stats.idle, stats.opens), (1, 1), "it went to nobody who is gone: {stats:?}");
        timeout(PATIENCE, pool.close()).await.unwrap();
    });
}

#[test]
fn an_exchange_broken_off_at_any_moment_on_either_core_is_never_heard_of_again() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(2).build(&scene.runtime).unwrap();
        let mut cuts = [0; 2];
        for round in 0..30_u64 {
            let home = scene.random.below(2);
            let lease = pool.handle_on(scene.cores[home]).unwrap().acquire().await;
            let mut lease = lease.unwrap();
            works(&mut lease, round << 8).await;
            let exchange = lease.exchange(async |stream| ask(stream, round << 8 | 1).await);
            let cut = match scene.random.below(3) {
                0 => Cut::Polls(1 + scene.random.below(2)),
                1 => Cut::WhenWoken(1 + scene.random.below(2)),
                _ => Cut::After(scene.random.up_to(Duration::from_micros(300))),
            };
            match cut.apply(exchange).await {
                Some(answer) => assert_eq!(answer.unwrap(), round << 8 | 1),
                None => cuts[home] += u64::from(!lease.is_clean()),
            }
        }
        assert_whole(&pool).await;
        for (home, cuts) in cuts.into_iter().enumerate() {
            assert_eq!(shard(&pool, home).await.closed_for(CloseReason::Dirty), cuts);
        }
        pool.close().await;
    });
}

#[test]
fn the_end_of_a_core_leaves_nobody_on_the_other_waiting() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).no_acquire_timeout().build(&scene.runtime).unwrap();
        // Both shards are leased out for good: one to a task here, the other to one there.
        let (near, far) = (pool.handle(), pool.handle_on(scene.cores[1]).unwrap());
        let (theirs, here) = (pool.clone(), scene.cores[0]);
        let (tell, told) = oneshot::channel();
        let there = scene.runtime.spawn_on(scene.cores[1], move || async move {
            let both = (theirs.handle().acquire().await.unwrap(), theirs.handle_on(here).unwrap());
            let lease = both.1.acquire().await.unwrap();
            tell.send(()).unwrap();
            // More of them than there are slots, from the core that is going to end.
            let waiting = (both.1.acquire(), both.1.acquire());
            futures_util::future::join(waiting.0, waiting.1).await.0.unwrap();
            drop((both.0, lease));
        });
        told.await.unwrap();
        let waiting = spawn(async move { far.acquire().await.map(drop) });
        let served = spawn(async move { near.acquire().await.map(drop) });
        sleep(scene.random.some_time()).await;
        assert!(!waiting.is_finished() && !served.is_finished());
        scene.faults.kill_core(1);
        let refused = timeout(PATIENCE, waiting).await.unwrap().unwrap();
        assert!(matches!(refused, Err(AcquireError::Closed)), "{refused:?}");
        timeout(PATIENCE, served).await.unwrap().unwrap().unwrap();
        assert!(there.unwrap().await.unwrap_err().is_cancelled());
        let again = pool.handle_on(scene.cores[1]).unwrap().acquire().await;
        assert!(matches!(again, Err(AcquireError::Closed)), "{again:?}");
        works(&mut pool.acquire().await.unwrap(), 7).await;
        sleep(SETTLED).await;
        let stats = shard(&pool, 0).await;
        assert_eq!((stats.leased, stats.waiting, stats.idle), (0, 0, 1), "{stats:?}");
        timeout(PATIENCE, pool.close()).await.unwrap();
    });
}

#[test]
fn waiters_of_one_shard_are_served_by_arrival_and_nobody_overtakes() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).build(&scene.runtime).unwrap();
        let lease = pool.acquire().await.unwrap();
        let served = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..8 {
            let (handle, served, hold) = (pool.handle(), Rc::clone(&served), scene.random.some_time() / 8);
            let (tell, told) = oneshot::channel();
            tasks.push(spawn(async move {
                let mut acquire = handle.acquire();
                poll_once(&mut acquire).await;
                tell.send(()).unwrap();
                let lease = acquire.await.unwrap();
                served.borrow_mut().push(number);
                sleep(hold).await;
                drop(lease);
                // A hot one, which asks again at once.
                drop(handle.acquire().await.unwrap());
            }));
            told.await.unwrap();
        }
        drop(lease);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*served.borrow(), [0, 1, 2, 3, 4, 5, 6, 7]);
        pool.close().await;
    });
}
