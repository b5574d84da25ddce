//! What a connector may do with a connection at the turns of its life.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use corelet::pool::{AcquireError, CloseReason, Connector, Pool};
use corelet::runtime::{spawn, yield_now};
use support::{
    Memory, MemoryConnection, assert_settled, on_cores, poll_once, poll_until, set, settled, shard, soon,
};

/// What the hooks do and have done.
#[derive(Default)]
struct Hooks {
    fail_after_connect: AtomicBool,
    hang_after_connect: AtomicBool,
    unfit_before_lease: AtomicBool,
    unfit_after_return: AtomicBool,
    panic_after_return: AtomicBool,
    hang_before_close: AtomicBool,
    hang_check: AtomicUsize,
    fail_check: AtomicBool,
    panic_check: AtomicBool,
    checks: AtomicUsize,
    called: Mutex<Vec<&'static str>>,
    closes: Mutex<Vec<CloseReason>>,
}

impl Hooks {
    fn note(&self, hook: &'static str) {
        self.called.lock().unwrap().push(hook);
    }

    fn called(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.called.lock().unwrap())
    }
}

struct Hooked(Memory, Arc<Hooks>);

fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::SeqCst)
}

impl Connector for Hooked {
    type Connection = MemoryConnection;

    async fn connect(&self) -> io::Result<MemoryConnection> {
        self.1.note("connect");
        self.0.connect().await
    }

    async fn after_connect(&self, _: &mut MemoryConnection) -> io::Result<()> {
        self.1.note("after_connect");
        yield_now().await;
        if is_set(&self.1.hang_after_connect) {
            pending::<()>().await;
        }
        match is_set(&self.1.fail_after_connect) {
            true => Err(io::Error::other("unfit on purpose")),
            false => Ok(()),
        }
    }

    fn before_lease(&self, _: &mut MemoryConnection) -> bool {
        self.1.note("before_lease");
        !is_set(&self.1.unfit_before_lease)
    }

    fn after_return(&self, _: &mut MemoryConnection) -> bool {
        self.1.note("after_return");
        assert!(!is_set(&self.1.panic_after_return), "after_return panics on purpose");
        !is_set(&self.1.unfit_after_return)
    }

    async fn before_close(&self, _: &mut MemoryConnection, reason: CloseReason) {
        self.1.note("before_close");
        self.1.closes.lock().unwrap().push(reason);
        if is_set(&self.1.hang_before_close) {
            pending::<()>().await;
        }
    }

    async fn check(&self, connection: &mut MemoryConnection) -> io::Result<()> {
        self.1.checks.fetch_add(1, Ordering::SeqCst);
        assert!(!is_set(&self.1.panic_check), "check panics on purpose");
        if self.1.hang_check.load(Ordering::SeqCst) == connection.number {
            pending::<()>().await;
        }
        match is_set(&self.1.fail_check) {
            true => Err(io::Error::other("unhealthy on purpose")),
            false => Ok(()),
        }
    }
}

fn hooked() -> (Hooked, Arc<Hooks>, Arc<support::Script>) {
    let (memory, hooks) = (Memory::default(), Arc::new(Hooks::default()));
    hooks.hang_check.store(usize::MAX, Ordering::SeqCst);
    let script = memory.0.clone();
    (Hooked(memory, hooks.clone()), hooks, script)
}

#[test]
fn each_hook_is_called_at_its_turn() {
    on_cores(1, async move |runtime, _| {
        let (connector, hooks, _) = hooked();
        let pool = Pool::builder(connector).slots_per_core(1).build(&runtime).unwrap();
        let lease = soon(pool.acquire()).await.unwrap();
        assert_eq!(hooks.called(), ["connect", "after_connect"]);
        drop(lease);
        assert_eq!(hooks.called(), ["after_return"]);
        let mut lease = soon(pool.acquire()).await.unwrap();
        assert_eq!(hooks.called(), ["before_lease"]);
        let handle = pool.handle();
        let mut waiting = handle.acquire();
        assert!(poll_once(&mut waiting).await.is_pending());
        lease.exchange(async |_| Ok::<_, ()>(())).await.unwrap();
        drop(lease);
        assert_eq!(hooks.called(), ["after_return", "before_lease"], "a waiter is no exception");
        drop(soon(waiting).await.unwrap());
        hooks.called();
        soon(pool.close()).await;
        assert_eq!(hooks.called(), ["before_close"]);
        assert_eq!(*hooks.closes.lock().unwrap(), [CloseReason::Shutdown]);
    });
}

