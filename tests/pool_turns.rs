//! Leases that share a socket take turns on it: each exchange is alone, and no reply crosses.
#![cfg(feature = "framed")]
#![allow(missing_docs, clippy::unwrap_used)]

mod framed;
mod support;

use std::cell::{Cell, RefCell};
use std::io::Read;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelet::net::TcpStream;
use corelet::pool::{
    AcquireError, BuildError, Call, CloseReason, Connection, ExchangeError, FramedConnector, Gated, Pool,
    TcpConnector, TurnError,
};
use corelet::runtime::{RuntimeHandle, now, spawn, yield_now};
use framed::{Frames, drip_frames, echo_frames, frame, read_frame};
use support::{
    Cut, Memory, Random, Upstream, all_settled, assert_settled, cut_off, echo, on_cores, poll_once,
    poll_until, set, settled, shard, soon,
};

fn pool(
    upstream: &Upstream,
    slots: usize,
    leases: usize,
    runtime: &RuntimeHandle,
) -> Pool<Gated<TcpConnector>> {
    Pool::builder(TcpConnector::new(upstream.address))
        .slots_per_core(slots)
        .leases_per_slot(leases)
        .build(runtime)
        .unwrap()
}

#[test]
fn leases_fill_a_socket_before_another_is_opened_and_wait_when_all_are_full() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool = pool(&upstream, 2, 3, &runtime);
        let session = pool.handle();
        let mut leases = Vec::new();
        for count in 1..=6 {
            leases.push(soon(session.acquire()).await.unwrap());
            assert_eq!(shard(pool.sockets(), 0).await.leased, if count <= 3 { 1 } else { 2 });
        }
        let mut late = session.acquire();
        assert!(poll_once(&mut late).await.is_pending());
        leases.pop();
        let mut lease = soon(late).await.unwrap();
        let reply = lease.exchange_in_turn(async |stream| echo(stream, b"seventh").await).await.unwrap();
        assert_eq!(reply, b"seventh");
        drop((lease, leases));
        assert_eq!(upstream.accepted(), 2);
        assert_settled(&shard(&pool, 0).await);
        pool.close().await;
    });
}

#[test]
fn leases_that_begin_together_share_the_socket_that_is_being_opened() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        set(&memory.0.hold_connects, true);
        let pool =
            Pool::builder(memory.clone()).slots_per_core(3).leases_per_slot(4).build(&runtime).unwrap();
        let session = pool.handle();
        let mut acquires: Vec<_> = (0..9).map(|_| session.acquire()).collect();
        for acquire in &mut acquires {
            assert!(poll_once(acquire).await.is_pending());
        }
        poll_until(async || memory.0.connects() == 3).await;
        // The callers give up, and what was begun for them goes on.
        acquires.truncate(5);
        set(&memory.0.hold_connects, false);
        let mut leases = Vec::new();
        for acquire in acquires {
            leases.push(soon(acquire).await.unwrap());
        }
        // Two of the three are enough for these; the third may still be opening.
        poll_until(async || memory.0.peak() == 3).await;
        assert_eq!(memory.0.connects(), 3);
        drop(leases);
        pool.close().await;
        assert_eq!(memory.0.live(), 0);
    });
}

#[test]
fn exchanges_on_a_socket_are_alone_and_in_the_order_of_their_coming() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(drip_frames);
        let connector = FramedConnector::new(TcpConnector::new(upstream.address), || Frames);
        let pool = Pool::builder(connector).slots_per_core(1).leases_per_slot(8).build(&runtime).unwrap();
        let (busy, order) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(Vec::new())));
        let mut tasks = Vec::new();
        for id in 0..8 {
            let mut lease = soon(pool.acquire()).await.unwrap();
            let (busy, order) = (Rc::clone(&busy), Rc::clone(&order));
            tasks.push(spawn(async move {
                let reply = lease
                    .exchange_in_turn(async |connection| {
                        assert!(!busy.replace(true), "alone");
                        order.borrow_mut().push(id);
                        let reply = connection.call(frame(id)).await;
                        busy.set(false);
                        reply
                    })
                    .await;
                assert_eq!(reply.unwrap(), frame(id));
                // And by the shorter way.
                assert_eq!(lease.call(frame(id + 100)).await.unwrap(), frame(id + 100));
                assert!(lease.is_clean());
            }));
        }
        for task in tasks {
            soon(task).await.unwrap();
        }
        assert_eq!(*order.borrow(), Vec::from_iter(0..8));
        assert_eq!(upstream.accepted(), 1);
        pool.close().await;
    });
}

