//! The end of a core inside a host, in order and out of order.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use corelet::net::TcpStream;
use corelet::pool::{Pool, TcpConnector};
use corelet::runtime::host::{Host, HostError, drive, here};
use corelet::runtime::{EnterHook, sleep, spawn, yield_now};

use super::{PATIENCE, guests, host_loop, hosts, on_host, run};
use crate::common::{cores, wait_for, within};
use crate::support::{Memory, Upstream, block_until, soon};

pub fn a_panic_ends_its_task_only(host: Host) {
    on_host(host, || async {
        let core = here();
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(core.runtime()).unwrap();
        let (theirs, ours) = (pool.clone(), pool.clone());
        let task = core.spawn(async move {
            let _lease = theirs.acquire().await.unwrap();
            panic!("a task panics on purpose");
        });
        assert!(soon(task).await.unwrap_err().is_panic());
        let future = tokio::task::spawn_local(core.on_core(async move {
            let _lease = ours.acquire().await.unwrap();
            tokio::task::yield_now().await;
            panic!("a future of the host panics on purpose");
        }));
        assert!(soon(future).await.unwrap_err().is_panic());
        // Both sides go on, and the only slot is free again.
        let lease = soon(pool.acquire()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        sleep(Duration::from_millis(1)).await;
        drop(lease);
        soon(pool.close()).await;
    });
}

pub fn a_panic_of_the_main_future_is_carried_on_after_the_core_has_ended(host: Host) {
    within(PATIENCE, move || {
        let memory = Arc::new(());
        let theirs = Arc::clone(&memory);
        let main = async {
            here()
                .spawn(async move {
                    let _memory = theirs;
                    pending::<()>().await;
                })
                .detach();
            yield_now().await;
            panic!("carried on");
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| run::<_>(host, guests(1).1.remove(0), main)));
        let payload = outcome.map(|_: Result<(), _>| ()).unwrap_err();
        assert_eq!(*payload.downcast_ref::<&str>().unwrap(), "carried on");
        assert_eq!(Arc::strong_count(&memory), 1, "the core has ended, and its task with it");
    });
}

/// Parks tasks of the core and futures of the host in reads, exchanges, acquires and sleeps; gives what they hold.
fn put_in_flight(pool: &Pool<TcpConnector>, upstream: &Upstream) -> Rc<()> {
    let held = Rc::new(());
    let address = upstream.address;
    for by_host in [false, true] {
        for kind in 0..4 {
            let (pool, held) = (pool.clone(), Rc::clone(&held));
            let future = async move {
                let _held = held;
                match kind {
                    0 => {
                        let mut stream = TcpStream::connect(address).await.unwrap();
                        let _ = stream.read(Vec::with_capacity(16)).await;
                    }
                    1 => {
                        let mut lease = pool.acquire().await.unwrap();
                        let _ =
                            lease.exchange(async |stream| stream.read(Vec::with_capacity(16)).await.0).await;
                    }
                    2 => drop(pool.acquire().await),
                    _ => sleep(Duration::from_secs(3600)).await,
                }
                pending::<()>().await;
            };
            if by_host {
                drop(tokio::task::spawn_local(here().on_core(future)));
            } else {
                spawn(future).detach();
            }
        }
    }
    held
}

fn small_pool(upstream: &Upstream, runtime: &corelet::runtime::RuntimeHandle) -> Pool<TcpConnector> {
    Pool::builder(TcpConnector::new(upstream.address))
        .slots_per_core(2)
        .acquire_timeout(PATIENCE)
        .build(runtime)
        .unwrap()
}

pub fn a_core_ends_with_work_in_flight(host: Host) {
    within(PATIENCE, move || {
        let upstream = Upstream::echo();
        for _ in 0..5 {
            let (runtime, mut guests) = guests(1);
            let pool = small_pool(&upstream, &runtime);
            let held = run(host, guests.remove(0), async {
                let held = put_in_flight(&pool, &upstream);
                // Two streams and two leased connections.
                soon(async {
                    while upstream.live() < 4 {
                        sleep(Duration::from_millis(1)).await;
                    }
                })
                .await;
                held
            })
            .unwrap();
            assert_eq!(Rc::strong_count(&held), 1, "everything was dropped");
            assert!(wait_for(runtime.spawn_on(runtime.cores()[0], || async {}).unwrap()).is_err());
            block_until(|| upstream.live() == 0);
            wait_for(pool.close());
        }
    });
}

pub fn futures_of_the_host_learn_of_the_core_s_end(host: Host) {
    within(PATIENCE, move || {
        host_loop(host, async {
            let drive = drive(guests(1).1.remove(0).start().unwrap()).unwrap();
            let core = drive.hosted();
            let driving = tokio::task::spawn_local(drive);
            let dropped_inside = Rc::new(Cell::new(None));
            struct Notes(Rc<Cell<Option<corelet::runtime::CoreId>>>);
            impl Drop for Notes {
                fn drop(&mut self) {
                    self.0.set(corelet::runtime::current_core());
                }
            }
            let notes = Notes(Rc::clone(&dropped_inside));
            let sleeps = tokio::task::spawn_local(core.on_core(async move {
                let _notes = notes;
                sleep(Duration::from_secs(3600)).await;
            }));
            tokio::task::yield_now().await;
            core.end();
            driving.await.unwrap().unwrap();
            let error = sleeps.await.unwrap().unwrap_err();
            assert_eq!(error.core, core.id());
            assert_eq!(dropped_inside.get(), Some(core.id()), "dropped on its core");
            // And whoever comes later.
            assert_eq!(core.on_core(async { 1 }).await, Err(error));
            assert!(core.spawn(async {}).await.unwrap_err().is_cancelled());
            core.end();
        });
    });
}

