//! What one connection may use: deadlines by real sockets, and memory by counting.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

mod service_support;
mod support;

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use corelet::net::{TcpListener, TcpStream};
use corelet::runtime::{JoinHandle, now, sleep, spawn};
use corelet::service::app::{Frame, Reply};
use corelet::service::push::PushSettings;
use corelet::service::{
    App, Connection, Counts, End, Limits, Prepared, Protocol, RequestError, Verdict, serve,
};
use service_support::{Door, LONG, Lines, Log, Served, app, settle};
use support::{on_cores, poll_until, soon};
use tokio_util::codec::{Decoder, Encoder, LengthDelimitedCodec};

const SHORT: Duration = Duration::from_millis(30);

/// No deadline, whatever the defaults.
fn timeless() -> Limits {
    Limits { frame_timeout: None, write_timeout: None, ..Limits::default() }
}

/// A connection over a socket.
struct OverSocket {
    client: TcpStream,
    log: Log,
    door: Door,
    app: Prepared<Lines>,
    task: JoinHandle<End>,
}

async fn over_socket(limits: Limits) -> OverSocket {
    let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let server = listener.accept().await.unwrap();
    let (log, door) = (Log::default(), Door::default());
    let app = app(&log, &door);
    let theirs = app.clone();
    let task = spawn(async move { serve(server, &theirs, &limits, &PushSettings::default()).await });
    OverSocket { client, log, door, app, task }
}

async fn send(client: &mut TcpStream, text: &str) {
    client.write_all(text.as_bytes().to_vec()).await.0.unwrap();
}

/// All until the end.
async fn read_all(client: &mut TcpStream) -> String {
    let mut all = Vec::new();
    while let Ok(Some(bytes)) = soon(client.receive()).await {
        all.extend_from_slice(&bytes);
    }
    String::from_utf8(all).unwrap()
}

#[test]
fn a_frame_that_drips_in_is_cut_off_however_steadily_it_drips() {
    on_cores(1, async |_, _| {
        let limits = Limits { frame_timeout: Some(10 * SHORT), ..timeless() };
        let OverSocket { mut client, task, app, .. } = over_socket(limits).await;
        let begun = now();
        send(&mut client, "echo whole\nx").await;
        // Each drop comes well before the deadline, counted from the last one.
        let drip = spawn(async move {
            while client.write_all(&b"x"[..]).await.0.is_ok() && now() - begun < LONG {
                sleep(SHORT).await;
            }
            client
        });
        let end = soon(task).await.unwrap();
        assert!(matches!(end, End::FrameTimeout { after } if after == 10 * SHORT), "{end:?}");
        assert!(end.is_timeout() && now() - begun >= 10 * SHORT);
        assert_eq!(app.counts().frames_out, 1, "the whole frame before was answered");
        drop(drip);
    });
}

#[test]
fn a_header_alone_is_a_frame_that_drips_too() {
    /// Takes its header out of the buffer at once.
    struct Framed;

    impl Protocol for Framed {
        type Codec = Raw;
        type Request = BytesMut;
        type Response = BytesMut;
        type Id = ();
        type Session = ();

        fn codec(&self) -> Raw {
            Raw(LengthDelimitedCodec::new())
        }

        fn session(&self) {}

        fn id(&self, _: &BytesMut) -> Option<()> {
            Some(())
        }
    }

    on_cores(1, async |_, _| {
        let wire = service_support::Wire::default();
        let app = App::new(Framed).prepare().unwrap();
        let limits = Limits { frame_timeout: Some(SHORT), ..timeless() };
        wire.feed([0, 0, 0, 9]);
        let end = soon(serve(wire.transport(), &app, &limits, &PushSettings::default())).await;
        assert!(matches!(end, End::FrameTimeout { .. }), "{end:?}");
    });
}

#[test]
fn a_frame_in_time_and_a_slow_handler_are_no_frame_timeout() {
    on_cores(1, async |_, _| {
        let limits = Limits { frame_timeout: Some(SHORT), ..timeless() };
        let OverSocket { mut client, door, task, log, .. } = over_socket(limits).await;
        // Half of the next frame waits behind a request that takes longer than a frame may.
        send(&mut client, "wait\nech").await;
        poll_until(async || log.has("waiting")).await;
        sleep(3 * SHORT).await;
        assert!(!task.is_finished());
        send(&mut client, "o rest\n").await;
        door.open();
        // And nothing at all is no half frame.
        sleep(3 * SHORT).await;
        assert!(!task.is_finished());
        client.shutdown(std::net::Shutdown::Write).await.unwrap();
        assert_eq!(read_all(&mut client).await, "waited\necho rest\n");
        assert!(matches!(soon(task).await, Ok(End::Closed)));
    });
}

