//! A supervisor starts, restarts and stops its children as it says.

mod support;

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corelet::actor::supervisor::{
    ChildError, ChildRef, ChildSpec, ChildState, Restart, Shutdown, Strategy, Supervisor, SupervisorError,
    my_supervisor, spawn_under,
};
use corelet::actor::{self, Addressable, ExitReason, Pid};
use corelet::runtime::{CoreId, RuntimeHandle, Simulation, core_stats, now, sleep, spawn, yield_now};
use support::{on_cores, poll_until, soon};

/// Understands what to end with.
enum Worker {}

impl Addressable for Worker {
    type Msg = ExitReason;
}

/// What happened, on whatever cores, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn say(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

struct SaysGoodbye(&'static str, Log);

impl Drop for SaysGoodbye {
    fn drop(&mut self) {
        self.1.say(format!("-{}", self.0));
    }
}

/// A worker that logs its life and ends as it is told.
fn worker(id: &'static str, place: &ChildRef<Worker>, log: &Log) -> ChildSpec {
    let log = log.clone();
    ChildSpec::addressed(id, place, async move |mut inbox| {
        let (log, guard) = (log.clone(), SaysGoodbye(id, log.clone()));
        yield_now().await;
        log.say(format!("+{id}"));
        Ok::<_, String>(async move {
            let _guard = guard;
            match inbox.recv().await.unwrap() {
                ExitReason::Normal => {}
                ExitReason::Panicked(text) => panic!("{text}"),
                ExitReason::Failed(text) => actor::exit(text).await,
                other => panic!("{other}"),
            }
        })
    })
}

fn places<const N: usize>() -> [ChildRef<Worker>; N] {
    std::array::from_fn(|_| ChildRef::new())
}

fn panicked() -> ExitReason {
    ExitReason::Panicked("on purpose".into())
}

/// Ends a child and waits until it runs again under another pid.
async fn kill(place: &ChildRef<Worker>, reason: ExitReason) -> Pid<Worker> {
    let before = place.pid().unwrap();
    actor::send_to(before, reason).unwrap();
    poll_until(async || place.pid().is_some_and(|pid| pid != before)).await;
    place.pid().unwrap()
}

#[test]
fn a_failed_child_is_started_again_on_its_core_under_a_new_pid() {
    on_cores(2, async |_, cores| {
        for core in cores {
            let (place, log) = (ChildRef::new(), Log::default());
            let spec = worker("worker", &place, &log).on(core);
            let supervisor = Supervisor::builder().child(spec).start().await.unwrap();
            let first = place.pid().unwrap();
            assert_eq!(first.core(), core);
            let end = actor::monitor(first);
            let second = kill(&place, panicked()).await;
            assert_eq!(soon(end).await.reason, panicked());
            assert_eq!(second.core(), core);
            let child = supervisor.which_children().await.unwrap().remove(0);
            assert_eq!(
                (&*child.id, child.pid, child.state),
                ("worker", Some(second.erase()), ChildState::Up)
            );
            assert_eq!((child.restarts, child.core), (1, Some(core)));
            let info = soon(actor::actor_info(second)).await.unwrap().unwrap();
            assert_eq!(info.label.as_deref(), Some("worker"));
            assert_eq!(info.supervisor, Some(supervisor.pid().erase()));
            assert!(soon(supervisor.shutdown()).await.is_empty());
            assert_eq!(place.pid(), None);
            assert_eq!(log.take(), ["+worker", "-worker", "+worker", "-worker"]);
        }
    });
}

#[test]
fn children_start_in_order_and_stop_in_the_opposite_order_across_cores() {
    on_cores(2, async |_, cores| {
        let (places, log) = (places::<4>(), Log::default());
        let mut builder = Supervisor::builder();
        for (number, id) in ["a", "b", "c", "d"].into_iter().enumerate() {
            builder = builder.child(worker(id, &places[number], &log).on(cores[number % 2]));
        }
        let supervisor = builder.start().await.unwrap();
        assert_eq!(log.take(), ["+a", "+b", "+c", "+d"]);
        assert!(soon(supervisor.shutdown()).await.is_empty());
        assert_eq!(log.take(), ["-d", "-c", "-b", "-a"]);
        assert!(soon(supervisor.shutdown()).await.is_empty(), "to shut down twice is nothing");
        assert_eq!(supervisor.which_children().await.unwrap_err(), ChildError::NoSupervisor);
    });
}

#[test]
fn each_strategy_restarts_whom_it_names_across_cores() {
    let expected = [
        (Strategy::OneForOne, vec!["-b", "+b"]),
        (Strategy::RestForOne, vec!["-b", "-c", "+b", "+c"]),
        (Strategy::OneForAll, vec!["-b", "-c", "-a", "+a", "+b", "+c"]),
    ];
    on_cores(2, async move |_, cores| {
        for (strategy, expected) in &expected {
            let (places, log) = (places::<3>(), Log::default());
            let mut builder = Supervisor::builder().strategy(*strategy);
            for (number, id) in ["a", "b", "c"].into_iter().enumerate() {
                builder = builder.child(worker(id, &places[number], &log).on(cores[(number + 1) % 2]));
            }
            let supervisor = builder.start().await.unwrap();
            log.take();
            kill(&places[1], panicked()).await;
            let mut seen = Vec::new();
            poll_until(async || {
                seen.extend(log.take());
                seen.len() >= expected.len()
            })
            .await;
            assert_eq!(seen, *expected, "{strategy:?}");
            soon(supervisor.shutdown()).await;
        }
    });
}

#[test]
fn a_start_that_fails_takes_back_what_had_started() {
    on_cores(2, async |_, cores| {
        for core in cores {
            let (places, log) = (places::<2>(), Log::default());
            let frail =
                ChildSpec::new("frail", async || Err::<std::future::Ready<()>, _>("the port is taken"));
            let failed = Supervisor::builder()
                .child(worker("a", &places[0], &log))
                .child(worker("b", &places[1], &log).on(core))
                .child(frail.on(core))
                .start();
            let id = "frail".into();
            let reason = ExitReason::Failed("the port is taken".into());
            assert_eq!(soon(failed).await.unwrap_err(), SupervisorError::ChildFailed { id, reason });
            assert_eq!(log.take(), ["+a", "+b", "-b", "-a"]);
        }
        let twice = Supervisor::builder()
            .child(ChildSpec::new("twin", async || pending::<()>().await))
            .child(ChildSpec::new("twin", async || pending::<()>().await));
        let id = "twin".into();
        assert_eq!(twice.start().await.unwrap_err(), SupervisorError::AlreadyPresent { id });
    });
}

#[test]
fn a_supervisor_gives_up_when_children_fail_too_often_and_its_own_supervisor_heals_the_tree() {
    on_cores(2, async |_, cores| {
        let (place, inner, log) = (ChildRef::new(), ChildRef::new(), Log::default());
        let (theirs, said, core) = (place.clone(), log.clone(), cores[1]);
        let subtree = ChildSpec::supervisor("inner", &inner, move || {
            Supervisor::builder()
                .intensity(2, Duration::from_secs(60))
                .child(worker("worker", &theirs, &said))
        })
        .on(core);
        let root = Supervisor::builder().child(subtree).start().await.unwrap();
        let first = inner.pid().unwrap();
        let end = actor::monitor(first);
        for _ in 0..2 {
            kill(&place, panicked()).await;
        }
        assert_eq!(inner.pid(), Some(first));
        kill(&place, panicked()).await;
        let reason = ExitReason::Failed("gave up: the child `worker` panicked: on purpose".into());
        assert_eq!(soon(end).await.reason, reason);
        assert_ne!(inner.pid(), Some(first));
        let restarts = root.which_children().await.unwrap()[0].restarts;
        assert_eq!(restarts, 1);
        soon(root.shutdown()).await;
        assert_eq!(log.take().len(), 8, "four lives");
    });
}

#[test]
fn nested_supervisors_stop_their_children_in_order_before_they_end() {
    on_cores(2, async |_, cores| {
        let (places, log) = (places::<4>(), Log::default());
        let (theirs, said) = (places.clone(), log.clone());
        let core = cores[1];
        let subtree = ChildSpec::supervisor("inner", &ChildRef::new(), move || {
            let builder = Supervisor::builder().child(worker("b", &theirs[1], &said));
            builder.child(worker("c", &theirs[2], &said).on(core))
        });
        let root = Supervisor::builder()
            .child(worker("a", &places[0], &log))
            .child(subtree.on(core))
            .child(worker("d", &places[3], &log))
            .start()
            .await
            .unwrap();
        soon(root.shutdown()).await;
        assert_eq!(log.take(), ["+a", "+b", "+c", "+d", "-d", "-c", "-b", "-a"]);
    });
}

#[test]
fn a_child_that_traps_exits_ends_in_good_order_or_by_force_at_its_limit() {
    on_cores(2, async |_, cores| {
        for core in cores {
            let log = Log::default();
            let (polite, deaf) = (log.clone(), SaysGoodbye("deaf", log.clone()));
            let polite = ChildSpec::new("polite", async move || {
                let mut exits = actor::trap_exits();
                let exit = exits.recv().await;
                assert_eq!(Some(exit.from.raw()), my_supervisor().map(Into::into));
                assert_eq!(exit.reason, ExitReason::Stopped);
                sleep(Duration::from_millis(2)).await;
                polite.say("wrote everything down");
            })
            .on(core);
            let deaf = Arc::new(Mutex::new(Some(deaf)));
            let deaf = ChildSpec::new("deaf", async move || {
                let _deaf = deaf.lock().unwrap().take();
                let _exits = actor::trap_exits();
                pending::<()>().await;
            })
            .shutdown(Shutdown::Within(Duration::from_millis(20)))
            .on(core);
            let supervisor = Supervisor::builder().child(polite).child(deaf).start().await.unwrap();
            // They count as started before they have set their traps.
            sleep(Duration::from_millis(5)).await;
            assert!(soon(supervisor.shutdown()).await.is_empty());
            assert_eq!(log.take(), ["-deaf", "wrote everything down"]);
        }
    });
}

#[test]
fn a_child_whose_poll_does_not_return_is_reported_and_does_not_hold_up_the_end() {
    on_cores(2, async |_, cores| {
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (held, log) = (Arc::new(Mutex::new(held)), Log::default());
        let stuck = ChildSpec::new("stuck", async move || {
            yield_now().await;
            let _ = held.lock().unwrap().recv();
            pending::<()>().await;
        })
        .shutdown(Shutdown::Within(Duration::from_millis(10)))
        .on(cores[1]);
        let place = ChildRef::new();
        let supervisor =
            Supervisor::builder().child(worker("a", &place, &log)).child(stuck).start().await.unwrap();
        assert_eq!(soon(supervisor.stop_child("stuck")).await, Err(ChildError::Overdue));
        assert_eq!(supervisor.which_children().await.unwrap()[1].state, ChildState::Overdue);
        assert_eq!(soon(supervisor.restart_child("stuck")).await, Err(ChildError::Overdue));
        let stuck = supervisor.which_children().await.unwrap()[1].pid.unwrap();
        assert_eq!(soon(supervisor.shutdown()).await, ["stuck".into()]);
        assert_eq!(log.take(), ["+a", "-a"]);
        release.send(()).unwrap();
        let end = soon(actor::monitor(stuck)).await.reason;
        assert!(matches!(end, ExitReason::Stopped | ExitReason::NoProcess), "it was stopped: {end}");
    });
}

#[test]
fn children_come_and_go_while_the_supervisor_runs_asked_from_another_core() {
    on_cores(2, async |runtime, cores| {
        let log = Log::default();
        let supervisor = Supervisor::builder().start().await.unwrap();
        let task = runtime.spawn_on(cores[1], move || async move {
            let place = ChildRef::new();
            let pid = supervisor.start_child(worker("one", &place, &log)).await.unwrap();
            assert_eq!(place.pid().unwrap(), pid);
            assert_ne!(pid.core(), cores[1], "its core is its supervisor's");
            let again = supervisor.start_child(worker("one", &place, &log)).await;
            assert_eq!(again, Err(ChildError::AlreadyPresent));
            let frail = ChildSpec::new("frail", async || panic!("on purpose"));
            // Started as soon as it runs: that it fails then is a failure of a running child.
            supervisor.start_child(frail.restart(Restart::Temporary)).await.unwrap();
            let frail = ChildSpec::new("frailer", async || {
                yield_now().await;
                Err::<std::future::Ready<()>, _>("no")
            });
            let refused = supervisor.start_child(frail.on(cores[1])).await;
            assert_eq!(refused, Err(ChildError::FailedToStart(ExitReason::Failed("no".into()))));
            let restarted = supervisor.restart_child("one").await.unwrap();
            assert!(restarted != pid && place.pid().unwrap() == restarted);
            supervisor.stop_child("one").await.unwrap();
            supervisor.stop_child("one").await.unwrap();
            let children = supervisor.which_children().await.unwrap();
            assert_eq!(children.len(), 1);
            assert_eq!((children[0].state, children[0].pid, place.pid()), (ChildState::Down, None, None));
            supervisor.restart_child("one").await.unwrap();
            supervisor.remove_child("one").await.unwrap();
            assert_eq!(supervisor.remove_child("one").await, Err(ChildError::NotFound));
            assert_eq!(supervisor.restart_child("one").await, Err(ChildError::NotFound));
            assert!(supervisor.which_children().await.unwrap().is_empty());
            assert_eq!(log.take(), ["+one", "-one", "+one", "-one", "+one", "-one"]);
        });
        soon(task.unwrap()).await.unwrap();
        soon(supervisor.shutdown()).await;
    });
}

#[test]
fn transient_children_come_back_from_failures_only_and_temporary_ones_never() {
    on_cores(1, async |_, _| {
        let ([transient, temporary], log) = (places(), Log::default());
        let supervisor = Supervisor::builder()
            .child(worker("transient", &transient, &log).restart(Restart::Transient))
            .child(worker("temporary", &temporary, &log).restart(Restart::Temporary))
            .start()
            .await
            .unwrap();
        kill(&transient, panicked()).await;
        actor::send_to(transient.pid().unwrap(), ExitReason::Normal).unwrap();
        actor::send_to(temporary.pid().unwrap(), panicked()).unwrap();
        poll_until(async || transient.pid().is_none() && temporary.pid().is_none()).await;
        let children = supervisor.which_children().await.unwrap();
        assert_eq!(children.len(), 1);
        assert_eq!((&*children[0].id, children[0].state), ("transient", ChildState::Down));
        supervisor.restart_child("transient").await.unwrap();
        soon(supervisor.shutdown()).await;
    });
}

#[test]
fn what_is_spawned_under_a_supervisor_ends_with_it() {
    on_cores(2, async |runtime, cores| {
        let supervisor = Supervisor::builder().start().await.unwrap();
        let here = spawn_under(supervisor, pending::<()>());
        let task =
            runtime.spawn_on(cores[1], move || async move { spawn_under(supervisor, pending::<()>()) });
        let there = soon(task.unwrap()).await.unwrap();
        let short = spawn_under(supervisor, async move {
            assert_eq!(my_supervisor(), Some(supervisor));
        });
        soon(actor::monitor(short)).await;
        poll_until(async || supervisor.which_children().await.unwrap().len() == 2).await;
        let error = supervisor.restart_child(&here.to_string()).await;
        assert_eq!(error, Err(ChildError::Adopted));
        let ends = [actor::monitor(here), actor::monitor(there)];
        soon(supervisor.shutdown()).await;
        for end in ends {
            assert_eq!(soon(end).await.reason, ExitReason::Stopped);
        }
        let ran = Rc::new(Cell::new(false));
        let theirs = Rc::clone(&ran);
        let orphan = spawn_under(supervisor, async move { theirs.set(true) });
        assert!(matches!(
            soon(actor::monitor(orphan)).await.reason,
            ExitReason::Stopped | ExitReason::NoProcess
        ));
        assert!(!ran.get(), "nobody's child does not run");
    });
}

/// The tasks of a core, with the one that looks.
async fn live(runtime: &RuntimeHandle, core: CoreId) -> usize {
    let look = runtime.spawn_on(core, async || core_stats().unwrap().executor.live);
    soon(look.unwrap()).await.unwrap()
}

#[test]
fn a_supervisor_that_is_stopped_leaves_no_child_behind() {
    on_cores(2, async |runtime, cores| {
        let before = [live(&runtime, cores[0]).await, live(&runtime, cores[1]).await];
        for round in 0..100 {
            let (places, log) = (places::<3>(), Log::default());
            let mut builder = Supervisor::builder();
            for (number, id) in ["a", "b", "c"].into_iter().enumerate() {
                builder = builder.child(worker(id, &places[number], &log).on(cores[number % 2]));
            }
            if round % 2 == 0 {
                // In the midst of its start: a child may be on its way to another core.
                let mut start = Box::pin(builder.start());
                for _ in 0..round / 8 {
                    let _ = support::poll_once(&mut start).await;
                    yield_now().await;
                }
                drop(start);
            } else {
                let supervisor = builder.start().await.unwrap();
                actor::request_stop(supervisor);
            }
            poll_until(async || [live(&runtime, cores[0]).await, live(&runtime, cores[1]).await] == before)
                .await;
            let lines = log.take();
            for id in ["a", "b", "c"] {
                let count = |line: String| lines.iter().filter(|said| **said == line).count();
                // One that is stopped in its init says goodbye only.
                assert!(count(format!("+{id}")) <= count(format!("-{id}")), "{lines:?}");
                assert!(count(format!("-{id}")) <= 1, "no second life: {lines:?}");
            }
        }
    });
}

#[test]
fn a_linked_supervisor_shuts_down_with_its_starter_and_takes_it_along_when_it_gives_up() {
    on_cores(1, async |_, _| {
        let (place, log) = (ChildRef::new(), Log::default());
        let supervisor = Rc::new(RefCell::new(None));
        let (theirs, spec) = (Rc::clone(&supervisor), worker("worker", &place, &log));
        let starter = spawn(async move {
            let started = Supervisor::builder().child(spec).start_link().await.unwrap();
            theirs.replace(Some(started));
        });
        soon(starter).await.unwrap();
        let started = supervisor.take().unwrap();
        soon(actor::monitor(started)).await;
        assert_eq!(log.take(), ["+worker", "-worker"]);

        let spec = worker("worker", &place, &log);
        let (_, end) = actor::spawn_monitor(async move {
            let builder = Supervisor::builder().intensity(0, Duration::from_secs(1));
            builder.child(spec).start_link().await.unwrap();
            pending::<()>().await;
        });
        poll_until(async || place.pid().is_some()).await;
        actor::send_to(place.pid().unwrap(), panicked()).unwrap();
        assert!(matches!(soon(end).await.reason, ExitReason::Failed(text) if text.starts_with("gave up")));
    });
}

#[test]
fn pauses_between_restarts_grow_in_simulated_time() {
    let mut simulation = Simulation::new(5, 2);
    let cores = simulation.cores();
    simulation
        .block_on(move || async move {
            let starts = Arc::new(Mutex::new(Vec::new()));
            let theirs = Arc::clone(&starts);
            let frail = ChildSpec::new("frail", async move || {
                theirs.lock().unwrap().push(now());
                panic!("on purpose");
            });
            let supervisor = Supervisor::builder()
                .intensity(6, Duration::from_secs(3600))
                .backoff(Duration::from_secs(1), Duration::from_secs(4))
                .child(frail.on(cores[1]))
                .start()
                .await
                .unwrap();
            let down = actor::monitor(supervisor).await;
            assert!(matches!(down.reason, ExitReason::Failed(_)));
            let starts = starts.lock().unwrap();
            assert_eq!(starts.len(), 7);
            for (pair, full) in starts.windows(2).zip([1, 2, 4, 4, 4, 4]) {
                let (pause, full) = (pair[1] - pair[0], Duration::from_secs(full));
                assert!(pause >= full / 2 && pause <= full + Duration::from_millis(1), "{pause:?}");
            }
        })
        .unwrap();
}

#[test]
fn a_child_whose_core_is_gone_fails_until_its_supervisor_gives_up() {
    for seed in 0..50 {
        let mut simulation = Simulation::new(seed, 2);
        let cores = simulation.cores();
        let faults = simulation.faults();
        simulation
            .block_on(move || async move {
                let lost = ChildSpec::new("lost", async || pending::<()>().await).on(cores[1]);
                let supervisor = Supervisor::builder().child(lost).start().await.unwrap();
                faults.kill_core(1);
                let down = actor::monitor(supervisor).await;
                let text = "gave up: the child `lost` ended with its core".into();
                assert_eq!(down.reason, ExitReason::Failed(text), "seed {seed}");
            })
            .unwrap();
    }
}

#[test]
fn children_elsewhere_do_not_outlive_their_supervisors_core() {
    for seed in 0..100 {
        let mut simulation = Simulation::new(seed, 3);
        let cores = simulation.cores();
        let child = ChildRef::<Worker>::new();
        let (place, theirs) = (child.clone(), cores.clone());
        simulation
            .block_on(move || async move {
                let start = corelet::runtime::handle().spawn_on(theirs[1], move || async move {
                    let worker = worker("worker", &place, &Log::default()).on(theirs[2]);
                    Supervisor::builder().child(worker).start().await.unwrap();
                    pending::<()>().await;
                });
                start.unwrap().detach();
                for _ in 0..seed % 25 {
                    yield_now().await;
                }
            })
            .unwrap();
        simulation.kill_core(1);
        simulation.run_until_idle().unwrap();
        assert_eq!(simulation.stats(2).unwrap().executor.live, 0, "seed {seed}");
    }
}
