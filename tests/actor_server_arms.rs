//! A server listens to its watches, its further receivers and its mailbox, in that order, and to none that is over.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::cell::RefCell;
use std::future::pending;
use std::rc::Rc;

use corelet::actor::server::{self, Context, Server, ServerRef, Watcher};
use corelet::actor::{self, Down, Pid, Reply, channel};
use corelet::runtime::{core_stats, yield_now};
use support::{on_cores, poll_once, poll_until, soon};

type Log = Rc<RefCell<Vec<String>>>;

#[derive(Default)]
struct Scribe {
    log: Log,
    /// Filled by `init`.
    watcher: Option<Watcher>,
    gate: Option<channel::Receiver<()>>,
}

enum Order {
    Note(&'static str),
    Watch(Pid),
    Unwatch(Pid),
    /// Waits in the callback until the gate opens.
    Hold,
    DropWatcher,
}

/// By `Into`, from receivers of several types.
enum Info {
    Number(u32),
    Text(&'static str),
}

impl From<u32> for Info {
    fn from(number: u32) -> Info {
        Info::Number(number)
    }
}

impl From<&'static str> for Info {
    fn from(text: &'static str) -> Info {
        Info::Text(text)
    }
}

impl Server for Scribe {
    type Call = ();
    type Reply = Vec<String>;
    type Cast = Order;
    type Info = Info;

    async fn init(&mut self, ctx: &Context<Self>) {
        self.watcher = Some(ctx.watcher());
    }

    async fn handle_call(&mut self, (): (), reply: Reply<Vec<String>>, _: &Context<Self>) {
        reply.send(self.log.take());
    }

    async fn handle_cast(&mut self, order: Order, _: &Context<Self>) {
        match (order, &self.watcher) {
            (Order::Note(what), _) => self.log.borrow_mut().push(what.to_owned()),
            (Order::Watch(pid), Some(watcher)) => watcher.watch(pid),
            (Order::Unwatch(pid), Some(watcher)) => {
                self.log.borrow_mut().push(format!("unwatch {}", watcher.unwatch(pid)));
            }
            (Order::Hold, _) => {
                self.log.borrow_mut().push("held".to_owned());
                self.gate.as_mut().unwrap().recv().await.unwrap();
            }
            (Order::DropWatcher, _) => self.watcher = None,
            (Order::Watch(_) | Order::Unwatch(_), None) => panic!("the watcher is gone"),
        }
    }

    async fn handle_info(&mut self, info: Info, _: &Context<Self>) {
        self.log.borrow_mut().push(match info {
            Info::Number(number) => format!("number {number}"),
            Info::Text(text) => format!("text {text}"),
        });
    }

    async fn handle_down(&mut self, down: Down, _: &Context<Self>) {
        self.log.borrow_mut().push(format!("down {}", down.reason));
    }