#[test]
fn an_exchange_that_does_not_end_well_condemns_the_socket_and_tells_those_who_wait_that_nothing_was_sent() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool = pool(&upstream, 1, 4, &runtime);
        for (round, how) in ["failed", "dropped"].into_iter().enumerate() {
            let mut first = soon(pool.acquire()).await.unwrap();
            let mut others = Vec::new();
            for _ in 0..3 {
                others.push(soon(pool.acquire()).await.unwrap());
            }
            let idle = others.pop();
            let went = Rc::new(Cell::new(false));
            let exchange = async |stream: &mut TcpStream| {
                stream.write_all(b"abc".to_vec()).await.0.unwrap();
                while !went.get() {
                    yield_now().await;
                }
                Err::<(), _>("on purpose")
            };
            let mut using = Box::pin(first.exchange_in_turn(exchange));
            assert!(poll_once(&mut using).await.is_pending());
            let mut waiting = Vec::new();
            for mut lease in others {
                let task = spawn(async move {
                    let refused = lease.exchange_in_turn(async |stream| echo(stream, b"never").await).await;
                    (refused.unwrap_err().into_inner().unwrap(), lease.is_clean())
                });
                waiting.push(task);
            }
            yield_now().await;
            if how == "dropped" {
                drop(using);
            } else {
                went.set(true);
                let failed = soon(using).await.unwrap_err().into_inner().unwrap();
                assert!(matches!(failed, TurnError::Failed("on purpose")));
            }
            let mut condemned = 0;
            for task in waiting {
                let (error, clean) = soon(task).await.unwrap_or_else(|error| panic!("{how}: {error}"));
                assert!(error.is_retryable() && !clean, "{how}");
                condemned += 1;
            }
            assert_eq!(condemned, 2);
            // What is idle is evicted, and what is leased is not used again.
            let mut stale = idle.unwrap();
            let refused = stale.exchange_in_turn(async |stream| echo(stream, b"never").await).await;
            assert!(refused.unwrap_err().into_inner().is_none_or(|error| error.is_retryable()));
            drop((stale, first));
            poll_until(async || shard(&pool, 0).await.connections() == 0).await;
            let mut lease = soon(pool.acquire()).await.unwrap();
            let reply = lease.exchange_in_turn(async |stream| echo(stream, b"anew").await).await.unwrap();
            assert_eq!(reply, b"anew");
            drop(lease);
            assert_eq!(shard(pool.sockets(), 0).await.closed_for(CloseReason::Dirty), round as u64 + 1);
        }
        pool.close().await;
    });
}