#[test]
fn a_failed_after_connect_is_a_failed_attempt() {
    on_cores(1, async move |runtime, _| {
        let (connector, hooks, script) = hooked();
        set(&hooks.fail_after_connect, true);
        let pool = Pool::builder(connector)
            .connect_backoff(Duration::from_millis(1), Duration::from_millis(1))
            .build(&runtime)
            .unwrap();
        let Err(AcquireError::Connect { source }) = soon(pool.acquire()).await.map(drop) else {
            panic!("no attempt succeeds")
        };
        assert_eq!((source.to_string().as_str(), script.live()), ("unfit on purpose", 0));
        set(&hooks.fail_after_connect, false);
        drop(soon(pool.acquire()).await.unwrap());
        assert_settled(&shard(&pool, 0).await);
        soon(pool.close()).await;
    });
}

#[test]
fn the_connect_time_out_covers_after_connect() {
    on_cores(1, async move |runtime, _| {
        let (connector, hooks, script) = hooked();
        set(&hooks.hang_after_connect, true);
        let pool = Pool::builder(connector)
            .slots_per_core(1)
            .connect_timeout(Duration::from_millis(20))
            .connect_backoff(Duration::from_millis(1), Duration::from_millis(1))
            .build(&runtime)
            .unwrap();
        let Err(AcquireError::Connect { source }) = soon(pool.acquire()).await.map(drop) else {
            panic!("no attempt succeeds")
        };
        assert_eq!((source.kind(), script.live()), (io::ErrorKind::TimedOut, 0));
        set(&hooks.hang_after_connect, false);
        drop(soon(pool.acquire()).await.unwrap());
        soon(pool.close()).await;
    });
}

#[test]
fn a_waiter_is_served_by_a_new_connection_when_the_one_it_waits_for_comes_back_unfit() {
    on_cores(1, async move |runtime, _| {
        for after_return in [true, false] {
            let (connector, hooks, script) = hooked();
            let pool =
                Pool::builder(connector).slots_per_core(1).no_acquire_timeout().build(&runtime).unwrap();
            let lease = soon(pool.acquire()).await.unwrap();
            let handle = pool.handle();
            let mut waiting = handle.acquire();
            assert!(poll_once(&mut waiting).await.is_pending());
            set(if after_return { &hooks.unfit_after_return } else { &hooks.unfit_before_lease }, true);
            drop(lease);
            drop(soon(waiting).await.unwrap());
            assert_eq!((script.connects(), script.peak()), (2, 1));
            drop(handle);
            soon(pool.close()).await;
        }
    });
}

#[test]
fn a_waiter_that_was_held_back_by_a_limit_gets_no_unfit_connection_either() {
    on_cores(2, async move |runtime, cores| {
        for home in cores {
            for dirty in [false, true] {
                let (connector, hooks, script) = hooked();
                let builder = Pool::builder(connector).slots_per_core(2).no_acquire_timeout();
                let pool = builder.build(&runtime).unwrap();
                let (tenant, other) =
                    (pool.handle_on(home).unwrap().limited(1), pool.handle_on(home).unwrap());
                let mut lease = soon(tenant.acquire()).await.unwrap();
                drop(soon(other.acquire()).await.unwrap());
                poll_until(async || pool.stats().await.shards.iter().any(|shard| shard.idle == 1)).await;
                let mut waiting = tenant.acquire();
                assert!(poll_once(&mut waiting).await.is_pending());
                poll_until(async || pool.stats().await.shards.iter().any(|shard| shard.held_back == 1)).await;
                set(&hooks.unfit_before_lease, true);
                let exchanged = lease.exchange(async |_| if dirty { Err(()) } else { Ok(()) }).await;
                assert_eq!(exchanged.is_err(), dirty);
                drop(lease);
                drop(soon(waiting).await.unwrap());
                assert_eq!(script.connects(), 3, "what there was is unfit");
                soon(pool.close()).await;
            }
        }
    });
}

#[test]
fn an_idle_connection_that_is_unfit_for_a_lease_is_closed_and_another_is_opened() {
    on_cores(2, async move |runtime, cores| {
        for (index, home) in cores.into_iter().enumerate() {
            let (connector, hooks, script) = hooked();
            let pool = Pool::builder(connector).slots_per_core(3).build(&runtime).unwrap();
            let handle = pool.handle_on(home).unwrap();
            let all = [
                soon(handle.acquire()).await.unwrap(),
                soon(handle.acquire()).await.unwrap(),
                soon(handle.acquire()).await.unwrap(),
            ];
            drop(all);
            poll_until(async || shard(&pool, index).await.idle == 3).await;
            set(&hooks.unfit_before_lease, true);
            drop(soon(handle.acquire()).await.unwrap());
            let stats = shard(&pool, index).await;
            assert_eq!((stats.closed_for(CloseReason::Broken), script.connects()), (3, 4));
            drop(handle);
            soon(pool.close()).await;
            assert_eq!(script.live(), 0);
        }
    });
}

