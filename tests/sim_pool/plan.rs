//! What one seed makes of a world: the pool's settings, who uses it, how its upstream behaves and what goes wrong when.

use std::time::Duration;

use corelet::pool::{Affinity, Fairness};

use super::random::Random;

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub cores: usize,
    pub slots: usize,
    /// Over all cores.
    pub max_connections: Option<usize>,
    pub max_waiters: usize,
    pub max_connecting: usize,
    pub fairness: Fairness,
    pub affinity: Affinity,
    pub acquire_timeout: Option<Duration>,
    pub connect_timeout: Duration,
    pub backoff: (Duration, Duration),
    pub breaker: Option<u32>,
    pub min_idle: usize,
    pub idle_timeout: Option<Duration>,
    pub max_lifetime: Option<Duration>,
    pub health_check: Option<Duration>,
    /// The connector asks the upstream something before a connection counts as open.
    pub handshake: bool,
    pub temper: Temper,
    pub clients: Vec<Client>,
    /// The pool watches its leases and waits, and is observed.
    pub watched: bool,
    /// Every handle has a limit, and may be shed from, and neither is ever reached.
    pub ruled: bool,
    /// Handles that do not spill may have a lease or two, and wait for their own. Who waits for its own is overtaken, so
    /// the order of service is not judged then.
    pub tight: bool,
    /// What would miss its deadline is refused.
    pub exact: bool,
    pub mishaps: Vec<(Duration, Mishap)>,
    pub ending: Ending,
}

/// One in so many; `usize::MAX` is never.
#[derive(Clone, Copy, Debug)]
pub struct Temper {
    pub core: usize,
    pub silent: usize,
    pub hangs_up: usize,
    pub strays: usize,
    pub slow: usize,
    /// Of the connector: attempts that fail, hang or panic without ever reaching the network.
    pub connect_faults: usize,
    /// Of a connection: being closed takes long, or it turns out unfit to leave its core.
    pub connection_faults: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct Client {
    pub core: usize,
    pub seed: u64,
    pub rounds: usize,
    /// How often it asks another core's shard: one in so many.
    pub stays_home: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// All connections break.
    Reset,
    /// The upstream closes all its connections.
    HangUp,
    /// Bytes nobody asked for, on all connections.
    Stray,
    /// Connections come about and are not accepted.
    Silence(Duration),
    /// Attempts to connect get no answer.
    Unreachable(Duration),
    /// Nobody listens.
    Refuse(Duration),
    Kill(usize),
    /// So many connections over all cores are enough.
    Limit(usize),
    /// So many slots on each core are enough.
    Resize(usize),
    /// No connection that there is now is of use any more.
    Move,
    Close,
    /// A close whose future is dropped.
    CloseAndForget,
    Drain(Duration),
    /// Looks at the counts in the middle of it all.
    Look,
}

/// How the pool ends, unless a mishap was quicker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Close,
    /// With leases out on every core.
    CloseWithLeases,
    Drain,
    /// Every pool and every handle is dropped.
    Drop,
}

impl Plan {
    /// Nothing but the network's own delays stands in the way of a connection.
    pub fn is_smooth(&self) -> bool {
        let Temper { silent, slow, connect_faults, connection_faults, .. } = self.temper;
        let harmless = |(_, mishap): &(Duration, Mishap)| matches!(mishap, Mishap::Limit(_) | Mishap::Look);
        [silent, connect_faults, connection_faults].iter().all(|chances| *chances == usize::MAX)
            && (slow == usize::MAX || !self.handshake)
            && self.max_lifetime.is_none()
            && self.health_check.is_none()
            && self.mishaps.iter().all(harmless)
    }

