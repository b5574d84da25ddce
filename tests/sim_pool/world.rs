//! One world from its seed to its end, and what must hold on the way and when all is over.

use std::time::Duration;

use corelet::pool::{AcquireError, Pool};
use corelet::runtime::{
    CoreId, Faults, RuntimeHandle, Simulation, handle, now, sleep, spawn, timeout, yield_now,
};
use futures_channel::oneshot;

use super::client::{self, Site};
use super::connector::TrackedConnector;
use super::cut::Cut;
use super::ledger::{Ledger, Tally};
use super::order::judge;
use super::plan::{Ending, Mishap, Plan};
use super::upstream::{self, ADDRESS, Order, Orders};

/// Longer than anything takes in a world where nothing goes wrong any more.
pub const CALM: Duration = Duration::from_secs(1);
/// A run that is not over by then never ends.
const TURNS: u64 = 2_000_000;

/// What the busiest core needs is below a thousand; one that spins makes more within a millisecond.
const POLLS: u64 = 10_000;

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub hash: u64,
    pub tally: Tally,
}

/// Runs the world of this seed.
///
/// # Panics
/// When anything did not hold, with the seed.
pub fn run(seed: u64, cores: usize) -> Outcome {
    let plan = Plan::draw(seed, cores);
    let ledger = Ledger::new(plan);
    let mut simulation = Simulation::new(seed, cores);
    simulation.turn_limit(TURNS);
    let world = World {
        ledger: ledger.clone(),
        faults: simulation.faults(),
        runtime: simulation.handle(),
        cores: simulation.cores(),
        orders: Orders::default(),
    };
    let ran = simulation.block_on(move || world.live()).and_then(|()| simulation.run_until_idle());
    if let Err(error) = ran {
        ledger.fault(error.to_string());
    }
    for position in 0..cores {
        let Some(stats) = simulation.stats(position) else { continue };
        let left = (
            stats.executor.live,
            stats.driver.in_flight,
            usize::from(stats.driver.buffers_out),
            stats.timers,
        );
        if left != (0, 0, 0, 0) {
            ledger.fault(format!("core {position}: tasks, operations, buffers, timers left: {left:?}"));
        }
        let polls = stats.executor.polls;
        if polls > POLLS {
            ledger.fault(format!("core {position} spins: {polls} polls"));
        }
    }
    let steps = ledger.book().steps.clone();
    for (shard, steps) in steps.iter().enumerate() {
        if let Err(what) = judge(steps, ledger.plan.fairness)
            && !ledger.plan.tight
        {
            ledger.fault(format!("shard {shard}: {what}"));
        }
    }
    let book = ledger.book();
    assert!(
        book.faults.is_empty(),
        "seed {seed} with {cores} cores (CORELET_SEED={seed}):\n{}\n{:#?}",
        book.faults.join("\n"),
        ledger.plan
    );
    Outcome { hash: simulation.trace_hash(), tally: book.tally }
}

#[derive(Clone)]
pub struct World {
    pub ledger: Ledger,
    faults: Faults,
    runtime: RuntimeHandle,
    cores: Vec<CoreId>,
    orders: Orders,
}

pub type TrackedPool = Pool<TrackedConnector>;

