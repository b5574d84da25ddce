//! Linked actors share their fate, once, in both directions, until they are unlinked; an actor that traps exits is told.

mod support;

use std::cell::Cell;
use std::rc::Rc;

use corelet::actor::{self, Addressable, ExitReason, Pid, channel};
use corelet::runtime::{CoreId, RuntimeHandle, Simulation, handle, spawn, yield_now};
use support::{on_cores, poll_until, soon};

enum Links {}

impl Addressable for Links {
    type Msg = Order;
}

enum Order {
    Link(Pid<Links>),
    Unlink(Pid<Links>),
    Panic,
    Return,
    Pong(actor::Reply<()>),
}

async fn obey(mut inbox: channel::Receiver<Order>) {
    loop {
        match inbox.recv().await.unwrap() {
            Order::Link(pid) => actor::link(pid),
            Order::Unlink(pid) => actor::unlink(pid),
            Order::Panic => panic!("on purpose"),
            Order::Return => return,
            Order::Pong(reply) => reply.send(()),
        }
    }
}

async fn servant(runtime: &RuntimeHandle, core: CoreId) -> Pid<Links> {
    soon(actor::spawn_addr_on::<Links, _, _>(runtime, core, obey)).await.unwrap()
}

/// All that was sent to it from here has been obeyed, and whatever that sent to other cores is on its way.
async fn settle(pid: Pid<Links>) {
    soon(actor::call(pid, Order::Pong)).await.unwrap();
}

fn panicked() -> ExitReason {
    ExitReason::Panicked("on purpose".into())
}

#[test]
fn a_failure_takes_a_whole_chain_over_two_cores_along_with_its_reason() {
    on_cores(2, async |runtime, cores| {
        let mut chain = Vec::new();
        for number in 0..300 {
            let pid = servant(&runtime, cores[number % 2]).await;
            if let Some(before) = chain.last() {
                actor::send_to(pid, Order::Link(*before)).unwrap();
                settle(pid).await;
            }
            chain.push(pid);
        }
        let mut monitors = actor::Monitors::new();
        for pid in &chain {
            monitors.watch(*pid);
        }
        actor::send_to(chain[150], Order::Panic).unwrap();
        while !monitors.is_empty() {
            assert_eq!(soon(monitors.recv()).await.reason, panicked());
        }
    });
}

#[test]
fn a_normal_end_leaves_linked_actors_alone_and_tells_those_that_trap() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            let ending = servant(&runtime, core).await;
            let bystander = servant(&runtime, core).await;
            actor::send_to(bystander, Order::Link(ending)).unwrap();
            settle(bystander).await;
            let mut exits = actor::trap_exits();
            actor::link(ending);
            actor::link(ending);
            actor::send_to(ending, Order::Return).unwrap();
            let exit = soon(exits.recv()).await;
            assert_eq!((exit.from, exit.reason), (ending.erase(), ExitReason::Normal));
            settle(bystander).await;
            assert!(exits.try_recv().is_none(), "linking twice is linking once");
            actor::send_to(bystander, Order::Return).unwrap();
        }
    });
}

#[test]
fn what_was_unlinked_is_not_heard_of() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            let mut exits = actor::trap_exits();
            for round in 0..300 {
                let pid = servant(&runtime, core).await;
                actor::link(pid);
                actor::send_to(pid, Order::Panic).unwrap();
                if round % 2 == 0 {
                    // Its exit may be on its way, or may have come.
                    yield_now().await;
                }
                let heard = exits.try_recv().is_some();
                actor::unlink(pid);
                soon(actor::monitor(pid)).await;
                assert!(heard || exits.try_recv().is_none(), "round {round}");
            }
        }
    });
}

#[test]
fn a_link_made_again_after_an_unlink_holds() {
    on_cores(2, async |runtime, cores| {
        let mut exits = actor::trap_exits();
        for core in cores {
            for round in 0..200 {
                let pid = servant(&runtime, core).await;
                for _ in 0..round % 4 {
                    actor::link(pid);
                    actor::unlink(pid);
                }
                actor::link(pid);
                actor::send_to(pid, Order::Panic).unwrap();
                let exit = soon(exits.recv()).await;
                assert_eq!((exit.from, exit.reason), (pid.erase(), panicked()));
            }
        }
        assert!(exits.try_recv().is_none());
    });
}

