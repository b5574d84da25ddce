//! What ownership costs: corelet's designs beside those that they took the place of.
//!
//! Four scopes: connections, push queues, start-up and pools. Each has its scenarios and its references in
//! `benches/ownership`. Before a case is timed, it is counted, and the counts are held to what they must be. No time is
//! held to anything.
//!
//! A whole run writes `target/baselines/ownership.jsonl`, of which `tools/baselines` makes the table and the charts in
//! `docs/`. With `--test`, which only shows that everything runs, the file is `ownership-trial.jsonl`.

mod common;
mod ownership;

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use corelet::pool::Fairness;
use corelet::runtime::Core;
use corelet::service::push::Priority;
use criterion::{Criterion, Throughput};

use common::{HERE, THERE, core, pin};
use ownership::connection::{self, Cancel, FRAMES, Source};
use ownership::counts::{Counter, Counts};
use ownership::machine;
use ownership::pool::actor::Actor;
use ownership::pool::cloned_graph::ClonedGraph;
use ownership::pool::spawn_on_demand::SpawnOnDemand;
use ownership::pool::{self, TASKS_PER_SLOT};
use ownership::push::{self, CAPACITY, CoreOwned, MutexShared};
use ownership::report::{self, Label, Row};
use ownership::samples::{Sample, Samples};
use ownership::startup::{
    self, Factory, FactoryPerConnection, Loopback, MIDDLEWARE, PreparedOnce, ROUTES, Settings,
};

const SAMPLES: usize = 30;
const POOL_SIZES: [usize; 3] = [1, 4, 16];
/// Slots of the contended pool, and of that whose life is followed.
const SLOTS: usize = 4;
const POLICIES: [(&str, Fairness); 2] = [("fifo", Fairness::Fifo), ("round_robin", Fairness::RoundRobin)];
/// Operations that are counted, of cases that do not say otherwise.
const COUNTED: u64 = 1_000;
/// Connections that are counted.
const CONNECTIONS: u64 = 100;

/// Measures cases and keeps their rows.
struct Bench {
    criterion: Criterion,
    rows: Vec<Row>,
    /// Operations for each distribution.
    latency: u64,
    /// A case was left out, as the command line asks for.
    partial: bool,
}

impl Bench {
    /// Has criterion time `run`, which is told how often and does `batch` operations each time.
    fn time(
        &mut self,
        label: Label,
        operation: &'static str,
        batch: u64,
        counts: Counts,
        mut run: impl FnMut(u64) -> Duration,
    ) {
        let mut samples = Samples::new(SAMPLES);
        let mut group = self.criterion.benchmark_group(format!("{}/{}", label.scope, label.case));
        group.sampling_mode(criterion::SamplingMode::Flat).throughput(Throughput::Elements(batch));
        group.bench_function(label.subject, |bencher| {
            bencher.iter_custom(|times| {
                let elapsed = run(times);
                samples.push(Sample { operations: times * batch, elapsed });
                elapsed
            });
        });
        group.finish();
        let spread = samples.spread();
        self.partial |= spread.is_none();
        self.rows.push(Row { label, operation, counts: Some(counts), spread, latency: None });
    }
}

fn connections<S: connection::Subject>(bench: &mut Bench) {
    let cases = [
        ("pushes/cancel_never", Source::Pushes, Cancel::Never),
        ("pushes/cancel_triggered", Source::Pushes, Cancel::Triggered),
        ("requests/cancel_never", Source::Requests, Cancel::Never),
    ];
    for (case, source, cancel) in cases {
        let mut core = core(Duration::ZERO);
        let world = Rc::new(connection::World::<S>::new(source, cancel));
        let counted = Rc::clone(&world);
        let counts = core.block_on(async move { counted.count().await }).unwrap();
        counts.expect(Counter::FramesQueued, FRAMES).expect(Counter::FramesSent, FRAMES);
        let label = Label::new("connection", case, S::NAME, S::REFERENCE);
        bench.time(label, "a frame through the connection", FRAMES, counts, |times| {
            let world = Rc::clone(&world);
            core.block_on(async move { world.time(times).await }).unwrap()
        });
    }
}

fn pushes<S: push::Subject>(bench: &mut Bench) {
    for (name, priority) in [("high", Priority::High), ("low", Priority::Low)] {
        let label = Label::new("push", format!("draining/{name}"), S::NAME, S::REFERENCE);
        push_and_take::<S>(bench, label, priority, false);
    }
    let label = Label::new("push", "limited/low", S::NAME, S::REFERENCE);
    push_and_take::<S>(bench, label, Priority::Low, true);
    let mut core = core(Duration::ZERO);
    let (subject, counts) = core
        .block_on(async {
            let subject = S::new(false);
            let counts = push::count_refused(&subject, Priority::Low, COUNTED);
            (Rc::new(subject), counts)
        })
        .unwrap();
    counts.expect(Counter::PushesRefused, COUNTED).expect_allocations(0);
    let label = Label::new("push", "full/low", S::NAME, S::REFERENCE);
    bench.time(label, "a push that is refused", 1, counts, |times| {
        let subject = Rc::clone(&subject);
        core.block_on(async move { push::time_refused(&*subject, Priority::Low, times) }).unwrap()
    });
    core.block_on(async move { drop(subject) }).unwrap();
}

