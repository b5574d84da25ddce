//! Workers on every core in one group: jobs go to whoever is next, and the group heals itself.
//!
//! ```text
//! cargo run --release --example groups
//! ```
//!
//! Clients on the first core have numbers squared while workers crash over some of them, and a keeper for each starts another. A
//! client that hears that its job was lost dispatches it again. The example checks every answer, and ends with status 0 if
//! all was well.

use std::collections::BTreeSet;
use std::error::Error;

use corelet::actor::{self, Addressable, CallError, Pid, Reply, SendError, group};
use corelet::runtime::{Cores, Runtime, spawn, yield_now};

const CORES: usize = 2;
const WORKERS_PER_CORE: usize = 2;
const CLIENTS: u64 = 8;
const JOBS_PER_CLIENT: u64 = 200;
/// Every so many jobs one is too much for the first worker that gets it.
const UNLUCKY: u64 = 50;

enum Worker {}

struct Job {
    number: u64,
    tries: u32,
    reply: Reply<u64>,
}

impl Addressable for Worker {
    type Msg = Job;
}

/// Starts a worker on the current core, and has it join.
fn start() -> Pid<Worker> {
    let worker = actor::spawn_addr::<Worker, _, _>(async |mut jobs| {
        while let Ok(Job { number, tries, reply }) = jobs.recv().await {
            if number % UNLUCKY == 0 && tries == 1 {
                actor::exit("an unlucky job").await;
            }
            reply.send(number * number);
        }
    });
    group::join("workers", worker);
    worker
}

/// Starts a worker anew whenever it has ended.
async fn keep() {
    loop {
        actor::monitor(start()).await;
    }
}

/// Has one number squared, by whichever worker, and says how often it was tried.
async fn square(number: u64) -> u32 {
    let mut tries = 0;
    loop {
        let (reply, answer) = actor::reply();
        match group::dispatch::<Worker>("workers", Job { number, tries: tries + 1, reply }) {
            Ok(_) => tries += 1,
            // All have crashed, or the one whose turn it was is about to end.
            Err(SendError::NoMember(_) | SendError::Closed(_)) => {
                yield_now().await;
                continue;
            }
            Err(refused) => panic!("{refused}"),
        }
        match answer.await {
            Ok(answer) => {
                assert_eq!(answer, number * number);
                return tries;
            }
            // It went with its worker.
            Err(lost) => assert_eq!(lost, CallError::NoReply),
        }
    }
}

async fn all_there() -> BTreeSet<Pid<Worker>> {
    loop {
        let workers: BTreeSet<_> = group::members_as("workers").into_iter().collect();
        if workers.len() == CORES * WORKERS_PER_CORE {
            return workers;
        }
        yield_now().await;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let pinned = std::thread::available_parallelism()?.get() >= CORES;
    let runtime = Runtime::builder().cores(Cores::Count(CORES)).pinned(pinned).build()?;
    for core in runtime.cores() {
        for _ in 0..WORKERS_PER_CORE {
            runtime.spawn_on(core, keep)?.detach();
        }
    }
    let tries = runtime.block_on(|| async {
        let first = all_there().await;
        // They take turns, over all cores.
        let picked: BTreeSet<_> = first.iter().filter_map(|_| group::pick_as("workers")).collect();
        assert_eq!(picked, first);

        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                spawn(async move {
                    let mut tries = 0;
                    for job in 1..=JOBS_PER_CLIENT {
                        tries += square(client * JOBS_PER_CLIENT + job).await;
                    }
                    tries
                })
            })
            .collect();
        let mut tries = 0;
        for client in clients {
            tries += client.await.expect("every answer was right");
        }

        // Those that crashed have been replaced, and nobody had to tell the group.
        assert_ne!(all_there().await, first);
        tries
    })?;
    let jobs = CLIENTS * JOBS_PER_CLIENT;
    assert!(u64::from(tries) >= jobs + jobs / UNLUCKY, "each unlucky job takes at least two tries");
    println!("{jobs} jobs were done in {tries} tries by {} workers at a time", CORES * WORKERS_PER_CORE);
    Ok(())
}
