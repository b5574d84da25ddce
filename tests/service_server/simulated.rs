//! A server in simulated worlds, drawn from seeds: whoever was connected is answered whole or not at all, and nothing is left.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use corelet::net::TcpStream;
use corelet::runtime::{Simulation, handle, sleep, spawn};
use corelet::service::Server;

use crate::fixture::*;

/// One exchange after another until the server goes; gives how many were answered.
async fn chat(address: std::net::SocketAddr, number: u64, answered: Rc<Cell<u64>>) {
    sleep(Duration::from_millis(number % 7)).await;
    let Ok(mut stream) = TcpStream::connect(address).await else { return };
    for round in 0..10 {
        let line = format!("echo {number} {round}\n");
        if stream.write_all(line.clone().into_bytes()).await.0.is_err() {
            return;
        }
        let (read, reply) = stream.read_exact(Vec::with_capacity(line.len()), line.len()).await;
        if read.is_err() {
            assert!(reply.is_empty(), "an answer that was cut short: {reply:?}");
            return;
        }
        assert_eq!(reply, line.as_bytes());
        answered.set(answered.get() + 1);
        sleep(Duration::from_millis(number % 3)).await;
    }
}

#[test]
fn in_every_world_all_are_served_and_a_drain_cuts_nobody_short() {
    for seed in 0..60 {
        let mut simulation = Simulation::new(seed, 2);
        let answered = simulation.block_on(move || async move {
            let server = Server::new(app(&Latch::default())).bind(([127, 0, 0, 1], 4000).into());
            let server = server.start(&handle()).await.unwrap();
            let answered = Rc::new(Cell::new(0));
            let clients: Vec<_> = (0..12)
                .map(|number| spawn(chat(server.local_addr(), number, Rc::clone(&answered))))
                .collect();
            if seed % 2 == 0 {
                // In the middle of it all.
                sleep(Duration::from_millis(seed % 25)).await;
                server.drain(Duration::from_secs(60)).await.unwrap();
                for client in clients {
                    client.await.unwrap();
                }
            } else {
                for client in clients {
                    client.await.unwrap();
                }
                let stats = loop {
                    let stats = server.stats().await;
                    if stats.sum(|core| core.open) == 0 {
                        break stats;
                    }
                    sleep(Duration::from_millis(1)).await;
                };
                assert_eq!(answered.get(), 120, "nobody was lost");
                assert_eq!((stats.sum(|core| core.accepted), stats.sum(|core| core.ended)), (12, 12));
                assert_eq!(server.drain(Duration::ZERO).await.unwrap().connections, 0);
            }
            answered.get()
        });
        assert!(answered.is_ok(), "{answered:?}");
    }
}
