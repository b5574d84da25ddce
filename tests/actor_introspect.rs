//! Looking at actors: what a snapshot, a single look and the tree say of live tasks, and that looking never hangs.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{PATIENCE, cores, on_core, within};
use corelet::actor::{self, ActorInfo, Pid, SNAPSHOT_FORMAT, Snapshot};
use corelet::runtime::{
    JoinHandle, RawPid, Simulation, TaskState, current_task, handle, sleep, spawn, yield_now,
};

async fn let_others_run() {
    for _ in 0..4 {
        yield_now().await;
    }
}

fn find(snapshot: &Snapshot, pid: RawPid) -> Option<&ActorInfo> {
    snapshot.actors().find(|actor| actor.pid.raw() == pid)
}

#[test]
fn the_format_has_a_version_from_the_first_day() {
    on_core(|| async {
        assert_eq!((SNAPSHOT_FORMAT, actor::snapshot().await.format), (1, 1));
    });
}

#[test]
fn a_snapshot_shows_every_live_actor_and_where_it_stands() {
    on_core(|| async {
        let parked = spawn(pending::<()>());
        let_others_run().await;
        let fresh = spawn(async {});
        let snapshot = actor::snapshot().await;
        let me = current_task().unwrap();

        let seen = find(&snapshot, parked.pid()).unwrap();
        assert_eq!((seen.state, seen.parent, seen.polls), (TaskState::Parked, actor::myself(), 1));
        // It had ended by the time the core looked.
        assert_eq!(find(&snapshot, fresh.pid()), None);
        assert_eq!(find(&snapshot, me).map(|me| me.state), Some(TaskState::Parked));
        // Looking is nobody's actor.
        assert!(snapshot.actors().all(|actor| actor.state == TaskState::Parked), "{snapshot:#?}");
        drop(parked);
    });
}

#[test]
fn a_snapshot_has_every_core_with_its_counts() {
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let there = runtime.cores()[1];
        let (snapshot, remote) = runtime
            .block_on(move || async move {
                let (sender, pid) = futures_channel::oneshot::channel();
                let _task = handle()
                    .spawn_on(there, || async {
                        let _ = sender.send(current_task().unwrap());
                        pending::<()>().await;
                    })
                    .unwrap();
                let pid = pid.await.unwrap();
                (actor::snapshot().await, pid)
            })
            .unwrap();
        assert_eq!(snapshot.cores.iter().map(|core| core.core).collect::<Vec<_>>(), runtime.cores());
        assert!(find(&snapshot, remote).is_some_and(|actor| actor.pid.core() == there));
        for core in &snapshot.cores {
            assert!(core.stats.mails > 0 && core.cpu_time.is_some_and(|time| time > Duration::ZERO));
            assert!(core.actors.len() < core.stats.executor.live, "the look itself counts and is left out");
        }
    });
}

#[test]
fn an_actor_that_has_ended_is_gone_though_its_result_is_kept() {
    on_core(|| async {
        let (sender, received) = futures_channel::oneshot::channel();
        let parent: JoinHandle<()> = spawn(async {
            let child = spawn(pending::<()>());
            let _ = sender.send(child.pid());
            child.detach();
        });
        let child = received.await.unwrap();
        let_others_run().await;
        assert!(parent.is_finished());
        let tree = actor::tree().await;
        assert!(tree.nodes.iter().all(|node| node.actor.pid.raw() != parent.pid()));
        let node = tree.nodes.iter().find(|node| node.actor.pid.raw() == child).unwrap();
        assert_eq!((node.depth, node.orphaned, node.actor.parent), (0, true, Some(parent.pid().into())));
    });
}

