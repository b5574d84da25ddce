//! What is told of one actor is of one instant, and of all of them nobody is there twice, while actors come and go.

mod support;

use std::collections::BTreeSet;
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use corelet::actor::{self, Addressable, channel};
use corelet::runtime::{Simulation, handle, yield_now};
use support::{PATIENCE, on_cores, soon};

/// Messages come and are taken so many at a time, with no scheduling point between.
const BATCH: usize = 8;

enum Steady {}

impl Addressable for Steady {
    type Msg = u64;
}

/// Actors that are born, watched, linked, stopped and gone, until `over`.
async fn storm(over: Arc<AtomicBool>) {
    let mut crowd = Vec::new();
    for round in 0_usize.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let one = actor::spawn_addr::<Steady, _, _>(async |mut inbox| while inbox.recv().await.is_ok() {});
        let other = actor::spawn(async move {
            let mut exits = actor::trap_exits();
            actor::link(one);
            exits.recv().await;
        });
        crowd.push((one, actor::monitor(other)));
        actor::send_to(one, 1).unwrap();
        if crowd.len() > 700 {
            let (one, end) = crowd.swap_remove(round * 7 % 700);
            actor::request_stop(one);
            if round % 50 == 0 {
                soon(end).await;
            }
        }
        yield_now().await;
    }
}

/// Two actors with a channel between them, of which the receiver gives its pid.
fn batches(over: Arc<AtomicBool>) -> actor::Pid<Steady> {
    let receiver = actor::spawn_addr::<Steady, _, _>(async |mut inbox: channel::Receiver<u64>| {
        while inbox.recv().await.is_ok() {
            for _ in 1..BATCH {
                inbox.try_recv().unwrap();
            }
            yield_now().await;
        }
        pending::<()>().await;
    });
    actor::spawn(async move {
        while !over.load(Ordering::Relaxed) {
            for _ in 0..BATCH {
                actor::send_to(receiver, 1).unwrap();
            }
            yield_now().await;
            yield_now().await;
        }
    });
    receiver
}

async fn looks(rounds: usize) {
    let over = Arc::new(AtomicBool::new(false));
    let there = *handle().cores().last().unwrap();
    let (theirs, storms) = (Arc::clone(&over), Arc::clone(&over));
    let steady = handle().spawn_on(there, || std::future::ready(batches(theirs))).unwrap().await.unwrap();
    let stormy = handle().spawn_on(there, || storm(storms)).unwrap();
    let mut received = 0;
    for _ in 0..rounds {
        // On a busy machine a core may take longer than one look does.
        let Ok(seen) = soon(actor::actor_info(steady)).await else { continue };
        let seen = seen.unwrap();
        assert_eq!(seen.pid, steady);
        assert_eq!((seen.mailbox % BATCH, seen.messages_received as usize % BATCH), (0, 0), "{seen:?}");
        assert!(seen.messages_received >= received, "it never goes back");
        received = seen.messages_received;

        let all = actor::snapshot_of(&handle(), PATIENCE).await;
        assert!(all.missing.is_empty());
        let pids: BTreeSet<_> = all.actors().map(|seen| seen.pid).collect();
        assert_eq!(pids.len(), all.actors().count(), "nobody is there twice");
        assert!(pids.contains(&steady.erase()), "who lives all the time is there");
        assert_eq!(actor::tree_from(all).nodes.len(), pids.len());
    }
    assert!(received > 0);
    over.store(true, Ordering::Relaxed);
    soon(stormy).await.unwrap();
}

#[test]
fn looking_across_cores_during_a_storm_sees_nothing_torn_and_nobody_twice() {
    on_cores(2, async |_, _| looks(60).await);
}

#[test]
fn looking_at_the_own_core_during_a_storm_sees_nothing_torn_and_nobody_twice() {
    on_cores(1, async |_, _| looks(60).await);
}

#[test]
fn looking_in_a_simulated_storm_sees_nothing_torn_and_nobody_twice() {
    for seed in 0..20 {
        Simulation::new(seed, 2).block_on(|| looks(20)).unwrap();
    }
}

#[test]
fn a_runtime_may_end_while_it_is_looked_at() {
    for _ in 0..20 {
        support::watched(|| {
            let runtime = support::runtime(2);
            let over = Arc::new(AtomicBool::new(false));
            let storms = Arc::clone(&over);
            runtime.spawn_on(runtime.cores()[1], || storm(storms)).unwrap().detach();
            let looking = async || {
                let unsent = Rc::new(());
                loop {
                    let _ = (soon(actor::snapshot()).await, Rc::strong_count(&unsent));
                }
            };
            runtime.spawn_on(runtime.cores()[0], looking).unwrap().detach();
            runtime.block_on(|| async { drop(actor::snapshot().await) }).unwrap();
        });
    }
}