#[test]
fn one_who_gives_up_waiting_costs_nothing_and_the_turn_goes_to_the_next() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let pool =
            Pool::builder(memory.clone()).slots_per_core(1).leases_per_slot(3).build(&runtime).unwrap();
        let mut leases = Vec::new();
        for _ in 0..3 {
            leases.push(soon(pool.acquire()).await.unwrap());
        }
        let go = Rc::new(Cell::new(false));
        let mut leases = leases.into_iter();
        let (mut first, mut second, mut third) =
            (leases.next().unwrap(), leases.next().unwrap(), leases.next().unwrap());
        for granted in [false, true] {
            let hold = async || {
                while !go.get() {
                    yield_now().await;
                }
            };
            let mut using = Box::pin(first.exchange_in_turn(async |_| {
                hold().await;
                Ok::<_, ()>(())
            }));
            assert!(poll_once(&mut using).await.is_pending());
            let mut quitter = Box::pin(second.exchange_in_turn(async |_| Ok::<_, ()>(())));
            assert!(poll_once(&mut quitter).await.is_pending());
            let mut patient = Box::pin(third.exchange_in_turn(async |_| Ok::<_, ()>(())));
            assert!(poll_once(&mut patient).await.is_pending());
            if granted {
                // It is the quitter's turn when it quits.
                go.set(true);
                soon(using).await.unwrap();
                drop(quitter);
            } else {
                drop(quitter);
                go.set(true);
                soon(using).await.unwrap();
            }
            soon(patient).await.unwrap();
            go.set(false);
        }
        assert!(first.is_clean() && second.is_clean() && third.is_clean());
        assert_eq!(memory.0.connects(), 1);
        drop((first, second, third));
        pool.close().await;
    });
}

#[test]
fn a_socket_that_breaks_while_idle_has_all_its_sessions_evicted() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool = pool(&upstream, 1, 3, &runtime);
        let mut leases = Vec::new();
        for _ in 0..3 {
            let mut lease = soon(pool.acquire()).await.unwrap();
            lease.exchange_in_turn(async |stream| echo(stream, b"used").await).await.unwrap();
            leases.push(lease);
        }
        let kept = leases.pop().unwrap();
        drop(leases);
        assert_eq!(shard(&pool, 0).await.idle, 2);
        upstream.hang_up();
        poll_until(async || shard(&pool, 0).await.closed_for(CloseReason::Broken) == 2).await;
        poll_until(async || shard(pool.sockets(), 0).await.closed_for(CloseReason::Broken) == 1).await;
        let mut lease = soon(pool.acquire()).await.unwrap();
        lease.exchange_in_turn(async |stream| echo(stream, b"new").await).await.unwrap();
        // The one that was leased is not leased again, either.
        drop(kept);
        poll_until(async || shard(&pool, 0).await.connections() == 1).await;
        drop(lease);
        pool.close().await;
    });
}

#[test]
fn a_socket_without_sessions_goes_back_to_its_pool_and_is_used_again() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool = pool(&upstream, 1, 2, &runtime);
        for _ in 0..3 {
            let mut lease = soon(pool.acquire()).await.unwrap();
            lease.exchange_in_turn(async |stream| echo(stream, b"used").await).await.unwrap();
            // It is the session alone that is not used again.
            lease.exchange(async |_| Err::<(), _>(())).await.unwrap_err();
            drop(lease);
            poll_until(async || shard(&pool, 0).await.connections() == 0).await;
            let sockets = shard(pool.sockets(), 0).await;
            assert_eq!((sockets.idle, sockets.opens), (1, 1));
        }
        pool.close().await;
    });
}

/// By its age, or because there are to be fewer.
#[test]
fn a_socket_whose_time_has_come_is_replaced_when_its_leases_have_ended() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        let pool =
            Pool::builder(memory.clone()).slots_per_core(2).leases_per_slot(2).build(&runtime).unwrap();
        let mut leases = Vec::new();
        for _ in 0..4 {
            leases.push(soon(pool.acquire()).await.unwrap());
        }
        leases.swap(1, 2);
        // One session of either socket is idle.
        leases.truncate(2);
        assert_eq!((memory.0.live(), shard(&pool, 0).await.idle), (2, 2));
        pool.sockets().resize(1).unwrap();
        poll_until(async || shard(&pool, 0).await.connections() == 3).await;
        for lease in &mut leases {
            for _ in 0..2 {
                lease.exchange_in_turn(async |_| Ok::<_, ()>(())).await.unwrap();
            }
        }
        assert_eq!(memory.0.live(), 2, "no lease is broken off");
        drop(leases);
        poll_until(async || memory.0.live() == 1).await;
        assert_eq!(shard(pool.sockets(), 0).await.closed_for(CloseReason::Resized), 1);
        pool.close().await;
    });
}