#[test]
fn a_silent_peer_is_idle_only_while_it_is_asked_nothing() {
    on_cores(1, async |_, _| {
        let limits = Limits { idle_timeout: Some(5 * SHORT), ..timeless() };
        let OverSocket { mut client, door, task, log, .. } = over_socket(limits).await;
        send(&mut client, "wait\n").await;
        poll_until(async || log.has("waiting")).await;
        sleep(7 * SHORT).await;
        assert!(!task.is_finished(), "a request is under way");
        let begun = now();
        door.open();
        let end = soon(task).await.unwrap();
        assert!(matches!(end, End::IdleTimeout { after } if after == 5 * SHORT), "{end:?}");
        assert!(now() - begun >= 5 * SHORT);
        assert_eq!(read_all(&mut client).await, "waited\n");
    });
}

#[test]
fn a_peer_that_does_not_read_is_given_up() {
    on_cores(1, async |_, _| {
        let limits = Limits { write_timeout: Some(SHORT), ..timeless() };
        let OverSocket { mut client, task, log, app, .. } = over_socket(limits).await;
        send(&mut client, "endless\n").await;
        let end = soon(task).await.unwrap();
        assert!(matches!(end, End::WriteTimeout { after } if after == SHORT), "{end:?}");
        assert_eq!(log.count("gone write_timeout"), 1);
        assert_eq!((app.counts().cancelled, log.count("ended")), (1, 1));
    });
}

#[test]
fn a_peer_that_does_not_read_its_last_answer_is_given_up() {
    on_cores(1, async |_, _| {
        let served =
            Served::with(Limits { write_timeout: Some(SHORT), ..timeless() }, PushSettings::default());
        served.wire.feed("echo last\n");
        settle().await;
        served.wire.stuck(true);
        served.wire.end();
        assert!(matches!(soon(served.task).await, Ok(End::WriteTimeout { .. })));
        assert!(served.wire.is_aborted());
    });
}

#[test]
fn a_handler_that_takes_too_long_fails_its_request_only() {
    on_cores(1, async |_, _| {
        let limits = Limits { request_timeout: Some(SHORT), ..timeless() };
        let OverSocket { mut client, task, log, app, .. } = over_socket(limits).await;
        send(&mut client, "wait\necho next\nstream 3\n").await;
        client.shutdown(std::net::Shutdown::Write).await.unwrap();
        let wanted = format!("late: {SHORT:?}\necho next\n0\n1\n2\nend\n");
        assert_eq!(read_all(&mut client).await, wanted);
        assert!(matches!(soon(task).await, Ok(End::Closed)));
        assert!(log.has("dropped"), "the handler is gone");
        assert_eq!((app.counts().timed_out, log.count("ended")), (1, 3));
    });
}

#[test]
fn requests_arm_no_timers() {
    on_cores(1, async |_, _| {
        let limits = Limits {
            frame_timeout: Some(LONG),
            idle_timeout: Some(LONG),
            request_timeout: Some(LONG),
            write_timeout: Some(LONG),
            ..Limits::default()
        };
        let before = corelet::runtime::core_stats().unwrap().timers;
        let served = Served::with(limits, PushSettings::default());
        for _ in 0..100 {
            served.wire.feed("echo one\nech");
            settle().await;
            served.wire.feed("o two\n");
            settle().await;
            assert!(corelet::runtime::core_stats().unwrap().timers <= before + 1, "one for the connection");
        }
        served.wire.end();
        soon(served.task).await.unwrap();
        assert_eq!(corelet::runtime::core_stats().unwrap().timers, before);
    });
}

/// A codec of any shape, for what connections hold.
struct Raw(LengthDelimitedCodec);

impl Decoder for Raw {
    type Item = BytesMut;
    type Error = io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> io::Result<Option<BytesMut>> {
        self.0.decode(bytes)
    }
}

impl Encoder<BytesMut> for Raw {
    type Error = io::Error;

    fn encode(&mut self, frame: BytesMut, bytes: &mut BytesMut) -> io::Result<()> {
        self.0.encode(frame.freeze(), bytes)
    }
}

async fn fate(limits: Limits, input: &[u8]) -> (End, Counts, String) {
    let served = Served::with(limits, PushSettings::default());
    served.wire.feed(input);
    let end = soon(served.task).await.unwrap();
    (end, served.app.counts(), served.wire.got())
}

