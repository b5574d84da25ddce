//! Actors can be addressed, sent to, watched, linked and stopped, on one core and across cores.

mod support;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use corelet::actor::{self, Addressable, CallError, Down, ExitReason, Pid, SendError, channel};
use corelet::runtime::{core_stats, yield_now};
use support::{on_cores, poll_until, soon};

enum Numbers {}

impl Addressable for Numbers {
    type Msg = u64;
}

#[test]
fn what_is_sent_right_after_the_spawn_arrives() {
    on_cores(1, async |_, _| {
        let heard = Rc::new(RefCell::new(Vec::new()));
        for round in 0..1_000 {
            let theirs = Rc::clone(&heard);
            let pid = actor::spawn_addr::<Numbers, _, _>(async move |mut inbox| {
                let number = inbox.recv().await.unwrap();
                theirs.borrow_mut().push(number);
            });
            actor::send_to(pid, round).unwrap();
            if round % 7 == 0 {
                assert_eq!(soon(actor::monitor(pid)).await.reason, ExitReason::Normal);
            }
        }
        poll_until(async || heard.borrow().len() == 1_000).await;
        assert!(heard.borrow().is_sorted());
    });
}

#[test]
fn messages_from_another_core_arrive_in_order() {
    on_cores(2, async |runtime, cores| {
        let pid = soon(actor::spawn_addr_on::<Numbers, _, _>(&runtime, cores[1], async |mut inbox| {
            for expected in 0..10_000 {
                assert_eq!(inbox.recv().await, Ok(expected));
            }
        }))
        .await
        .unwrap();
        let end = actor::monitor(pid);
        for number in 0..10_000 {
            actor::send_to(pid, number).unwrap();
        }
        let down: Down = soon(end).await;
        assert_eq!((down.pid, down.reason), (pid.erase(), ExitReason::Normal));
        assert!(matches!(soon(actor::monitor(pid)).await.reason, ExitReason::NoProcess));
    });
}

#[test]
fn a_monitor_says_how_its_actor_ended() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            let started = |kind: u64| {
                let runtime = runtime.clone();
                async move {
                    let pid = soon(actor::spawn_addr_on::<Numbers, _, _>(
                        &runtime,
                        core,
                        async move |mut inbox| {
                            inbox.recv().await.unwrap();
                            match kind {
                                0 => (),
                                1 => panic!("on purpose"),
                                2 => actor::exit("had enough").await,
                                _ => std::future::pending().await,
                            }
                        },
                    ))
                    .await
                    .unwrap();
                    let monitors = [actor::monitor(pid), actor::monitor(pid)];
                    actor::send_to(pid, 0).unwrap();
                    if kind == 3 {
                        actor::request_stop(pid);
                        actor::request_stop(pid);
                    }
                    let [one, two] = monitors;
                    let (one, two) = (soon(one).await, soon(two).await);
                    assert_eq!(one, two);
                    one.reason
                }
            };
            assert_eq!(started(0).await, ExitReason::Normal);
            assert_eq!(started(1).await, ExitReason::Panicked("on purpose".into()));
            assert_eq!(started(2).await, ExitReason::Failed("had enough".into()));
            assert_eq!(started(3).await, ExitReason::Stopped);
        }
    });
}

#[test]
fn an_abnormal_exit_stops_linked_actors_and_is_a_message_to_those_that_trap() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            let frail =
                soon(actor::spawn_addr_on::<Numbers, _, _>(&runtime, core, async move |mut inbox| {
                    inbox.recv().await.unwrap();
                    panic!("on purpose");
                }))
                .await
                .unwrap();
            let (told, mut tells) = channel::unbounded::<ExitReason>();
            let (_, follower) = actor::spawn_monitor(async move {
                actor::link(frail);
                std::future::pending::<()>().await;
            });
            let _trapper = actor::spawn(async move {
                let mut exits = actor::trap_exits();
                actor::link(frail);
                let exit = exits.recv().await;
                assert_eq!(exit.from, frail);
                told.send(exit.reason).unwrap();
            });
            yield_now().await;
            actor::send_to(frail, 1).unwrap();
            let reason = ExitReason::Panicked("on purpose".into());
            assert_eq!(soon(follower).await.reason, reason);
            assert_eq!(soon(tells.recv()).await, Ok(reason));
        }
    });
}

