//! Two schedulers on one thread: each works for the other's futures, and neither keeps the other waiting.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corelet::pool::{Pool, TcpConnector};
use corelet::runtime::host::{Host, drive, here};
use corelet::runtime::{current_core, current_task, interval, sleep, spawn, timeout, yield_now};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

use super::{guests, host_loop, hosts, on_host};
use crate::common::{PATIENCE, alone, cpu_time, wait_for, within};
use crate::support::{Memory, Upstream, echo, poll_until, soon};

pub fn timers_and_channels_of_both_sides_work_on_both_sides(host: Host) {
    on_host(host, || async {
        let core = here();
        let begun = Instant::now();
        // A task of the core, with the host's timer and channel, and a task of the host inside it.
        let (to_host, mut from_core) = mpsc::channel::<u32>(2);
        let task = core.spawn(async move {
            assert!(current_task().is_some());
            tokio::time::sleep(Duration::from_millis(5)).await;
            for number in 0..100 {
                to_host.send(number).await.unwrap();
            }
            tokio::task::spawn_local(async { 7 }).await.unwrap()
        });
        // A future of the host, with the core's timer and tasks.
        let (to_core, mut from_host) = mpsc::unbounded_channel::<u32>();
        let future = tokio::task::spawn_local(core.on_core(async move {
            assert!(current_core().is_some() && current_task().is_none());
            sleep(Duration::from_millis(10)).await;
            while let Some(number) = from_core.recv().await {
                to_core.send(number).unwrap();
            }
            spawn(async { 8 }).await.unwrap()
        }));
        for number in 0..100 {
            assert_eq!(from_host.recv().await, Some(number));
        }
        assert_eq!((task.await.unwrap(), future.await.unwrap().unwrap()), (7, 8));
        assert!(begun.elapsed() >= Duration::from_millis(10));
        // Sockets of the host in a task of the core.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = core.spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut reading, mut writing) = stream.split();
            tokio::io::copy(&mut reading, &mut writing).await.unwrap()
        });
        let client = core.spawn(async move {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            for round in 0..100_u8 {
                stream.write_all(&[round; 10]).await.unwrap();
                let mut reply = [0; 10];
                stream.read_exact(&mut reply).await.unwrap();
                assert_eq!(reply, [round; 10]);
            }
        });
        client.await.unwrap();
        assert_eq!(server.await.unwrap(), 1000);
        // Not early, however short, and whichever of two deadlines comes first.
        for micros in [1_u64, 300, 900, 1100, 2500] {
            let length = Duration::from_micros(micros);
            let begun = Instant::now();
            let far = spawn(sleep(Duration::from_secs(3600)));
            sleep(length).await;
            assert!(begun.elapsed() >= length);
            drop(far);
        }
    });
}

