//! An upstream that hangs up, says nothing, or is not there.

use super::*;

#[test]
fn a_connection_that_the_upstream_closed_while_idle_is_never_leased() {
    // Answers once, then hangs up after a while.
    let once = |mut stream: TcpStream| async move {
        if let (Ok(()), question) = stream.read_exact(Vec::with_capacity(8), 8).await {
            stream.write_all(question).await.0.unwrap();
            sleep(SETTLED).await;
        }
    };
    play(once, |scene| async move {
        let pool = scene.pool().slots_per_core(2).build(&scene.runtime).unwrap();
        for round in 0..4 {
            for core in &scene.cores {
                let handle = pool.handle_on(*core).unwrap();
                works(&mut handle.acquire().await.unwrap(), round).await;
            }
            sleep(2 * SETTLED).await;
            let stats = pool.stats().await;
            assert_eq!(stats.sum(|shard| shard.idle as u64), 0, "{stats:?}");
            assert_eq!(stats.sum(|shard| shard.closed_for(CloseReason::Broken)), 2 * (round + 1));
        }
        pool.close().await;
    });
}

#[test]
fn a_silent_upstream_costs_the_exchange_and_not_the_slot() {
    play(keep_silent, |mut scene| async move {
        let pool = scene.pool().slots_per_core(1).build(&scene.runtime).unwrap();
        for core in scene.cores.clone() {
            let handle = pool.handle_on(core).unwrap();
            for round in 0..5 {
                let begun = now();
                let mut lease = timeout(PATIENCE, handle.acquire()).await.unwrap().unwrap();
                assert!(now() - begun < SETTLED, "a slot is free as soon as its connection is closed");
                let limit = scene.random.up_to(Duration::from_millis(20));
                let exchange = lease.exchange(async |stream| ask(stream, round).await);
                assert!(timeout(limit, exchange).await.is_err());
            }
        }
        assert_whole(&pool).await;
        pool.close().await;
    });
}

#[test]
fn a_black_hole_holds_no_acquire_beyond_its_deadline() {
    play(echo, |mut scene| async move {
        scene.faults.make_unreachable(scene.address);
        let limit = Duration::from_millis(20);
        let pool = scene.pool().acquire_timeout(limit).build(&scene.runtime).unwrap();
        for core in scene.cores.clone() {
            let handle = pool.handle_on(core).unwrap();
            let begun = now();
            let error = handle.acquire().await.unwrap_err();
            assert!(matches!(error, AcquireError::Timeout { .. }), "{error:?}");
            assert_eq!(now() - begun, limit);
        }
        scene.faults.heal(scene.address);
        sleep(scene.random.up_to(SETTLED)).await;
        works(&mut timeout(PATIENCE, pool.handle().acquire()).await.unwrap().unwrap(), 3).await;
        pool.close().await;
    });
}

#[test]
fn an_acquire_that_waits_for_the_end_of_a_back_off_costs_no_turns() {
    play(echo, |scene| async move {
        let pause = Duration::from_secs(1);
        let nowhere = TcpConnector::new("127.0.0.1:9".parse().unwrap());
        let pool = Pool::builder(nowhere).connect_backoff(pause, pause).build(&scene.runtime).unwrap();
        let refused = pool.acquire().await.unwrap_err();
        assert!(matches!(refused, AcquireError::Connect { .. }), "{refused:?}");
        let (begun, polls) = (now(), core_stats().unwrap().executor.polls);
        let refused = pool.acquire().await.unwrap_err();
        assert!(matches!(refused, AcquireError::Connect { .. }), "{refused:?}");
        assert!(now() - begun > pause / 2, "it is tried again after the pause");
        let polls = core_stats().unwrap().executor.polls - polls;
        assert!(polls < 50, "{polls} polls");
        pool.close().await;
    });
}
