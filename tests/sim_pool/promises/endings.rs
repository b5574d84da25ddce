//! Closing, draining and letting go.

use super::*;

#[test]
fn a_close_with_blocked_waiters_ends_them_all() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).no_acquire_timeout().build(&scene.runtime).unwrap();
        let leases =
            (pool.acquire().await.unwrap(), pool.handle_on(scene.cores[1]).unwrap().acquire().await.unwrap());
        let wait = |pool: Pool<TcpConnector>, cores: Vec<CoreId>| async move {
            let handles: Vec<_> = cores.iter().map(|core| pool.handle_on(*core).unwrap()).collect();
            let waiting = handles.iter().flat_map(|handle| [handle.acquire(), handle.acquire()]);
            futures_util::future::join_all(waiting).await.into_iter().map(|result| result.map(drop)).collect()
        };
        let here: corelet::runtime::JoinHandle<Vec<_>> = spawn(wait(pool.clone(), scene.cores.clone()));
        let (theirs, cores) = (pool.clone(), scene.cores.clone());
        let there = scene.runtime.spawn_on(scene.cores[1], move || wait(theirs, cores)).unwrap();
        sleep(scene.random.some_time()).await;
        timeout(PATIENCE, pool.close()).await.unwrap();
        for result in here.await.unwrap().into_iter().chain(there.await.unwrap()) {
            assert!(matches!(result, Err(AcquireError::Closed)), "{result:?}");
        }
        // The leases outlive it.
        let (mut near, mut far) = leases;
        works(&mut near, 1).await;
        works(&mut far, 2).await;
        let release = async {
            sleep(scene.random.some_time()).await;
            drop((near, far));
        };
        let (drained, ()) = futures_util::future::join(pool.drain(PATIENCE), release).await;
        drained.unwrap();
    });
}

#[test]
fn a_drain_meets_grants_on_their_way_and_waits_for_them() {
    play(echo, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).build(&scene.runtime).unwrap();
        drop(pool.acquire().await.unwrap());
        let (theirs, here, pause) = (pool.clone(), scene.cores[0], scene.random.some_time());
        let (tell, told) = oneshot::channel();
        let borrower = scene.runtime.spawn_on(scene.cores[1], move || async move {
            let handle = theirs.handle_on(here).unwrap();
            tell.send(()).unwrap();
            match handle.acquire().await {
                Ok(lease) => {
                    sleep(pause).await;
                    drop(lease);
                }
                Err(error) => assert!(matches!(error, AcquireError::Closed), "{error:?}"),
            }
            now()
        });
        told.await.unwrap();
        sleep(scene.random.up_to(Duration::from_micros(50))).await;
        pool.drain(PATIENCE).await.unwrap();
        let drained = now();
        assert!(borrower.unwrap().await.unwrap() <= drained, "drained while a lease was out");
    });
}

#[test]
fn the_last_handle_keeps_the_pool_and_its_drop_ends_every_actor() {
    play(echo, |scene| async move {
        let pool = scene.pool().build(&scene.runtime).unwrap();
        let handle = pool.handle_on(scene.cores[1]).unwrap();
        let theirs = pool.clone();
        scene.on_second(move || async move { works(&mut theirs.acquire().await.unwrap(), 1).await }).await;
        drop(pool);
        sleep(SETTLED).await;
        works(&mut handle.acquire().await.unwrap(), 2).await;
        // `play` sees that no task is left.
        drop(handle);
    });
}

#[test]
fn a_close_that_takes_its_time_costs_no_turns() {
    play(keep_silent, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).build(&scene.runtime).unwrap();
        let polls = core_stats().unwrap().executor.polls;
        for round in 0..10 {
            let mut lease = pool.acquire().await.unwrap();
            let exchange = lease.exchange(async |stream| ask(stream, round).await);
            let limit = scene.random.up_to(Duration::from_micros(500));
            assert!(timeout(limit, exchange).await.is_err());
        }
        assert_whole(&pool).await;
        let polls = core_stats().unwrap().executor.polls - polls;
        assert!(polls < 3000, "{polls} polls");
        pool.close().await;
    });
}