pub fn no_wake_is_lost_between_the_sides_or_from_other_threads(host: Host) {
    on_host(host, || async {
        let core = here();
        let (id, runtime) = (core.id(), core.runtime().clone());
        // From other threads, at all moments of a turn and of the wait.
        let callers: Vec<_> = (0..3_u64)
            .map(|number| {
                let runtime = runtime.clone();
                std::thread::spawn(move || {
                    for round in 0..1000 {
                        let answer = runtime.spawn_on(id, move || async move { round + number }).unwrap();
                        assert_eq!(wait_for(answer).unwrap(), round + number);
                    }
                })
            })
            .collect();
        // Between the sides meanwhile: a ball in the air is the only thing that either waits for.
        let (to_task, mut at_task) = mpsc::unbounded_channel::<u32>();
        let (to_future, mut at_future) = mpsc::unbounded_channel::<u32>();
        let task = core.spawn(async move {
            while let Some(ball) = at_task.recv().await {
                to_future.send(ball + 1).unwrap();
            }
        });
        let mut ball = 0;
        while ball < 5000 {
            to_task.send(ball).unwrap();
            ball = at_future.recv().await.unwrap();
            if ball % 500 == 0 {
                // Long enough for both to sleep.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        drop(to_task);
        task.await.unwrap();
        poll_until(async || callers.iter().all(|caller| caller.is_finished())).await;
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    });
}

pub fn wakes_between_the_sides_send_no_mail(host: Host) {
    on_host(host, || async {
        let core = here();
        let (to_task, mut at_task) = mpsc::unbounded_channel::<u32>();
        let (to_future, mut at_future) = mpsc::unbounded_channel::<u32>();
        let task = core.spawn(async move {
            while let Some(ball) = at_task.recv().await {
                to_future.send(ball).unwrap();
            }
        });
        // Tasks of the host, polled outside the core, so that both sides are woken from outside a turn.
        let game = tokio::task::spawn_local(async move {
            for ball in 0..1000 {
                to_task.send(ball).unwrap();
                assert_eq!(at_future.recv().await, Some(ball));
            }
        });
        let before = core.stats().mails;
        game.await.unwrap();
        task.await.unwrap();
        assert_eq!(core.stats().mails - before, 0);
    });
}

pub fn no_side_starves_the_other(host: Host) {
    on_host(host, || async {
        let core = here();
        let stop = Rc::new(Cell::new(false));
        let (busy_tasks, busy_futures): (Vec<_>, Vec<_>) = (0..4)
            .map(|_| {
                let (ours, theirs) = (Rc::clone(&stop), Rc::clone(&stop));
                let task = core.spawn(async move {
                    while !theirs.get() {
                        yield_now().await;
                    }
                });
                let future = tokio::task::spawn_local(async move {
                    while !ours.get() {
                        tokio::task::yield_now().await;
                    }
                });
                (task, future)
            })
            .unzip();
        // Events of both sides come through all the same.
        let upstream = Upstream::echo();
        let pool = Pool::builder(TcpConnector::new(upstream.address)).build(core.runtime()).unwrap();
        let theirs = pool.clone();
        let timers = core.spawn(async move {
            let mut ticks = interval(Duration::from_millis(1));
            for _ in 0..20 {
                ticks.tick().await;
            }
            let mut lease = theirs.acquire().await.unwrap();
            lease.exchange(async |stream| echo(stream, b"through").await).await.unwrap()
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sockets = tokio::task::spawn_local(async move {
            let (near, far) = tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            (near.unwrap(), far.unwrap())
        });
        assert_eq!(soon(timers).await.unwrap(), b"through");
        soon(sockets).await.unwrap();
        stop.set(true);
        for (task, future) in busy_tasks.into_iter().zip(busy_futures) {
            task.await.unwrap();
            future.await.unwrap();
        }
        soon(pool.close()).await;
    });
}

pub fn a_loop_of_ready_acquires_lets_the_host_go_on(host: Host) {
    on_host(host, || async {
        let core = here();
        let pool = Pool::builder(Memory::default()).build(core.runtime()).unwrap();
        let handle = pool.handle();
        drop(handle.acquire().await.unwrap());
        let stop = Rc::new(Cell::new(false));
        let theirs = Rc::clone(&stop);
        let looping = tokio::task::spawn_local(core.on_core(async move {
            let mut count = 0_u64;
            while !theirs.get() {
                drop(handle.acquire().await.unwrap());
                count += 1;
            }
            count
        }));
        tokio::time::sleep(Duration::from_millis(5)).await;
        stop.set(true);
        assert!(looping.await.unwrap().unwrap() > 0);
    });
}

pub fn a_spent_budget_is_not_held_against_the_host(host: Host) {
    on_host(host, || async {
        let core = here();
        let pool = Pool::builder(Memory::default()).build(core.runtime()).unwrap();
        // Leaves nothing of the budget, and no other task that would renew it.
        let theirs = pool.clone();
        let spender = core.spawn(async move {
            let handle = theirs.handle();
            for _ in 0..10_000 {
                drop(handle.acquire().await.unwrap());
            }
        });
        spender.await.unwrap();
        let handle = pool.handle();
        let before = core.stats().executor.polls;
        for _ in 0..1000 {
            drop(soon(handle.acquire()).await.unwrap());
        }
        assert!(core.stats().executor.polls - before < 1000, "it took tasks of the core to go on");
    });
}

/// The CPU time of an idle process in all of [`WATCHED`]. The thread that measures is in there.
const IDLE_CPU: Duration = Duration::from_millis(5);
/// More than the pool's acquire and connect time-outs, so that a timer which outlives its acquire shows.
const WATCHED: Duration = Duration::from_secs(6);

pub fn an_idle_host_uses_no_cpu(host: Host) {
    alone("an_idle_host_uses_no_cpu", || within(PATIENCE, move || idle_for_a_while(host)));
}

fn idle_for_a_while(host: Host) {
    let runtime = hosts(host, 2);
    let upstream = Upstream::echo();
    let pool = Pool::builder(TcpConnector::new(upstream.address)).build(&runtime.handle()).unwrap();
    let counts = |core| wait_for(runtime.spawn_on(core, async || here().stats()).unwrap()).unwrap();
    for core in runtime.cores() {
        let theirs = pool.clone();
        let warm = async move || {
            let handle = Rc::new(theirs.handle());
            let from_host = Rc::clone(&handle);
            let exchange = async |handle: Rc<corelet::pool::Handle<TcpConnector>>| {
                let mut lease = handle.acquire().await.unwrap();
                lease.exchange(async |stream| echo(stream, b"a request").await).await.unwrap();
            };
            exchange(handle).await;
            let core = here();
            // Far deadlines behind near ones that have passed, and one that nobody waits for any more.
            let naps = async || {
                sleep(Duration::from_millis(1)).await;
                let _ = timeout(Duration::from_secs(1), sleep(Duration::from_millis(1))).await;
                sleep(Duration::from_secs(3600)).await;
            };
            spawn(async move { naps().await }).detach();
            drop(tokio::task::spawn_local(core.on_core(async move { naps().await })));
            tokio::task::spawn_local(core.on_core(async move { exchange(from_host).await }))
                .await
                .unwrap()
                .unwrap();
        };
        wait_for(runtime.spawn_on(core, warm).unwrap()).unwrap();
    }
    let before: Vec<_> = runtime.cores().into_iter().map(counts).collect();
    // The look itself may still settle.
    std::thread::sleep(Duration::from_millis(100));
    let cpu = cpu_time();
    std::thread::sleep(WATCHED);
    let cpu = cpu_time() - cpu;
    let after: Vec<_> = runtime.cores().into_iter().map(counts).collect();
    let parks: Vec<_> = before.iter().zip(&after).map(|(before, after)| after.parks - before.parks).collect();
    println!("{cpu:?} of CPU in {WATCHED:?}; parks {parks:?}");
    assert!(cpu < IDLE_CPU, "used {cpu:?} in {WATCHED:?}");
    // The looks themselves, and a timer that nobody waits for any more.
    assert!(parks.iter().all(|parks| *parks <= 8), "parks: {parks:?}");
}

pub fn two_cores_may_share_a_host(host: Host) {
    within(PATIENCE, move || {
        host_loop(host, async {
            let (runtime, guests) = guests(2);
            let drives: Vec<_> =
                guests.into_iter().map(|guest| drive(guest.start().unwrap()).unwrap()).collect();
            let cores: Vec<_> = drives.iter().map(|drive| drive.hosted()).collect();
            let driving: Vec<_> = drives.into_iter().map(tokio::task::spawn_local).collect();
            let pool = Pool::builder(Memory::default()).build(&runtime).unwrap();
            for (here, there) in [(0, 1), (1, 0)] {
                let far = cores[there].id();
                let theirs = pool.clone();
                let (send, receive) = oneshot::channel();
                let future = async move {
                    let lease = theirs.handle_on(far).unwrap().acquire().await.unwrap();
                    send.send(lease.home()).unwrap();
                };
                cores[here].on_core(future).await.unwrap();
                assert_eq!(receive.await.unwrap(), far);
                // One inside the other, each on its own.
                let inner = cores[there].on_core(async { current_core() });
                let both = cores[here].on_core(async { (inner.await.unwrap(), current_core()) });
                assert_eq!(both.await.unwrap(), (Some(far), Some(cores[here].id())));
            }
            cores.iter().for_each(|core| core.end());
            for drive in driving {
                drive.await.unwrap().unwrap();
            }
        });
    });
}