#[test]
fn a_frame_of_the_limit_passes_and_one_that_is_longer_ends_the_connection() {
    on_cores(1, async |_, _| {
        let limits = Limits { max_frame: 100, ..timeless() };
        let fits = format!("echo {}\n", "x".repeat(94));
        assert_eq!(fits.len(), 100);
        let served = Served::with(limits, PushSettings::default());
        for part in fits.as_bytes().chunks(7) {
            served.wire.feed(part);
        }
        settle().await;
        assert_eq!(served.wire.got(), fits);
        // Whether it comes at once, with its end or without, or in parts.
        let long = format!("{fits}echo {}\n", "x".repeat(95));
        for input in [&long[..], &long[..long.len() - 1]] {
            let (end, counts, got) = fate(limits, input.as_bytes()).await;
            assert!(matches!(end, End::FrameTooLong { limit: 100 }), "{end:?}");
            assert_eq!((counts.requests, got), (1, fits.clone()));
        }
    });
}

#[test]
fn a_response_beyond_the_budget_ends_the_connection_behind_whole_frames() {
    on_cores(1, async |_, _| {
        let limits = Limits { max_frame: 100, memory: 1500, send_at: 1000, ..timeless() };
        let (end, counts, got) = fate(limits, b"echo a\nbig 1400\nbig 1500\necho b\n").await;
        assert!(matches!(end, End::OverBudget { limit: 1500, needed: 1501..1600 }), "{end:?}");
        assert_eq!((got.len(), counts.frames_out), ("echo a\n".len() + 1401, 2));
    });
}

#[test]
fn a_peer_that_pipelines_without_reading_is_throttled() {
    on_cores(1, async |_, _| {
        let limits = Limits { max_frame: 2000, send_at: 1000, ..timeless() };
        let served = Served::with(limits, PushSettings::default());
        served.wire.stuck(true);
        for _ in 0..1000 {
            served.wire.feed("echo pipelined\n".repeat(20));
        }
        settle().await;
        // One output that is stuck, and an input up to its limit with one chunk of the transport's.
        assert!(served.wire.received() <= 1000 + 2000 + 2 * 300, "{}", served.wire.received());
        served.wire.stuck(false);
        poll_until(async || served.wire.got().lines().count() == 20_000).await;
    });
}

#[test]
fn a_codec_that_reserves_too_much_is_cut_back() {
    /// Reserves a mebibyte whenever it is asked.
    struct Greedy(LengthDelimitedCodec);

    impl Decoder for Greedy {
        type Item = BytesMut;
        type Error = io::Error;

        fn decode(&mut self, bytes: &mut BytesMut) -> io::Result<Option<BytesMut>> {
            assert!(bytes.capacity() <= 4096, "{} bytes were kept", bytes.capacity());
            bytes.reserve(1024 * 1024);
            self.0.decode(bytes)
        }
    }

    impl Encoder<BytesMut> for Greedy {
        type Error = io::Error;

        fn encode(&mut self, frame: BytesMut, bytes: &mut BytesMut) -> io::Result<()> {
            assert!(bytes.capacity() <= 4096, "{} bytes were kept", bytes.capacity());
            bytes.reserve(1024 * 1024);
            self.0.encode(frame.freeze(), bytes)
        }
    }

    struct Framed;

    impl Protocol for Framed {
        type Codec = Greedy;
        type Request = BytesMut;
        type Response = BytesMut;
        type Id = ();
        type Session = ();

        fn codec(&self) -> Greedy {
            Greedy(LengthDelimitedCodec::new())
        }

        fn session(&self) {}

        fn id(&self, _: &BytesMut) -> Option<()> {
            Some(())
        }

        fn failed(&self, error: &RequestError, _: &Connection<Framed>) -> Verdict<BytesMut> {
            panic!("{error}")
        }
    }

    on_cores(1, async |_, _| {
        let wire = service_support::Wire::default();
        let app =
            App::new(Framed).route((), async |Frame(frame): Frame<BytesMut>| Reply(frame)).prepare().unwrap();
        let limits = Limits { max_frame: 1000, memory: 4096, ..timeless() };
        for _ in 0..10 {
            for byte in [0, 0, 0, 3, b'a', b'b', b'c'] {
                wire.feed([byte]);
            }
        }
        wire.end();
        let end = soon(serve(wire.transport(), &app, &limits, &PushSettings::default())).await;
        assert!(matches!(end, End::Closed), "{end:?}");
        assert_eq!(wire.got().len(), 70);
    });
}

#[test]
fn the_last_answer_reaches_a_peer_that_has_sent_more() {
    on_cores(1, async |_, _| {
        let OverSocket { mut client, task, .. } = over_socket(timeless()).await;
        // A close with something unread would take the answer back.
        let more = "echo too much\n".repeat(10_000);
        send(&mut client, &format!("drain\n{more}")).await;
        assert_eq!(read_all(&mut client).await, "draining\n");
        drop(client);
        assert!(matches!(soon(task).await, Ok(End::ShutDown)));
    });
}
