//! How a server ends: in good order, in time, or at once; whole, or one connection of it.

use std::rc::Rc;
use std::time::Duration;

use corelet::actor;
use corelet::net::TcpStream;
use corelet::runtime::{core_stats, now, spawn};
use corelet::service::Server;
use corelet::service::server::DrainTimeout;

use crate::fixture::*;
use crate::support::{PATIENCE, on_cores, poll_until, soon};

/// Two connections with a request under way each, and two idle ones.
async fn busy(server: &corelet::service::ServerHandle) -> (Vec<TcpStream>, Vec<TcpStream>) {
    let (mut asking, mut idle) = (Vec::new(), Vec::new());
    for number in 0..2 {
        let mut client = connect(server).await;
        say(&mut client, &format!("wait {number}\n")).await;
        asking.push(client);
        let mut client = connect(server).await;
        talk(&mut client, "echo idle", "echo idle").await;
        idle.push(client);
    }
    poll_until(async || figure(server, |core| core.counts.requests).await == 4).await;
    (asking, idle)
}

/// Soon: one core may have closed its listener before the other. Gives how many connections the looking has made: the other
/// one may have served them.
async fn nobody_listens(address: std::net::SocketAddr) -> usize {
    let mut connected = 0;
    poll_until(async || {
        let refused = TcpStream::connect(address).await.is_err();
        connected += usize::from(!refused);
        refused
    })
    .await;
    connected
}

#[test]
fn a_drain_finishes_what_has_begun_and_takes_nothing_new() {
    on_cores(2, async move |runtime, _| {
        let latch = Latch::default();
        let server = Server::new(app(&latch)).bind(loopback()).start(&runtime);
        let server = Rc::new(soon(server).await.unwrap());
        let (asking, idle) = busy(&server).await;
        let draining = {
            let server = Rc::clone(&server);
            spawn(async move { server.drain(PATIENCE).await })
        };
        for mut client in idle {
            assert_eq!(hear_all(&mut client).await, "", "idle ones end at once");
        }
        let looks = nobody_listens(server.local_addr()).await;
        until_open(&server, 2).await;
        assert!(!draining.is_finished());
        latch.open();
        for (number, mut client) in asking.into_iter().enumerate() {
            assert_eq!(
                hear_all(&mut client).await,
                format!("wait {number}\n"),
                "the answer, whole, and the end"
            );
        }
        let drained = soon(draining).await.unwrap().unwrap().connections;
        assert!((4..=4 + looks).contains(&drained), "{drained} were drained, and {looks} only looked");
        // A server that has ended has nothing to drain, count or list.
        assert_eq!(soon(server.drain(PATIENCE)).await.unwrap().connections, 0);
        assert!(soon(server.stats()).await.cores.is_empty());
        assert!(soon(server.connections()).await.is_empty());
    });
}

#[test]
fn a_drain_that_takes_too_long_drops_what_is_left() {
    on_cores(2, async move |runtime, cores| {
        let base = core_stats().unwrap().executor.live;
        let server = Server::new(app(&Latch::default())).bind(loopback()).cores([cores[0]]);
        let server = soon(server.start(&runtime)).await.unwrap();
        let (asking, _idle) = busy(&server).await;
        let (begun, limit) = (now(), Duration::from_millis(30));
        let ended = soon(server.drain(limit)).await;
        assert_eq!(ended, Err(DrainTimeout { remaining: 2, drained: 2 }));
        assert!(now() - begun >= limit);
        for mut client in asking {
            assert_eq!(hear_all(&mut client).await, "");
        }
        // Nothing of it is left when the drain says so, but for tasks on their very last step.
        poll_until(async || core_stats().unwrap().executor.live == base).await;
    });
}

#[test]
fn the_earliest_deadline_stands_and_all_who_drain_hear_the_same() {
    on_cores(2, async move |runtime, cores| {
        // On one core: where only those sit that end at once, the core is done before the last one drains.
        let server = Server::new(app(&Latch::default())).bind(loopback()).cores([cores[0]]);
        let server = Rc::new(soon(server.start(&runtime)).await.unwrap());
        let (_asking, _idle) = busy(&server).await;
        let drains: Vec<_> = [100 * PATIENCE, Duration::MAX, Duration::from_millis(20)]
            .into_iter()
            .map(|limit| {
                let server = Rc::clone(&server);
                spawn(async move { server.drain(limit).await })
            })
            .collect();
        for drain in drains {
            assert_eq!(soon(drain).await.unwrap(), Err(DrainTimeout { remaining: 2, drained: 2 }));
        }
    });
}

