//! The connection actor: so many queued frames go through its loop.
//!
//! The subject's connection borrows what is above it. The reference's keeps it alive by shared references of its own, and
//! clones its way up for each frame that it sends.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corelet::service::app::Frame as Incoming;
use corelet::service::app::Reply;
use corelet::service::push::{PushBuilder, PushSettings};
use corelet::service::{App, Connection, End, Limits, Prepared, serve};

use super::counts::{Counter, Counts};
use super::memory::{Hooks, Memory, Numeric, Sent, Stopwatch, requests};
use crate::common::alloc;

/// Frames of one connection.
pub const FRAMES: u64 = 1_000;

/// How a connection owns what it needs of the application.
pub trait Subject: 'static {
    const NAME: &'static str;
    /// Whether it is what came before.
    const REFERENCE: bool;
    /// Allocations of a connection's set-up beyond those of the subject.
    const ALLOCATIONS_ADDED: u64;

    /// What the application keeps for its connections.
    type Root: 'static;
    /// What a connection keeps.
    type Node: 'static;

    fn root() -> Self::Root;
    fn node(root: &Self::Root) -> Self::Node;

    /// Looks at the application's limit and counts a frame.
    fn count(root: &Self::Root, node: &Self::Node) -> bool;
}

const LIMIT: u64 = u64::MAX;

/// State by value in the connection, what is above by reference.
pub struct Borrowed;

impl Subject for Borrowed {
    const NAME: &'static str = "borrowed";
    const REFERENCE: bool = false;
    const ALLOCATIONS_ADDED: u64 = 0;

    type Root = u64;
    type Node = Cell<u64>;

    fn root() -> u64 {
        LIMIT
    }

    fn node(_: &u64) -> Cell<u64> {
        Cell::new(0)
    }

    #[inline]
    fn count(limit: &u64, count: &Cell<u64>) -> bool {
        count.set(count.get() + 1);
        count.get() < *limit
    }
}

/// Each level in a shared allocation of its own, each owner with a clone.
pub struct ClonedGraph;

pub struct ApplicationNode {
    settings: Arc<SettingsNode>,
}

struct SettingsNode {
    limit: u64,
}

pub struct ConnectionNode {
    application: Arc<ApplicationNode>,
    state: Arc<Mutex<u64>>,
}

impl Subject for ClonedGraph {
    const NAME: &'static str = "cloned_graph";
    const REFERENCE: bool = true;
    /// The connection's node, and its state.
    const ALLOCATIONS_ADDED: u64 = 2;

    type Root = Arc<ApplicationNode>;
    type Node = Arc<ConnectionNode>;

    fn root() -> Arc<ApplicationNode> {
        Arc::new(ApplicationNode { settings: Arc::new(SettingsNode { limit: LIMIT }) })
    }

    fn node(application: &Arc<ApplicationNode>) -> Arc<ConnectionNode> {
        Arc::new(ConnectionNode { application: Arc::clone(application), state: Arc::new(Mutex::new(0)) })
    }

    #[inline]
    fn count(_: &Arc<ApplicationNode>, node: &Arc<ConnectionNode>) -> bool {
        let connection = Arc::clone(node);
        let application = Arc::clone(&connection.application);
        let settings = Arc::clone(&application.settings);
        let state = Arc::clone(&connection.state);
        let mut count = state.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        *count < settings.limit
    }
}

/// Where a connection's frames come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Its push queues, by halves.
    Pushes,
    /// Its peer; each is answered by a handler.
    Requests,
}

/// Whether anything ends the connection before all is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    Never,
    /// It is drained when half of the frames have gone.
    Triggered,
}

/// The hooks of the scenario.
pub struct Scenario<S: Subject> {
    root: S::Root,
    source: Source,
    cancel: Cancel,
}

/// A connection's own state of the scenario.
pub struct Session<S: Subject> {
    node: S::Node,
    left: Cell<u64>,
}

impl<S: Subject> Hooks for Scenario<S> {
    type Session = Session<S>;

    fn session(&self) -> Session<S> {
        Session { node: S::node(&self.root), left: Cell::new(FRAMES) }
    }

    fn connected(&self, connection: &Connection<Numeric<Scenario<S>>>) {
        if self.source == Source::Pushes {
            let handle = connection.push_handle();
            for number in 0..FRAMES / 2 {
                handle.high(number).expect("there is a place for each");
                handle.low(FRAMES / 2 + number).expect("there is a place for each");
            }
        }
    }

    #[inline]
    fn before_send(&self, _: u64, connection: &Connection<Numeric<Scenario<S>>>) {
        let session = connection.session();
        assert!(S::count(&self.root, &session.node), "the limit is out of reach");
        let left = session.left.get() - 1;
        session.left.set(left);
        if self.cancel == Cancel::Triggered && left == FRAMES / 2 {
            connection.drain();
        }
    }
}

/// Connections, one after the other.
pub struct World<S: Subject> {
    app: Prepared<Numeric<Scenario<S>>>,
    limits: Limits,
    pushes: PushSettings<u64>,
    watch: Stopwatch,
    sent: Sent,
    source: Source,
    cancel: Cancel,
}

impl<S: Subject> World<S> {
    pub fn new(source: Source, cancel: Cancel) -> World<S> {
        let watch = Stopwatch::default();
        let hooks = Scenario { root: S::root(), source, cancel };
        let protocol = Numeric { hooks, routes: 1, watch: watch.clone() };
        let app = App::new(protocol)
            .route(0, async |Incoming(number): Incoming<u64>| Reply(number))
            .prepare()
            .expect("there is one route");
        let places = FRAMES as usize / 2;
        let pushes = PushBuilder::default()
            .high_capacity(places)
            .low_capacity(places)
            .validate()
            .expect("the capacities are good");
        let sent = Sent::with_room(FRAMES);
        World { app, limits: Limits::default(), pushes, watch, sent, source, cancel }
    }

    /// Serves one connection and holds it to have sent all that was queued.
    pub async fn connection(&self) {
        self.sent.clear();
        let requests = match self.source {
            Source::Pushes => requests(0),
            Source::Requests => requests(FRAMES),
        };
        let end = serve(Memory::new(requests, &self.sent), &self.app, &self.limits, &self.pushes).await;
        match self.cancel {
            Cancel::Never => assert!(matches!(end, End::Closed), "{end}"),
            Cancel::Triggered => assert!(matches!(end, End::ShutDown), "{end}"),
        }
        assert_eq!(self.sent.count(), FRAMES, "frames sent, of those that were queued");
    }

    /// The time in which so many connections sent their frames, without their set-up.
    pub async fn time(&self, connections: u64) -> Duration {
        let before = self.watch.elapsed();
        for _ in 0..connections {
            self.connection().await;
        }
        self.watch.elapsed() - before
    }

    /// Allocations of one connection's frames, and the frames themselves.
    pub async fn count(&self) -> Counts {
        self.connection().await;
        let before = self.watch.allocations();
        self.connection().await;
        Counts::new(FRAMES, self.watch.allocations() - before)
            .with(Counter::FramesQueued, FRAMES)
            .with(Counter::FramesSent, self.sent.count())
    }

    /// Allocations of one connection from its set-up to its end.
    pub async fn count_whole(&self) -> u64 {
        self.connection().await;
        let before = alloc::on_this_thread();
        self.connection().await;
        alloc::on_this_thread() - before
    }

    /// What the last connection sent, in order.
    pub fn sent(&self) -> Vec<u64> {
        self.sent.take()
    }
}
