//! Servers with names are found from every core, one at a time, and by those who come after.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use corelet::actor::server::{self, Context, Server, ServerName};
use corelet::actor::supervisor::{ChildRef, Supervisor, SupervisorError};
use corelet::actor::{self, CallError, ExitReason, Name, RegisterError, Reply, SendError, channel};
use corelet::runtime::{core_stats, yield_now};
use support::{on_cores, poll_until, soon};

#[derive(Default)]
struct Sum {
    total: u64,
    /// Set when the init runs.
    begun: Option<Rc<Cell<bool>>>,
}

const SUM: ServerName<Sum> = Name::new("sum");

enum Ask {
    Total,
    Panic,
    Forever,
}

impl Server for Sum {
    type Call = Ask;
    type Reply = u64;
    type Cast = u64;
    type Info = Infallible;

    async fn init(&mut self, _: &Context<Self>) {
        if let Some(begun) = &self.begun {
            begun.set(true);
        }
    }

    async fn handle_call(&mut self, ask: Ask, reply: Reply<u64>, _: &Context<Self>) {
        match ask {
            Ask::Total => reply.send(self.total),
            Ask::Panic => panic!("on purpose"),
            Ask::Forever => std::future::pending().await,
        }
    }

    async fn handle_cast(&mut self, summand: u64, _: &Context<Self>) {
        self.total += summand;
    }
}

fn starting_at(total: u64) -> Sum {
    Sum { total, begun: None }
}

#[test]
fn a_named_server_is_found_from_every_core_as_soon_as_it_was_started() {
    on_cores(2, async |runtime, cores| {
        assert_eq!(soon(server::call(SUM, Ask::Total)).await, Err(CallError::Unresolved));
        assert!(matches!(server::cast(SUM, 3), Err(SendError::Unresolved(3))));
        assert!(server::whereis(SUM).is_none());
        assert_eq!(soon(server::shutdown(SUM)).await, None);
        for core in cores {
            let start = || server::build(starting_at(1)).named(SUM).start();
            let server = server::start_on(&runtime, core, start).await.unwrap().unwrap();
            server::cast(SUM, 2).unwrap();
            assert_eq!(soon(server::call(SUM, Ask::Total)).await, Ok(3));
            assert_eq!(server::whereis(SUM).unwrap().pid(), server.pid());
            assert_eq!(actor::whereis("sum"), Some(server.pid().erase()));
            // The name is a reference.
            drop(server);
            for _ in 0..20 {
                yield_now().await;
            }
            assert_eq!(soon(server::call(SUM, Ask::Total)).await, Ok(3));
            assert_eq!(soon(server::shutdown(SUM)).await, Some(ExitReason::Normal));
            assert!(server::whereis(SUM).is_none());
        }
    });
}

#[test]
fn a_name_has_one_holder_and_who_comes_too_late_never_runs() {
    on_cores(2, async |runtime, cores| {
        let first = server::build(starting_at(1)).named(SUM).start().unwrap();
        let begun = Rc::new(Cell::new(false));
        let second = Sum { total: 2, begun: Some(Rc::clone(&begun)) };
        let error = server::build(second).named(SUM).start().unwrap_err();
        assert_eq!(error, RegisterError::NameTaken { holder: first.pid().erase() });
        let start = || server::build(starting_at(3)).named(SUM).start().map(drop);
        assert!(server::start_on(&runtime, cores[1], start).await.unwrap().unwrap_err().is_taken());
        for _ in 0..20 {
            yield_now().await;
        }
        assert!(!begun.get() && Rc::strong_count(&begun) == 1, "it is gone and has not run");
        assert_eq!(soon(server::call(SUM, Ask::Total)).await, Ok(1));
        // Whoever panics has lost its name at once.
        let end = actor::monitor(first.pid());
        assert_eq!(soon(server::call(SUM, Ask::Panic)).await, Err(CallError::NoReply));
        soon(end).await;
        server::build(starting_at(4)).named(SUM).start().unwrap();
        assert_eq!(soon(server::call(SUM, Ask::Total)).await, Ok(4));
        assert_eq!(
            soon(first.call(Ask::Total)).await,
            Err(CallError::Closed),
            "a reference is not redirected"
        );
        server::shutdown(SUM).await;
    });
}

#[test]
fn without_its_name_and_references_a_server_ends() {
    on_cores(1, async |_, _| {
        let server = server::build(starting_at(1)).named(SUM).start().unwrap();
        let end = actor::monitor(server.pid());
        drop(server);
        assert!(actor::unregister(SUM));
        assert_eq!(soon(end).await.reason, ExitReason::Normal);
    });
}

#[test]
fn a_call_by_name_ends_with_its_limit_and_leaves_no_timer() {
    on_cores(1, async |_, _| {
        let server = server::build(starting_at(1)).bounded(1).named(SUM).start().unwrap();
        let limit = Duration::from_millis(1);
        assert_eq!(server::call_timeout(SUM, Ask::Forever, limit).await, Err(CallError::Timeout));
        assert_eq!(core_stats().unwrap().timers, 0);
        server::cast(SUM, 5).unwrap();
        assert!(matches!(server::cast(SUM, 6), Err(SendError::Full(6))));
        assert_eq!(soon(server::call(SUM, Ask::Total)).await, Err(CallError::Full));
        actor::request_stop(server.pid());
        soon(actor::monitor(server.pid())).await;
    });
}

#[test]
fn a_name_for_something_else_says_so() {
    on_cores(1, async |_, _| {
        let holder = actor::spawn(async {
            let (_sender, mut numbers) = channel::unbounded::<u64>();
            actor::register(Name::new("sum"), &numbers).unwrap();
            let _ = numbers.recv().await;
        });
        poll_until(async || actor::whereis("sum") == Some(holder)).await;
        assert_eq!(soon(server::call(SUM, Ask::Total)).await, Err(CallError::NoChannel));
        assert!(matches!(server::cast(SUM, 3), Err(SendError::NoChannel(3))));
        assert!(server::whereis(SUM).is_none());
        actor::request_stop(holder);
        soon(actor::monitor(holder)).await;
    });
}

#[test]
fn a_supervised_server_comes_back_under_its_name() {
    on_cores(2, async |_, cores| {
        for core in cores {
            let child = || {
                server::child("sum", &ChildRef::new(), || server::build(starting_at(7)).named(SUM)).on(core)
            };
            let supervisor = Supervisor::builder().child(child()).start().await.unwrap();
            server::cast(SUM, 1).unwrap();
            assert_eq!(soon(server::call(SUM, Ask::Total)).await, Ok(8));
            assert_eq!(soon(server::call(SUM, Ask::Panic)).await, Err(CallError::NoReply));
            poll_until(async || server::call(SUM, Ask::Total).await == Ok(7)).await;
            // A taken name fails the start of a child.
            let taken = soon(Supervisor::builder().child(child()).start()).await;
            assert!(matches!(taken, Err(SupervisorError::ChildFailed { .. })));
            soon(supervisor.shutdown()).await;
            assert!(server::whereis(SUM).is_none());
        }
    });
}
