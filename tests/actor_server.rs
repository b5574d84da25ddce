//! Servers answer calls, take casts, and end in good order; a call to one that cannot answer fails at once.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::pending;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use corelet::actor::server::{self, Context, Request, Server, ServerRef};
use corelet::actor::{self, CallError, Down, ExitReason, Reply, SendError, channel};
use corelet::runtime::{Core, CoreId, Cores, Runtime, RuntimeHandle, core_stats, yield_now};
use support::{block_until, on_cores, poll_once, poll_until, soon};

type Log = Arc<Mutex<Vec<String>>>;

/// Writes down what happens to it.
#[derive(Default)]
struct Account {
    balance: i64,
    log: Log,
    /// Slips of those who wait for the balance to change.
    waiting: Vec<Reply<i64>>,
}

enum Ask {
    Balance,
    /// Answered after the next deposit.
    Change,
    /// The slip is dropped.
    Nothing,
    /// The callback never returns.
    Forever,
    /// Panics once this is set.
    Panic(Arc<AtomicBool>),
}

impl Account {
    fn note(&self, what: impl Into<String>) {
        self.log.lock().unwrap().push(what.into());
    }
}

impl Server for Account {
    type Call = Ask;
    type Reply = i64;
    type Cast = i64;
    type Info = String;

    async fn init(&mut self, ctx: &Context<Self>) {
        self.note(format!("init {}", ctx.pid() == actor::myself().unwrap()));
    }

    async fn handle_call(&mut self, ask: Ask, reply: Reply<i64>, _: &Context<Self>) {
        self.note("call");
        match ask {
            Ask::Balance => reply.send(self.balance),
            Ask::Change => self.waiting.push(reply),
            Ask::Nothing => drop(reply),
            Ask::Forever => {
                pending::<()>().await;
                reply.send(0);
            }
            Ask::Panic(now) => {
                while !now.load(Ordering::SeqCst) {
                    yield_now().await;
                }
                panic!("on purpose");
            }
        }
    }

    async fn handle_cast(&mut self, deposit: i64, ctx: &Context<Self>) {
        self.note(format!("cast {deposit}"));
        self.balance += deposit;
        for reply in self.waiting.drain(..) {
            reply.send(self.balance);
        }
        if deposit == 0 {
            ctx.stop();
        }
    }

    async fn handle_info(&mut self, info: String, _: &Context<Self>) {
        self.note(format!("info {info}"));
    }

    async fn handle_down(&mut self, down: Down, _: &Context<Self>) {
        self.note(format!("down {}", down.reason));
    }

    async fn terminate(&mut self, _: &Context<Self>) {
        // Whatever it takes, it is awaited.
        yield_now().await;
        self.note("terminate");
    }
}

fn entries(log: &Log) -> Vec<String> {
    log.lock().unwrap().clone()
}

/// One on each core.
async fn accounts(runtime: &RuntimeHandle, cores: Vec<CoreId>) -> Vec<(ServerRef<Account>, Log)> {
    let mut accounts = Vec::new();
    for core in cores {
        let log = Log::default();
        let account = Account { log: Arc::clone(&log), ..Account::default() };
        let server = server::start_on(runtime, core, || server::start(account)).await.unwrap();
        assert_eq!(server.pid().core(), core);
        accounts.push((server, log));
    }
    accounts
}

#[test]
fn calls_and_casts_of_one_client_are_handled_in_their_order() {
    on_cores(2, async |runtime, cores| {
        for (account, log) in accounts(&runtime, cores).await {
            account.cast(5).unwrap();
            account.cast(7).unwrap();
            assert_eq!(soon(account.call(Ask::Balance)).await, Ok(12));
            let before = account.send_request(Ask::Balance).unwrap();
            account.cast(1).unwrap();
            let after = account.send_request(Ask::Balance).unwrap();
            assert_eq!((soon(before).await, soon(after).await), (Ok(12), Ok(13)));
            let expected = ["init true", "cast 5", "cast 7", "call", "call", "cast 1", "call"];
            assert_eq!(entries(&log), expected);
        }
    });
}

#[test]
fn a_reply_may_be_given_later() {
    on_cores(2, async |runtime, cores| {
        for (account, _) in accounts(&runtime, cores).await {
            let change = account.send_request(Ask::Change).unwrap();
            assert_eq!(soon(account.call(Ask::Balance)).await, Ok(0));
            account.cast(3).unwrap();
            assert_eq!(soon(change).await, Ok(3));
        }
    });
}

#[test]
fn a_server_without_references_ends_in_good_order_after_what_it_was_sent() {
    on_cores(2, async |runtime, cores| {
        for (account, log) in accounts(&runtime, cores).await {
            let end = actor::monitor(account.pid());
            let second = account.clone();
            drop(account);
            second.cast(1).unwrap();
            second.cast(2).unwrap();
            drop(second);
            assert_eq!(soon(end).await.reason, ExitReason::Normal);
            assert_eq!(entries(&log), ["init true", "cast 1", "cast 2", "terminate"]);
        }
    });
}

