//! Start-up: what a new connection costs, with an application of representative size.
//!
//! The subject prepares the application once and has all connections share it. The reference has its factory called
//! for each connection, as an application does that is built of parts which cannot be shared.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use corelet::net::TcpListener;
use corelet::runtime::spawn;
use corelet::service::app::{Frame, Incoming, Middleware, Next, Outcome, Preparations, Reply, preparations};
use corelet::service::push::PushSettings;
use corelet::service::{App, End, Limits, Prepared, serve};
use socket2::SockRef;

use super::counts::{Counter, Counts, Mark};
use super::latency::Latency;
use super::memory::{FRAME, Memory, NoHooks, Numeric, Sent, Stopwatch};

pub const ROUTES: u64 = 32;
/// Around each route.
pub const MIDDLEWARE: u64 = 4;

/// An application of numbers.
pub type Application = Prepared<Numeric<NoHooks>>;

/// Hands the request on.
#[derive(Clone, Copy)]
struct Pass;

impl Middleware<Numeric<NoHooks>> for Pass {
    async fn handle<N: Next<Numeric<NoHooks>>>(
        &self,
        incoming: &mut Incoming<Numeric<NoHooks>>,
        next: &N,
    ) -> Outcome<u64> {
        next.run(incoming).await
    }
}

/// Makes applications, and counts that.
pub struct Factory {
    routes: u64,
    calls: Cell<u64>,
}

impl Factory {
    pub fn new(routes: u64) -> Rc<Factory> {
        Rc::new(Factory { routes, calls: Cell::new(0) })
    }

    pub fn make(&self) -> Application {
        self.calls.set(self.calls.get() + 1);
        let protocol = Numeric { hooks: NoHooks, routes: self.routes, watch: Stopwatch::default() };
        let mut app = App::new(protocol).wrap(Pass).wrap(Pass).wrap(Pass).wrap(Pass);
        for route in 0..self.routes {
            app = app.route(route, move |Frame(number): Frame<u64>| async move { Reply(number + route) });
        }
        app.prepare().expect("no route is there twice")
    }

    pub fn calls(&self) -> u64 {
        self.calls.get()
    }
}

/// Where a new connection gets its application from.
pub trait Subject: 'static {
    const NAME: &'static str;
    /// Whether it is what came before.
    const REFERENCE: bool;
    /// Calls of the factory for so many connections.
    fn factory_calls(connections: u64) -> u64;

    fn new(factory: Rc<Factory>) -> Self;
    fn application(&self) -> Application;
}

pub struct PreparedOnce(Application);

impl Subject for PreparedOnce {
    const NAME: &'static str = "prepared_once";
    const REFERENCE: bool = false;

    fn factory_calls(_: u64) -> u64 {
        1
    }

    fn new(factory: Rc<Factory>) -> PreparedOnce {
        PreparedOnce(factory.make())
    }

    #[inline]
    fn application(&self) -> Application {
        self.0.clone()
    }
}

pub struct FactoryPerConnection(Rc<Factory>);

impl Subject for FactoryPerConnection {
    const NAME: &'static str = "factory_per_connection";
    const REFERENCE: bool = true;

    fn factory_calls(connections: u64) -> u64 {
        connections
    }

    fn new(factory: Rc<Factory>) -> FactoryPerConnection {
        FactoryPerConnection(factory)
    }

    fn application(&self) -> Application {
        self.0.make()
    }
}

/// What this thread has prepared since.
fn since(before: Preparations) -> Preparations {
    let mut made = preparations();
    made.applications -= before.applications;
    made.transformations -= before.transformations;
    made
}

/// The settings of all connections.
#[derive(Default)]
pub struct Settings {
    limits: Limits,
    pushes: PushSettings<u64>,
}

