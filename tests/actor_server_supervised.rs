//! Servers as children: started again when they fail, and ended in good order when their supervisor says so.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corelet::actor::server::{self, Context, Request, Server};
use corelet::actor::supervisor::{ChildRef, ChildState, Shutdown, Supervisor, SupervisorError};
use corelet::actor::{self, CallError, ExitReason, Pid, Reply};
use corelet::runtime::{Simulation, now};
use support::{on_cores, poll_until, soon};

type Log = Arc<Mutex<Vec<&'static str>>>;

struct Worker {
    name: &'static str,
    log: Log,
    count: u64,
    /// Its goodbye takes for ever.
    stubborn: bool,
    fails_to_start: bool,
}

impl Worker {
    fn new(name: &'static str, log: &Log) -> Worker {
        Worker { name, log: Arc::clone(log), count: 0, stubborn: false, fails_to_start: false }
    }
}

impl Server for Worker {
    /// Zero panics.
    type Call = u64;
    type Reply = u64;
    type Cast = Infallible;
    type Info = Infallible;

    async fn init(&mut self, _: &Context<Self>) {
        if self.fails_to_start {
            actor::exit("no luck").await;
        }
    }

    async fn handle_call(&mut self, step: u64, reply: Reply<u64>, _: &Context<Self>) {
        assert!(step > 0, "on purpose");
        self.count += step;
        reply.send(self.count);
    }

    async fn handle_cast(&mut self, never: Infallible, _: &Context<Self>) {
        match never {}
    }

    async fn terminate(&mut self, _: &Context<Self>) {
        if self.stubborn {
            std::future::pending::<()>().await;
        }
        self.log.lock().unwrap().push(self.name);
    }
}

async fn ask(pid: Pid<Worker>, step: u64) -> Result<u64, CallError> {
    soon(actor::call(pid, |reply| Request::call(step, reply))).await
}

#[test]
fn a_server_that_fails_is_started_anew_and_all_end_in_good_order() {
    on_cores(2, async |_, cores| {
        for core in cores {
            let log = Log::default();
            let (first, second) = (ChildRef::new(), ChildRef::new());
            let child = |name, place: &ChildRef<Worker>| {
                let log = Arc::clone(&log);
                server::child(name, place, move || server::build(Worker::new(name, &log)).bounded(8)).on(core)
            };
            let supervisor = Supervisor::builder()
                .child(child("first", &first))
                .child(child("second", &second))
                .start()
                .await
                .unwrap();
            let pid = first.pid().unwrap();
            assert_eq!(pid.core(), core);
            assert_eq!((ask(pid, 2).await, ask(pid, 3).await), (Ok(2), Ok(5)));
            assert_eq!(ask(pid, 0).await, Err(CallError::NoReply));
            poll_until(async || first.pid().is_some_and(|now| now != pid)).await;
            let next = first.pid().unwrap();
            assert_eq!(ask(next, 1).await, Ok(1), "its state is new");
            assert!(ask(pid, 1).await.is_err(), "the old life is not the new one");
            assert!(log.lock().unwrap().is_empty());
            let overdue = soon(supervisor.shutdown()).await;
            assert!(overdue.is_empty());
            assert_eq!(*log.lock().unwrap(), ["second", "first"]);
        }
    });
}

#[test]
fn a_goodbye_that_takes_too_long_is_cut_short() {
    const LIMIT: Duration = Duration::from_millis(5);
    for seed in 0..50 {
        let test = async move || {
            let log = Log::default();
            let place = ChildRef::new();
            let child = {
                let log = Arc::clone(&log);
                server::child("stubborn", &place, move || {
                    server::build(Worker { stubborn: true, ..Worker::new("stubborn", &log) })
                })
                .shutdown(Shutdown::Within(LIMIT))
            };
            let supervisor = Supervisor::builder().child(child).start().await.unwrap();
            let end = actor::monitor(place.pid().unwrap());
            let begun = now();
            assert!(supervisor.shutdown().await.is_empty(), "seed {seed}: it was stopped, not left");
            let took = now() - begun;
            assert!(took >= LIMIT && took < 2 * LIMIT, "seed {seed}: {took:?}");
            assert_eq!(end.await.reason, ExitReason::Stopped);
            assert!(log.lock().unwrap().is_empty(), "seed {seed}: it has not said goodbye");
        };
        Simulation::new(seed, 1).block_on(test).unwrap();
    }
}

#[test]
fn a_server_has_started_when_its_init_has_returned() {
    on_cores(2, async |_, cores| {
        for core in cores {
            let log = Log::default();
            for panics in [false, true] {
                let log = Arc::clone(&log);
                let child = server::child("frail", &ChildRef::new(), move || {
                    assert!(!panics, "built on purpose");
                    server::build(Worker { fails_to_start: true, ..Worker::new("frail", &log) })
                })
                .on(core);
                let reason = match panics {
                    true => ExitReason::Panicked("built on purpose".into()),
                    false => ExitReason::Failed("no luck".into()),
                };
                let failed = SupervisorError::ChildFailed { id: "frail".into(), reason };
                assert_eq!(soon(Supervisor::builder().child(child).start()).await.unwrap_err(), failed);
            }
        }
    });
}

#[test]
fn a_server_under_a_supervisor_is_its_temporary_child() {
    on_cores(2, async |runtime, cores| {
        let supervisor = Supervisor::builder().start().await.unwrap();
        let log = Log::default();
        let mut servers = Vec::new();
        for core in cores {
            let log = Arc::clone(&log);
            let start = move || server::build(Worker::new("guest", &log)).under(supervisor).start();
            servers.push(server::start_on(&runtime, core, start).await.unwrap());
        }
        poll_until(async || supervisor.which_children().await.unwrap().len() == 2).await;
        let children = supervisor.which_children().await.unwrap();
        assert!(children.iter().all(|child| child.state == ChildState::Up));
        for server in &servers {
            assert_eq!(soon(server.call(4)).await, Ok(4));
        }
        // It also ends like any other server.
        let ended = servers.pop().unwrap();
        let end = actor::monitor(ended.pid());
        drop(ended);
        assert_eq!(soon(end).await.reason, ExitReason::Normal);
        poll_until(async || supervisor.which_children().await.unwrap().len() == 1).await;
        soon(supervisor.shutdown()).await;
        assert_eq!(*log.lock().unwrap(), ["guest", "guest"]);
        assert_eq!(soon(servers[0].call(4)).await, Err(CallError::Closed));
    });
}