impl World {
    async fn live(self) {
        let plan = self.ledger.plan.clone();
        let (tell, told) = oneshot::channel();
        let (theirs, orders) = (self.ledger.clone(), self.orders.clone());
        let upstream = self.cores[plan.temper.core];
        handle().spawn_on(upstream, move || upstream::serve(theirs, orders, tell)).unwrap().detach();
        // Never told only when its core is killed first, and that takes longer.
        told.await.unwrap();
        let connector = TrackedConnector {
            ledger: self.ledger.clone(),
            address: ADDRESS.parse().unwrap(),
            cores: self.cores.clone(),
        };
        let mut builder = Pool::builder(connector)
            .slots_per_core(plan.slots)
            .max_waiters(plan.max_waiters)
            .max_connecting(plan.max_connecting)
            .fairness(plan.fairness)
            .affinity(plan.affinity)
            .connect_timeout(plan.connect_timeout)
            .connect_backoff(plan.backoff.0, plan.backoff.1);
        builder = builder.min_idle(plan.min_idle).lifetime_jitter(0.5);
        if let Some(limit) = plan.idle_timeout {
            builder = builder.idle_timeout(limit);
        }
        if let Some(limit) = plan.max_lifetime {
            builder = builder.max_lifetime(limit);
        }
        if let Some(interval) = plan.health_check {
            builder = builder.health_check(interval);
        }
        builder = match plan.breaker {
            Some(failures) => builder.breaker(failures),
            None => builder.no_breaker(),
        };
        builder = match plan.acquire_timeout {
            Some(limit) => builder.acquire_timeout(limit),
            None => builder.no_acquire_timeout(),
        };
        if let Some(limit) = plan.max_connections {
            builder = builder.max_connections(limit);
        }
        if plan.watched {
            builder = builder
                .detect_leaks(Duration::from_millis(5))
                .warn_slow_acquires(Duration::from_millis(1))
                .on_event(|_| {});
        }
        if plan.ruled {
            // Nobody waits for so long: what is tried is that nothing else changes.
            builder = builder.shed(Duration::from_secs(1000), Duration::from_secs(1000));
        }
        if plan.exact {
            builder = builder.expected_service_time(Duration::from_millis(10));
        }
        let pool = builder.build(&self.runtime).unwrap();
        let watch = plan.max_connections.map(|_| spawn(self.clone().watch_waiters(pool.clone())));
        let mut clients = Vec::new();
        for client in plan.clients.clone() {
            let (site, pool) = (self.site(client.core), pool.clone());
            let core = self.cores[client.core];
            let task = self.runtime.spawn_on(core, move || client::run(site, pool, client)).unwrap();
            clients.push((client.core, task));
        }
        let mishaps = spawn(self.clone().go_wrong(pool.clone()));
        for (core, task) in clients {
            match task.await {
                Ok(()) => {}
                Err(error) if error.is_cancelled() && self.ledger.book().killed[core].is_some() => {}
                Err(error) => self.ledger.fault(format!("a client on core {core} ended by {error}")),
            }
        }
        mishaps.await.unwrap();
        drop(watch);
        self.calm_down().await;
        if self.ledger.book().closing.is_none() {
            if timeout(CALM, pool.prewarm()).await.is_err() {
                self.ledger.fault("prewarm() does not return");
            }
            self.check_quiet(&pool).await;
            self.check_capacity(&pool).await;
        }
        self.end(pool).await;
        self.orders.give(Order::Stop);
    }

    pub fn site(&self, here: usize) -> Site {
        Site { ledger: self.ledger.clone(), here, cores: self.cores.clone() }
    }

    async fn go_wrong(self, pool: TrackedPool) {
        let address = ADDRESS.parse().unwrap();
        let begun = now();
        for (at, mishap) in self.ledger.plan.mishaps.clone() {
            sleep(at.saturating_sub(now() - begun)).await;
            match mishap {
                Mishap::Reset => drop(self.faults.reset_connections(address)),
                Mishap::HangUp => self.orders.give(Order::HangUp),
                Mishap::Stray => self.orders.give(Order::Stray),
                Mishap::Refuse(lasts) => self.orders.give(Order::Refuse(now() + lasts)),
                Mishap::Silence(lasts) => {
                    self.faults.silence(address);
                    self.heal_after(lasts);
                }
                Mishap::Unreachable(lasts) => {
                    self.faults.make_unreachable(address);
                    self.heal_after(lasts);
                }
                Mishap::Kill(position) => {
                    let mut book = self.ledger.book();
                    book.killed[position] = Some(now());
                    book.tally.kills += 1;
                    drop(book);
                    self.faults.kill_core(position);
                }
                Mishap::Close => self.close(&pool).await,
                Mishap::CloseAndForget => {
                    self.ledger.book().closing.get_or_insert_with(now);
                    let _ = Cut::Polls(1).apply(pool.close()).await;
                }
                Mishap::Drain(limit) => drop(self.drain(&pool, limit).await),
                Mishap::Limit(limit) => {
                    let mut book = self.ledger.book();
                    let (before, most) = book.max_connections;
                    // Those that there were may still be, each until it is closed.
                    book.max_connections = (limit, limit.max(if limit < before { most } else { 0 }));
                    drop(book);
                    pool.set_max_connections(limit).unwrap();
                }
                Mishap::Resize(slots) => {
                    let mut book = self.ledger.book();
                    book.slots = (slots, slots.max(book.slots.1));
                    drop(book);
                    pool.resize(slots).unwrap();
                }
                Mishap::Move => {
                    let moved = self.ledger.number();
                    self.ledger.book().moved = moved;
                    pool.refresh();
                }
                Mishap::Look => drop(self.look(&pool).await),
            }
            self.look(&pool).await;
        }
    }