#[test]
fn the_tree_has_each_actor_below_the_one_that_spawned_it() {
    on_core(|| async {
        let (sender, received) = futures_channel::oneshot::channel();
        let child = spawn(async {
            let grandchild = spawn(pending::<()>());
            let _ = sender.send(grandchild.pid());
            pending::<()>().await;
        });
        let grandchild = received.await.unwrap();
        let tree = actor::tree().await;
        let depth = |pid| tree.nodes.iter().find(|node| node.actor.pid.raw() == pid).unwrap().depth;
        let mine = depth(current_task().unwrap());
        assert_eq!((depth(child.pid()), depth(grandchild)), (mine + 1, mine + 2));
    });
}

#[test]
fn one_actor_is_told_by_its_identity_and_a_stale_one_names_nobody() {
    on_core(|| async {
        let me = current_task().unwrap();
        let info = actor::actor_info(me).await.unwrap().unwrap();
        assert_eq!((info.pid.raw(), info.state), (me, TaskState::Parked));

        let task = spawn(async {});
        let stale = task.pid();
        task.await.unwrap();
        assert_eq!(actor::actor_info(stale).await, Ok(None));
        let next = spawn(pending::<()>());
        assert_eq!(next.pid().index(), stale.index(), "the slot is used again");
        assert_eq!(actor::actor_info(stale).await, Ok(None));
        let info = actor::actor_info(next.pid()).await.unwrap().unwrap();
        assert_eq!((info.polls, info.overruns, info.cycles > 0), (1, 0, cfg!(feature = "cycles")));
    });
}

#[test]
fn an_identity_of_an_ended_runtime_names_nobody() {
    let stale = on_core(|| async { current_task().unwrap() });
    on_core(move || async move {
        // Its core's number may be that of another test's core by now, and that one may be busy.
        loop {
            match actor::actor_info(stale).await {
                Ok(None) => break,
                Ok(Some(other)) => panic!("{other:?}"),
                Err(_) => {}
            }
        }
    });
}

#[test]
fn the_counters_of_a_slot_begin_anew_with_its_next_tenant() {
    on_core(|| async {
        let mut slots = Vec::new();
        for polls in [50, 0] {
            let task = spawn(async move {
                for _ in 0..polls {
                    yield_now().await;
                }
                pending::<()>().await;
            });
            for _ in 0..60 {
                yield_now().await;
            }
            let info = actor::actor_info(task.pid()).await.unwrap().unwrap();
            assert_eq!((info.polls, info.joiners), (polls + 1, 0));
            slots.push(task.pid().index());
            task.abort();
            assert!(task.await.is_err());
        }
        assert_eq!(slots[0], slots[1]);
    });
}

#[test]
fn whoever_waits_for_a_result_is_counted() {
    on_core(|| async {
        let task = spawn(pending::<()>());
        let pid = task.pid();
        let joiner = spawn(task);
        let_others_run().await;
        assert_eq!(actor::actor_info(pid).await.unwrap().unwrap().joiners, 1);
        drop(joiner);
    });
}

/// Keeps a core busy until told otherwise; the core has begun when this returns.
async fn occupy(core: corelet::runtime::CoreId) -> Arc<AtomicBool> {
    let (free, occupied) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (stop, begun) = (Arc::clone(&free), Arc::clone(&occupied));
    handle()
        .spawn_on(core, move || async move {
            begun.store(true, Ordering::SeqCst);
            while !stop.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        })
        .unwrap()
        .detach();
    while !occupied.load(Ordering::SeqCst) {
        sleep(Duration::from_millis(1)).await;
    }
    free
}

#[test]
fn a_core_that_does_not_answer_is_missing_and_holds_nobody_up() {
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let there = runtime.cores()[1];
        runtime
            .block_on(move || async move {
                let free = occupy(there).await;
                let begun = Instant::now();
                let limit = Duration::from_millis(50);
                let snapshot = actor::snapshot_of(&handle(), limit).await;
                assert!(begun.elapsed() >= limit);
                assert_eq!((snapshot.cores.len(), &snapshot.missing[..]), (1, &[there][..]));
                free.store(true, Ordering::SeqCst);
                // It is asked again, and answers; what it was asked before has come to nothing.
                while !actor::snapshot().await.missing.is_empty() {}
            })
            .unwrap();
    });
}

