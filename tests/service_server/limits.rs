//! As many connections as there may be, and no more.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use corelet::net::TcpStream;
use corelet::runtime::{core_stats, sleep, spawn, yield_now};
use corelet::service::server::WhenFull;

use crate::fixture::*;
use crate::support::{on_cores, poll_until, soon};

#[test]
fn one_connection_too_many_is_told_so_and_closed() {
    on_cores(2, async move |runtime, _| {
        let server = server().max_connections(2).refusal("too many\n");
        let server = soon(server.start(&runtime)).await.unwrap();
        let mut first = connect(&server).await;
        let mut second = connect(&server).await;
        talk(&mut first, "echo 1", "echo 1").await;
        talk(&mut second, "echo 2", "echo 2").await;
        for _ in 0..5 {
            let mut third = connect(&server).await;
            assert_eq!(hear_all(&mut third).await, "too many\n");
        }
        assert_eq!(figure(&server, |core| core.refused).await, 5);
        talk(&mut first, "echo still", "echo still").await;
        drop(second);
        until_open(&server, 1).await;
        // The place is given back right behind the count.
        poll_until(async || {
            let mut third = connect(&server).await;
            say(&mut third, "echo 3\n").await;
            hear_all_until_line(&mut third).await == "echo 3\n"
        })
        .await;
    });
}

/// What comes until a line is complete or the peer has ended.
async fn hear_all_until_line(stream: &mut TcpStream) -> String {
    match soon(stream.receive()).await {
        Ok(Some(bytes)) => String::from_utf8(bytes.to_vec()).unwrap(),
        _ => String::new(),
    }
}

#[test]
fn each_core_has_a_limit_of_its_own() {
    on_cores(2, async move |runtime, cores| {
        let server = server().cores([cores[1]]).max_connections_per_core(1);
        let server = soon(server.start(&runtime)).await.unwrap();
        let mut first = connect(&server).await;
        talk(&mut first, "echo 1", "echo 1").await;
        let mut second = connect(&server).await;
        assert_eq!(hear_all(&mut second).await, "");
        assert_eq!(figure(&server, |core| core.refused).await, 1);
    });
}

#[test]
fn who_waits_for_a_place_gets_it_on_whichever_core() {
    on_cores(2, async move |runtime, _| {
        let server = server().max_connections(2).when_full(WhenFull::Wait);
        let server = Rc::new(soon(server.start(&runtime)).await.unwrap());
        // Who has been answered has a place until it closes.
        let inside = Rc::new(Cell::new(0));
        let tasks: Vec<_> = (0..40)
            .map(|number| {
                let (server, inside) = (Rc::clone(&server), Rc::clone(&inside));
                spawn(async move {
                    let mut client = connect(&server).await;
                    let line = format!("echo {number}");
                    talk(&mut client, &line, &line).await;
                    inside.set(inside.get() + 1);
                    for _ in 0..10 {
                        assert!(inside.get() <= 2, "{} have a place", inside.get());
                        yield_now().await;
                    }
                    inside.set(inside.get() - 1);
                    client.close().await;
                })
            })
            .collect();
        for task in tasks {
            soon(task).await.unwrap();
        }
        until_open(&server, 0).await;
        let stats = server.stats().await;
        assert_eq!(stats.sum(|core| core.accepted), 40);
        assert_eq!(stats.sum(|core| core.refused), 0);
    });
}

#[test]
fn to_wait_for_a_place_costs_nothing() {
    on_cores(1, async move |runtime, _| {
        let server = server().max_connections(1).when_full(WhenFull::Wait);
        let server = soon(server.start(&runtime)).await.unwrap();
        let mut inside = connect(&server).await;
        talk(&mut inside, "echo a", "echo a").await;
        let mut waiting = connect(&server).await;
        say(&mut waiting, "echo b\n").await;
        let polls = core_stats().unwrap().executor.polls;
        sleep(Duration::from_millis(100)).await;
        let polls = core_stats().unwrap().executor.polls - polls;
        assert!(polls < 100, "{polls} polls while nothing happened");
        inside.close().await;
        hear(&mut waiting, "echo b\n").await;
    });
}
