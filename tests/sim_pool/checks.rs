//! What must hold of a world: at every moment, when all is quiet, and when all is over.

use std::time::{Duration, Instant};

use corelet::pool::{AcquireError, CloseReason, PoolStats, ShardStats};
use corelet::runtime::{now, sleep, timeout};

use super::client::{Leased, Tenant};
use super::cut::Cut;
use super::world::{CALM, TrackedPool, World};

/// Longer than the simulated network takes.
const SETTLED: Duration = Duration::from_millis(20);

/// Longer than it takes for a core to find that it has a connection to spare, to close it, and for another to open one.
const NEGLECT: Duration = Duration::from_millis(50);

impl World {
    /// The counts as they are at some moment, and what holds of them at every moment.
    pub async fn look(&self, pool: &TrackedPool) -> PoolStats {
        let Ok(stats) = timeout(CALM, pool.stats()).await else {
            self.ledger.fault("stats() does not return");
            return pool.stats().await;
        };
        let plan = &self.ledger.plan;
        for (position, shard) in stats.shards.iter().enumerate() {
            let killed = self.ledger.book().killed[position].is_some();
            let fault = |what: &str| self.ledger.fault(format!("shard {position}: {what}: {shard:?}"));
            if shard.scheduler_spawns != 1 && !killed {
                fault("there is one scheduler for each shard");
            }
            if shard.scheduler_failures != 0 {
                fault("a scheduler has failed");
            }
            let (fates, there) =
                (fates(shard), (shard.idle + shard.leased + shard.opening + shard.checking) as u64);
            let pending = shard.acquires.wrapping_sub(fates);
            if pending < shard.waiting as u64 || pending > (shard.waiting + shard.leased) as u64 {
                fault("every acquire has one fate");
            }
            if shard.opens != shard.connect_failures + shard.closes.iter().sum::<u64>() + there {
                fault("every open has one end");
            }
            if shard.credits < shard.connections() && !killed {
                fault("a connection has no credit");
            }
            // The counts of a killed one are those of its last moment.
            let slots = if killed { usize::MAX } else { self.ledger.book().slots.1 };
            if shard.connections() > slots || shard.waiting > plan.max_waiters {
                fault("a limit is exceeded");
            }
            if shard.waiting > shard.held_back && shard.idle > 0 {
                fault("somebody waits beside an idle connection");
            }
        }
        stats
    }

