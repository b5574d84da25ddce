//! What is shown: the latest sample, and what has happened since the one before, by the second.

use std::collections::HashMap;

use clap::ValueEnum;
use corelet::observer::protocol::{Actor, Core, Pid, Pool, Shard};
use serde::Serialize;

use super::client::Sample;

/// Of the JSON object.
const FORMAT: u32 = 1;

/// All that is shown.
#[derive(Clone, Debug, Serialize)]
pub struct Model {
    pub format: u32,
    pub process: u32,
    pub program: String,
    /// The time since the observer was opened.
    pub at_ns: u64,
    /// Cores that did not answer.
    pub missing: Vec<u16>,
    pub cores: Vec<CoreRow>,
    pub pools: Vec<PoolRow>,
    pub actors: Vec<ActorRow>,
    /// How many actors there are, shown or not.
    pub actors_in_all: usize,
}

/// Rates are none where there was no earlier look.
#[derive(Clone, Debug, Serialize)]
pub struct CoreRow {
    #[serde(flatten)]
    pub core: Core,
    /// The part of the time that its thread was on a CPU.
    pub busy: Option<f64>,
    pub polls_per_s: Option<f64>,
    pub parks_per_s: Option<f64>,
    pub enters_per_s: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PoolRow {
    pub pool: u64,
    pub connector: String,
    pub slots: usize,
    pub closed: bool,
    pub shards: Vec<ShardRow>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ShardRow {
    #[serde(flatten)]
    pub shard: Shard,
    pub acquires_per_s: Option<f64>,
    pub waits_per_s: Option<f64>,
    pub opens_per_s: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ActorRow {
    #[serde(flatten)]
    pub actor: Actor,
    pub messages_per_s: Option<f64>,
    pub polls_per_s: Option<f64>,
    pub overruns_per_s: Option<f64>,
    pub cycles_per_s: Option<f64>,
}

/// What actors are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Polls a second
    Polls,
    /// Messages received a second
    Messages,
    /// Messages that wait in the mailboxes
    Mailbox,
    /// Polls that spent their whole budget, a second and in all
    Overruns,
    /// CPU ticks a second, where the process counts them
    Cycles,
    /// Running first, then ready, then waiting
    State,
    /// Identity
    Pid,
}

impl Sort {
    pub fn next(self) -> Sort {
        let all = Sort::value_variants();
        let place = all.iter().position(|sort| *sort == self).map_or(0, |place| place + 1);
        all[place % all.len()]
    }

    pub fn name(self) -> &'static str {
        match self {
            Sort::Polls => "polls",
            Sort::Messages => "messages",
            Sort::Mailbox => "mailbox",
            Sort::Overruns => "overruns",
            Sort::Cycles => "cycles",
            Sort::State => "state",
            Sort::Pid => "pid",
        }
    }
}

impl Model {
    /// The `earlier` sample is passed over when it is of another process, or of another life of the same observer.
    pub fn new(latest: &Sample, earlier: Option<&Sample>) -> Model {
        let earlier = earlier.filter(|earlier| {
            earlier.hello == latest.hello && earlier.overview.at_ns < latest.overview.at_ns
        });
        let (hello, overview) = (&latest.hello, &latest.overview);
        let cores_before = |core: u16| earlier?.overview.cores.iter().find(|earlier| earlier.core == core);
        let cores: Vec<CoreRow> =
            overview.cores.iter().map(|core| CoreRow::new(core, cores_before(core.core))).collect();
        // Pools and actors are looked at together with their core.
        let seconds = |core: u16| {
            let latest = overview.cores.iter().find(|latest| latest.core == core)?;
            span(latest.at_ns, cores_before(core)?.at_ns)
        };
        let actors_before: HashMap<Pid, &Actor> =
            earlier.iter().flat_map(|earlier| &earlier.actors).map(|actor| (actor.pid, actor)).collect();
        Model {
            format: FORMAT,
            process: hello.process,
            program: hello.program.clone(),
            at_ns: overview.at_ns,
            missing: overview.missing.clone(),
            cores,
            pools: overview
                .pools
                .iter()
                .map(|pool| {
                    let before = earlier.and_then(|earlier| {
                        earlier.overview.pools.iter().find(|before| before.pool == pool.pool)
                    });
                    PoolRow::new(pool, before, seconds)
                })
                .collect(),
            actors: latest
                .actors
                .iter()
                .map(|actor| {
                    let seconds = seconds(actor.pid.0.core().get());
                    ActorRow::new(actor, actors_before.get(&actor.pid).copied(), seconds)
                })
                .collect(),
            actors_in_all: latest.actors.len(),
        }
    }

