//! The server: a task that accepts, and one for each connection, on the core that opened the socket.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::inspector::{Inspector, Look, View};
use super::protocol::{self, Actor, Answer, Core, FORMAT, Hello, Node, Overview, Question, TreeHead};
use crate::actor::server::{self, ServerRef};
use crate::actor::{self, Snapshot, Tree};
use crate::net::claim::Claim;
use crate::net::{UnixListener, UnixStream};
use crate::runtime::{context, now, timeout, yield_now};

/// Connections at once; one more is told so.
const CONNECTIONS: usize = 8;
/// The longest question.
const LONGEST_LINE: usize = 1024;
/// Rows in one line, between which others run: some hundred microseconds of writing.
const ROWS_IN_A_LINE: usize = 256;
/// How long a reader may take to make room before it is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Accepts for ever. The claim goes with the task, however it ends.
pub(super) async fn accept(mut listener: UnixListener, _claim: Claim) {
    let opened = now();
    let inspector = server::start(Inspector);
    let places = Rc::new(Cell::new(CONNECTIONS));
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let place = Place::take(&places);
                let inspector = inspector.clone();
                let connection = actor::spawn(async move {
                    // Whoever looked has gone, or said what it should not: that is no event.
                    let _ = Connection { stream, inspector, opened }.serve(place.is_some()).await;
                });
                actor::label(&context::current(), connection.raw(), "observer connection".into());
            }
            // The next accept waits a little.
            Err(error) => tracing::warn!(%error, "the observer could not accept a connection"),
        }
    }
}

/// One of the connections that there may be.
struct Place(Rc<Cell<usize>>);

impl Place {
    fn take(places: &Rc<Cell<usize>>) -> Option<Place> {
        places.set(places.get().checked_sub(1)?);
        Some(Place(Rc::clone(places)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

struct Connection {
    stream: UnixStream,
    inspector: ServerRef<Inspector>,
    opened: Instant,
}

impl Connection {
    async fn serve(mut self, admitted: bool) -> io::Result<()> {
        if !admitted {
            let why = format!("{CONNECTIONS} look already; try again when one has gone");
            return self.say(&Answer::Refused { why }).await;
        }
        let program = std::env::args_os().next().unwrap_or_default();
        let program = std::path::Path::new(&program).file_name().unwrap_or_default();
        let program = program.to_string_lossy().into_owned();
        self.say(&Answer::Hello(Hello { format: FORMAT, process: std::process::id(), program })).await?;
        let mut received = Vec::with_capacity(LONGEST_LINE);
        loop {
            while let Some(end) = received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = received.drain(..=end).collect();
                self.answer(&line[..end]).await?;
            }
            if received.len() >= LONGEST_LINE {
                let why = format!("a question has at most {LONGEST_LINE} bytes");
                return self.say(&Answer::Refused { why }).await;
            }
            let read;
            (read, received) = self.stream.read(received).await;
            if read? == 0 {
                return Ok(());
            }
        }
    }

    async fn answer(&mut self, line: &[u8]) -> io::Result<()> {
        let look = match serde_json::from_slice(line) {
            Ok(Question::Snapshot) => Look::Snapshot,
            Ok(Question::Tree) => Look::Tree,
            Ok(Question::Actor(pid)) => Look::Actor(pid.0.into()),
            Err(error) => {
                return self.say(&Answer::Refused { why: format!("this is no question: {error}") }).await;
            }
        };
        match self.inspector.call(look).await {
            Ok(View::Snapshot(snapshot)) => self.say_snapshot(snapshot).await,
            Ok(View::Tree(tree)) => self.say_tree(tree).await,
            Ok(View::Actor(Ok(info))) => {
                self.say(&Answer::Actor(info.map(|info| Box::new(Actor::from(&info))))).await
            }
            Ok(View::Actor(Err(unanswered))) => self.refuse(unanswered).await,
            Err(error) => self.refuse(error).await,
        }
    }

    async fn refuse(&mut self, error: impl std::error::Error) -> io::Result<()> {
        self.say(&Answer::Refused { why: error.to_string() }).await
    }

    async fn say_snapshot(&mut self, snapshot: Snapshot) -> io::Result<()> {
        let overview = Overview {
            format: snapshot.format,
            at_ns: now().saturating_duration_since(self.opened).as_nanos() as u64,
            cores: snapshot.cores.iter().map(|core| Core::new(core, self.opened)).collect(),
            missing: protocol::numbers(&snapshot.missing),
            pools: pools().await,
            actors: snapshot.actors().count(),
        };
        self.say(&Answer::Snapshot(overview)).await?;
        for core in snapshot.cores {
            for rows in core.actors.chunks(ROWS_IN_A_LINE) {
                self.say(&Answer::Actors(rows.iter().map(Actor::from).collect())).await?;
            }
        }
        Ok(())
    }

    async fn say_tree(&mut self, tree: Tree) -> io::Result<()> {
        let missing = protocol::numbers(&tree.missing);
        self.say(&Answer::Tree(TreeHead { missing, nodes: tree.nodes.len() })).await?;
        for rows in tree.nodes.chunks(ROWS_IN_A_LINE) {
            self.say(&Answer::Nodes(rows.iter().map(Node::from).collect())).await?;
        }
        Ok(())
    }

    async fn say(&mut self, answer: &Answer) -> io::Result<()> {
        let mut line = serde_json::to_vec(answer)?;
        line.push(b'\n');
        // A reader that is quick lets every write end at once.
        yield_now().await;
        let sent = async {
            self.stream.write_all(line).await.0?;
            // The connection may end after this line: what is with the kernel by then arrives.
            self.stream.flush().await
        };
        match timeout(PATIENCE, sent).await {
            Ok(sent) => sent,
            Err(elapsed) => Err(io::Error::new(io::ErrorKind::TimedOut, elapsed)),
        }
    }
}

/// The pools on this runtime's cores.
#[cfg(feature = "pool")]
async fn pools() -> Vec<protocol::Pool> {
    /// As long as cores have.
    const ANSWER_LIMIT: Duration = Duration::from_secs(1);

    let looks = crate::pool::watched::pools_on(context::current().id()).into_iter().map(async |pool| {
        // Shards that do not answer in time are left out; their cores are among the missing.
        let stats = timeout(ANSWER_LIMIT, pool.stats()).await.ok();
        protocol::Pool {
            pool: pool.id(),
            connector: pool.connector().to_owned(),
            slots: pool.slots(),
            closed: pool.is_closed(),
            shards: stats.iter().flat_map(|stats| &stats.shards).map(protocol::Shard::from).collect(),
        }
    });
    futures_util::future::join_all(looks).await
}

#[cfg(not(feature = "pool"))]
async fn pools() -> Vec<protocol::Pool> {
    Vec::new()
}