#[test]
fn a_connection_that_is_unfit_after_a_lease_is_not_leased_again() {
    on_cores(2, async move |runtime, cores| {
        for (index, home) in cores.into_iter().enumerate() {
            let (connector, hooks, script) = hooked();
            let pool = Pool::builder(connector).slots_per_core(1).build(&runtime).unwrap();
            let handle = pool.handle_on(home).unwrap();
            set(&hooks.unfit_after_return, true);
            for round in 1..=3 {
                drop(soon(handle.acquire()).await.unwrap());
                poll_until(async || shard(&pool, index).await.connections() == 0).await;
                assert_eq!(script.connects(), round);
            }
            assert_eq!(shard(&pool, index).await.scheduler_failures, 0);
            // One that moves between cores is counted twice for a moment.
            assert!(index > 0 || script.peak() == 1, "no more than there may be");
            drop(handle);
            soon(pool.close()).await;
            assert_eq!(script.live(), 0);
        }
    });
}

#[test]
fn a_panic_after_a_lease_costs_the_connection_and_not_the_shard() {
    on_cores(2, async move |runtime, cores| {
        for (index, home) in cores.into_iter().enumerate() {
            let (connector, hooks, script) = hooked();
            let pool = Pool::builder(connector).slots_per_core(1).build(&runtime).unwrap();
            let theirs = pool.clone();
            for exchanged in [false, true] {
                let theirs = theirs.clone();
                let hooks = hooks.clone();
                let culprit = spawn(async move {
                    let mut lease = theirs.handle_on(home).unwrap().acquire().await.unwrap();
                    if exchanged {
                        lease.exchange(async |_| Ok::<_, ()>(())).await.unwrap();
                    }
                    set(&hooks.panic_after_return, true);
                    drop(lease);
                });
                assert!(soon(culprit).await.unwrap_err().is_panic());
            }
            drop(theirs);
            set(&hooks.panic_after_return, false);
            poll_until(async || script.live() == 0).await;
            drop(soon(pool.handle_on(home).unwrap().acquire()).await.unwrap());
            assert_eq!(shard(&pool, index).await.scheduler_failures, 0);
            soon(pool.drain(support::PATIENCE)).await.unwrap();
        }
    });
}

#[test]
fn what_hangs_while_it_is_closed_is_dropped_in_time_and_counts_until_then() {
    on_cores(1, async move |runtime, _| {
        for hangs_in_hook in [true, false] {
            let (connector, hooks, script) = hooked();
            let limit = Duration::from_millis(50);
            let pool =
                Pool::builder(connector).slots_per_core(1).close_timeout(limit).build(&runtime).unwrap();
            set(if hangs_in_hook { &hooks.hang_before_close } else { &script.hold_closes }, true);
            let mut lease = soon(pool.acquire()).await.unwrap();
            let _ = lease.exchange(async |_| Err::<(), ()>(())).await;
            let begun = Instant::now();
            drop(lease);
            let lease = soon(pool.acquire()).await.unwrap();
            assert!(begun.elapsed() >= limit, "its slot is not free before");
            assert_eq!((script.connects(), script.peak()), (2, 1));
            drop(lease);
            let begun = Instant::now();
            soon(pool.close()).await;
            assert!(
                begun.elapsed() >= limit && begun.elapsed() < support::PATIENCE / 2,
                "{:?}",
                begun.elapsed()
            );
            assert_eq!(script.live(), 0, "none is left after the close");
        }
    });
}

#[test]
fn what_never_becomes_fit_to_leave_its_core_is_given_up_in_time() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let limit = Duration::from_millis(30);
        let pool = Pool::builder(memory).slots_per_core(1).close_timeout(limit).build(&runtime).unwrap();
        let handle = pool.handle_on(cores[1]).unwrap();
        set(&script.hold_quiesce, true);
        let mut asked = handle.acquire();
        assert!(poll_once(&mut asked).await.is_pending());
        poll_until(async || shard(&pool, 1).await.closed_for(CloseReason::Broken) > 0).await;
        set(&script.hold_quiesce, false);
        // The acquire has kept its place meanwhile, and gets the next connection.
        drop(soon(asked).await.unwrap());
        let stats = settled(&pool, 1).await;
        assert_eq!(stats.acquires, 1, "counted once");
        drop(handle);
        soon(pool.close()).await;
        assert_eq!(script.live(), 0);
    });
}