#[test]
fn an_outliving_server_is_reached_by_its_pid() {
    on_cores(1, async |_, _| {
        let log = Log::default();
        let account = Account { log: Arc::clone(&log), ..Account::default() };
        let pid = server::build(account).outliving().start().pid();
        for _ in 0..10 {
            yield_now().await;
        }
        actor::send_to(pid, Request::cast(4)).unwrap();
        assert_eq!(soon(actor::call(pid, |reply| Request::call(Ask::Balance, reply))).await, Ok(4));
        let end = actor::monitor(pid);
        actor::request_stop(pid);
        assert_eq!(soon(end).await.reason, ExitReason::Stopped);
        assert!(matches!(actor::send_to(pid, Request::cast(4)), Err(SendError::Dead(_))));
        assert_eq!(entries(&log), ["init true", "cast 4", "call"], "a stopped server says no goodbye");
    });
}

#[test]
fn a_server_may_stop_itself() {
    on_cores(2, async |runtime, cores| {
        for (account, log) in accounts(&runtime, cores).await {
            let end = actor::monitor(account.pid());
            account.cast(0).unwrap();
            let late = account.send_request(Ask::Balance);
            assert_eq!(soon(end).await.reason, ExitReason::Normal);
            if let Ok(late) = late {
                assert_eq!(soon(late).await, Err(CallError::NoReply));
            }
            assert_eq!(entries(&log), ["init true", "cast 0", "terminate"]);
        }
    });
}

#[test]
fn a_server_has_terminated_when_its_shutdown_returns() {
    on_cores(2, async |runtime, cores| {
        for (account, log) in accounts(&runtime, cores).await {
            assert_eq!(soon(account.call(Ask::Balance)).await, Ok(0));
            assert_eq!(soon(account.shutdown()).await, ExitReason::Normal);
            assert_eq!(entries(&log), ["init true", "call", "terminate"]);
            assert_eq!(soon(account.shutdown()).await, ExitReason::NoProcess);
            assert!(account.is_closed());
            assert_eq!(soon(account.call(Ask::Balance)).await, Err(CallError::Closed));
            assert!(matches!(account.cast(8), Err(SendError::Closed(8))));
            assert!(matches!(account.send_request(Ask::Balance), Err(SendError::Closed(Ask::Balance))));
        }
    });
}

#[test]
fn a_shutdown_goes_ahead_of_what_is_queued_whose_callers_are_told_before_the_goodbye() {
    on_cores(1, async |_, _| {
        struct Slow {
            farewell: channel::Receiver<()>,
            log: Rc<RefCell<Vec<&'static str>>>,
        }
        impl Server for Slow {
            type Call = ();
            type Reply = ();
            type Cast = Infallible;
            type Info = Infallible;

            async fn handle_call(&mut self, (): (), reply: Reply<()>, _: &Context<Self>) {
                self.log.borrow_mut().push("call");
                reply.send(());
            }

            async fn handle_cast(&mut self, never: Infallible, _: &Context<Self>) {
                match never {}
            }

            async fn terminate(&mut self, _: &Context<Self>) {
                self.farewell.recv().await.unwrap();
                self.log.borrow_mut().push("terminate");
            }
        }
        let (release, farewell) = channel::unbounded();
        let log = Rc::new(RefCell::new(Vec::new()));
        let slow = server::start(Slow { farewell, log: Rc::clone(&log) });
        soon(slow.call(())).await.unwrap();
        // The server has had no turn since, and finds both.
        let queued = slow.send_request(()).unwrap();
        let mut shutdown = Box::pin(slow.shutdown());
        assert_eq!(poll_once(&mut shutdown).await, Poll::Pending);
        assert_eq!(soon(queued).await, Err(CallError::NoReply));
        assert_eq!(soon(slow.call(())).await, Err(CallError::Closed));
        assert_eq!(*log.borrow(), ["call"]);
        release.send(()).unwrap();
        assert_eq!(soon(shutdown).await, ExitReason::Normal);
        assert_eq!(*log.borrow(), ["call", "terminate"]);
    });
}

#[test]
fn a_call_that_cannot_be_answered_fails_at_once() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            let start = async || accounts(&runtime, vec![core]).await.remove(0).0;

            let dropping = start().await;
            assert_eq!(soon(dropping.call(Ask::Nothing)).await, Err(CallError::NoReply));
            assert_eq!(soon(dropping.call(Ask::Balance)).await, Ok(0));

            // The one that is handled, and the one behind it.
            let panicking = start().await;
            let now = Arc::new(AtomicBool::new(false));
            let asks = [Ask::Panic(Arc::clone(&now)), Ask::Balance];
            let calls = asks.map(|ask| panicking.send_request(ask).unwrap());
            now.store(true, Ordering::SeqCst);
            for call in calls {
                assert_eq!(soon(call).await, Err(CallError::NoReply));
            }
            poll_until(async || panicking.is_closed()).await;
            assert_eq!(soon(panicking.call(Ask::Balance)).await, Err(CallError::Closed));

            // The one that is handled, one that was kept, and the one behind them.
            let stopped = start().await;
            let kept = stopped.send_request(Ask::Change).unwrap();
            let handled = stopped.send_request(Ask::Forever).unwrap();
            let queued = stopped.send_request(Ask::Balance).unwrap();
            actor::request_stop(stopped.pid());
            for call in [kept, handled, queued] {
                assert_eq!(soon(call).await, Err(CallError::NoReply));
            }
        }
    });
}