#[test]
fn closing_the_pool_leaves_no_socket() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::echo();
        let shared = pool(&upstream, 2, 2, &runtime);
        for core in cores {
            let pool = shared.clone();
            let task = runtime
                .spawn_on(core, move || async move {
                    let mut lease = pool.acquire().await.unwrap();
                    lease.exchange_in_turn(async |stream| echo(stream, b"used").await).await.unwrap();
                })
                .unwrap();
            soon(task).await.unwrap();
        }
        soon(shared.close()).await;
        let sockets = all_settled(shared.sockets()).await;
        assert_eq!(sockets.sum(|shard| shard.connections() as u64), 0, "{sockets:?}");
        assert_eq!(sockets.sum(|shard| shard.opens), 2);
        poll_until(async || upstream.live() == 0).await;

        // By a drop alone, too; and leases that are out hold their socket until they are dropped.
        let pool = pool(&upstream, 2, 2, &runtime);
        let mut lease = pool.acquire().await.unwrap();
        drop(pool);
        lease.exchange_in_turn(async |stream| echo(stream, b"still").await).await.unwrap();
        drop(lease);
        poll_until(async || upstream.live() == 0).await;

        let pool = self::pool(&upstream, 2, 2, &runtime);
        let lease = pool.acquire().await.unwrap();
        pool.drain(Duration::from_millis(1)).await.unwrap_err();
        drop(lease);
        pool.drain(support::PATIENCE).await.unwrap();
        poll_until(async || upstream.live() == 0).await;
    });
}

#[test]
fn a_handle_of_another_core_is_refused_at_once() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::echo();
        let pool = pool(&upstream, 1, 2, &runtime);
        let here = corelet::runtime::current_core().unwrap();
        for core in cores {
            let session = pool.handle_on(core).unwrap();
            let acquired = soon(session.acquire()).await;
            if core == here {
                acquired.unwrap();
            } else {
                let error = acquired.unwrap_err();
                assert!(matches!(error, AcquireError::OtherCore), "{error}");
                assert!(!error.is_retryable() && !error.is_connection_fault());
            }
        }
        pool.close().await;
    });
}

#[test]
fn sockets_that_cannot_be_opened_fail_every_acquire_and_come_back() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        set(&memory.0.fail_connects, true);
        let pool = Pool::builder(memory.clone())
            .slots_per_core(2)
            .connect_backoff(Duration::from_millis(1), Duration::from_millis(1))
            .leases_per_slot(4)
            .build(&runtime)
            .unwrap();
        let session = pool.handle();
        let mut acquires: Vec<_> = (0..8).map(|_| session.acquire()).collect();
        for acquire in &mut acquires {
            assert!(poll_once(acquire).await.is_pending());
        }
        for acquire in acquires {
            let error = soon(acquire).await.unwrap_err();
            assert!(matches!(error, AcquireError::Connect { .. }) && error.is_connection_fault());
        }
        set(&memory.0.fail_connects, false);
        poll_until(async || session.acquire().await.is_ok()).await;
        pool.close().await;
        assert_eq!(memory.0.live(), 0);
    });
}

#[test]
fn an_open_that_hangs_is_given_up_and_the_next_one_succeeds() {
    on_cores(1, async move |runtime, _| {
        let memory = Memory::default();
        set(&memory.0.hold_connects, true);
        let pool = Pool::builder(memory.clone())
            .slots_per_core(1)
            .connect_timeout(Duration::from_millis(5))
            .connect_backoff(Duration::from_millis(1), Duration::from_millis(1))
            .leases_per_slot(4)
            .build(&runtime)
            .unwrap();
        let session = pool.handle();
        let mut acquires: Vec<_> = (0..4).map(|_| session.acquire()).collect();
        for acquire in &mut acquires {
            assert!(poll_once(acquire).await.is_pending());
        }
        for acquire in acquires {
            assert!(matches!(soon(acquire).await, Err(AcquireError::Connect { .. })));
        }
        set(&memory.0.hold_connects, false);
        poll_until(async || session.acquire().await.is_ok()).await;
        pool.close().await;
    });
}