    /// All is given back, and pool, connector and upstream agree on what there is. Where connections come and go by
    /// themselves, it is enough that they agree at some moment.
    pub async fn check_quiet(&self, pool: &TrackedPool) {
        let plan = &self.ledger.plan;
        let restless = plan.max_lifetime.is_some() || plan.health_check.is_some() || plan.min_idle > 0;
        let mut looks = if restless { 400 } else { 1 };
        loop {
            let stats = self.look(pool).await;
            let mut faults = self.disagreements(&stats);
            looks -= 1;
            if faults.is_empty() || looks == 0 {
                return self.ledger.book().faults.append(&mut faults);
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn disagreements(&self, stats: &PoolStats) -> Vec<String> {
        let (upstream, strangers) = self.ledger.upstream_counts();
        let plan = &self.ledger.plan;
        let book = &mut *self.ledger.book();
        let mut faults = Vec::new();
        let (all, limit) = (book.live.iter().sum::<usize>(), book.max_connections.0);
        if all > limit {
            faults.push(format!("{all} connections are left, and {limit} may be"));
        }
        book.max_connections.1 = limit;
        let slots = book.slots.0;
        let tally = &mut book.tally;
        let closed = |reason| stats.sum(|shard| shard.closed_for(reason));
        tally.rebalanced = closed(CloseReason::Rebalanced);
        tally.hungry_waits = stats.sum(|shard| shard.hungry_waits);
        tally.idled = closed(CloseReason::Idle);
        tally.expired = closed(CloseReason::Expired);
        tally.superseded = closed(CloseReason::Superseded);
        tally.resized = closed(CloseReason::Resized);
        tally.prepared = stats.sum(|shard| shard.opens.saturating_sub(shard.acquires));
        if book.held != 0 || strangers != 0 {
            faults.push(format!("{} leases are out, {strangers} connections are nobody's", book.held));
        }
        let reachable = book.killed[plan.temper.core].is_none() && plan.max_connections.is_none();
        for (position, shard) in stats.shards.iter().enumerate() {
            let idle = if book.killed[position].is_some() { 0 } else { shard.idle };
            if book.live[position] != idle || upstream[position] != idle {
                faults.push(format!(
                    "shard {position}: {idle} connections are idle, {} exist and the upstream has {}",
                    book.live[position], upstream[position]
                ));
            }
            if book.killed[position].is_some() {
                continue;
            }
            if (shard.waiting, shard.leased, shard.opening + shard.checking, shard.closing) != (0, 0, 0, 0) {
                faults.push(format!("shard {position} is not quiet: {shard:?}"));
            }
            if reachable && shard.idle < plan.min_idle.min(slots) {
                faults.push(format!("shard {position} keeps too few: {shard:?}"));
            }
            if plan.idle_timeout.is_some_and(|limit| limit * 2 < CALM) && shard.idle > plan.min_idle {
                faults.push(format!("shard {position} keeps too many: {shard:?}"));
            }
            let attempts = (book.attempts[position], book.failed_attempts[position]);
            if attempts != (shard.opens, shard.connect_failures) {
                faults.push(format!("shard {position}: {attempts:?} attempts, and it counts {shard:?}"));
            }
        }
        if faults.is_empty() {
            book.slots.1 = slots;
        }
        faults
    }

    /// Every slot of every shard that is left can be leased, all at the same time.
    pub async fn check_capacity(&self, pool: &TrackedPool) {
        let (plan, site) = (self.ledger.plan.clone(), self.site(0));
        let killed = self.ledger.book().killed.clone();
        for (home, killed_home) in killed.iter().enumerate() {
            let tenant = site.strict_tenant(pool, home);
            if killed_home.is_some() {
                if !matches!(
                    site.try_acquire(&tenant, None, Cut::Never).await,
                    Some(Err(AcquireError::Closed))
                ) {
                    self.ledger.fault("the shard of a killed core does not refuse as closed");
                }
                continue;
            }
            if killed[plan.temper.core].is_some() {
                continue;
            }
            let mut leases = Vec::new();
            let limit = self.ledger.book().max_connections.0;
            let slots = self.ledger.book().slots.0.min(limit);
            for slot in 0..slots {
                match self.lease_at_last(&tenant).await {
                    Ok(leased) => leases.push(leased),
                    Err(error) => self.ledger.fault(format!("slot {slot} of shard {home} is lost: {error}")),
                }
            }
            // Those who give up leave the queue, however far it is.
            for micros in [0, 30, 300] {
                let cut = Cut::After(Duration::from_micros(micros));
                drop(site.acquire(&tenant, None, cut).await);
            }
            sleep(SETTLED).await;
            let shard = self.look(pool).await.shards[home].clone();
            if (shard.waiting, shard.leased) != (0, slots) {
                self.ledger.fault(format!("shard {home} lets somebody wait who has given up: {shard:?}"));
            }
            let waiter = site.try_acquire(&tenant, Some(CALM), Cut::Never);
            let release = async {
                sleep(Duration::from_millis(10)).await;
                drop(leases.pop());
            };
            let (served, ()) = futures_util::future::join(waiter, release).await;
            // The lease may have been the connection's last, and the next connection may not come about.
            let replaced = |error: &AcquireError| plan.max_lifetime.is_some() && error.is_connection_fault();
            let fair =
                matches!(&served, Some(Ok(_))) || matches!(&served, Some(Err(error)) if replaced(error));
            if !fair {
                let how = served.map(|served| served.map(drop));
                self.ledger.fault(format!("a waiter of shard {home} is not served by a release: {how:?}"));
            }
        }
        sleep(CALM).await;
        self.check_quiet(pool).await;
    }

    /// Nobody waits for long while another core has a connection that it does not use. Not judged where connections
    /// come with difficulty.
    pub async fn watch_waiters(self, pool: TrackedPool) {
        let mut since: Vec<Option<Instant>> = vec![None; self.ledger.plan.cores];
        while self.ledger.plan.is_smooth() {
            sleep(Duration::from_millis(1)).await;
            let stats = self.look(&pool).await;
            let idle = |besides: usize| {
                stats.shards.iter().enumerate().any(|(shard, stats)| shard != besides && stats.idle > 0)
            };
            for (position, shard) in stats.shards.iter().enumerate() {
                let waits = shard.waiting > shard.opening && shard.connections() < self.ledger.plan.slots;
                if !waits || !idle(position) {
                    since[position] = None;
                } else if now() - *since[position].get_or_insert_with(now) > NEGLECT {
                    self.ledger.fault(format!("shard {position} waits beside idle connections: {stats:?}"));
                    return;
                }
            }
        }
    }

    /// A lease that works. The network has its delays, so an attempt may fail even now, but not for ever.
    async fn lease_at_last(&self, tenant: &Tenant) -> Result<Leased, String> {
        let site = self.site(0);
        let mut failures = Vec::new();
        while failures.len() < 10 {
            match site.try_acquire(tenant, Some(CALM), Cut::Never).await {
                Some(Ok(mut leased)) => {
                    if site.exchange(&mut leased, 1, Cut::Never).await {
                        return Ok(leased);
                    }
                    failures.push("an exchange failed".to_owned());
                }
                Some(Err(error)) if error.is_connection_fault() => failures.push(error.to_string()),
                Some(Err(error)) => return Err(error.to_string()),
                None => unreachable!("it is not cut off"),
            }
            // Beyond the longest back-off.
            sleep(CALM).await;
        }
        Err(failures.join("; "))
    }

    pub async fn check_ended(&self) {
        sleep(CALM).await;
        let (upstream, strangers) = self.ledger.upstream_counts();
        let book = &mut *self.ledger.book();
        let left = book.live.iter().chain(&upstream).sum::<usize>() + strangers + book.held;
        if left > 0 {
            let what = format!("left after the end: {:?} {upstream:?} {strangers} {}", book.live, book.held);
            book.faults.push(what);
        }
    }
}

fn fates(shard: &ShardStats) -> u64 {
    shard.granted_immediately
        + shard.granted_after_wait
        + shard.cancelled
        + shard.timed_out
        + shard.saturated
        + shard.would_miss
        + shard.shed
        + shard.refused
}
