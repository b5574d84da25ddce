//! Middleware stands around the routes that follow it, outermost first, and sees all that passes.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

mod service_app_support;
mod support;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use corelet::runtime::yield_now;
use corelet::service::app::{
    Data, Frame, Incoming, Middleware, Needs, Next, Outcome, Response, after, before,
};
use corelet::service::{App, PrepareError, RequestError};
use service_app_support::{Lines, caller, error, one};
use support::on_cores;

type Log = Rc<RefCell<Vec<String>>>;

/// Writes down what passes, in which order.
struct Logs(&'static str, Log);

impl Middleware<Lines> for Logs {
    async fn handle<N: Next<Lines>>(&self, incoming: &mut Incoming<Lines>, next: &N) -> Outcome<String> {
        self.1.borrow_mut().push(format!("> {}", self.0));
        // What belongs to the request is kept across awaits, beside other requests.
        let request = incoming.request().cloned();
        yield_now().await;
        let outcome = next.run(incoming).await;
        yield_now().await;
        let what = match &outcome {
            Ok(Response::One(frame)) => frame.clone(),
            Ok(_) => "other".to_owned(),
            Err(error) => error.to_string(),
        };
        self.1.borrow_mut().push(format!("< {} {}: {what}", self.0, request.unwrap()));
        outcome
    }
}

#[test]
fn the_first_is_the_outermost_and_routes_have_what_was_wrapped_before_them() {
    on_cores(1, async |_, _| {
        let log = Log::default();
        let logs = |name| Logs(name, Rc::clone(&log));
        let mut app = caller(
            App::new(Lines)
                .route("bare".into(), async || "b".to_owned())
                .wrap(logs("outer"))
                .route("one".into(), async || "1".to_owned())
                .wrap(logs("inner"))
                .route("two".into(), async || "2".to_owned()),
        );
        one(&mut app, "bare").await;
        assert!(log.take().is_empty());
        one(&mut app, "one").await;
        assert_eq!(log.take(), ["> outer", "< outer one: 1"]);
        one(&mut app, "two").await;
        assert_eq!(log.take(), ["> outer", "> inner", "< inner two: 2", "< outer two: 2"]);
    });
}

#[test]
fn a_groups_middleware_stays_within_it() {
    on_cores(1, async |_, _| {
        let log = Log::default();
        let logs = |name| Logs(name, Rc::clone(&log));
        let mut app = caller(
            App::new(Lines)
                .wrap(logs("all"))
                .group(|group| {
                    let group = group.wrap(logs("group")).route("in".into(), async || "i".to_owned());
                    group.group(|deep| deep.wrap(logs("deep")).route("deep".into(), async || "d".to_owned()))
                })
                .route("out".into(), async || "o".to_owned()),
        );
        one(&mut app, "out").await;
        assert_eq!(log.take(), ["> all", "< all out: o"]);
        one(&mut app, "in").await;
        assert_eq!(log.take(), ["> all", "> group", "< group in: i", "< all in: i"]);
        one(&mut app, "deep").await;
        let all = ["> all", "> group", "> deep", "< deep deep: d", "< group deep: d", "< all deep: d"];
        assert_eq!(log.take(), all);
    });
}

/// Answers in the handler's place, and lets others be asked twice.
struct Gate;

impl Middleware<Lines> for Gate {
    async fn handle<N: Next<Lines>>(&self, incoming: &mut Incoming<Lines>, next: &N) -> Outcome<String> {
        let request = incoming.request().cloned().unwrap();
        match request.split(' ').nth(1) {
            Some("closed") => Ok(Response::One("the gate is closed".to_owned())),
            Some("forbidden") => Err(RequestError::failed("you may not")),
            Some("twice") => {
                let first = next.run(incoming).await;
                let Ok(Response::One(first)) = first else { return first };
                incoming.set_request(format!("{request} again"));
                match next.run(incoming).await? {
                    Response::One(second) => Ok(Response::One(format!("{first}, {second}"))),
                    other => Ok(other),
                }
            }
            _ => next.run(incoming).await,
        }
    }
}

#[test]
fn it_answers_in_the_handlers_place_or_asks_it_again() {
    on_cores(1, async |_, _| {
        let runs = Rc::new(Cell::new(0));
        let counted = Rc::clone(&runs);
        let mut app =
            caller(App::new(Lines).wrap(Gate).route("a".into(), async move |Frame(line): Frame<String>| {
                counted.set(counted.get() + 1);
                line
            }));
        assert_eq!(one(&mut app, "a closed").await, "the gate is closed");
        assert_eq!(error(&mut app, "a forbidden").await, "the handler of \"a\" failed: you may not");
        assert_eq!(runs.get(), 0);
        assert_eq!(one(&mut app, "a open").await, "a open");
        assert_eq!(one(&mut app, "a twice").await, "a twice, a twice again");
        assert_eq!(runs.get(), 3);
    });
}

#[test]
fn it_changes_requests_and_responses_and_sees_errors() {
    on_cores(1, async |_, _| {
        let errors = Rc::new(Cell::new(0));
        let counted = Rc::clone(&errors);
        let mut app = caller(
            App::new(Lines)
                .wrap(after(async move |incoming: &Incoming<Lines>, outcome: Outcome<String>| {
                    yield_now().await;
                    match outcome {
                        Ok(Response::One(frame)) => {
                            Ok(Response::One(format!("{frame} by {}", incoming.route())))
                        }
                        Ok(other) => Ok(other),
                        Err(RequestError::Failed { source, .. }) if source.to_string() == "soft" => {
                            Ok(Response::One("mended".to_owned()))
                        }
                        Err(error) => {
                            counted.set(counted.get() + 1);
                            Err(error)
                        }
                    }
                }))
                .wrap(before(async |incoming: &mut Incoming<Lines>| {
                    yield_now().await;
                    match incoming.request_mut() {
                        Some(line) if line.ends_with("bad") => Err(RequestError::failed("before")),
                        Some(line) => {
                            line.push_str(", changed");
                            Ok(())
                        }
                        None => Ok(()),
                    }
                }))
                .route("echo".into(), async |Frame(line): Frame<String>| line)
                .route("soft".into(), async || Err::<String, _>("soft"))
                .route("hard".into(), async || Err::<String, _>("hard")),
        );
        assert_eq!(one(&mut app, "echo").await, "echo, changed by \"echo\"");
        assert_eq!(one(&mut app, "soft").await, "mended");
        assert_eq!(errors.get(), 0);
        assert_eq!(error(&mut app, "hard").await, "the handler of \"hard\" failed: hard");
        assert_eq!(error(&mut app, "echo bad").await, "the handler of \"echo\" failed: before");
        assert_eq!(errors.get(), 2);
    });
}

/// Counts what passes it, all routes together, and needs data.
#[derive(Default)]
struct Counts(Cell<u32>);

impl Middleware<Lines> for Counts {
    async fn handle<N: Next<Lines>>(&self, incoming: &mut Incoming<Lines>, next: &N) -> Outcome<String> {
        self.0.set(self.0.get() + 1);
        let step = incoming.data::<u32>().map_or(0, |step| *step);
        next.run(incoming).await?;
        Ok(Response::One((self.0.get() * step).to_string()))
    }

    fn needs(&self, needs: &mut Needs<'_>) {
        needs.data::<u32>();
    }
}

#[test]
fn it_is_one_value_for_all_its_routes_and_its_data_is_seen_to() {
    on_cores(1, async |_, _| {
        let app = || {
            App::new(Lines)
                .wrap(Counts::default())
                .route("a".into(), async || ())
                .route("b".into(), async |_: Data<u32>| ())
        };
        let mut counting = caller(app().data(10_u32));
        assert_eq!(one(&mut counting, "a").await, "10");
        assert_eq!(one(&mut counting, "b").await, "20");
        let missing = app().prepare().unwrap_err();
        assert!(matches!(&missing, PrepareError::MissingData { route, by, data: "u32" }
            if route == "\"a\"" && by.ends_with("Counts")));
    });
}