    /// The most first, or, reversed, the least; equal ones by identity, so that rows do not jump.
    pub fn sort(&mut self, by: Sort, reversed: bool) {
        let identity = |row: &ActorRow| {
            let pid = row.actor.pid.0;
            (pid.core(), pid.index(), pid.generation())
        };
        let rate = |rate: Option<f64>| rate.unwrap_or(-1.0);
        self.actors.sort_by(|one, other| {
            let order = match by {
                Sort::Polls => rate(other.polls_per_s).total_cmp(&rate(one.polls_per_s)),
                Sort::Messages => rate(other.messages_per_s).total_cmp(&rate(one.messages_per_s)),
                Sort::Mailbox => other.actor.mailbox.cmp(&one.actor.mailbox),
                Sort::Overruns => rate(other.overruns_per_s)
                    .total_cmp(&rate(one.overruns_per_s))
                    .then(other.actor.overruns.cmp(&one.actor.overruns)),
                Sort::Cycles => rate(other.cycles_per_s).total_cmp(&rate(one.cycles_per_s)),
                Sort::State => one.actor.state.cmp(&other.actor.state),
                Sort::Pid => identity(one).cmp(&identity(other)),
            };
            let order = if reversed { order.reverse() } else { order };
            order.then_with(|| identity(one).cmp(&identity(other)))
        });
    }
}

/// The seconds between two times; none where there are none.
fn span(latest_ns: u64, earlier_ns: u64) -> Option<f64> {
    let nanoseconds = latest_ns.checked_sub(earlier_ns).filter(|span| *span > 0)?;
    Some(nanoseconds as f64 / 1e9)
}

/// How fast a counter grew. One that has gone back is another's.
fn rate(latest: u64, earlier: Option<u64>, seconds: Option<f64>) -> Option<f64> {
    Some(latest.checked_sub(earlier?)? as f64 / seconds?)
}

impl CoreRow {
    fn new(core: &Core, before: Option<&Core>) -> CoreRow {
        let seconds = before.and_then(|before| span(core.at_ns, before.at_ns));
        let per_second = |count: fn(&Core) -> u64| rate(count(core), before.map(count), seconds);
        let used = core.cpu_ns.and_then(|cpu| rate(cpu, before?.cpu_ns, seconds));
        CoreRow {
            busy: used.map(|nanoseconds| (nanoseconds / 1e9).min(1.0)),
            polls_per_s: per_second(|core| core.polls),
            parks_per_s: per_second(|core| core.parks),
            enters_per_s: per_second(|core| core.enters),
            core: core.clone(),
        }
    }
}

impl PoolRow {
    fn new(pool: &Pool, before: Option<&Pool>, seconds: impl Fn(u16) -> Option<f64>) -> PoolRow {
        let shard = |shard: &Shard| {
            let before = before.and_then(|pool| pool.shards.iter().find(|before| before.core == shard.core));
            let seconds = seconds(shard.core);
            let per_second = |count: fn(&Shard) -> u64| rate(count(shard), before.map(count), seconds);
            ShardRow {
                acquires_per_s: per_second(|shard| shard.acquires),
                waits_per_s: per_second(|shard| shard.waits),
                opens_per_s: per_second(|shard| shard.opens),
                shard: shard.clone(),
            }
        };
        PoolRow {
            pool: pool.pool,
            connector: pool.connector.clone(),
            slots: pool.slots,
            closed: pool.closed,
            shards: pool.shards.iter().map(shard).collect(),
        }
    }
}

impl ActorRow {
    fn new(actor: &Actor, before: Option<&Actor>, seconds: Option<f64>) -> ActorRow {
        let per_second = |count: fn(&Actor) -> u64| rate(count(actor), before.map(count), seconds);
        ActorRow {
            messages_per_s: per_second(|actor| actor.messages_received),
            polls_per_s: per_second(|actor| actor.polls),
            overruns_per_s: per_second(|actor| actor.overruns),
            cycles_per_s: per_second(|actor| actor.cycles),
            actor: actor.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::view::tests::{actor, sample};

    #[test]
    fn rates_are_what_has_happened_between_two_looks_on_the_same_core() {
        let (earlier, mut latest) = (sample(1), sample(3));
        latest.overview.cores[0].polls += 500;
        latest.overview.cores[0].cpu_ns = Some(1_500_000_000);
        latest.actors[0].messages_received += 40;
        latest.overview.pools[0].shards[0].acquires += 10;
        let model = Model::new(&latest, Some(&earlier));
        assert_eq!((model.cores[0].polls_per_s, model.cores[0].busy), (Some(250.0), Some(0.25)));
        assert_eq!(model.actors[0].messages_per_s, Some(20.0));
        assert_eq!(model.pools[0].shards[0].acquires_per_s, Some(5.0));
    }

    #[test]
    fn what_was_not_there_before_or_is_another_has_no_rates() {
        let (earlier, mut latest) = (sample(1), sample(3));
        latest.actors.push(actor(99, "new"));
        assert_eq!(Model::new(&latest, Some(&earlier)).actors.last().unwrap().polls_per_s, None);
        assert_eq!(Model::new(&latest, None).cores[0].busy, None);
        // The next process at the same path.
        latest.hello.process += 1;
        assert_eq!(Model::new(&latest, Some(&earlier)).cores[0].polls_per_s, None);
        // An observer that was opened anew.
        assert_eq!(Model::new(&earlier, Some(&sample(3))).cores[0].polls_per_s, None);
    }

    #[test]
    fn actors_are_sorted_by_what_was_asked_for_and_then_by_identity() {
        let mut model = Model::new(&sample(3), None);
        model.actors.iter_mut().zip([1.0, 3.0, 3.0]).for_each(|(row, rate)| row.polls_per_s = Some(rate));
        let order =
            |model: &Model| model.actors.iter().map(|row| row.actor.pid.0.index()).collect::<Vec<_>>();
        model.sort(Sort::Polls, false);
        assert_eq!(order(&model), [1, 2, 0]);
        model.sort(Sort::Polls, true);
        assert_eq!(order(&model), [0, 1, 2]);
        model.sort(Sort::Pid, true);
        assert_eq!(order(&model), [2, 1, 0]);
        let mut sort = Sort::Polls;
        for _ in Sort::value_variants() {
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Polls, "the key comes round");
    }
}
