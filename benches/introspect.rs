//! What it costs to look at 100,000 actors on one core.
//!
//! - `snapshot`: all of them are copied, a thousand slots at a time; per snapshot.
//! - `tree`: the forest of a snapshot is computed, with the copy that it uses up; per forest.
//! - `actor_info`: one of them is looked at; per look, which is a mail to the core and its answer.

mod common;

use std::future::{Future, pending};
use std::time::{Duration, Instant};

use corelet::actor;
use corelet::runtime::yield_now;
use criterion::{Criterion, criterion_group, criterion_main};

use common::{core, settings};

const ACTORS: usize = 100_000;

fn introspect(criterion: &mut Criterion) {
    println!("one actor of a snapshot takes {} bytes", size_of::<actor::ActorInfo>());
    let mut made = None;
    let mut bench = |name: &str, run: fn(u64) -> std::pin::Pin<Box<dyn Future<Output = Duration>>>| {
        criterion.bench_function(&format!("introspect/{name}"), |bencher| {
            let core = made.get_or_insert_with(|| {
                let mut core = core(Duration::ZERO);
                core.block_on(async {
                    for _ in 0..ACTORS {
                        actor::spawn(pending::<()>());
                    }
                    yield_now().await;
                })
                .unwrap();
                core
            });
            bencher.iter_custom(|operations| core.block_on(run(operations)).unwrap());
        });
    };
    bench("snapshot_100k", |operations| Box::pin(snapshots(operations)));
    bench("tree_100k", |operations| Box::pin(trees(operations)));
    bench("actor_info", |operations| Box::pin(looks(operations)));
}

async fn snapshots(operations: u64) -> Duration {
    let begun = Instant::now();
    for _ in 0..operations {
        assert!(actor::snapshot().await.actors().count() > ACTORS);
    }
    begun.elapsed()
}

async fn trees(operations: u64) -> Duration {
    let snapshot = actor::snapshot().await;
    let begun = Instant::now();
    for _ in 0..operations {
        assert!(actor::tree_from(snapshot.clone()).nodes.len() > ACTORS);
    }
    begun.elapsed()
}

async fn looks(operations: u64) -> Duration {
    let me = actor::myself().unwrap();
    let begun = Instant::now();
    for _ in 0..operations {
        assert!(actor::actor_info(me).await.is_ok_and(|info| info.is_some()));
    }
    begun.elapsed()
}

criterion_group! { name = benches; config = settings(); targets = introspect }
criterion_main!(benches);