/// Connections in memory that end as soon as they are there: set-up and teardown alone.
pub async fn set_up<S: Subject>(subject: &S, settings: &Settings, sent: &Sent, connections: u64) {
    for _ in 0..connections {
        let app = subject.application();
        let end = serve(Memory::new(Bytes::new(), sent), &app, &settings.limits, &settings.pushes).await;
        assert!(matches!(end, End::Closed), "{end}");
    }
}

pub async fn time_set_up<S: Subject>(subject: &S, settings: &Settings, connections: u64) -> Duration {
    let sent = Sent::default();
    let begun = Instant::now();
    set_up(subject, settings, &sent, connections).await;
    begun.elapsed()
}

pub async fn count_set_up<S: Subject>(routes: u64, connections: u64) -> Counts {
    let (before, factory) = (preparations(), Factory::new(routes));
    let (settings, sent) = (Settings::default(), Sent::default());
    let subject = S::new(Rc::clone(&factory));
    let mark = Mark::now();
    set_up(&subject, &settings, &sent, connections).await;
    let made = since(before);
    mark.counts(connections)
        .with(Counter::FactoryCalls, factory.calls())
        .with(Counter::ApplicationsPrepared, made.applications)
        .with(Counter::MiddlewareTransformations, made.transformations)
}

/// Many short connections over loopback, one after the other: connect, one request, its reply, close.
pub struct Loopback<S> {
    subject: Rc<S>,
    settings: Rc<Settings>,
    listener: TcpListener,
    address: SocketAddr,
}

impl<S: Subject> Loopback<S> {
    /// Listens on the current core.
    pub fn new(factory: Rc<Factory>) -> Loopback<S> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(any).expect("loopback can be listened on");
        let address = listener.local_addr().expect("the listener has an address");
        let (subject, settings) = (Rc::new(S::new(factory)), Rc::default());
        Loopback { subject, settings, listener, address }
    }

    /// Serves so many connections of a client on a thread of its own, which `prepare` binds to a core. How long that
    /// took from the first to the last, and each of them as its client saw it.
    pub async fn connections(&mut self, count: u64, prepare: fn()) -> (Duration, Latency) {
        let address = self.address;
        let client = thread::spawn(move || {
            prepare();
            connect_and_ask(address, count)
        });
        let mut served = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let stream = self.listener.accept().await.expect("loopback accepts");
            let (subject, settings) = (Rc::clone(&self.subject), Rc::clone(&self.settings));
            served.push(spawn(async move {
                let app = subject.application();
                serve(stream, &app, &settings.limits, &settings.pushes).await
            }));
        }
        for connection in served {
            connection.await.expect("a connection does not panic");
        }
        client.join().expect("the client does not panic")
    }
}

/// Blocks the thread, which is no core's.
fn connect_and_ask(address: SocketAddr, count: u64) -> (Duration, Latency) {
    let mut latency = Latency::new();
    let begun = Instant::now();
    for number in 0..count {
        let connecting = Instant::now();
        let mut stream = TcpStream::connect(address).expect("the server listens");
        // Closes without a wait for stray bytes, which would keep the port from being used again for a minute.
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket takes options");
        stream.write_all(&number.to_be_bytes()).expect("the server reads");
        let mut reply = [0; FRAME];
        stream.read_exact(&mut reply).expect("the server answers");
        latency.record(connecting.elapsed());
        assert_eq!(u64::from_be_bytes(reply), number + number % ROUTES, "each route adds its own number");
    }
    (begun.elapsed(), latency)
}

pub async fn count_loopback<S: Subject>(connections: u64) -> Counts {
    let (before, factory) = (preparations(), Factory::new(ROUTES));
    let mut loopback = Loopback::<S>::new(Rc::clone(&factory));
    let mark = Mark::now();
    loopback.connections(connections, || {}).await;
    let made = since(before);
    mark.counts(connections)
        .with(Counter::FactoryCalls, factory.calls())
        .with(Counter::ApplicationsPrepared, made.applications)
        .with(Counter::MiddlewareTransformations, made.transformations)
}