const EVERY: Duration = Duration::from_millis(40);

#[test]
fn idle_connections_are_checked_again_and_again_and_used_ones_are_not() {
    on_cores(1, async move |runtime, _| {
        let (connector, hooks, script) = hooked();
        let pool = Pool::builder(connector).health_check(EVERY).build(&runtime).unwrap();
        let begun = Instant::now();
        let mut used = begun;
        while begun.elapsed() < 3 * EVERY {
            used = Instant::now();
            drop(soon(pool.acquire()).await.unwrap());
            corelet::runtime::sleep(EVERY / 20).await;
        }
        let quick = hooks.checks.load(Ordering::SeqCst);
        poll_until(async || hooks.checks.load(Ordering::SeqCst) >= quick + 3).await;
        assert!(used.elapsed() >= 3 * EVERY, "{:?} after the last use, {quick} early", used.elapsed());
        settled(&pool, 0).await;
        assert_eq!(script.connects(), 1);
        soon(pool.close()).await;
    });
}

#[test]
fn a_connection_that_fails_its_check_or_panics_in_it_is_closed() {
    on_cores(1, async move |runtime, _| {
        for panics in [false, true] {
            let (connector, hooks, script) = hooked();
            set(if panics { &hooks.panic_check } else { &hooks.fail_check }, true);
            let pool = Pool::builder(connector).health_check(EVERY).build(&runtime).unwrap();
            drop(soon(pool.acquire()).await.unwrap());
            poll_until(async || shard(&pool, 0).await.closed_for(CloseReason::Unhealthy) == 1).await;
            poll_until(async || script.live() == 0).await;
            let stats = settled(&pool, 0).await;
            assert_eq!((stats.opens, stats.scheduler_failures), (1, 0), "nobody asked for another");
            soon(pool.close()).await;
        }
    });
}

#[test]
fn a_check_that_always_fails_makes_no_tight_loop() {
    on_cores(1, async move |runtime, _| {
        let (connector, hooks, script) = hooked();
        set(&hooks.fail_check, true);
        let pool = Pool::builder(connector).min_idle(1).health_check(EVERY).build(&runtime).unwrap();
        let begun = Instant::now();
        poll_until(async || hooks.checks.load(Ordering::SeqCst) >= 4).await;
        assert!(begun.elapsed() >= 4 * EVERY, "{:?}", begun.elapsed());
        assert!(script.connects() <= 5);
        soon(pool.close()).await;
    });
}

#[test]
fn one_that_is_stuck_in_its_check_blocks_neither_the_others_nor_the_close() {
    on_cores(1, async move |runtime, _| {
        let (connector, hooks, script) = hooked();
        hooks.hang_check.store(0, Ordering::SeqCst);
        let pool = Pool::builder(connector).slots_per_core(2).health_check(EVERY).build(&runtime).unwrap();
        let handle = pool.handle();
        let both = (soon(handle.acquire()).await.unwrap(), soon(handle.acquire()).await.unwrap());
        drop(both);
        poll_until(async || {
            let stats = shard(&pool, 0).await;
            (stats.checking, stats.idle) == (1, 1)
        })
        .await;
        for _ in 0..20 {
            drop(soon(handle.acquire()).await.unwrap());
        }
        assert_eq!((script.connects(), shard(&pool, 0).await.checking), (2, 1));
        let begun = Instant::now();
        soon(pool.close()).await;
        assert!(begun.elapsed() < Duration::from_secs(4));
        assert_eq!(script.live(), 0);
    });
}

#[test]
fn a_check_has_a_time_limit() {
    on_cores(1, async move |runtime, _| {
        let (connector, hooks, script) = hooked();
        hooks.hang_check.store(0, Ordering::SeqCst);
        let pool = Pool::builder(connector)
            .health_check(EVERY)
            .connect_timeout(Duration::from_millis(20))
            .build(&runtime)
            .unwrap();
        drop(soon(pool.acquire()).await.unwrap());
        poll_until(async || shard(&pool, 0).await.closed_for(CloseReason::Unhealthy) == 1).await;
        poll_until(async || script.live() == 0).await;
        soon(pool.close()).await;
    });
}
