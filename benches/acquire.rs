//! What one acquire and its release cost on their own core, for a connection that is only a number.
//!
//! - `uncontended`: one task, one operation after the other. Neither the number of slots nor the handles that exist and
//!   ask for nothing may show in the figure.
//! - `contended`: eight tasks per slot, each with a handle of its own, holding its lease across one yield.

mod common;

use std::rc::Rc;
use std::time::{Duration, Instant};

use corelet::pool::{Fairness, Handle, Pool};
use corelet::runtime::{Core, yield_now};
use criterion::{Criterion, criterion_group, criterion_main};

use common::{Countdown, Numbers, core, numbers, settings, time_tasks, warm};

const TASKS_PER_SLOT: usize = 8;
const POLICIES: [(&str, Fairness); 2] = [("fifo", Fairness::Fifo), ("round_robin", Fairness::RoundRobin)];

/// A pool with every connection open, and the core that it is on.
struct World {
    // Goes before the core, whose end would take the pool's with it.
    pool: Pool<Numbers>,
    core: Core,
}

impl World {
    fn new(slots: usize, fairness: Fairness) -> World {
        let mut core = core(Duration::ZERO);
        let pool = numbers(core.runtime(), slots, fairness);
        let opened = pool.clone();
        core.block_on(async move { warm(&opened.handle(), slots).await }).unwrap();
        World { pool, core }
    }

    fn handles(&mut self, count: usize) -> Vec<Handle<Numbers>> {
        let pool = self.pool.clone();
        self.core.block_on(async move { (0..count).map(|_| pool.handle()).collect() }).unwrap()
    }
}

fn uncontended(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("acquire/uncontended");
    for (policy, fairness) in POLICIES {
        for slots in [1, 4, 16, 1024] {
            for idle in [0, 10_000] {
                let mut made = None;
                group.bench_function(format!("{policy}/slots_{slots}/idle_{idle}"), |bencher| {
                    // Made once, and only when this bench is among those asked for.
                    let (handles, world) = made.get_or_insert_with(|| {
                        let mut world = World::new(slots, fairness);
                        (Rc::new(world.handles(1 + idle)), world)
                    });
                    bencher.iter_custom(|operations| {
                        let handles = Rc::clone(handles);
                        let measured = async move {
                            let handle = &handles[0];
                            let begun = Instant::now();
                            for _ in 0..operations {
                                drop(handle.acquire().await.unwrap());
                            }
                            begun.elapsed()
                        };
                        world.core.block_on(measured).unwrap()
                    });
                });
            }
        }
    }
}

fn contended(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("acquire/contended");
    for (policy, fairness) in POLICIES {
        for slots in [1, 4, 16] {
            let mut made = None;
            group.bench_function(format!("{policy}/slots_{slots}"), |bencher| {
                let (handles, world) = made.get_or_insert_with(|| {
                    let mut world = World::new(slots, fairness);
                    let handles = world.handles(TASKS_PER_SLOT * slots);
                    (handles.into_iter().map(Rc::new).collect::<Vec<_>>(), world)
                });
                bencher.iter_custom(|operations| {
                    let handles = handles.clone();
                    let left = Countdown::new(operations);
                    let measured = time_tasks(handles.into_iter().map(move |handle| {
                        let left = Rc::clone(&left);
                        async move {
                            while left.take() {
                                let lease = handle.acquire().await.unwrap();
                                yield_now().await;
                                drop(lease);
                            }
                        }
                    }));
                    world.core.block_on(measured).unwrap()
                });
            });
        }
    }
}

criterion_group! { name = benches; config = settings(); targets = uncontended, contended }
criterion_main!(benches);