    fn heal_after(&self, lasts: Duration) {
        let faults = self.faults.clone();
        spawn(async move {
            sleep(lasts).await;
            faults.heal(ADDRESS.parse().unwrap());
        })
        .detach();
    }

    async fn close(&self, pool: &TrackedPool) {
        self.ledger.book().closing.get_or_insert_with(now);
        if timeout(CALM, pool.close()).await.is_err() {
            self.ledger.fault("close() does not return");
        }
    }

    async fn drain(&self, pool: &TrackedPool, limit: Duration) -> bool {
        self.ledger.book().closing.get_or_insert_with(now);
        let begun = now();
        let drained = pool.drain(limit).await;
        let taken = now() - begun;
        let (held, live) = {
            let book = self.ledger.book();
            (book.held, book.live.clone())
        };
        if taken > limit + Duration::from_millis(1) {
            self.ledger.fault(format!("a drain took {taken:?} of {limit:?}"));
        }
        if drained.is_ok() && (held > 0 || live.iter().any(|live| *live > 0)) {
            self.ledger.fault(format!("drained, with {held} leases out and {live:?} connections"));
        }
        drained.is_ok()
    }

    /// Nothing goes wrong any more; what had begun comes to its end.
    async fn calm_down(&self) {
        self.ledger.book().friendly = true;
        self.faults.heal(ADDRESS.parse().unwrap());
        sleep(CALM).await;
    }

    async fn end(&self, pool: TrackedPool) {
        let plan = self.ledger.plan.clone();
        let site = self.site(0);
        let tenants: Vec<_> = (0..plan.cores).map(|home| site.strict_tenant(&pool, home)).collect();
        let mut leases = Vec::new();
        let was_closing = self.ledger.book().closing.is_some();
        if !was_closing && plan.ending != Ending::Close {
            for tenant in &tenants {
                leases.extend(site.acquire(tenant, Some(CALM), Cut::Never).await);
            }
        }
        match plan.ending {
            Ending::Drain => {
                let release = async {
                    sleep(Duration::from_millis(5)).await;
                    leases.clear();
                };
                let (drained, ()) = futures_util::future::join(self.drain(&pool, CALM), release).await;
                if !drained {
                    self.ledger.fault("a drain does not hear of the last lease");
                }
            }
            Ending::Drop if !was_closing => {
                // Leases do not keep it.
                self.ledger.book().closing.get_or_insert_with(now);
                drop((tenants, pool));
                sleep(CALM).await;
                drop(leases);
                return self.check_ended().await;
            }
            _ => self.close(&pool).await,
        }
        for (home, tenant) in tenants.iter().enumerate() {
            let refused = site.try_acquire(tenant, None, Cut::Never).await;
            if !matches!(refused, Some(Err(AcquireError::Closed))) {
                self.ledger.fault(format!("shard {home} grants after the close"));
            }
        }
        drop((tenants, leases));
        yield_now().await;
        if !self.drain(&pool, CALM).await {
            self.ledger.fault("a drain without leases does not return");
        }
        self.look(&pool).await;
        drop(pool);
        self.check_ended().await;
    }
}