#[test]
fn a_full_mailbox_refuses_and_gives_back_also_across_cores() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            let server =
                server::start_on(&runtime, core, || server::build(Account::default()).bounded(2).start())
                    .await
                    .unwrap();
            let busy = server.send_request(Ask::Forever).unwrap();
            let mut places = Vec::new();
            poll_until(async || {
                // Two more once the server has taken the first.
                while let Ok(call) = server.send_request(Ask::Balance) {
                    places.push(call);
                }
                places.len() == 2
            })
            .await;
            assert!(matches!(server.cast(8), Err(SendError::Full(8))));
            assert_eq!(soon(server.call(Ask::Balance)).await, Err(CallError::Full));
            assert!(matches!(server.send_request(Ask::Balance), Err(SendError::Full(Ask::Balance))));
            actor::request_stop(server.pid());
            assert_eq!(soon(busy).await, Err(CallError::NoReply));
        }
    });
}

#[test]
fn a_call_that_times_out_leaves_no_timer_and_its_late_answer_harms_nobody() {
    on_cores(2, async |runtime, cores| {
        for (account, _) in accounts(&runtime, cores).await {
            let limit = Duration::from_millis(1);
            let asked = account.call_timeout(Ask::Change, limit).await;
            assert_eq!(asked, Err(CallError::Timeout));
            assert_eq!(core_stats().unwrap().timers, 0, "a timer is left");
            // Takes the place of the one that gave up; the late answer goes to neither.
            let next = account.send_request(Ask::Balance).unwrap();
            account.cast(99).unwrap();
            assert_eq!(soon(next).await, Ok(0));
            let patient = account.call_timeout(Ask::Balance, Duration::from_secs(60)).await;
            assert_eq!((patient, core_stats().unwrap().timers), (Ok(99), 0));
        }
    });
}

#[test]
fn casts_come_from_every_thread() {
    on_cores(1, async |_, _| {
        let account = server::start(Account::default());
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let account = account.clone();
                std::thread::spawn(move || (0..1_000).for_each(|_| account.cast(1).unwrap()))
            })
            .collect();
        poll_until(async || account.call(Ask::Balance).await == Ok(4_000)).await;
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_core_takes_its_servers_and_their_callers_hear_of_it() {
    let (runtime, guests) = Runtime::builder().cores(Cores::Count(2)).pinned(false).build_guests().unwrap();
    let [mut here, there]: [Core; 2] =
        guests.into_iter().map(|guest| guest.start().unwrap()).collect::<Vec<_>>().try_into().unwrap();
    let mut there = Some(there);
    let core = runtime.cores()[1];
    let (asked, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let task = here.spawn({
        let (asked, done) = (Arc::clone(&asked), Arc::clone(&done));
        async move {
            let account =
                server::start_on(&runtime, core, || server::start(Account::default())).await.unwrap();
            let handled = account.send_request(Ask::Forever).unwrap();
            let queued = account.send_request(Ask::Balance).unwrap();
            asked.store(true, Ordering::SeqCst);
            assert_eq!((handled.await, queued.await), (Err(CallError::NoReply), Err(CallError::NoReply)));
            assert_eq!(account.call(Ask::Balance).await, Err(CallError::Closed));
            assert!(matches!(account.cast(3), Err(SendError::Closed(3))));
            assert_eq!(account.shutdown().await, ExitReason::CoreEnded);
            let pid = account.pid();
            assert!(matches!(actor::send_to(pid, Request::cast(3)), Err(SendError::Dead(_))));
            let refused = server::start_on(&runtime, core, || server::start(Account::default())).await;
            assert!(refused.is_err());
            done.store(true, Ordering::SeqCst);
        }
    });
    block_until(|| {
        here.turn().unwrap();
        if let Some(core) = &mut there {
            core.turn().unwrap();
        }
        if asked.load(Ordering::SeqCst) {
            there = None;
        }
        done.load(Ordering::SeqCst)
    });
    drop(task);
}

#[test]
fn a_panic_where_a_server_is_started_is_the_starters() {
    on_cores(2, async |runtime, cores| {
        let task = corelet::runtime::spawn(async move {
            let start = || server::build(Account::default()).bounded(0).start();
            server::start_on(&runtime, cores[1], start).await.map(drop)
        });
        assert!(soon(task).await.is_err_and(|error| error.is_panic()));
    });
}

#[test]
fn a_dropped_shutdown_still_shuts_down() {
    on_cores(2, async |runtime, cores| {
        for (account, log) in accounts(&runtime, cores).await {
            let end = actor::monitor(account.pid());
            let mut shutdown = Box::pin(account.shutdown());
            assert_eq!(poll_once(&mut shutdown).await, Poll::Pending);
            drop(shutdown);
            assert_eq!(soon(end).await.reason, ExitReason::Normal);
            assert_eq!(entries(&log).last().unwrap(), "terminate");
        }
    });
}