#[test]
fn settings_out_of_range_are_refused() {
    on_cores(1, async move |runtime, _| {
        for (slots, leases) in [(1, 0), (1 << 10, 1 << 10), (1, usize::MAX)] {
            let built = Pool::builder(Memory::default())
                .slots_per_core(slots)
                .leases_per_slot(leases)
                .build(&runtime);
            assert!(matches!(built, Err(BuildError::InvalidSetting { .. })));
        }
    });
}

/// Exchanges are dropped at every await, on several sockets at once, while others go on.
#[test]
fn no_reply_crosses_however_exchanges_are_dropped() {
    on_cores(1, async move |runtime, _| {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let closing = std::sync::Arc::clone(&stop);
        let upstream = Upstream::start(move |mut socket, number| match number % 4 {
            // Some close when they have been asked often enough, some in the middle.
            3 if !closing.load(Ordering::SeqCst) => {
                for _ in 0..20 {
                    let Some(asked) = read_frame(&mut socket) else { return };
                    framed::write_frame(&mut socket, asked);
                }
                let _ = socket.read(&mut [0; 5]);
            }
            2 => drip_frames(socket, number),
            _ => echo_frames(socket, number),
        });
        let connector = FramedConnector::new(TcpConnector::new(upstream.address), || Frames);
        let pool = Pool::builder(connector).slots_per_core(2).leases_per_slot(4).build(&runtime).unwrap();
        let begun = now();
        let mut random = Random::new();
        let mut tasks = Vec::new();
        for client in 0..16_u64 {
            let (pool, mut random) = (pool.clone(), Random::seeded(random.next()));
            tasks.push(spawn(async move {
                let session = pool.handle();
                let mut done = 0_u32;
                for number in 0..100 {
                    let id = client << 32 | number;
                    let mut lease = session.acquire().await.unwrap();
                    let polls = if random.below(8) == 0 { random.below(5) as usize } else { usize::MAX };
                    let cut = if random.below(2) == 0 { Cut::AtOnce } else { Cut::WhenWoken };
                    match cut_off(polls, cut, lease.call(frame(id))).await {
                        Some(Ok(reply)) => {
                            assert_eq!(reply, frame(id), "no reply crosses");
                            done += 1;
                        }
                        Some(Err(ExchangeError::Dirty)) => panic!("it was leased clean"),
                        Some(Err(_)) | None => {}
                    }
                }
                done
            }));
        }
        let mut done = 0;
        for task in tasks {
            done += soon(task).await.unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        println!("{done} of 1600 calls ended well, in {:?}", now() - begun);
        assert!(done > 100);
        settled(&pool, 0).await;
        pool.close().await;
    });
}

/// Generic over whose socket it is.
async fn ask<C, R>(connection: &mut C, request: R) -> Option<C::Reply>
where
    C: Call<R>,
{
    connection.call(request).await.ok()
}

#[test]
fn code_may_be_generic_over_shared_and_own_connections() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::start(echo_frames);
        let connector = || FramedConnector::new(TcpConnector::new(upstream.address), || Frames);
        let own = Pool::builder(connector()).build(&runtime).unwrap();
        let shared = Pool::builder(connector()).leases_per_slot(2).build(&runtime).unwrap();
        let asked = own.acquire().await.unwrap().exchange(async |it| ask(it, frame(1)).await.ok_or(())).await;
        assert_eq!(asked.unwrap(), frame(1));
        let asked =
            shared.acquire().await.unwrap().exchange(async |it| ask(it, frame(2)).await.ok_or(())).await;
        assert_eq!(asked.unwrap(), frame(2));
        let mut lease = shared.acquire().await.unwrap();
        assert!(lease.exchange(async |it| Ok::<_, ()>(it.is_quiet())).await.unwrap());
        drop(lease);
        shared.close().await;
        own.close().await;
    });
}
