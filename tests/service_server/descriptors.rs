//! Out of descriptors: those who are connected are served, nothing spins, and what waits is served as soon as it can be.

use std::fs::File;
use std::net::TcpStream as Caller;
use std::time::Duration;

use corelet::runtime::{core_stats, sleep};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::fixture::*;
use crate::support::{on_cores, poll_until};

/// Sockets that are made now and connect later.
fn callers(count: usize) -> Vec<Socket> {
    (0..count).map(|_| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()).collect()
}

#[test]
fn a_server_out_of_descriptors_serves_on_and_recovers() {
    in_a_child("descriptors::a_server_out_of_descriptors_serves_on_and_recovers", || {
        limit_descriptors(200);
        on_cores(2, async move |runtime, _| {
            let server = server().start(&runtime).await.unwrap();
            let mut clients = Vec::new();
            for _ in 0..3 {
                let mut client = connect(&server).await;
                talk(&mut client, "echo a", "echo a").await;
                clients.push(client);
            }
            let waiting = callers(6);
            let fillers: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
            let address = SockAddr::from(server.local_addr());
            for caller in &waiting {
                // The kernel completes it; nobody accepts.
                caller.connect(&address).unwrap();
            }
            poll_until(async || figure(&server, |core| core.accept_errors).await >= 2).await;
            assert_eq!(figure(&server, |core| core.accepted).await, 3);

            // A pause of 100 ms between two attempts at most, so a dozen in a second for each of the two listeners. What spun
            // would be seen by its thousands.
            let (errors, entries) =
                (figure(&server, |core| core.accept_errors).await, core_stats().unwrap().driver.enters);
            sleep(Duration::from_millis(600)).await;
            let errors = figure(&server, |core| core.accept_errors).await - errors;
            let entries = core_stats().unwrap().driver.enters - entries;
            assert!((1..40).contains(&errors), "{errors} errors");
            assert!(entries < 200, "{entries} kernel entries");
            for round in 0..50 {
                let line = format!("echo {round}");
                for client in &mut clients {
                    talk(client, &line, &line).await;
                }
            }

            // Each that goes gives back its own and the client's descriptor.
            drop(clients.pop());
            poll_until(async || figure(&server, |core| core.accepted).await >= 4).await;
            assert!(figure(&server, |core| core.open).await <= 4);

            drop(fillers);
            poll_until(async || figure(&server, |core| core.accepted).await == 9).await;
            for caller in waiting {
                let mut caller = Caller::from(caller);
                std::io::Write::write_all(&mut caller, b"echo x\n").unwrap();
                caller.set_nonblocking(true).unwrap();
                poll_until(async || caller.peek(&mut [0; 7]).is_ok_and(|count| count == 7)).await;
            }
            for client in &mut clients {
                talk(client, "echo b", "echo b").await;
            }
        });
    });
}
