//! Whatever is wrong with what the kit is given has one answer, on the actor's own core and from another.

mod support;

use std::future::pending;
use std::time::Duration;

use corelet::actor::supervisor::{ChildError, ChildRef, ChildSpec, Supervisor, SupervisorError};
use corelet::actor::{
    self, Addressable, CallError, ExitReason, Name, Pid, RegisterError, Reply, SendError, channel, group,
};
use corelet::runtime::{CoreId, RuntimeHandle, core_stats, sleep};
use support::{on_cores, poll_until, runtime, soon, watched};

enum Echo {}

impl Addressable for Echo {
    type Msg = (u64, Reply<u64>);
}

enum Other {}

impl Addressable for Other {
    type Msg = &'static str;
}

const ECHO: Name<(u64, Reply<u64>)> = Name::new("echo");

async fn echo_on(runtime: &RuntimeHandle, core: CoreId) -> Pid<Echo> {
    let body = async |mut inbox: channel::Receiver<(u64, Reply<u64>)>| {
        while let Ok((number, reply)) = inbox.recv().await {
            reply.send(number);
        }
    };
    soon(actor::spawn_addr_on(runtime, core, body)).await.unwrap()
}

async fn ended_on(runtime: &RuntimeHandle, core: CoreId) -> Pid<Echo> {
    let pid = echo_on(runtime, core).await;
    let end = actor::monitor(pid);
    actor::request_stop(pid);
    assert_eq!(soon(end).await.reason, ExitReason::Stopped);
    pid
}

/// What holds of every pid that names nobody any more, as far as it can be known here.
async fn names_nobody(pid: Pid<Echo>) {
    assert_eq!(soon(actor::monitor(pid)).await.reason, ExitReason::NoProcess);
    // Stopping it again, and again, does nothing.
    actor::request_stop(pid);
    actor::request_stop(pid);
    assert!(matches!(soon(actor::actor_info(pid)).await, Ok(None)));
    group::join("bad input", pid);
    group::leave("bad input", pid);
    let call = soon(actor::call(pid, |reply| (1, reply))).await;
    let here = corelet::runtime::current_core() == Some(pid.core());
    // Elsewhere the question was under way when its actor was found to have ended.
    assert_eq!(call, Err(if here { CallError::Dead } else { CallError::NoReply }));
    let linked = actor::spawn(async move {
        let mut exits = actor::trap_exits();
        actor::link(pid);
        actor::link(pid);
        let exit = exits.recv().await;
        assert_eq!((exit.from, exit.reason), (pid.erase(), ExitReason::NoProcess));
        actor::unlink(pid);
        actor::exit("as it should").await;
    });
    assert_eq!(soon(actor::monitor(linked)).await.reason, ExitReason::Failed("as it should".into()));
    let untrapped = actor::spawn(async move {
        actor::link(pid);
        pending::<()>().await;
    });
    assert_eq!(soon(actor::monitor(untrapped)).await.reason, ExitReason::NoProcess);
    let (reply, answer) = actor::reply();
    let timer = actor::send_after(pid, (1, reply), Duration::from_micros(1));
    assert_eq!(soon(answer).await, Err(CallError::NoReply));
    assert!(!soon(actor::cancel_timer(timer)).await);
    assert!(!soon(actor::cancel_timer(timer)).await);
    assert_eq!(group::members("bad input"), []);
}

#[test]
fn a_pid_of_one_that_has_ended_names_nobody() {
    on_cores(2, async |runtime, cores| {
        for core in cores.clone() {
            let pid = ended_on(&runtime, core).await;
            // Whoever has its place now is not meant.
            let successor = echo_on(&runtime, core).await;
            names_nobody(pid).await;
            assert_eq!(soon(actor::call(successor, |reply| (2, reply))).await, Ok(2));
            let registered = actor::register_pid(ECHO, pid);
            let expected = if core == cores[0] { RegisterError::Dead } else { RegisterError::OtherCore };
            assert_eq!(registered, Err(expected));
            actor::request_stop(successor);
        }
        let (reply, _answer) = actor::reply();
        let pid = ended_on(&runtime, cores[0]).await;
        assert!(matches!(actor::send_to(pid, (7, reply)), Err(SendError::Dead((7, _)))));
        assert_eq!(actor::send_dyn(pid.erase(), 7_u8), Err(SendError::Dead(7)));
    });
}

#[test]
fn a_pid_of_a_runtime_that_has_ended_names_nobody() {
    watched(|| {
        let first = runtime(1);
        let (handle, core) = (first.handle(), first.cores()[0]);
        let stale = first.block_on(move || async move { echo_on(&handle, core).await }).unwrap();
        drop(first);
        let second = runtime(2);
        second
            .block_on(move || async move {
                let (reply, _answer) = actor::reply::<u64>();
                // Its core's id may be another core's by now, which says so on arrival.
                let sent = actor::send_to(stale, (7, reply));
                assert!(matches!(sent, Ok(()) | Err(SendError::Dead((7, _)))));
                let reason = soon(actor::monitor(stale)).await.reason;
                assert!(matches!(reason, ExitReason::NoProcess | ExitReason::CoreEnded), "{reason}");
                actor::request_stop(stale);
                group::join("bad input", stale);
                assert_eq!(group::members("bad input"), []);
            })
            .unwrap();
    });
}

