//! Those who use the pool: they ask, wait, give up, exchange, break off, and hold on to leases.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use corelet::pool::{AcquireError, Affinity, ExchangeError, Handle, Lease, Pool, Stage};
use corelet::runtime::{CoreId, JoinHandle, sleep, spawn, timeout, yield_now};
use futures_util::future::join;

use super::connector::{Tracked, TrackedConnector};
use super::cut::Cut;
use super::ledger::{Held, Ledger};
use super::order::{Observed, Terms};
use super::plan::Client;
use super::random::Random;

/// An exchange that takes longer is given up, for the upstream may be silent.
const EXCHANGE_LIMIT: Duration = Duration::from_millis(40);

/// A limit that changes nothing.
const NEVER_REACHED: usize = 1000;

/// A lease and what it counts as. The lease goes first: until then it is out.
pub struct Leased {
    // Dropped first: a lease that has begun to end is none of the handle's any more.
    _share: Share,
    lease: Lease<TrackedConnector>,
    _held: Held,
}

/// One of the leases that a handle may have.
struct Share(Rc<Cell<usize>>);

impl Drop for Share {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// One handle and what is known of it.
pub struct Tenant {
    handle: Handle<TrackedConnector>,
    number: u64,
    home: usize,
    spills: bool,
    deregistered: Cell<bool>,
    /// Leases that it may have, and has.
    limit: usize,
    out: Rc<Cell<usize>>,
}

#[derive(Clone)]
pub struct Site {
    pub ledger: Ledger,
    pub here: usize,
    pub cores: Vec<CoreId>,
}

impl Site {
    /// A handle, which spills if the pool's do, every other time.
    pub fn tenant(&self, pool: &Pool<TrackedConnector>, home: usize) -> Rc<Tenant> {
        let number = self.ledger.number();
        let limit = if self.ledger.plan.tight { 1 + number as usize % 2 } else { NEVER_REACHED };
        self.make_tenant(pool, home, number, number.is_multiple_of(2), limit)
    }

    /// A handle whose acquires are served by that shard only.
    pub fn strict_tenant(&self, pool: &Pool<TrackedConnector>, home: usize) -> Rc<Tenant> {
        self.make_tenant(pool, home, self.ledger.number(), true, NEVER_REACHED)
    }

    fn make_tenant(
        &self,
        pool: &Pool<TrackedConnector>,
        home: usize,
        number: u64,
        strict: bool,
        limit: usize,
    ) -> Rc<Tenant> {
        let core = self.cores[home];
        let handle = if home == self.here { pool.handle() } else { pool.handle_on(core).unwrap() };
        let handle = if strict { handle.with_affinity(Affinity::Local) } else { handle };
        let ruled = self.ledger.plan.ruled || limit < NEVER_REACHED;
        let limited = ruled && (strict || self.ledger.plan.affinity != Affinity::Spill);
        let handle = if limited { handle.limited(limit) } else { handle };
        let (limit, out) = (if limited { limit } else { usize::MAX }, Rc::default());
        let spills = self.ledger.plan.affinity == Affinity::Spill && !strict && home == self.here;
        if handle.home() != core {
            self.ledger.fault("a handle is bound to another shard than asked for");
        }
        Rc::new(Tenant { handle, number, home, spills, deregistered: Cell::new(false), limit, out })
    }

    /// Acquires, perhaps gives up, and checks what comes of it.
    pub async fn acquire(&self, tenant: &Tenant, within: Option<Duration>, cut: Cut) -> Option<Leased> {
        self.try_acquire(tenant, within, cut).await?.ok()
    }