    async fn terminate(&mut self, _: &Context<Self>) {
        self.log.borrow_mut().push("terminate".to_owned());
    }
}

async fn log_of(scribe: &ServerRef<Scribe>) -> Vec<String> {
    soon(scribe.call(())).await.unwrap()
}

/// An actor that runs until it is stopped.
fn idler() -> Pid {
    actor::spawn(pending::<()>())
}

#[test]
fn downs_go_before_a_shutdown_that_before_infos_and_those_before_the_mailbox() {
    on_cores(1, async |_, _| {
        for shut_down in [false, true] {
            let log = Log::default();
            let (numbers, first) = channel::unbounded::<u32>();
            let (texts, second) = channel::unbounded::<&'static str>();
            let (gate, held) = channel::unbounded();
            let scribe = Scribe { log: Rc::clone(&log), gate: Some(held), ..Scribe::default() };
            let scribe = server::build(scribe).with_info(first).with_info(second).start();
            let watched = idler();
            scribe.cast(Order::Watch(watched)).unwrap();
            scribe.cast(Order::Hold).unwrap();

            // All of it comes while the server is in a callback.
            poll_until(async || log.borrow().len() == 1).await;
            scribe.cast(Order::Note("cast")).unwrap();
            texts.send("a").unwrap();
            numbers.send(1).unwrap();
            texts.send("b").unwrap();
            numbers.send(2).unwrap();
            let mut shutdown = Box::pin(scribe.shutdown());
            if shut_down {
                assert!(poll_once(&mut shutdown).await.is_pending());
            }
            actor::request_stop(watched);
            soon(actor::monitor(watched)).await;
            gate.send(()).unwrap();

            let expected: &[&str] = match shut_down {
                false => &["held", "down was stopped", "number 1", "number 2", "text a", "text b", "cast"],
                true => &["held", "down was stopped", "terminate"],
            };
            poll_until(async || log.borrow().len() >= expected.len()).await;
            assert_eq!(*log.borrow(), expected);
            if shut_down {
                soon(shutdown).await;
            }
        }
    });
}

#[test]
fn a_receiver_without_senders_is_let_go_and_costs_no_polls() {
    on_cores(1, async |_, _| {
        let (numbers, first) = channel::unbounded::<u32>();
        let (texts, second) = channel::unbounded::<&'static str>();
        let (_closed, third) = {
            let (sender, receiver) = channel::unbounded::<u32>();
            drop(sender);
            ((), receiver)
        };
        let scribe =
            server::build(Scribe::default()).with_info(first).with_info(third).with_info(second).start();
        numbers.send(7).unwrap();
        drop(numbers);
        texts.send("x").unwrap();
        assert_eq!(log_of(&scribe).await, ["number 7", "text x"]);
        texts.send("y").unwrap();
        assert_eq!(log_of(&scribe).await, ["text y"]);
        drop(texts);
        assert!(log_of(&scribe).await.is_empty());
        // Nothing is to be done by anybody but this task, whose own polls are counted.
        yield_now().await;
        let before = core_stats().unwrap().executor.polls;
        for _ in 0..10 {
            yield_now().await;
        }
        let polls = core_stats().unwrap().executor.polls - before;
        assert!(polls <= 10, "{polls} polls in 10 of this task's");
        scribe.cast(Order::Note("still there")).unwrap();
        assert_eq!(log_of(&scribe).await, ["still there"]);
    });
}

#[test]
fn a_watch_gives_one_down_wherever_the_actor_lives() {
    on_cores(2, async |runtime, cores| {
        let scribe = server::start(Scribe::default());
        for core in cores {
            let idle = async || actor::spawn(pending::<()>());
            let pid = runtime.spawn_on(core, idle).unwrap().await.unwrap();
            assert_eq!(pid.core(), core);
            scribe.cast(Order::Watch(pid)).unwrap();
            scribe.cast(Order::Watch(pid)).unwrap();
            assert!(log_of(&scribe).await.is_empty());
            actor::request_stop(pid);
            let mut log = Vec::new();
            poll_until(async || {
                log.extend(log_of(&scribe).await);
                !log.is_empty()
            })
            .await;
            // It would have come with the first.
            for _ in 0..20 {
                log.extend(log_of(&scribe).await);
            }
            assert_eq!(log, ["down was stopped"]);
            scribe.cast(Order::Unwatch(pid)).unwrap();
            assert_eq!(log_of(&scribe).await, ["unwatch false"], "a down retires its watch");
        }
    });
}

#[test]
fn no_down_is_seen_of_a_watch_that_was_ended() {
    on_cores(1, async |_, _| {
        let scribe = server::start(Scribe::default());
        let living = idler();
        scribe.cast(Order::Watch(living)).unwrap();
        scribe.cast(Order::Unwatch(living)).unwrap();
        assert_eq!(log_of(&scribe).await, ["unwatch true"]);
        actor::request_stop(living);
        poll_until(async || actor::monitor(living).down().is_some()).await;
        // That of a dead one has arrived when the watch is ended. Both are one callback's work.
        let watcher = Rc::new(RefCell::new(None));
        struct Flush(Pid, Rc<RefCell<Option<Watcher>>>, Log);
        impl Server for Flush {
            type Call = ();
            type Reply = ();
            type Cast = ();
            type Info = ();

            async fn init(&mut self, ctx: &Context<Self>) {
                self.1.replace(Some(ctx.watcher()));
            }

            async fn handle_call(&mut self, (): (), reply: Reply<()>, ctx: &Context<Self>) {
                let watcher = ctx.watcher();
                watcher.watch(self.0);
                assert!(watcher.unwatch(self.0));
                assert!(!watcher.unwatch(self.0));
                reply.send(());
            }

            async fn handle_cast(&mut self, (): (), ctx: &Context<Self>) {
                ctx.watcher().watch(self.0);
            }

            async fn handle_down(&mut self, down: Down, _: &Context<Self>) {
                self.2.borrow_mut().push(format!("down {}", down.reason));
            }
        }
        let log = Log::default();
        let flush = server::start(Flush(living, Rc::clone(&watcher), Rc::clone(&log)));
        soon(flush.call(())).await.unwrap();
        soon(flush.call(())).await.unwrap();
        assert!(log.borrow().is_empty());
        // Watched again, it is heard of once.
        flush.cast(()).unwrap();
        soon(flush.call(())).await.unwrap();
        assert_eq!(*log.borrow(), ["down did not exist"]);

        // A task that is not the server's may use its watcher, while the server waits.
        let kept = watcher.take().unwrap();
        let other = idler();
        kept.watch(other);
        actor::request_stop(other);
        poll_until(async || log.borrow().len() == 2).await;
        assert_eq!(log.borrow()[1], "down was stopped");

        // And when the server has ended, it does nothing.
        let watched = idler();
        kept.watch(watched);
        soon(flush.shutdown()).await;
        kept.watch(idler());
        assert!(!kept.unwatch(watched), "the server's end has ended its watches");
    });
}

#[test]
fn a_watch_stays_when_its_watcher_is_gone() {
    on_cores(1, async |_, _| {
        let scribe = server::start(Scribe::default());
        let watched = idler();
        scribe.cast(Order::Watch(watched)).unwrap();
        scribe.cast(Order::DropWatcher).unwrap();
        assert!(log_of(&scribe).await.is_empty());
        actor::request_stop(watched);
        poll_until(async || actor::monitor(watched).down().is_some()).await;
        assert_eq!(log_of(&scribe).await, ["down was stopped"]);
        scribe.cast(Order::Note("plain")).unwrap();
        assert_eq!(log_of(&scribe).await, ["plain"]);
    });
}