fn push_and_take<S: push::Subject>(bench: &mut Bench, label: Label, priority: Priority, limited: bool) {
    let mut core = core(Duration::ZERO);
    let counted = async move {
        let mut subject = S::new(limited);
        let counts = push::count_draining(&mut subject, priority, COUNTED);
        (subject, counts)
    };
    let (subject, counts) = core.block_on(counted).unwrap();
    counts.expect_allocations(0).expect(Counter::TasksSpawned, 0);
    let mut place = Some(subject);
    bench.time(label, "a push, and the frame taken out", 1, counts, |times| {
        let mut subject = place.take().unwrap();
        let timed = async move {
            let elapsed = push::time_draining(&mut subject, priority, times);
            (subject, elapsed)
        };
        let (subject, elapsed) = core.block_on(timed).unwrap();
        place = Some(subject);
        elapsed
    });
    core.block_on(async move { drop(place) }).unwrap();
}

fn startups<S: startup::Subject>(bench: &mut Bench) {
    let expect = |counts: &Counts| {
        let calls = S::factory_calls(CONNECTIONS);
        counts.expect(Counter::FactoryCalls, calls).expect(Counter::ApplicationsPrepared, calls);
        counts.expect(Counter::MiddlewareTransformations, calls * ROUTES * MIDDLEWARE);
    };
    let mut core_here = core(Duration::ZERO);
    let counts = core_here.block_on(startup::count_set_up::<S>(ROUTES, CONNECTIONS)).unwrap();
    expect(&counts);
    let label = Label::new("startup", "in_memory", S::NAME, S::REFERENCE);
    let world = Rc::new((S::new(Factory::new(ROUTES)), Settings::default()));
    bench.time(label, "a connection that ends at once", 1, counts, |times| {
        let world = Rc::clone(&world);
        core_here.block_on(async move { startup::time_set_up(&world.0, &world.1, times).await }).unwrap()
    });

    let mut core = core(Duration::ZERO);
    let counts = core.block_on(startup::count_loopback::<S>(CONNECTIONS)).unwrap();
    expect(&counts);
    let label = Label::new("startup", "loopback", S::NAME, S::REFERENCE);
    let mut place = Some(core.block_on(async { Loopback::<S>::new(Factory::new(ROUTES)) }).unwrap());
    let mut connect = |core: &mut Core, count: u64| {
        let mut loopback = place.take().unwrap();
        let served = async move {
            let (elapsed, latency) = loopback.connections(count, || pin(THERE)).await;
            (loopback, elapsed, latency)
        };
        let (loopback, elapsed, latency) = core.block_on(served).unwrap();
        place = Some(loopback);
        (elapsed, latency)
    };
    bench.time(label, "connect, a request, its reply, close", 1, counts, |times| connect(&mut core, times).0);
    let row = bench.rows.last_mut().unwrap();
    if row.spread.is_some() {
        let latency = connect(&mut core, (bench.latency / 20).max(1)).1;
        row.latency = Some(("a connection, from connect to reply, as its client sees it", latency));
    }
    core.block_on(async move { drop(place) }).unwrap();
}

fn pools<S: pool::Subject>(bench: &mut Bench) {
    for slots in POOL_SIZES {
        let mut core = core(Duration::ZERO);
        let counts = core.block_on(pool::count_uncontended::<S>(slots, COUNTED)).unwrap();
        counts.expect(Counter::TasksSpawned, COUNTED * S::TASKS_PER_LEASE).expect(Counter::CapacityWaits, 0);
        let label = Label::new("pool", format!("uncontended/slots_{slots}"), S::NAME, S::REFERENCE);
        let opened = async move {
            let pool = pool::open::<S>(slots, Fairness::Fifo).await;
            let handle = pool.handle();
            (pool, Rc::new(handle))
        };
        let (pool, handle) = core.block_on(opened).unwrap();
        bench.time(label, "acquire and release", 1, counts, |times| {
            let handle = Rc::clone(&handle);
            let timed = async move {
                let begun = std::time::Instant::now();
                pool::uncontended::<S>(&handle, times).await;
                begun.elapsed()
            };
            core.block_on(timed).unwrap()
        });
        drop(handle);
        core.block_on(async move { pool.close().await }).unwrap();
    }
    for (policy, fairness) in POLICIES {
        contended_pools::<S>(bench, policy, fairness);
    }
}