#[test]
fn a_shutdown_waits_for_nobody() {
    on_cores(2, async move |runtime, _| {
        let server =
            soon(Server::new(app(&Latch::default())).bind(loopback()).start(&runtime)).await.unwrap();
        let (asking, idle) = busy(&server).await;
        soon(server.shutdown()).await;
        for mut client in asking.into_iter().chain(idle) {
            assert_eq!(hear_all(&mut client).await, "");
        }
        nobody_listens(server.local_addr()).await;
    });
}

#[test]
fn a_server_ends_with_its_handle_unless_that_is_detached() {
    on_cores(2, async move |runtime, _| {
        let server = soon(server().start(&runtime)).await.unwrap();
        let (address, mut client) = (server.local_addr(), connect(&server).await);
        talk(&mut client, "echo a", "echo a").await;
        drop(server);
        assert_eq!(hear_all(&mut client).await, "");
        nobody_listens(address).await;

        let server = soon(Server::new(app(&Latch::default())).bind(address).start(&runtime)).await.unwrap();
        server.detach();
        let mut client = soon(TcpStream::connect(address)).await.unwrap();
        talk(&mut client, "echo a", "echo a").await;
        // It ends with the runtime, however many connections it has.
    });
}

#[test]
fn a_server_that_has_stopped_accepting_serves_the_connections_it_has() {
    on_cores(2, async move |runtime, _| {
        let server = soon(server().start(&runtime)).await.unwrap();
        let mut client = connect(&server).await;
        talk(&mut client, "echo a", "echo a").await;
        server.stop();
        nobody_listens(server.local_addr()).await;
        talk(&mut client, "echo b", "echo b").await;
        // Without those that only looked.
        until_open(&server, 1).await;
        assert_eq!(soon(server.drain(PATIENCE)).await.unwrap().connections, 1);
        assert_eq!(hear_all(&mut client).await, "");
    });
}

#[test]
fn connections_are_listed_and_ended_one_by_one() {
    on_cores(2, async move |runtime, _| {
        let latch = Latch::default();
        let server = soon(Server::new(app(&latch)).bind(loopback()).start(&runtime)).await.unwrap();
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut client = connect(&server).await;
            talk(&mut client, "echo a", "echo a").await;
            clients.push(client);
        }
        let listed = server.connections().await;
        assert_eq!(listed.len(), 4);
        let actors = soon(actor::snapshot()).await;
        let labels =
            |label: &str| actors.actors().filter(|actor| actor.label.as_deref() == Some(label)).count();
        assert_eq!((labels("server"), labels("acceptor")), (2, 2));
        let shown = |pid| actors.actors().any(|actor| actor.pid == pid);
        assert!(listed.iter().all(|connection| shown(connection.actor)), "as `corelet top` shows them");
        let id_of = |client: &TcpStream| {
            let address = client.local_addr().unwrap();
            let found = listed.iter().find(|connection| connection.peer.to_string() == address.to_string());
            found.unwrap().id
        };

        say(&mut clients[0], "wait 0\n").await;
        say(&mut clients[1], "wait 1\n").await;
        poll_until(async || figure(&server, |core| core.counts.requests).await == 6).await;
        assert!(server.close_connection(id_of(&clients[0])).await);
        assert_eq!(hear_all(&mut clients[0]).await, "");
        assert!(server.drain_connection(id_of(&clients[1])).await);
        latch.open();
        assert_eq!(hear_all(&mut clients[1]).await, "wait 1\n");
        until_open(&server, 2).await;
        assert!(!server.close_connection(id_of(&clients[0])).await, "it is gone");
        talk(&mut clients[2], "echo b", "echo b").await;
        talk(&mut clients[3], "echo b", "echo b").await;
    });
}
