//! The task that keeps one core's share: it does what the server's handle says, and sees the connections to their end.
//!
//! Nothing that users wrote runs in it, nor in the tasks that accept: what could panic are the connections' own tasks.

use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_channel::oneshot;

use super::accept::{self, Door};
use super::address::{Address, Peer};
use super::error::StartError;
use super::gate::{Gate, Place};
use super::settings::Settings;
use super::share::Share;
use super::stats::{ConnectionInfo, ServerCoreStats};
use crate::actor::channel::{self, Receiver, Sender};
use crate::actor::{self, Arm, select};
use crate::net::{DetachedStream, TcpStream};
use crate::runtime::{JoinHandle, context, now, sleep_until, spawn};
use crate::service::connection::ConnectionId;
use crate::service::metrics::{self, CoreMetrics};
use crate::service::protocol::Protocol;

/// How long connections that are to end now may take for it before their tasks are stopped.
const GRACE: Duration = Duration::from_secs(1);
/// How often the figures are published, with the feature `metrics`.
const PUBLISH_EVERY: Duration = Duration::from_secs(1);

/// What a server's handle says to its cores, and cores to each other.
pub(super) enum Command {
    /// All cores are there: accept.
    Begin(Arc<[Sender<Command>]>),
    /// A Unix connection that another core has accepted.
    Serve(DetachedStream, Place),
    Stats(oneshot::Sender<ServerCoreStats>),
    Connections(oneshot::Sender<Vec<ConnectionInfo>>),
    Close {
        id: ConnectionId,
        at_once: bool,
        done: oneshot::Sender<bool>,
    },
    StopAccepting,
    /// End, in good order for so long.
    End {
        limit: Duration,
        done: Option<oneshot::Sender<Ended>>,
    },
}

/// How a core's share came to its end.
#[derive(Clone, Copy)]
pub(super) struct Ended {
    pub(super) drained: usize,
    pub(super) forced: usize,
}

/// Listens on the current core and makes the application there. Accepts nothing yet.
pub(super) fn start<P: Protocol>(
    settings: Settings<P>,
    gate: Arc<Gate>,
    number: usize,
) -> Result<(Vec<Address>, Sender<Command>), StartError> {
    let core = context::current().id();
    let (doors, addresses) = accept::open(&settings, core, number)?;
    let metrics = CoreMetrics::new(&addresses[0].to_string(), core);
    let app = (settings.factory)().map_err(|source| StartError::Prepare { core, source })?;
    let share = Share::new(core, number, app, settings, gate);
    let (commands, receiver) = channel::unbounded();
    let publish_at = metrics::ENABLED.then(now);
    let keeper = Keeper { share, closed: doors, open: Vec::new(), ending: None, metrics, publish_at };
    spawn(keeper.keep(receiver)).detach();
    Ok((addresses, commands))
}

struct Keeper<P: Protocol> {
    share: Rc<Share<P>>,
    /// Listeners from which nothing is accepted yet.
    closed: Vec<Door>,
    /// The tasks that accept.
    open: Vec<JoinHandle<()>>,
    ending: Option<Ending>,
    metrics: CoreMetrics,
    publish_at: Option<Instant>,
}

/// The end, from the first word of it.
struct Ending {
    stage: Stage,
    /// When the next stage begins, if not before.
    at: Option<Instant>,
    connections: usize,
    forced: usize,
    waiting: Vec<oneshot::Sender<Ended>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Drain,
    /// They have been told to end now.
    End,
    /// Their tasks have been told to stop.
    Stop,
}