    pub fn draw(seed: u64, cores: usize) -> Plan {
        let random = &mut Random::new(seed ^ 0x706f_6f6c);
        let rough = !random.one_in(4);
        let chance = |random: &mut Random, choices: &[usize]| {
            if rough { random.pick(choices) } else { usize::MAX }
        };
        let temper = Temper {
            core: if random.one_in(4) { random.below(cores) } else { 0 },
            silent: chance(random, &[6, 30, usize::MAX]),
            hangs_up: chance(random, &[5, 20, usize::MAX]),
            strays: chance(random, &[5, 20, usize::MAX]),
            slow: random.pick(&[2, 10, usize::MAX]),
            connect_faults: chance(random, &[3, 10, usize::MAX, usize::MAX]),
            connection_faults: chance(random, &[4, 16, usize::MAX]),
        };
        let backoff = random.pick(&[1, 5, 20]);
        let mut clients = Vec::new();
        for core in 0..cores {
            for _ in 0..1 + random.below(4) {
                clients.push(Client {
                    core,
                    seed: random.draw(),
                    rounds: 2 + random.below(8),
                    stays_home: random.pick(&[1, 2, 4]),
                });
            }
        }
        let mut mishaps = Vec::new();
        if rough {
            for _ in 0..random.below(5) {
                let lasts = random.up_to(Duration::from_millis(60));
                let mishap = match random.below(7) {
                    0 => Mishap::Reset,
                    1 => Mishap::HangUp,
                    2 => Mishap::Stray,
                    3 => Mishap::Silence(lasts),
                    4 => Mishap::Unreachable(lasts),
                    5 => Mishap::Refuse(lasts),
                    _ => Mishap::Look,
                };
                mishaps.push((random.up_to(Duration::from_millis(80)), mishap));
            }
        }
        for position in 1..cores {
            if random.one_in(3) {
                mishaps.push((random.up_to(Duration::from_millis(60)), Mishap::Kill(position)));
            }
        }
        if random.one_in(4) {
            let limit = random.up_to(Duration::from_millis(100));
            let end = random.pick(&[Mishap::Close, Mishap::CloseAndForget, Mishap::Drain(limit)]);
            mishaps.push((random.up_to(Duration::from_millis(60)), end));
        }
        let slots = 1 + random.below(3);
        let max_connections = random.one_in(2).then(|| 1 + random.below(slots * cores));
        if max_connections.is_some() && random.one_in(3) {
            for _ in 0..1 + random.below(3) {
                let limit = Mishap::Limit(1 + random.below(slots * cores));
                mishaps.push((random.up_to(Duration::from_millis(60)), limit));
            }
        }
        let changes = random.one_in(3);
        if changes {
            for _ in 0..1 + random.below(3) {
                let change =
                    if random.one_in(3) { Mishap::Move } else { Mishap::Resize(1 + random.below(4)) };
                mishaps.push((random.up_to(Duration::from_millis(60)), change));
            }
        }
        let ages = random.one_in(2);
        let age = |random: &mut Random, times: &[u64]| {
            let time = random.pick(times);
            (ages && time > 0).then(|| Duration::from_millis(time))
        };
        mishaps.sort_by_key(|(at, _)| *at);
        Plan {
            seed,
            watched: seed.is_multiple_of(2),
            ruled: seed.is_multiple_of(3),
            tight: seed.is_multiple_of(5),
            exact: seed.is_multiple_of(7),
            cores,
            slots,
            max_connections,
            max_waiters: random.pick(&[1, 2, 4, 64, 64]),
            max_connecting: 1 + random.below(3),
            fairness: random.pick(&[Fairness::Fifo, Fairness::RoundRobin]),
            affinity: random.pick(&[Affinity::Local, Affinity::Spill]),
            // Without a limit nothing hides a lost wake-up.
            acquire_timeout: random.pick(&[
                None,
                None,
                Some(Duration::from_millis(2)),
                Some(Duration::from_millis(20)),
                Some(Duration::from_secs(5)),
            ]),
            connect_timeout: random.pick(&[Duration::from_millis(3), Duration::from_millis(30)]),
            backoff: (Duration::from_millis(backoff), Duration::from_millis(backoff * 8)),
            breaker: random.pick(&[None, Some(1), Some(3), Some(5)]),
            min_idle: if random.one_in(2) { random.below(4) } else { 0 },
            idle_timeout: age(random, &[0, 10, 50, 300]),
            max_lifetime: age(random, &[0, 30, 200]),
            health_check: age(random, &[0, 0, 40]),
            handshake: random.one_in(3),
            temper,
            clients,
            mishaps,
            ending: random.pick(&[Ending::Close, Ending::CloseWithLeases, Ending::Drain, Ending::Drop]),
        }
    }
}