#[test]
fn a_failed_send_gives_the_message_back() {
    on_cores(1, async |_, _| {
        let pid = actor::spawn_addr::<Numbers, _, _>(async |mut inbox| {
            assert_eq!(inbox.recv().await, Ok(1));
            drop(inbox);
            std::future::pending::<()>().await;
        });
        assert_eq!(actor::send_dyn(pid.erase(), "text"), Err(SendError::NoChannel("text")));
        actor::send_to(pid, 1).unwrap();
        poll_until(async || actor::send_to(pid, 2) == Err(SendError::Closed(2))).await;
        let end = actor::monitor(pid);
        actor::request_stop(pid);
        assert_eq!(soon(end).await.reason, ExitReason::Stopped);
        let successor: Pid<Numbers> = actor::spawn_addr(async |_inbox| std::future::pending::<()>().await);
        assert_eq!(successor.raw().index(), pid.raw().index(), "the slot is used again");
        assert_eq!(actor::send_to(pid, 3), Err(SendError::Dead(3)));
        actor::request_stop(successor);
    });
}

enum Doubler {}

impl Addressable for Doubler {
    type Msg = (u64, actor::Reply<u64>);
}

#[test]
fn a_call_is_answered_or_says_why_not() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            let doubler = soon(actor::spawn_addr_on::<Doubler, _, _>(&runtime, core, async |mut inbox| {
                while let Ok((number, reply)) = inbox.recv().await {
                    match number {
                        0 => drop(reply),
                        1 => panic!("on purpose"),
                        number => reply.send(2 * number),
                    }
                }
            }))
            .await
            .unwrap();
            for number in 2..100 {
                assert_eq!(soon(actor::call(doubler, |reply| (number, reply))).await, Ok(2 * number));
            }
            assert_eq!(soon(actor::call(doubler, |reply| (0, reply))).await, Err(CallError::NoReply));
            // The second is in the mailbox when the first makes its actor panic.
            let calls = [1, 2].map(|number| {
                actor::spawn_monitor(async move {
                    assert_eq!(actor::call(doubler, |reply| (number, reply)).await, Err(CallError::NoReply));
                })
            });
            for (_, end) in calls {
                assert_eq!(soon(end).await.reason, ExitReason::Normal);
            }
            let error = soon(actor::call(doubler, |reply| (2, reply))).await.unwrap_err();
            assert!(matches!(error, CallError::Dead | CallError::NoReply));
        }
    });
}

#[test]
fn an_answer_that_comes_too_late_goes_to_nobody() {
    on_cores(1, async |_, _| {
        let (slips, mut kept) = channel::unbounded();
        let slow = actor::spawn_addr::<Doubler, _, _>(async move |mut inbox| {
            while let Ok((number, reply)) = inbox.recv().await {
                slips.send((number, reply)).unwrap();
            }
        });
        let limit = Duration::from_millis(1);
        assert_eq!(actor::call_timeout(slow, |reply| (1, reply), limit).await, Err(CallError::Timeout));
        assert_eq!(core_stats().unwrap().timers, 0);
        let (_, late) = kept.recv().await.unwrap();
        let next = actor::spawn_monitor(async move {
            assert_eq!(actor::call(slow, |reply| (2, reply)).await, Ok(4));
        });
        let (number, reply) = kept.recv().await.unwrap();
        late.send(77);
        yield_now().await;
        reply.send(2 * number);
        assert_eq!(soon(next.1).await.reason, ExitReason::Normal);
    });
}