fn contended_pools<S: pool::Subject>(bench: &mut Bench, policy: &str, fairness: Fairness) {
    let mut core = core(Duration::ZERO);
    let counts = core.block_on(pool::count_contended::<S>(SLOTS, fairness, COUNTED)).unwrap();
    counts.expect(Counter::TasksSpawned, COUNTED * S::TASKS_PER_LEASE);
    assert!(counts.of(Counter::CapacityWaits) >= 1, "nobody waited, so nothing was contended");
    let case = format!("contended/{policy}/slots_{SLOTS}");
    let label = Label::new("pool", case, S::NAME, S::REFERENCE);
    let opened = async move {
        let pool = pool::open::<S>(SLOTS, fairness).await;
        let handles = pool::handles(&pool, SLOTS);
        (pool, handles)
    };
    let (pool, handles) = core.block_on(opened).unwrap();
    bench.time(label, "acquire, a yield, release", 1, counts, |times| {
        let handles = handles.clone();
        core.block_on(async move { pool::contended::<S>(&handles, times).await }).unwrap()
    });
    drop(handles);
    core.block_on(async move { pool.close().await }).unwrap();
    let row = bench.rows.last_mut().unwrap();
    if row.spread.is_some() {
        let measured = pool::latency_contended::<S>(SLOTS, fairness, bench.latency);
        row.latency = Some(("an acquire", core.block_on(measured).unwrap()));
    }
}

/// The life of a pool, phase by phase: what it spawns, and what cloned ownership allocates.
fn phases<S: pool::Subject>(bench: &mut Bench, schedulers: u64, base: &mut Option<u64>) {
    let phases = core(Duration::ZERO).block_on(pool::phases::<S>(SLOTS, COUNTED)).unwrap();
    phases
        .construction
        .expect(Counter::TasksSpawned, schedulers)
        .expect(Counter::SchedulerSpawns, schedulers);
    phases.acquisition.expect(Counter::TasksSpawned, COUNTED * S::TASKS_PER_LEASE);
    phases.acquisition.expect(Counter::SchedulerSpawns, 0);
    phases.close.expect(Counter::LiveTasks, 0);
    if let Some(added) = S::allocations_added(SLOTS) {
        let base = *base.get_or_insert(phases.construction.allocations);
        phases.construction.expect_allocations(base + added);
    }
    let named = [
        ("construction", "a pool is made", phases.construction),
        ("acquisition", "acquire and release", phases.acquisition),
        ("close", "all of its life", phases.close),
    ];
    for (phase, operation, counts) in named {
        let label = Label::new("pool", format!("phase/{phase}/slots_{SLOTS}"), S::NAME, S::REFERENCE);
        bench.rows.push(Row { label, operation, counts: Some(counts), spread: None, latency: None });
    }
}

fn parameters() -> Vec<(&'static str, String)> {
    vec![
        (
            "pool sizes",
            format!(
                "uncontended {POOL_SIZES:?} slots, contended {SLOTS} slots and {TASKS_PER_SLOT} tasks for each"
            ),
        ),
        ("queue capacity", format!("{CAPACITY} frames a push queue; in `connection` {} each", FRAMES / 2)),
        ("application", format!("{ROUTES} routes, {MIDDLEWARE} middleware around each")),
        (
            "cores",
            "one, on the bench's own thread; the client of `startup/loopback` is on another".to_owned(),
        ),
        ("pinning", format!("bench to core {HERE}, client to core {THERE} of those to be had")),
        ("ring", "256 submission and 4,096 completion entries, the default".to_owned()),
        ("samples", format!("{SAMPLES} for each case, after a warm-up")),
    ]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let given = |name: &str| arguments.iter().any(|argument| argument == name);
    let trial = given("--test") || !given("--bench");
    pin(HERE);
    let criterion = Criterion::default()
        .sample_size(SAMPLES)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1_200))
        .configure_from_args();
    let latency = if trial { 100 } else { 200_000 };
    let mut bench = Bench { criterion, rows: Vec::new(), latency, partial: false };

    connections::<connection::Borrowed>(&mut bench);
    connections::<connection::ClonedGraph>(&mut bench);
    pushes::<CoreOwned>(&mut bench);
    pushes::<MutexShared>(&mut bench);
    startups::<PreparedOnce>(&mut bench);
    startups::<FactoryPerConnection>(&mut bench);
    pools::<Actor>(&mut bench);
    pools::<ClonedGraph<Actor>>(&mut bench);
    pools::<SpawnOnDemand>(&mut bench);
    let mut base = None;
    phases::<Actor>(&mut bench, 1, &mut base);
    phases::<ClonedGraph<Actor>>(&mut bench, 1, &mut base);
    phases::<SpawnOnDemand>(&mut bench, 0, &mut base);

    bench.criterion.final_summary();
    if bench.partial {
        println!("not every case was measured, so nothing was written");
        return;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let path = report::path(target, trial);
    report::write(&path, &report::lines(machine::describe(&parameters()), &bench.rows)).unwrap();
    println!("written to {}", path.display());
}