#[test]
fn a_name_that_nobody_has_is_unresolved() {
    on_cores(1, async |_, _| {
        const NOBODY: Name<u8> = Name::new("nobody");
        assert_eq!(actor::send(NOBODY, 7), Err(SendError::Unresolved(7)));
        assert_eq!((actor::whereis(NOBODY), actor::whereis("nobody")), (None, None));
        assert!(actor::lookup_as::<Echo>("nobody").is_none());
        assert!(!actor::unregister(NOBODY));
        assert_eq!(soon(actor::call_named(ECHO, |reply| (1, reply))).await, Err(CallError::Unresolved));
        assert!(group::pick("nobody").is_none() && group::members("nobody").is_empty());
        assert_eq!(group::dispatch::<Other>("nobody", "x"), Err(SendError::NoMember("x")));
        let timer = actor::send_after_named(NOBODY, 7, Duration::ZERO);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(actor::cancel_timer(timer).now(), Some(false));
        assert_eq!(core_stats().unwrap().timers, 0);
    });
}

#[test]
fn a_name_is_not_taken_from_the_living() {
    on_cores(1, async |runtime, cores| {
        let (first, second) = (echo_on(&runtime, cores[0]).await, echo_on(&runtime, cores[0]).await);
        actor::register_pid(ECHO, first).unwrap();
        // Once more is the same.
        actor::register_pid(ECHO, first).unwrap();
        let taken = RegisterError::NameTaken { holder: first.erase() };
        assert_eq!(actor::register_pid(ECHO, second), Err(taken));
        assert_eq!(actor::register_pid(Name::<u8>::new("echo"), first), Err(RegisterError::NoChannel));
        assert_eq!(actor::whereis(ECHO), Some(first.erase()));
        // A type that its holder does not take by it.
        assert_eq!(actor::send(Name::<u8>::new("echo"), 7), Err(SendError::NoChannel(7)));
        assert!(actor::unregister(ECHO) && !actor::unregister(ECHO));
        actor::register_pid(ECHO, second).unwrap();
    });
}

#[test]
fn a_wrong_type_comes_back() {
    on_cores(2, async |runtime, cores| {
        let echo = echo_on(&runtime, cores[0]).await;
        assert_eq!(actor::send_dyn(echo.erase(), "x"), Err(SendError::NoChannel("x")));
        group::join("echoes", echo);
        let wrong = group::pick_as::<Other>("echoes").unwrap();
        assert_eq!(actor::send_to(wrong, "x"), Err(SendError::NoChannel("x")));
        let mute = actor::spawn(pending::<()>());
        assert_eq!(actor::send_dyn(mute, "x"), Err(SendError::NoChannel("x")));
        // Elsewhere it is dropped and counted there.
        let far = echo_on(&runtime, cores[1]).await;
        actor::send_dyn(far.erase(), "x").unwrap();
        let undelivered = || async { actor::undelivered().unwrap() };
        poll_until(async || runtime.spawn_on(cores[1], undelivered).unwrap().await.unwrap() == 1).await;
        assert_eq!(soon(actor::call(far, |reply| (3, reply))).await, Ok(3));
    });
}

#[test]
fn a_full_mailbox_gives_back_what_is_too_much() {
    on_cores(2, async |runtime, cores| {
        let (sender, mut inbox) = channel::bounded::<&'static str>(1);
        let me = actor::install::<Other>(&inbox);
        actor::register(Name::new("full"), &inbox).unwrap();
        sender.send("first").unwrap();
        let by_every_way = move || async move {
            let name = Name::<&'static str>::new("full");
            (sender.send("second"), actor::send(name, "third"))
        };
        let refused = soon(runtime.spawn_on(cores[1], by_every_way).unwrap()).await.unwrap();
        assert_eq!(refused, (Err(SendError::Full("second")), Err(SendError::Full("third"))));
        assert_eq!(actor::send_to(me, "fourth"), Err(SendError::Full("fourth")));
        assert_eq!(inbox.recv().await, Ok("first"));
        actor::send_to(me, "fifth").unwrap();
        assert_eq!(inbox.recv().await, Ok("fifth"));
    });
}

#[test]
fn a_supervisor_says_what_is_wrong_with_a_request() {
    on_cores(1, async |_, _| {
        let child = || ChildSpec::new("one", async || pending::<()>().await);
        let twice = soon(Supervisor::builder().child(child()).child(child()).start()).await;
        assert_eq!(twice.unwrap_err(), SupervisorError::AlreadyPresent { id: "one".into() });
        let supervisor = soon(Supervisor::builder().child(child()).start()).await.unwrap();
        assert_eq!(soon(supervisor.start_child(child())).await, Err(ChildError::AlreadyPresent));
        for wrong in [supervisor.stop_child("two"), supervisor.stop_child("")] {
            assert_eq!(soon(wrong).await, Err(ChildError::NotFound));
        }
        assert_eq!(soon(supervisor.remove_child("two")).await, Err(ChildError::NotFound));
        assert_eq!(soon(supervisor.restart_child("two")).await, Err(ChildError::NotFound));
        // To stop a stopped child is nothing.
        assert_eq!(soon(supervisor.stop_child("one")).await, Ok(()));
        assert_eq!(soon(supervisor.stop_child("one")).await, Ok(()));
        assert_eq!(soon(supervisor.shutdown()).await, [] as [std::sync::Arc<str>; 0]);
        assert!(soon(supervisor.shutdown()).await.is_empty(), "and so is a second shutdown");
        assert_eq!(soon(supervisor.start_child(child())).await, Err(ChildError::NoSupervisor));
        assert!(ChildRef::<Echo>::new().pid().is_none());
    });
}
