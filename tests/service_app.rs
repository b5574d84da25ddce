//! Requests find their handlers, which get their arguments and answer in every way there is.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

mod service_app_support;
mod support;

use std::cell::Cell;
use std::num::ParseIntError;

use corelet::runtime::yield_now;
use corelet::service::app::{
    Correlation, Data, Extract, Frame, Frames, Incoming, Message, Parsed, PeerAddr, Reply, Response, Session,
    Streamed,
};
use corelet::service::push::{Priority, PushHandle};
use corelet::service::{App, Connection, Rejection, RequestError};
use futures_util::stream;
use service_app_support::{Lines, caller, error, one};
use support::on_cores;

/// The number behind the verb.
struct Number(i32);

impl TryFrom<&String> for Number {
    type Error = ParseIntError;

    fn try_from(line: &String) -> Result<Number, ParseIntError> {
        line.split(' ').nth(1).unwrap_or("").parse().map(Number)
    }
}

impl TryFrom<String> for Number {
    type Error = ParseIntError;

    fn try_from(line: String) -> Result<Number, ParseIntError> {
        Number::try_from(&line)
    }
}

#[test]
fn requests_go_by_their_id_and_what_has_no_route_to_the_fallback() {
    on_cores(1, async |_, _| {
        let routes = || App::new(Lines).route("a".into(), async || "is a".to_owned());
        let mut app = caller(routes().route("b".into(), async || "is b".to_owned()));
        assert_eq!(one(&mut app, "a").await, "is a");
        assert_eq!(one(&mut app, "b x").await, "is b");
        assert_eq!(error(&mut app, "c").await, "there is no route \"c\"");
        assert_eq!(error(&mut app, "").await, "the frame does not say what it is");
        let long = error(&mut app, &"x".repeat(1000)).await;
        assert!(long.len() < 120 && long.ends_with('…'), "{long}");

        let mut app = caller(routes().fallback(async |Frame(line): Frame<String>| format!("? {line}")));
        assert_eq!(one(&mut app, "a").await, "is a");
        assert_eq!(one(&mut app, "c d").await, "? c d");
        assert_eq!(error(&mut app, "").await, "the frame does not say what it is");
    });
}