    pub async fn try_acquire(
        &self,
        tenant: &Tenant,
        within: Option<Duration>,
        cut: Cut,
    ) -> Option<Result<Leased, AcquireError>> {
        let ledger = &self.ledger;
        let (acquire, limit) = match within {
            Some(limit) => (tenant.handle.acquire_within(limit), Some(limit)),
            None => (tenant.handle.acquire(), ledger.plan.acquire_timeout),
        };
        let Tenant { home, number: handle, spills, .. } = *tenant;
        let terms = Terms { home, here: self.here, handle, spills, limit };
        let outcome = cut.apply(Observed::new(acquire, ledger, terms)).await;
        match outcome {
            None => {
                ledger.book().tally.given_up += 1;
                None
            }
            Some(Ok(lease)) => {
                let elsewhere = lease.home() != self.cores[home];
                if elsewhere && !spills {
                    ledger.fault("a lease is of another shard than its handle");
                }
                let tally = &mut ledger.book().tally;
                tally.leases += 1;
                tally.far_leases += u64::from(home != self.here);
                tally.spilled_leases += u64::from(elsewhere);
                Some(Ok(lease))
            }
            Some(Err(error)) => {
                self.check_refusal(tenant, limit, &error);
                Some(Err(error))
            }
        }
        // Made only now, for it takes the book.
        .map(|result| {
            result.map(|lease| {
                tenant.out.set(tenant.out.get() + 1);
                if tenant.out.get() > tenant.limit {
                    ledger.fault(format!("a handle has {} leases of {}", tenant.out.get(), tenant.limit));
                }
                Leased { _share: Share(Rc::clone(&tenant.out)), lease, _held: Held::new(ledger) }
            })
        })
    }

    fn check_refusal(&self, tenant: &Tenant, limit: Option<Duration>, error: &AcquireError) {
        let book = &mut *self.ledger.book();
        let allowed = match error {
            AcquireError::Closed => {
                book.tally.closed += 1;
                book.closing.or(book.killed[tenant.home]).or(book.killed[self.here]).is_some()
            }
            AcquireError::Saturated { limit } => {
                book.tally.saturated += 1;
                *limit == self.ledger.plan.max_waiters
            }
            AcquireError::Timeout { stage, .. } => {
                book.tally.timed_out += 1;
                book.tally.limited += u64::from(*stage == Stage::Limited);
                limit.is_some() && (*stage != Stage::Limited || tenant.limit < NEVER_REACHED)
            }
            AcquireError::WouldMissDeadline { predicted_wait, .. } => {
                book.tally.would_miss += 1;
                self.ledger.plan.exact && limit.is_some_and(|limit| *predicted_wait > limit)
            }
            AcquireError::Connect { .. } => {
                book.tally.refused_connects += 1;
                book.failed_attempts[tenant.home] > 0
            }
            AcquireError::Deregistered => {
                book.tally.deregistered += 1;
                tenant.deregistered.get()
            }
            _ => false,
        };
        if !allowed {
            book.faults.push(format!("home {} from {}: {error:?} for no reason", tenant.home, self.here));
        }
    }

    /// One exchange of one or two requests. False when the lease is of no use any more.
    pub async fn exchange(&self, leased: &mut Leased, count: usize, cut: Cut) -> bool {
        let ledger = &self.ledger;
        let tags: Vec<u64> = (0..count).map(|_| ledger.number()).collect();
        let was_clean = leased.lease.is_clean();
        let begun = Cell::new(false);
        let exchange = leased.lease.exchange(async |connection: &mut Tracked| {
            begun.set(true);
            let id = connection.id();
            if !ledger.book().dirty.insert(id) {
                ledger.fault(format!("connection {id} is handed on in the middle of an exchange"));
            }
            let replies = connection.ask(&tags).await?;
            ledger.book().dirty.remove(&id);
            io::Result::Ok(replies)
        });
        let outcome = cut.apply(timeout(EXCHANGE_LIMIT, exchange)).await;
        let is_clean = leased.lease.is_clean();
        let book = &mut *ledger.book();
        match outcome {
            Some(Ok(Ok(replies))) => {
                book.tally.matched += 1;
                if replies != tags {
                    book.faults.push(format!("requests {tags:?} got the replies {replies:?}"));
                }
                // Bytes behind the replies may have made it dirty.
                is_clean
            }
            Some(Ok(Err(ExchangeError::Failed(_)))) => {
                book.tally.broken_exchanges += 1;
                if is_clean {
                    book.faults.push("a lease is clean after a failed exchange".to_owned());
                }
                false
            }
            Some(Ok(Err(_))) => {
                if was_clean || begun.get() {
                    book.faults.push("a clean lease refuses an exchange as dirty".to_owned());
                }
                false
            }
            None | Some(Err(_)) => {
                book.tally.cut_exchanges += 1;
                if begun.get() && is_clean {
                    book.faults.push("a lease is clean after an exchange that was cut off".to_owned());
                }
                !begun.get()
            }
        }
    }