impl<P: Protocol> Keeper<P> {
    async fn keep(mut self, mut commands: Receiver<Command>) {
        actor::set_label("server");
        // None when nobody is left who could say anything.
        let mut inbox = Some(&mut commands);
        loop {
            if let Some(ending) = &mut self.ending
                && self.share.open() == 0
            {
                self.metrics.publish(&self.share.stats());
                return ending.finish();
            }
            match self.next(inbox.as_deref_mut()).await {
                Arm::First(Some(command)) => self.obey(command).await,
                // The handle was dropped while the server was being started.
                Arm::First(None) if self.open.is_empty() && self.ending.is_none() => return,
                // It was detached.
                Arm::First(None) => inbox = None,
                Arm::Second(()) => {}
                Arm::Third(()) => self.tick(),
            }
        }
    }

    /// A command, or the end of the last connection if that is waited for, or the time for something.
    async fn next(&self, inbox: Option<&mut Receiver<Command>>) -> Arm<Option<Command>, (), ()> {
        let command = async {
            match inbox {
                Some(inbox) => inbox.recv().await.ok(),
                None => pending().await,
            }
        };
        let emptied = poll_fn(|cx| match &self.ending {
            Some(_) => self.share.poll_empty(cx),
            None => Poll::Pending,
        });
        let ending_at = self.ending.as_ref().and_then(|ending| ending.at);
        match [ending_at, self.publish_at].into_iter().flatten().min() {
            Some(time) => select((command, emptied, sleep_until(time))).await,
            None => select((command, emptied, pending())).await,
        }
    }

    fn tick(&mut self) {
        let now = now();
        if self.publish_at.is_some_and(|time| time <= now) {
            self.metrics.publish(&self.share.stats());
            self.publish_at = Some(now + PUBLISH_EVERY);
        }
        if self.ending.as_ref().and_then(|ending| ending.at).is_some_and(|time| time <= now) {
            self.next_stage();
        }
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Begin(siblings) => {
                for door in self.closed.drain(..) {
                    let task = accept::accept(door, Rc::clone(&self.share), Arc::clone(&siblings));
                    self.open.push(spawn(task));
                }
            }
            Command::Serve(stream, place) if self.ending.is_none() => {
                self.share.serve(TcpStream::from(stream.attach()), Peer::Unix, place);
            }
            Command::Serve(..) => {}
            // Whoever asked may have lost interest; so below.
            Command::Stats(reply) => _ = reply.send(self.share.stats()),
            Command::Connections(reply) => _ = reply.send(self.share.connections()),
            Command::Close { id, at_once, done } => _ = done.send(self.share.close(id, at_once)),
            Command::StopAccepting => self.stop_accepting().await,
            Command::End { limit, done } => self.end(limit, done).await,
        }
    }

    async fn stop_accepting(&mut self) {
        self.closed.clear();
        for task in self.open.drain(..) {
            task.abort();
            // Until the listener is closed.
            let _ = task.await;
        }
    }

    async fn end(&mut self, limit: Duration, done: Option<oneshot::Sender<Ended>>) {
        self.stop_accepting().await;
        let at = now().checked_add(limit);
        let ending = match &mut self.ending {
            Some(ending) => ending,
            none => {
                self.share.drain_all();
                let connections = self.share.open();
                none.insert(Ending { stage: Stage::Drain, at, connections, forced: 0, waiting: Vec::new() })
            }
        };
        ending.waiting.extend(done);
        if ending.stage == Stage::Drain {
            ending.at = [ending.at, at].into_iter().flatten().min();
        }
    }

    fn next_stage(&mut self) {
        let Some(ending) = &mut self.ending else { return };
        match ending.stage {
            Stage::Drain => {
                ending.forced = self.share.open();
                self.share.counters.forced.set(ending.forced as u64);
                self.share.end_all();
                (ending.stage, ending.at) = (Stage::End, now().checked_add(GRACE));
            }
            Stage::End => {
                self.share.stop_all();
                (ending.stage, ending.at) = (Stage::Stop, None);
            }
            Stage::Stop => {}
        }
    }
}

impl Ending {
    fn finish(&mut self) {
        let ended = Ended { drained: self.connections - self.forced, forced: self.forced };
        for waiting in self.waiting.drain(..) {
            let _ = waiting.send(ended);
        }
    }
}
