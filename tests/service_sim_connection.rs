//! Connections on virtual time and a network that behaves badly, repeated from seeds.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

mod service_support;

use std::time::Duration;

use corelet::net::{TcpListener, TcpStream};
use corelet::runtime::{JoinHandle, Simulation, now, sleep, spawn};
use corelet::service::push::PushSettings;
use corelet::service::{End, Limits, Prepared, serve};
use service_support::{Door, Lines, Log, app};

const SECOND: Duration = Duration::from_secs(1);
const SEEDS: u64 = 60;

/// Both sides of a connection.
async fn connected(limits: Limits) -> (TcpStream, JoinHandle<End>, Log, Door, Prepared<Lines>) {
    let mut listener = TcpListener::bind(([10, 0, 0, 1], 4000).into()).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let server = listener.accept().await.unwrap();
    let (log, door) = (Log::default(), Door::default());
    let app = app(&log, &door);
    let theirs = app.clone();
    let task = spawn(async move { serve(server, &theirs, &limits, &PushSettings::default()).await });
    (client, task, log, door, app)
}

async fn send(client: &mut TcpStream, text: &str) {
    client.write_all(text.as_bytes().to_vec()).await.0.unwrap();
}

/// So many lines, or all until the end.
async fn read_lines(client: &mut TcpStream, count: usize) -> String {
    let mut all = String::new();
    while all.lines().count() < count || !all.ends_with('\n') {
        match client.receive().await {
            Ok(Some(bytes)) => all += std::str::from_utf8(&bytes).unwrap(),
            _ => break,
        }
    }
    all
}

fn for_each_seed(run: impl AsyncFn(u64) + Copy + 'static) {
    for seed in 0..SEEDS {
        Simulation::new(seed, 1).block_on(move || async move { run(seed).await }).unwrap();
    }
}

/// How much later than at its time something may happen: the simulated network takes its time.
const SLACK: Duration = Duration::from_millis(500);

#[track_caller]
fn assert_took(begun: std::time::Instant, wanted: Duration) {
    let took = now() - begun;
    assert!(wanted <= took && took <= wanted + SLACK, "it took {took:?} instead of {wanted:?}");
}

#[test]
fn any_way_the_network_cuts_them_requests_get_their_answers() {
    for_each_seed(async |_| {
        let (mut client, task, ..) = connected(Limits { send_at: 64, ..Limits::default() }).await;
        let requests: String = (0..200).map(|n| format!("echo {n} {}\n", "x".repeat(n))).collect();
        let (wanted, theirs) = (requests.clone(), requests);
        let (mut read, mut write) = client.split();
        let sent = async {
            write.write_all(theirs.into_bytes()).await.0.unwrap();
            write.shutdown(std::net::Shutdown::Write).await.unwrap();
        };
        let got = async {
            let mut all = String::new();
            while let Ok(Some(bytes)) = read.receive().await {
                all += std::str::from_utf8(&bytes).unwrap();
            }
            all
        };
        let ((), got) = futures_util::future::join(sent, got).await;
        assert_eq!(got, wanted);
        assert!(matches!(task.await, Ok(End::Closed)));
    });
}

#[test]
fn a_dripping_frame_ends_at_its_deadline_and_not_before() {
    for_each_seed(async |_| {
        let limits = Limits { frame_timeout: Some(10 * SECOND), ..Limits::default() };
        let (mut client, task, ..) = connected(limits).await;
        sleep(100 * SECOND).await;
        assert!(!task.is_finished(), "a silent peer has begun no frame");
        send(&mut client, "e").await;
        let begun = now();
        spawn(async move {
            while client.write_all(&b"c"[..]).await.0.is_ok() {
                sleep(SECOND).await;
            }
        })
        .detach();
        let end = task.await.unwrap();
        assert!(matches!(end, End::FrameTimeout { .. }), "{end:?}");
        assert_took(begun, 10 * SECOND);
    });
}

#[test]
fn each_request_renews_the_time_a_peer_may_be_idle() {
    for_each_seed(async |_| {
        let limits = Limits { idle_timeout: Some(60 * SECOND), ..Limits::default() };
        let (mut client, task, log, door, _) = connected(limits).await;
        for _ in 0..10 {
            sleep(55 * SECOND).await;
            send(&mut client, "echo here\n").await;
            assert_eq!(read_lines(&mut client, 1).await, "echo here\n");
        }
        send(&mut client, "wait\n").await;
        sleep(1000 * SECOND).await;
        assert!(log.has("waiting") && !task.is_finished(), "a request is under way");
        door.open();
        let begun = now();
        assert!(matches!(task.await, Ok(End::IdleTimeout { .. })));
        assert_took(begun, 60 * SECOND);
        assert_eq!(read_lines(&mut client, 9).await, "waited\n");
    });
}

#[test]
fn a_peer_that_does_not_read_ends_at_the_deadline_of_the_send() {
    for_each_seed(async |_| {
        let limits = Limits { write_timeout: Some(7 * SECOND), ..Limits::default() };
        let (mut client, task, log, _, app) = connected(limits).await;
        send(&mut client, "endless\n").await;
        let begun = now();
        let end = task.await.unwrap();
        assert!(matches!(end, End::WriteTimeout { .. }), "{end:?}");
        assert!(now() - begun >= 7 * SECOND && now() - begun < 60 * SECOND);
        assert_eq!((log.count("ended"), app.counts().cancelled), (1, 1));
    });
}

#[test]
fn a_request_that_takes_too_long_fails_on_time_and_the_next_has_its_own() {
    for_each_seed(async |_| {
        let limits = Limits { request_timeout: Some(5 * SECOND), ..Limits::default() };
        let (mut client, task, log, ..) = connected(limits).await;
        let begun = now();
        send(&mut client, "wait\nwait\necho on\n").await;
        let late = "late: 5s\n";
        assert_eq!(read_lines(&mut client, 3).await, format!("{late}{late}echo on\n"));
        assert_took(begun, 10 * SECOND);
        drop(client);
        assert!(matches!(task.await, Ok(End::Closed | End::Io(_))));
        assert_eq!((log.count("dropped"), log.count("ended")), (2, 3));
    });
}

#[test]
fn whenever_it_is_drained_each_request_is_answered_whole_or_not_at_all() {
    for_each_seed(async |seed| {
        let (mut client, task, log, _, app) = connected(Limits::default()).await;
        send(&mut client, "me\n").await;
        let connection = loop {
            match log.1.take() {
                Some(connection) => break connection,
                None => sleep(Duration::from_micros(50)).await,
            }
        };
        spawn(async move {
            sleep(Duration::from_micros(seed * 97 % 3000)).await;
            connection.drain();
        })
        .detach();
        let (mut sent, mut got) = (0, String::new());
        for n in 0..2000 {
            if client.write_all(format!("stream 2 #{n}\n").into_bytes()).await.0.is_err() {
                break;
            }
            sent = n;
            let answer = read_lines(&mut client, 3).await;
            got += &answer;
            if answer.is_empty() {
                break;
            }
        }
        assert!(matches!(task.await, Ok(End::ShutDown | End::Io(_))));
        let answered = got.lines().count() / 3;
        let wanted: String = (0..answered).map(|n| format!("0 #{n}\n1 #{n}\nend #{n}\n")).collect();
        assert_eq!(got, wanted, "of {sent}");
        assert_eq!(app.counts().open(), 0);
    });
}