    /// Uses a lease for a while, then drops it.
    async fn use_up(&self, mut leased: Leased, random: &mut Random) {
        pause(random).await;
        for _ in 0..random.below(4) {
            let (count, cut) = (1 + random.below(2), Cut::draw(random));
            if !self.exchange(&mut leased, count, cut).await && !random.one_in(4) {
                break;
            }
            pause(random).await;
        }
        drop(leased);
    }
}

async fn pause(random: &mut Random) {
    match random.below(4) {
        0 => yield_now().await,
        1 => sleep(random.some_time()).await,
        _ => {}
    }
}

/// One client from its first round to its last. Whatever it has started has ended with it.
pub async fn run(site: Site, pool: Pool<TrackedConnector>, client: Client) {
    let mut random = Random::new(client.seed);
    let mut tenants: Vec<Rc<Tenant>> = Vec::new();
    let mut helpers: Vec<JoinHandle<()>> = Vec::new();
    let mut pool = Some(pool);
    sleep(random.up_to(Duration::from_millis(10))).await;
    for _ in 0..client.rounds {
        if let Some(pool) = &pool
            && (tenants.is_empty() || random.one_in(4))
        {
            let home = match random.one_in(client.stays_home) {
                true => random.below(site.cores.len()),
                false => site.here,
            };
            tenants.push(site.tenant(pool, home));
        }
        if random.one_in(16) && !tenants.is_empty() {
            // From here on it has its handles only.
            pool = None;
        }
        if tenants.len() > 3 {
            drop(tenants.remove(random.below(4)));
        }
        let tenant = Rc::clone(&tenants[random.below(tenants.len())]);
        round(&site, tenant, &mut random, &mut helpers).await;
        pause(&mut random).await;
    }
    for helper in helpers {
        if let Err(error) = helper.await
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

async fn round(site: &Site, tenant: Rc<Tenant>, random: &mut Random, helpers: &mut Vec<JoinHandle<()>>) {
    let within = random.one_in(3).then(|| random.some_time());
    let cut = Cut::draw(random);
    match random.below(8) {
        // Two at the same time from one handle.
        0 => {
            let mut draws = Random::new(random.draw());
            let first = async {
                if let Some(leased) = site.acquire(&tenant, within, cut).await {
                    site.use_up(leased, random).await;
                }
            };
            let second = async {
                if let Some(leased) = site.acquire(&tenant, None, Cut::Never).await {
                    site.use_up(leased, &mut draws).await;
                }
            };
            join(first, second).await;
        }
        // Somebody else holds on to it.
        1 => {
            if let Some(leased) = site.acquire(&tenant, within, cut).await {
                let (site, mut random) = (site.clone(), Random::new(random.draw()));
                helpers.push(spawn(async move {
                    sleep(random.some_time()).await;
                    site.use_up(leased, &mut random).await;
                }));
            }
        }
        // A task of its own, which is stopped.
        2 => {
            let (site, mut draws) = (site.clone(), Random::new(random.draw()));
            let task = spawn(async move {
                if let Some(leased) = site.acquire(&tenant, within, cut).await {
                    site.use_up(leased, &mut draws).await;
                }
            });
            sleep(random.some_time()).await;
            drop(task);
        }
        // The handle is deregistered meanwhile, by somebody else.
        3 => {
            let (other, wait) = (Rc::clone(&tenant), random.some_time());
            let helper = spawn(async move {
                sleep(wait).await;
                other.deregistered.set(true);
                other.handle.deregister();
            });
            helpers.push(helper);
            if let Some(leased) = site.acquire(&tenant, within, cut).await {
                site.use_up(leased, random).await;
            }
        }
        _ => {
            if let Some(leased) = site.acquire(&tenant, within, cut).await {
                site.use_up(leased, random).await;
            }
        }
    }
}