#[test]
fn one_actor_of_a_core_that_does_not_answer_is_an_error_and_not_a_lie() {
    within(PATIENCE, || {
        let runtime = cores(2).build().unwrap();
        let there = runtime.cores()[1];
        runtime
            .block_on(move || async move {
                let pid =
                    handle().spawn_on(there, || async { current_task().unwrap() }).unwrap().await.unwrap();
                let free = occupy(there).await;
                let unanswered = actor::actor_info(pid).await.unwrap_err();
                assert_eq!(unanswered.core, there);
                free.store(true, Ordering::SeqCst);
            })
            .unwrap();
    });
}

#[test]
fn a_core_that_has_ended_is_missing_at_once() {
    within(PATIENCE, || {
        let ended = cores(1).build().unwrap();
        let gone = ended.handle();
        drop(ended);
        let begun = Instant::now();
        let runtime = cores(1).build().unwrap();
        let snapshot = runtime
            .block_on(move || async move { actor::snapshot_of(&gone, Duration::from_secs(3600)).await })
            .unwrap();
        assert_eq!((snapshot.cores.len(), snapshot.missing.len()), (0, 1));
        assert!(begun.elapsed() < PATIENCE);
    });
}

#[test]
fn looking_at_many_actors_lets_others_run() {
    on_core(|| async {
        const MANY: usize = 20_000;
        let busy = || {
            actor::spawn(async {
                loop {
                    yield_now().await;
                }
            })
        };
        // Two that run in turn: one is among the first that are looked at, one among the last.
        let first = busy();
        for _ in 0..MANY {
            actor::spawn(pending::<()>());
        }
        let last = busy();
        let_others_run().await;
        let snapshot = actor::snapshot().await;
        assert!(snapshot.actors().count() >= MANY);
        let seen = |pid: Pid| find(&snapshot, pid.raw()).unwrap().polls;
        // They run in turn, so each poll that the last has had more is a pause between the two looks.
        let pauses = seen(last).saturating_sub(seen(first));
        assert!(pauses >= 10, "others ran {pauses} times in between");
    });
}

#[test]
fn a_simulated_system_is_looked_at_on_its_own_clock() {
    let look = |seed| {
        let mut simulation = Simulation::new(seed, 3);
        let pids = simulation.block_on(|| async {
            let task = spawn(sleep(Duration::from_secs(3600)));
            sleep(Duration::from_secs(1)).await;
            let snapshot = actor::snapshot().await;
            assert!(snapshot.missing.is_empty() && find(&snapshot, task.pid()).is_some());
            assert!(snapshot.cores.iter().all(|core| core.cpu_time.is_none()));
            snapshot.actors().map(|actor| (actor.pid.raw().index(), actor.polls)).collect::<Vec<_>>()
        });
        pids.unwrap()
    };
    assert_eq!(look(7), look(7));
}

#[cfg(feature = "cycles")]
#[test]
fn a_busy_actor_uses_more_cycles_than_an_idle_one() {
    on_core(|| async {
        let busy = spawn(async {
            for round in 0_u64.. {
                std::hint::black_box((0..20_000).fold(round, |sum, n| std::hint::black_box(sum ^ n)));
                yield_now().await;
            }
        });
        let idle = spawn(async {
            loop {
                yield_now().await;
            }
        });
        let cycles =
            async |task: &JoinHandle<()>| actor::actor_info(task.pid()).await.unwrap().unwrap().cycles;
        // Ticks go by as well while the kernel runs something else, whoever's poll that meets; in the end it meets the
        // busy one's.
        loop {
            yield_now().await;
            let (busy, idle) = (cycles(&busy).await, cycles(&idle).await);
            if idle > 0 && busy > 10 * idle {
                break;
            }
        }
    });
}