/// Two actors on two cores are told to link and to unlink, five times in all, by the bits of the seed. When every letter has
/// arrived, one of them fails: does the other follow?
fn follows(seed: u64, first_fails: bool) -> bool {
    let mut simulation = Simulation::new(seed, 2);
    let cores = simulation.cores();
    let (one, two) = simulation
        .block_on(move || async move {
            let one = servant(&handle(), cores[0]).await;
            let two = servant(&handle(), cores[1]).await;
            for number in 0..5 {
                let bits = seed >> (2 * number);
                let (from, to) = if bits & 1 == 0 { (one, two) } else { (two, one) };
                let order = if bits & 2 == 0 { Order::Link(to) } else { Order::Unlink(to) };
                actor::send_to(from, order).unwrap();
            }
            (one, two)
        })
        .unwrap();
    simulation.run_until_idle().unwrap();
    let (fails, other) = if first_fails { (one, two) } else { (two, one) };
    simulation.block_on(move || async move { actor::send_to(fails, Order::Panic).unwrap() }).unwrap();
    simulation.run_until_idle().unwrap();
    simulation.block_on(move || async move { actor::call(other, Order::Pong).await.is_err() }).unwrap()
}

#[test]
fn links_and_unlinks_that_cross_leave_both_linked_or_neither() {
    let mut linked = 0;
    for seed in 0..512 {
        let follows = [follows(seed, true), follows(seed, false)];
        assert_eq!(follows[0], follows[1], "one half of a link is left, seed {seed}");
        linked += u64::from(follows[0]);
    }
    println!("{linked} linked in the end");
    assert!((50..462).contains(&linked));
}

#[test]
fn the_first_reason_to_stop_stands() {
    on_cores(1, async |runtime, cores| {
        let frail = servant(&runtime, cores[0]).await;
        let linked = servant(&runtime, cores[0]).await;
        actor::send_to(linked, Order::Link(frail)).unwrap();
        settle(linked).await;
        let end = actor::monitor(linked);
        // It fails before `linked`, which is asked to stop now, is polled again.
        actor::send_to(frail, Order::Panic).unwrap();
        actor::request_stop(linked);
        assert_eq!(soon(end).await.reason, ExitReason::Stopped);
    });
}

#[test]
fn a_link_to_nobody_is_an_exit() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            let gone = servant(&runtime, core).await;
            actor::send_to(gone, Order::Return).unwrap();
            soon(actor::monitor(gone)).await;
            let (_, end) = actor::spawn_monitor(async move {
                actor::link(gone);
                std::future::pending::<()>().await;
            });
            assert_eq!(soon(end).await.reason, ExitReason::NoProcess);
            let trapper = spawn(async move {
                let mut exits = actor::trap_exits();
                actor::link(gone);
                exits.recv().await
            });
            assert_eq!(soon(trapper).await.unwrap().reason, ExitReason::NoProcess);
        }
    });
}

#[test]
fn linked_actors_elsewhere_end_with_a_core() {
    for seed in 0..200 {
        let mut simulation = Simulation::new(seed, 3);
        let cores = simulation.cores();
        let faults = simulation.faults();
        simulation
            .block_on(move || async move {
                let victim = servant(&handle(), cores[1]).await;
                let linked = servant(&handle(), cores[2]).await;
                let end = actor::monitor(linked);
                let mut exits = actor::trap_exits();
                actor::link(victim);
                actor::send_to(linked, Order::Link(victim)).unwrap();
                if seed % 2 == 0 {
                    settle(linked).await;
                }
                faults.kill_core(1);
                assert_eq!(end.await.reason, ExitReason::CoreEnded, "seed {seed}");
                assert_eq!(exits.recv().await.reason, ExitReason::CoreEnded, "seed {seed}");
            })
            .unwrap();
    }
}

#[test]
fn a_trap_is_set_and_taken_away_again() {
    on_cores(1, async |runtime, cores| {
        let heard = Rc::new(Cell::new(false));
        let (one, two) = (servant(&runtime, cores[0]).await, servant(&runtime, cores[0]).await);
        let theirs = Rc::clone(&heard);
        let (_, end) = actor::spawn_monitor(async move {
            let mut exits = actor::trap_exits();
            actor::link(one);
            actor::link(two);
            exits.recv().await;
            drop(exits);
            theirs.set(true);
            std::future::pending::<()>().await;
        });
        yield_now().await;
        actor::send_to(one, Order::Panic).unwrap();
        poll_until(async || heard.get()).await;
        actor::send_to(two, Order::Panic).unwrap();
        assert_eq!(soon(end).await.reason, panicked());
    });
}