#[test]
fn arguments_are_made_of_request_connection_and_application() {
    on_cores(1, async |_, _| {
        let mut app = caller(
            App::new(Lines)
                .data(vec!["of all"])
                .route("frame".into(), async |Frame(line): Frame<String>| line)
                .route("message".into(), async |Message(Number(n)): Message<Number>| (n + 1).to_string())
                .route("parsed".into(), async |parsed: Parsed<Number>, Frame(line): Frame<String>| {
                    format!("{} of {line}", parsed.0.0)
                })
                .route("data".into(), async |data: Data<Vec<&'static str>>| data[0].to_owned())
                .route("session".into(), async |count: Session<Lines>| {
                    count.set(count.get() + 1);
                    count.get().to_string()
                })
                .route("connection".into(), async |connection: Connection<Lines>| {
                    connection.session().get().to_string()
                })
                .route("push".into(), async |pushes: PushHandle<String>| {
                    pushes.low("behind".to_owned()).unwrap();
                    pushes.high("before".to_owned()).unwrap();
                })
                .route("correlation".into(), async |Correlation(n): Correlation| n.to_string())
                .route("peer".into(), async |peer: Option<PeerAddr>| peer.is_none().to_string())
                .route("eight".into(), {
                    async |_: Parsed<Number>,
                           _: Data<Vec<&'static str>>,
                           _: Session<Lines>,
                           _: Connection<Lines>,
                           _: PushHandle<String>,
                           _: Option<Correlation>,
                           _: Result<Correlation, Rejection>,
                           Frame(line): Frame<String>| line
                }),
        );
        assert_eq!(one(&mut app, "frame it").await, "frame it");
        assert_eq!(one(&mut app, "message 41").await, "42");
        assert_eq!(one(&mut app, "parsed 7").await, "7 of parsed 7");
        assert_eq!(one(&mut app, "data").await, "of all");
        assert_eq!(one(&mut app, "session").await, "1");
        assert_eq!(one(&mut app, "session").await, "2");
        assert_eq!(one(&mut app, "connection").await, "2");
        assert_eq!(app.call("push".to_owned()).await.unwrap(), Vec::<String>::new());
        let pushed = [(Priority::High, "before".to_owned()), (Priority::Low, "behind".to_owned())];
        assert_eq!(app.pushed(), pushed);
        assert_eq!(one(&mut app, "correlation #77").await, "77");
        assert_eq!(one(&mut app, "peer").await, "true");
        assert_eq!(one(&mut app, "eight 8").await, "eight 8");
    });
}

#[test]
fn what_cannot_be_had_rejects_the_request_unless_the_handler_copes() {
    on_cores(1, async |_, _| {
        let runs = std::rc::Rc::new(Cell::new(0));
        let ran = std::rc::Rc::clone(&runs);
        let mut app = caller(
            App::new(Lines)
                .route("number".into(), async move |Message(Number(n)): Message<Number>| {
                    ran.set(ran.get() + 1);
                    n.to_string()
                })
                .route("maybe".into(), async |n: Option<Message<Number>>| {
                    n.map_or("none".to_owned(), |n| n.0.0.to_string())
                })
                .route("why".into(), async |n: Result<Message<Number>, Rejection>| match n {
                    Ok(n) => n.0.0.to_string(),
                    Err(rejection) => rejection.source.unwrap().to_string(),
                })
                .route("data".into(), async |data: Option<Data<u8>>| data.is_none().to_string())
                .route("correlation".into(), async |_: Correlation| "unreachable".to_owned()),
        );
        let Err(rejected) = app.call("number x".to_owned()).await else { panic!("not rejected") };
        let RequestError::Rejected { route, rejection } = &rejected else { panic!("{rejected}") };
        assert_eq!(route.as_deref(), Some("\"number\""));
        assert!(rejection.source.as_ref().unwrap().is::<ParseIntError>());
        assert_eq!(rejected.to_string(), "the request to \"number\" was rejected");
        assert!(rejection.to_string().contains("Message") && rejection.to_string().contains("Number"));
        assert_eq!(runs.get(), 0);
        assert_eq!(one(&mut app, "number 5").await, "5");
        assert_eq!(one(&mut app, "maybe 5").await, "5");
        assert_eq!(one(&mut app, "maybe x").await, "none");
        assert_eq!(one(&mut app, "why 5").await, "5");
        assert_eq!(one(&mut app, "why x").await, "invalid digit found in string");
        assert_eq!(one(&mut app, "data").await, "true");
        let rejected =
            "the request to \"correlation\" was rejected: Correlation cannot be had from the request";
        assert_eq!(error(&mut app, "correlation").await, rejected);
    });
}

#[test]
fn handlers_answer_with_frames_options_results_and_streams() {
    on_cores(1, async |_, _| {
        let words = || ["one", "two", "three"].map(str::to_owned);
        let mut app = caller(
            App::new(Lines)
                .route("nothing".into(), async || ())
                .route("frame".into(), async || "frame".to_owned())
                .route("reply".into(), async || Reply("reply".to_owned()))
                .route("some".into(), async || Some("some".to_owned()))
                .route("none".into(), async || None::<Reply<String>>)
                .route("ok".into(), async || Ok::<_, RequestError>(Some(Reply("ok".to_owned()))))
                .route("err".into(), async || Err::<String, _>("of a text"))
                .route("parse".into(), async || {
                    let n: i32 = "x".parse()?;
                    Ok::<_, ParseIntError>(n.to_string())
                })
                .route("mine".into(), async || {
                    Err::<(), _>(RequestError::from(Rejection::new("what I want")))
                })
                .route("vec".into(), async move || Frames(words().to_vec()))
                .route("array".into(), async move || Frames(words()))
                .route("computed".into(), async || Frames((0..4).map(|n| n.to_string())))
                .route("stream".into(), async || {
                    let words = ["one", "two"].map(|word| Ok::<_, RequestError>(word.to_owned()));
                    Streamed(stream::iter(words))
                })
                .route("broken".into(), async || {
                    Streamed(stream::iter([Ok("one".to_owned()), Err("broken off"), Ok("two".to_owned())]))
                })
                .route("response".into(), async || Response::One("response".to_owned()))
                .route("later".into(), async || {
                    for _ in 0..3 {
                        yield_now().await;
                    }
                    "later".to_owned()
                }),
        );
        for word in ["frame", "reply", "some", "ok", "response", "later"] {
            assert_eq!(one(&mut app, word).await, word);
        }
        for nothing in ["nothing", "none"] {
            assert!(app.call(nothing.to_owned()).await.unwrap().is_empty());
        }
        for many in ["vec", "array"] {
            assert_eq!(app.call(many.to_owned()).await.unwrap(), words());
        }
        assert_eq!(app.call("computed".to_owned()).await.unwrap(), ["0", "1", "2", "3"]);
        assert_eq!(app.call("stream".to_owned()).await.unwrap(), ["one", "two"]);
        assert_eq!(error(&mut app, "broken").await, "the handler of \"broken\" failed: broken off");
        assert_eq!(error(&mut app, "err").await, "the handler of \"err\" failed: of a text");
        let mine = "the request to \"mine\" was rejected: what I want cannot be had from the request";
        assert_eq!(error(&mut app, "mine").await, mine);
        let failed = app.call("parse".to_owned()).await.unwrap_err();
        let RequestError::Failed { source, .. } = failed else { panic!("{failed}") };
        assert!(source.is::<ParseIntError>());
    });
}

#[test]
fn extractors_and_handlers_of_ones_own_do_as_the_ready_ones() {
    struct Verb(String);

    impl Extract<Lines> for Verb {
        fn extract(incoming: &mut Incoming<Lines>) -> Result<Verb, Rejection> {
            let line = incoming.request().ok_or(Rejection::new("Verb"))?;
            Ok(Verb(line.split(' ').next().unwrap_or_default().to_owned()))
        }
    }

    async fn named(Verb(verb): Verb, Frame(line): Frame<String>) -> Result<String, std::fmt::Error> {
        Ok(format!("{verb}: {line}"))
    }

    on_cores(1, async |_, _| {
        let mut app = caller(App::new(Lines).fallback(named));
        assert_eq!(one(&mut app, "a b").await, "a: a b");
    });
}

#[test]
fn a_call_that_is_dropped_drops_its_handler_and_the_next_one_is_served() {
    struct Dropped(std::rc::Rc<Cell<bool>>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }

    on_cores(1, async |_, _| {
        let gone = std::rc::Rc::new(Cell::new(false));
        let theirs = std::rc::Rc::clone(&gone);
        let mut app = caller(App::new(Lines).route("a".into(), async || "a".to_owned()).route(
            "wait".into(),
            async move || {
                let _dropped = Dropped(std::rc::Rc::clone(&theirs));
                std::future::pending::<()>().await;
            },
        ));
        assert!(support::poll_once(&mut Box::pin(app.call("wait".to_owned()))).await.is_pending());
        assert!(gone.get());
        assert_eq!(one(&mut app, "a").await, "a");
    });
}