pub fn a_dropped_drive_ends_its_core(host: Host) {
    within(PATIENCE, move || {
        host_loop(host, async {
            let drive = drive(guests(1).1.remove(0).start().unwrap()).unwrap();
            let core = drive.hosted();
            let memory = Rc::new(());
            let theirs = Rc::clone(&memory);
            let task = core.spawn(async move {
                let _memory = theirs;
                pending::<()>().await;
            });
            let driving = tokio::task::spawn_local(drive);
            assert_eq!(core.on_core(async { 1 }).await, Ok(1));
            driving.abort();
            assert!(driving.await.unwrap_err().is_cancelled());
            assert_eq!(Rc::strong_count(&memory), 1);
            assert!(task.await.unwrap_err().is_cancelled());
            assert!(core.on_core(async {}).await.is_err());
        });
    });
}

pub fn a_waker_outlives_its_core_and_its_thread_s_host(host: Host) {
    /// Woken when the thread's locals are taken down.
    struct Last(RefCell<Option<Waker>>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.take().unwrap().wake();
        }
    }
    thread_local! {
        static LAST: Last = const { Last(RefCell::new(None)) };
    }
    within(PATIENCE, move || {
        let polls = Rc::new(Cell::new(0));
        let theirs = Rc::clone(&polls);
        // Made before the host's own locals, and so taken down after them.
        LAST.with(|last| last.0.replace(Some(Waker::noop().clone())));
        let waker = run(host, guests(1).1.remove(0), async {
            let (send, receive) = tokio::sync::oneshot::channel();
            let mut send = Some(send);
            here()
                .spawn(poll_fn(move |cx| {
                    theirs.set(theirs.get() + 1);
                    if let Some(send) = send.take() {
                        send.send(cx.waker().clone()).unwrap();
                    }
                    Poll::<()>::Pending
                }))
                .detach();
            receive.await.unwrap()
        })
        .unwrap();
        waker.wake_by_ref();
        assert_eq!(polls.get(), 1);
        LAST.with(|last| last.0.replace(Some(waker)));
    });
}

pub fn an_ended_core_is_not_in_the_way_of_the_next_with_its_id(host: Host) {
    within(PATIENCE, move || {
        // Another test of this process may have the id for a while.
        loop {
            let ended = run(host, guests(1).1.remove(0), async { here().id() }).unwrap();
            let next = cores(1).build().unwrap();
            if next.cores()[0] != ended {
                continue;
            }
            let (send, receive) = tokio::sync::oneshot::channel();
            let task = next.spawn_on(ended, move || async move { receive.await.unwrap() }).unwrap();
            // Behind the other, which has parked when this is done.
            wait_for(next.spawn_on(ended, || async {}).unwrap()).unwrap();
            // A foreign thread to the next core, though it has been the thread of one with its id.
            send.send(3).unwrap();
            assert_eq!(wait_for(task).unwrap(), 3);
            return;
        }
    });
}

pub fn a_failed_ring_ends_its_core_with_the_error(host: Host) {
    within(PATIENCE, move || {
        let failing = Arc::new(AtomicBool::new(false));
        let fails = Arc::clone(&failing);
        let hook = EnterHook::new(move |_| fails.load(Ordering::Relaxed).then_some(libc::EBADF));
        let upstream = Upstream::echo();
        let mut guests = cores(1).enter_hook(hook).build_guests().unwrap().1;
        let outcome = run(host, guests.remove(0), async {
            failing.store(true, Ordering::Relaxed);
            let _ = TcpStream::connect(upstream.address).await;
            // The main future itself may have something to say to the operation's failure; this it cannot outlive.
            pending::<()>().await;
        });
        match outcome {
            Err(HostError::Failed(error)) => assert_eq!(error.raw_os_error(), Some(libc::EBADF)),
            other => panic!("{other:?}"),
        }
    });
}

pub fn a_run_ends_as_soon_as_its_queued_work_is_done(host: Host) {
    within(PATIENCE, move || {
        // A busy machine may be late once, but not each time.
        let quickest = (0..5).map(|_| {
            let begun = Instant::now();
            let yields = Arc::new(AtomicBool::new(false));
            let theirs = Arc::clone(&yields);
            let main = move || {
                let done = Arc::clone(&theirs);
                async move {
                    spawn(async move {
                        for _ in 0..1000 {
                            yield_now().await;
                        }
                        done.store(true, Ordering::Relaxed);
                    })
                    .detach();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            assert_eq!(hosts(host, 2).run(main).unwrap().len(), 2);
            assert!(yields.load(Ordering::Relaxed), "queued work was cut short");
            begun.elapsed()
        });
        // What never answers that it is idle is waited for, for a second.
        assert!(quickest.min().unwrap() < Duration::from_millis(900));
    });
}

pub fn a_runtime_dropped_with_work_in_flight_ends_its_hosts(host: Host) {
    within(PATIENCE, move || {
        let upstream = Upstream::echo();
        for _ in 0..5 {
            let runtime = hosts(host, 2);
            let pool = small_pool(&upstream, &runtime.handle());
            for core in runtime.cores() {
                let (theirs, address) = (pool.clone(), upstream.address);
                let work = move || async move {
                    let mut stream = TcpStream::connect(address).await.unwrap();
                    let mut lease = theirs.acquire().await.unwrap();
                    tokio::task::spawn_local(async {
                        tokio::time::sleep(Duration::from_secs(3600)).await;
                    });
                    let _ = lease.exchange(async |stream| stream.read(Vec::with_capacity(16)).await.0).await;
                    let _ = stream.read(Vec::with_capacity(16)).await;
                };
                runtime.spawn_on(core, work).unwrap().detach();
            }
            block_until(|| upstream.live() == 4);
            drop(runtime);
            block_until(|| upstream.live() == 0);
        }
    });
}
