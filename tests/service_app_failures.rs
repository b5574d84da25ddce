//! Whatever of a user's fails or panics ends its request, and no more than that.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

mod service_app_support;
mod support;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use corelet::net::TcpStream;
use corelet::runtime::yield_now;
use corelet::service::app::{
    Data, Extract, Frame, Incoming, Middleware, Next, Outcome, PeerAddr, Respond, Streamed, before,
};
use corelet::service::{App, PrepareError, Prepared, Rejection, RequestError, Server};
use futures_util::stream;
use service_app_support::{Lines, caller, error, one};
use support::{on_cores, soon};

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        // A second panic while one unwinds would end the process, as everywhere.
        assert!(std::thread::panicking(), "a drop on purpose");
    }
}

struct PanickingArgument;

impl Extract<Lines> for PanickingArgument {
    fn extract(_: &mut Incoming<Lines>) -> Result<PanickingArgument, Rejection> {
        panic!("an extractor on purpose")
    }
}

struct PanickingAnswer;

impl Respond<Lines> for PanickingAnswer {
    fn respond(self) -> Outcome<String> {
        panic!("a response on purpose")
    }
}

/// Panics in the poll that ends it, or in its drop after that.
struct Answers {
    in_drop: bool,
}

impl Future for Answers {
    type Output = String;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<String> {
        assert!(self.in_drop, "a poll on purpose");
        Poll::Ready("answered".to_owned())
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        assert!(!self.in_drop || std::thread::panicking(), "a drop on purpose");
    }
}

struct PanicsAfter;

impl Middleware<Lines> for PanicsAfter {
    async fn handle<N: Next<Lines>>(&self, incoming: &mut Incoming<Lines>, next: &N) -> Outcome<String> {
        let outcome = next.run(incoming).await;
        assert!(outcome.is_err(), "a middleware on purpose");
        outcome
    }
}

fn app() -> Result<Prepared<Lines>, PrepareError> {
    fn not_even_a_future() -> Answers {
        panic!("a call on purpose")
    }
    App::new(Lines)
        .route("echo".into(), async |Frame(line): Frame<String>| line)
        .route("peer".into(), async |PeerAddr(peer): PeerAddr| peer.to_string())
        .route("at-once".into(), async || -> String { panic!("at once on purpose") })
        .route("later".into(), async || -> String {
            yield_now().await;
            panic!("later on purpose")
        })
        .route("poll".into(), || Answers { in_drop: false })
        .route("drop".into(), || Answers { in_drop: true })
        .route("call".into(), not_even_a_future)
        .route("extract".into(), async |_: PanickingArgument| ())
        .route("respond".into(), async || PanickingAnswer)
        .route("fatal".into(), async || Err::<(), _>("fatal"))
        .route("stream".into(), async || {
            let mut frames = 0;
            Streamed(stream::poll_fn(move |_| {
                frames += 1;
                assert!(frames < 3, "a stream on purpose");
                Poll::Ready(Some(Ok::<_, RequestError>(format!("frame {frames}"))))
            }))
        })
        .route("held".into(), async || {
            let _held = PanicsWhenDropped;
            poll_fn(|_| Poll::<()>::Pending).await;
        })
        .group(|group| group.wrap(PanicsAfter).route("after".into(), async || "answer".to_owned()))
        .group(|group| {
            let panics = before(async |_: &mut Incoming<Lines>| panic!("before on purpose"));
            group.wrap(panics).route("before".into(), async || "answer".to_owned())
        })
        .prepare()
}

/// Each request and what comes of it.
const PANICS: [(&str, &str); 11] = [
    ("at-once", "the handler of \"at-once\" panicked: at once on purpose"),
    ("later", "the handler of \"later\" panicked: later on purpose"),
    ("poll", "the handler of \"poll\" panicked: a poll on purpose"),
    ("drop", "the handler of \"drop\" panicked: a drop on purpose"),
    ("call", "the handler of \"call\" panicked: a call on purpose"),
    ("extract", "the handler of \"extract\" panicked: an extractor on purpose"),
    ("respond", "the handler of \"respond\" panicked: a response on purpose"),
    ("after", "the handler of \"after\" panicked: a middleware on purpose"),
    ("before", "the handler of \"before\" panicked: before on purpose"),
    ("unspeakable", "the handler panicked: an id on purpose"),
    ("echo #unspeakable", "the handler panicked: a correlation on purpose"),
];

#[test]
fn a_panic_is_its_requests_error() {
    on_cores(1, async |_, _| {
        let mut app = caller(app());
        for (request, wanted) in PANICS {
            assert_eq!(error(&mut app, request).await, wanted);
            assert_eq!(one(&mut app, "echo").await, "echo");
        }
        assert_eq!(
            error(&mut app, "stream").await,
            "the handler of \"stream\" panicked: a stream on purpose"
        );
        assert!(app.call("later".to_owned()).await.unwrap_err().is_panic());
        assert!(app.call("what".to_owned()).await.unwrap_err().is_unrouted());
    });
}

#[test]
fn data_and_handlers_that_panic_when_dropped_keep_nothing_else_from_it() {
    struct Noted(std::rc::Rc<std::cell::Cell<u32>>);

    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    on_cores(1, async |_, _| {
        let drops = std::rc::Rc::new(std::cell::Cell::new(0));
        let noted = || Noted(std::rc::Rc::clone(&drops));
        let (captured, bomb, other) = (noted(), PanicsWhenDropped, noted());
        let app = App::new(Lines)
            .data(PanicsWhenDropped)
            .data(noted())
            .route("a".into(), async move |_: Data<Noted>| {
                let _ = (&captured, &bomb);
            })
            .route("b".into(), async move || {
                let _ = &other;
            })
            .prepare()
            .unwrap();
        drop(app);
        assert_eq!(drops.get(), 3);
    });
}

async fn talk(stream: &mut TcpStream, request: &str, answer: &str) {
    stream.write_all(format!("{request}\n").into_bytes()).await.0.unwrap();
    let wanted = format!("{answer}\n");
    let (read, got) = soon(stream.read_exact(Vec::with_capacity(wanted.len()), wanted.len())).await;
    read.unwrap();
    assert_eq!(String::from_utf8(got).unwrap(), wanted);
}

#[test]
fn on_a_connection_the_next_request_is_answered_and_other_connections_see_nothing() {
    on_cores(1, async |runtime, _| {
        let server = Server::new(app).bind(([127, 0, 0, 1], 0).into()).start(&runtime).await.unwrap();
        let mut other = TcpStream::connect(server.local_addr()).await.unwrap();
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        let own = stream.local_addr().unwrap().to_string();
        talk(&mut stream, "peer", &own).await;
        for (request, wanted) in PANICS {
            talk(&mut stream, request, wanted).await;
            talk(&mut stream, "echo", "echo").await;
            talk(&mut other, "echo", "echo").await;
        }
        talk(
            &mut stream,
            "stream",
            "frame 1\nframe 2\nthe handler of \"stream\" panicked: a stream on purpose",
        )
        .await;
        talk(&mut stream, "echo", "echo").await;
        // The protocol has this one end the connection.
        talk(&mut stream, "fatal", "the handler of \"fatal\" failed: fatal").await;
        let (read, _) = soon(stream.read(Vec::with_capacity(1))).await;
        assert_eq!(read.unwrap(), 0);
        talk(&mut other, "echo", "echo").await;
        // A handler that is dropped half-way, with its connection, and panics in that.
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        stream.write_all(b"held\n".to_vec()).await.0.unwrap();
        drop(stream);
        talk(&mut other, "echo", "echo").await;
        server.stop();
    });
}
