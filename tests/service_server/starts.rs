//! Starting: on which cores, at which addresses, how often the factory runs; and failing to.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corelet::net::TcpStream;
use corelet::runtime::{Cores, Runtime, core_stats};
use corelet::service::app::{Frame, Incoming, Middleware, Next, Outcome, Reply};
use corelet::service::server::{Address, StartError};
use corelet::service::{App, Limits, Server};

use crate::fixture::*;
use crate::support::{on_cores, poll_until, soon};

#[derive(Clone)]
struct Through;

impl Middleware<Lines> for Through {
    async fn handle<N: Next<Lines>>(&self, incoming: &mut Incoming<Lines>, next: &N) -> Outcome<String> {
        next.run(incoming).await
    }
}

#[test]
fn every_core_accepts_and_its_factory_runs_once_whatever_the_number_of_connections() {
    on_cores(2, async move |runtime, cores| {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let factory = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let app = App::new(Lines).wrap(Through).wrap(Through);
            ["a", "b", "c"]
                .into_iter()
                .fold(app, |app, id| app.route(id.into(), async |Frame(line): Frame<String>| Reply(line)))
        };
        let server = soon(Server::new(factory).bind(loopback()).start(&runtime)).await.unwrap();
        assert_eq!(server.cores(), cores);
        let prepared = |core: &_| {
            let core: &corelet::service::server::ServerCoreStats = core;
            (core.factory_calls, core.transformations)
        };
        let before: Vec<_> = server.stats().await.cores.iter().map(prepared).collect();
        assert_eq!(before, [(1, 6), (1, 6)], "three routes in two middlewares");

        let mut clients = Vec::new();
        for number in 0..64 {
            let mut client = connect(&server).await;
            let line = format!("b {number}");
            talk(&mut client, &line, &line).await;
            clients.push(client);
        }
        let stats = server.stats().await;
        assert_eq!(stats.cores.iter().map(prepared).collect::<Vec<_>>(), before);
        assert_eq!(calls.load(Ordering::SeqCst), 2);
        assert!(stats.cores.iter().all(|core| core.accepted > 0), "{stats:?}");
        assert_eq!(stats.sum(|core| core.accepted), 64);
        assert_eq!(stats.sum(|core| core.counts.requests), 64);
        drop(clients);
        until_open(&server, 0).await;
        assert_eq!(figure(&server, |core| core.ended).await, 64);
    });
}

#[test]
fn one_server_listens_on_several_addresses() {
    on_cores(2, async move |runtime, cores| {
        let server = soon(server().bind(loopback()).cores([cores[1]]).start(&runtime)).await.unwrap();
        assert_eq!(server.cores(), [cores[1]]);
        let addresses = server.addresses().to_vec();
        assert_eq!(addresses.len(), 2);
        assert_ne!(addresses[0], addresses[1]);
        for address in addresses {
            let Address::Tcp(address) = address else { panic!("{address} is no TCP address") };
            let mut client = soon(TcpStream::connect(address)).await.unwrap();
            talk(&mut client, "echo hello", "echo hello").await;
        }
        assert_eq!(server.stats().await.cores.len(), 1);
    });
}

#[test]
fn a_server_may_be_started_and_used_from_any_thread() {
    crate::support::watched(|| {
        let runtime = crate::support::runtime(2);
        let handle = runtime.handle();
        let server = std::thread::spawn(move || {
            let server = block_on(server().start(&handle)).unwrap();
            assert_eq!(block_on(server.stats()).cores.len(), 2);
            server
        });
        runtime
            .block_on(async move || {
                let server = loop {
                    if server.is_finished() {
                        break server.join().unwrap();
                    }
                    corelet::runtime::sleep(std::time::Duration::from_millis(1)).await;
                };
                let mut client = connect(&server).await;
                talk(&mut client, "echo hello", "echo hello").await;
                let ending = std::thread::spawn(move || block_on(server.drain(crate::support::PATIENCE)));
                assert_eq!(hear_all(&mut client).await, "");
                poll_until(async || ending.is_finished()).await;
                assert_eq!(ending.join().unwrap().unwrap().connections, 1);
            })
            .unwrap();
    });
}

#[test]
fn what_cannot_be_started_says_why_and_leaves_nothing_running() {
    on_cores(2, async move |runtime, cores| {
        let base = core_stats().unwrap();
        let nothing_runs = async || {
            poll_until(async || {
                let stats = core_stats().unwrap();
                stats.executor.live == base.executor.live && stats.driver.in_flight == base.driver.in_flight
            })
            .await;
        };

        let taken = TcpListener::bind(loopback()).unwrap();
        let (free, taken_at) = (free_address(), taken.local_addr().unwrap());
        let error = soon(Server::new(app(&Latch::default())).bind(free).bind(taken_at).start(&runtime)).await;
        let error = error.unwrap_err();
        let StartError::Listen { address, core, source } = &error else { panic!("{error}") };
        assert_eq!((address, *core), (&Address::Tcp(taken_at), cores[0]));
        assert_eq!(source.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("choose another port"), "{error}");
        nothing_runs().await;
        drop(TcpListener::bind(free).unwrap());

        // The first core is ready when the second fails.
        let calls = AtomicUsize::new(0);
        let factory = move || {
            assert_eq!(calls.fetch_add(1, Ordering::SeqCst), 0, "not a second time");
            app(&Latch::default())()
        };
        let error = soon(Server::new(factory).bind(free).start(&runtime)).await.unwrap_err();
        let StartError::Factory { core, message } = &error else { panic!("{error}") };
        assert_eq!(*core, cores[1]);
        assert!(message.contains("not a second time"), "{message}");
        nothing_runs().await;
        drop(TcpListener::bind(free).unwrap());

        let nowhere = soon(Server::new(app(&Latch::default())).start(&runtime)).await;
        assert!(matches!(nowhere, Err(StartError::NoAddress)));
        assert!(matches!(soon(server().cores([]).start(&runtime)).await, Err(StartError::NoCores)));
        let tight =
            server().limits(Limits { memory: 1099, max_frame: 1000, send_at: 100, ..Limits::default() });
        let error = soon(tight.start(&runtime)).await.unwrap_err();
        assert!(matches!(error, StartError::Limits { memory: 1099, needed: 1100 }), "{error}");
        let foreign = Runtime::builder().cores(Cores::Count(1)).pinned(false).build().unwrap();
        let foreign = foreign.cores()[0];
        let error = soon(server().cores([cores[0], foreign]).start(&runtime)).await.unwrap_err();
        assert!(matches!(error, StartError::UnknownCore { core } if core == foreign), "{error}");
        nothing_runs().await;
    });
}

#[test]
fn a_start_that_is_given_up_leaves_nothing_running() {
    on_cores(2, async move |runtime, _| {
        let address = free_address();
        for polls in 0..12 {
            let base = core_stats().unwrap().executor.live;
            let start = Server::new(app(&Latch::default())).bind(address).start(&runtime);
            drop(crate::support::cut_off(polls, crate::support::Cut::WhenWoken, start).await);
            poll_until(async || core_stats().unwrap().executor.live == base).await;
            // On the other core as well.
            poll_until(async || TcpListener::bind(address).is_ok()).await;
        }
    });
}
