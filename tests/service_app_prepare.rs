//! What cannot work is found when the application is prepared; and it is prepared once for each core.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

mod service_app_support;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use corelet::net::TcpStream;
use corelet::service::app::{
    Data, Frame, Handler, Identity, Incoming, Layer, Message, Parsed, before, preparations,
};
use corelet::service::server::StartError;
use corelet::service::{App, BoxError, PrepareError, Rejection, Server};
use service_app_support::Lines;
use support::on_cores;

fn app() -> App<Lines> {
    App::new(Lines).data(5_u8).route("taken".into(), async |_: Data<u8>| ())
}

/// Why there is no such application.
fn refused(app: App<Lines, impl Layer<Lines>>) -> PrepareError {
    app.prepare().unwrap_err()
}

/// Why `handler` cannot be in an application.
fn unfit<A: 'static>(handler: impl Handler<Lines, A>) -> PrepareError {
    refused(app().route("id".into(), handler))
}

struct Text;

impl From<String> for Text {
    fn from(_: String) -> Text {
        Text
    }
}

impl From<&String> for Text {
    fn from(_: &String) -> Text {
        Text
    }
}

#[test]
fn two_handlers_for_one_id_are_refused_by_name() {
    async fn first() {}
    async fn second() {}
    let twice = refused(App::new(Lines).route("a".into(), first).route("a".into(), second));
    let PrepareError::DuplicateRoute { route, first: one, second: two } = &twice else { panic!("{twice}") };
    assert_eq!(route, "\"a\"");
    assert!(one.ends_with("first") && two.ends_with("second"), "{twice}");
    let twice = refused(App::new(Lines).fallback(first).fallback(second));
    assert!(twice.to_string().starts_with("the route fallback has two handlers: "), "{twice}");
    let in_group = refused(App::new(Lines).route("a".into(), first).group(|g| g.route("a".into(), second)));
    assert!(matches!(in_group, PrepareError::DuplicateRoute { .. }));
}

#[test]
fn data_that_a_handler_needs_is_missed_before_the_first_request() {
    assert!(matches!(refused(app().data(6_u8)), PrepareError::DuplicateData { data: "u8" }));
    async fn needs_two(_: Data<u8>, _: Data<u16>) {}
    let missing = unfit(needs_two);
    let PrepareError::MissingData { route, by, data } = &missing else { panic!("{missing}") };
    assert_eq!((route.as_str(), *data), ("\"id\"", "u16"));
    assert!(by.ends_with("needs_two"), "{by}");
    // Whatever its order, and whoever says that it copes.
    assert!(app().route("id".into(), needs_two).data(7_u16).prepare().is_ok());
    assert!(app().route("id".into(), async |_: Option<Data<u16>>| ()).prepare().is_ok());
    assert!(app().route("id".into(), async |_: Result<Data<u16>, Rejection>| ()).prepare().is_ok());
    let second = unfit(async |_: Option<Data<u16>>, _: Data<u32>| ());
    assert!(matches!(second, PrepareError::MissingData { data: "u32", .. }));
}

#[test]
fn a_request_is_taken_by_one_argument() {
    let twice = unfit(async |_: Frame<String>, _: Message<Text>| ());
    let PrepareError::RequestTakenTwice { first, second, .. } = &twice else { panic!("{twice}") };
    assert!(first.contains("Frame") && second.contains("Message"), "{twice}");
    for twice in [
        unfit(async |_: Frame<String>, _: Frame<String>| ()),
        unfit(async |_: Option<Frame<String>>, _: Result<Frame<String>, Rejection>| ()),
        unfit(async |_: Frame<String>, _: Parsed<Text>| ()),
    ] {
        assert!(matches!(twice, PrepareError::RequestTakenTwice { .. }), "{twice}");
    }
    let fits = async |_: Parsed<Text>, _: Parsed<Text>, _: Frame<String>| ();
    assert!(app().route("id".into(), fits).prepare().is_ok());
}

#[test]
fn a_server_with_an_application_that_cannot_work_does_not_start() {
    on_cores(2, async |runtime, _| {
        let address = ([127, 0, 0, 1], 0).into();
        let server = Server::new(|| App::new(Lines).route("a".into(), async |_: Data<u8>| ()));
        let refused = server.bind(address).start(&runtime).await.err().unwrap();
        let StartError::Prepare { source: error, .. } = &refused else { panic!("{refused}") };
        assert!(matches!(error, PrepareError::MissingData { data: "u8", .. }));

        let factory = || -> Result<App<Lines>, BoxError> { Err("no configuration".into()) };
        let refused = Server::new(factory).bind(address).start(&runtime).await.err().unwrap();
        let StartError::Prepare { source: PrepareError::Factory(why), .. } = &refused else {
            panic!("{refused}")
        };
        assert_eq!(why.to_string(), "no configuration");

        // An error of preparation stays what it is on its way through the factory.
        let factory = || App::new(Lines).route("a".into(), async |_: Data<u8>| ()).prepare();
        let refused = Server::new(factory).bind(address).start(&runtime).await.err().unwrap();
        assert!(matches!(refused, StartError::Prepare { source: PrepareError::MissingData { .. }, .. }));
    });
}

#[test]
fn a_thousand_connections_prepare_nothing() {
    const ROUTES: u64 = 32;
    on_cores(2, async |runtime, cores| {
        let factory_calls = Arc::new(AtomicU64::new(0));
        let calls = Arc::clone(&factory_calls);
        let server = Server::new(move || {
            calls.fetch_add(1, Ordering::Relaxed);
            let pass = || before(async |_: &mut Incoming<Lines>| Ok(()));
            let app = App::new(Lines).wrap(pass()).wrap(pass()).wrap(pass()).wrap(pass());
            (0..ROUTES).fold(app, |app, n| app.route(n.to_string(), async |Frame(line): Frame<String>| line))
        });
        let made = async || {
            let mut made = Vec::new();
            for core in &cores {
                made.push(runtime.spawn_on(*core, async || preparations()).unwrap().await.unwrap());
            }
            made
        };
        let before = made().await;
        assert!(before.iter().all(|made| made.applications == 0 && made.transformations == 0));
        let server = server.bind(([127, 0, 0, 1], 0).into()).start(&runtime).await.unwrap();
        for _ in 0..1000 {
            let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
            stream.write_all(b"17\n".to_vec()).await.0.unwrap();
            let (read, answer) = stream.read_exact(Vec::with_capacity(3), 3).await;
            read.unwrap();
            assert_eq!(answer, b"17\n");
        }
        for made in made().await {
            assert_eq!((made.applications, made.transformations), (1, 4 * ROUTES));
        }
        assert_eq!(factory_calls.load(Ordering::Relaxed), cores.len() as u64);
        server.stop();
    });
}

#[test]
fn what_was_put_together_can_be_counted() {
    let earlier = preparations();
    let pass = || before(async |_: &mut Incoming<Lines>| Ok(()));
    let app: App<Lines, Identity> = App::new(Lines).route("bare".into(), async || ());
    let app = app
        .wrap(pass())
        .route("one".into(), async || ())
        .group(|group| group.wrap(pass()).route("two".into(), async || ()).fallback(async || ()))
        .prepare()
        .unwrap();
    assert_eq!((app.routes(), app.transformations()), (4, 5));
    let later = preparations();
    assert_eq!(later.applications - earlier.applications, 1);
    assert_eq!(later.transformations - earlier.transformations, 5);
}
