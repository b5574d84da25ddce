//! What is said over the socket: a line of JSON each way at a time.
//!
//! The process greets with [`Answer::Hello`]. Then it answers one [`Question`] after another, each by one line or, where there
//! is much to say, by a line that says how many [rows](Answer::Actors) are to come, and lines of some hundred rows each.
//!
//! ```text
//! > "snapshot"
//! < {"snapshot":{"format":1,"at_ns":61044,"cores":[...],"missing":[],"pools":[...],"actors":300}}
//! < {"actors":[{"pid":"<0.0.1>","state":"parked","polls":12,...},...]}
//! < {"actors":[...]}
//! > {"actor":"<0.7.31>"}
//! < {"actor":{"pid":"<0.7.31>","state":"parked",...}}
//! > "tree"
//! < {"tree":{"missing":[],"nodes":300}}
//! < {"nodes":[{"depth":0,"actor":{...}},...]}
//! ```
//!
//! [`FORMAT`] moves on when something changes its meaning; fields are added without, so unknown ones are to be ignored.
//! Counters count from the start of what they count. Times are in nanoseconds.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::actor::{ActorInfo, CoreSnapshot, TreeNode};
use crate::runtime::{CoreId, RawPid, TaskState};

/// The version of what is said.
pub const FORMAT: u32 = 1;

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Question {
    /// Everything: cores, pools, actors.
    Snapshot,
    /// Who spawned whom.
    Tree,
    /// One actor.
    Actor(Pid),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// The greeting.
    Hello(Hello),
    /// Cores and pools; so many actors follow, in lines of [`Actors`](Answer::Actors).
    Snapshot(Overview),
    /// Some of the actors of a snapshot.
    Actors(Vec<Actor>),
    /// So many nodes follow, in lines of [`Nodes`](Answer::Nodes).
    Tree(TreeHead),
    /// Some of the nodes of a tree, each right before its children.
    Nodes(Vec<Node>),
    /// The actor that was asked for; none when it has ended or never was.
    Actor(Option<Box<Actor>>),
    /// No answer, and why.
    Refused {
        /// Why.
        why: String,
    },
}

/// The greeting of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`FORMAT`].
    pub format: u32,
    /// The number of the process.
    pub process: u32,
    /// The name of the program.
    pub program: String,
}

/// A snapshot but for its actors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// The version of what a snapshot says: [`SNAPSHOT_FORMAT`](crate::actor::SNAPSHOT_FORMAT).
    pub format: u32,
    /// The time since the observer was opened.
    pub at_ns: u64,
    /// The cores that answered.
    pub cores: Vec<Core>,
    /// Those that did not.
    pub missing: Vec<u16>,
    /// The pools that have shards on the runtime's cores.
    pub pools: Vec<Pool>,
    /// How many actors follow.
    pub actors: usize,
}

/// A core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// Its id.
    pub core: u16,
    /// When it was looked at, as the time since the observer was opened.
    pub at_ns: u64,
    /// The CPU time of its thread; none in a simulation.
    pub cpu_ns: Option<u64>,
    /// Live actors.
    pub live: usize,
    /// Of those, ready to run: the length of the run queue.
    pub ready: usize,
    /// Actors ever spawned.
    pub spawned: u64,
    /// Actors ended.
    pub finished: u64,
    /// Polls.
    pub polls: u64,
    /// Polls that spent their whole budget.
    pub overruns: u64,
    /// Times it went to sleep.
    pub parks: u64,
    /// Mails from other cores and threads.
    pub mails: u64,
    /// Armed timers.
    pub timers: usize,
    /// Operations in flight: the depth of the ring.
    pub in_flight: usize,
    /// Kernel entries.
    pub enters: u64,
    /// Completions reaped.
    pub completions: u64,
    /// Messages from elsewhere that could not be delivered.
    pub undelivered: u64,
}

/// An actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// Who it is.
    pub pid: Pid,
    /// Who spawned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Pid>,
    /// Whose child it is, if a supervisor looks after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supervisor: Option<Pid>,
    /// Where it stands.
    pub state: State,
    /// The names by which it can be reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// What it is called in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether it receives exits as messages.
    pub traps_exits: bool,
    /// Messages in its mailboxes.
    pub mailbox: usize,
    /// Monitors that watch it.
    pub monitors: usize,
    /// Actors it is linked to.
    pub links: usize,
    /// Who waits for its result.
    pub joiners: usize,
    /// Polls.
    pub polls: u64,
    /// Polls that spent their whole budget.
    pub overruns: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Ticks of the CPU; zero without the feature `cycles`.
    pub cycles: u64,
}

/// Where an actor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Is being polled.
    Running,
    /// Is ready to run.
    Queued,
    /// Waits.
    Parked,
}

/// The head of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeHead {
    /// The cores that did not answer.
    pub missing: Vec<u16>,
    /// How many nodes follow.
    pub nodes: usize,
}

/// An actor at its place in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// How many stand above it.
    pub depth: u32,
    /// It had a parent, which is not there any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub orphaned: bool,
    /// The actor.
    pub actor: Actor,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Its id.
    pub pool: u64,
    /// The type of its connector.
    pub connector: String,
    /// Slots of each shard.
    pub slots: usize,
    /// Whether it was closed.
    pub closed: bool,
    /// Its shards; none when not all of them answered in time.
    pub shards: Vec<Shard>,
}

/// A shard of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Its core.
    pub core: u16,
    /// Idle connections.
    pub idle: usize,
    /// Leased connections.
    pub leased: usize,
    /// Acquires that wait.
    pub waiting: usize,
    /// Connections being opened.
    pub opening: usize,
    /// Connections being closed.
    pub closing: usize,
    /// Acquires.
    pub acquires: u64,
    /// Acquires that had to wait.
    pub waits: u64,
    /// Acquires that ended without a lease.
    pub refused: u64,
    /// Attempts to connect.
    pub opens: u64,
    /// Attempts that failed.
    pub connect_failures: u64,
    /// Connections closed.
    pub closes: u64,
    /// Acquires sent to other cores.
    pub forwards: u64,
    /// Connections lent to other cores.
    pub lends: u64,
}

/// An actor's identity as it is printed: `<core.slot.generation>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pid(pub RawPid);

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// This is no identity as it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an actor's identity is printed as <core.slot.generation>")]
pub struct NoPid;

impl FromStr for Pid {
    type Err = NoPid;

    fn from_str(text: &str) -> Result<Pid, NoPid> {
        let numbers = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).ok_or(NoPid)?;
        let mut numbers = numbers.splitn(3, '.').map(|number| number.parse::<u32>().map_err(|_| NoPid));
        let mut next = || numbers.next().unwrap_or(Err(NoPid));
        let (core, index, generation) = (next()?, next()?, next()?);
        // What cannot name a task must not get as far as the table of cores.
        RawPid::checked(core, index, generation).map(Pid).ok_or(NoPid)
    }
}

impl Serialize for Pid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pid, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl From<&ActorInfo> for Actor {
    fn from(info: &ActorInfo) -> Actor {
        Actor {
            pid: Pid(info.pid.raw()),
            parent: info.parent.map(|parent| Pid(parent.raw())),
            supervisor: info.supervisor.map(|supervisor| Pid(supervisor.raw())),
            state: info.state.into(),
            names: info.names.iter().map(|name| (*name).to_owned()).collect(),
            label: info.label.as_deref().map(str::to_owned),
            traps_exits: info.traps_exits,
            mailbox: info.mailbox,
            monitors: info.monitors,
            links: info.links,
            joiners: info.joiners,
            polls: info.polls,
            overruns: info.overruns,
            messages_received: info.messages_received,
            cycles: info.cycles,
        }
    }
}

impl From<TaskState> for State {
    fn from(state: TaskState) -> State {
        match state {
            TaskState::Running | TaskState::Notified => State::Running,
            TaskState::Queued => State::Queued,
            TaskState::Parked => State::Parked,
        }
    }
}

impl From<&TreeNode> for Node {
    fn from(node: &TreeNode) -> Node {
        Node { depth: node.depth, orphaned: node.orphaned, actor: (&node.actor).into() }
    }
}

impl Core {
    pub(super) fn new(snapshot: &CoreSnapshot, opened: std::time::Instant) -> Core {
        let nanoseconds = |duration: std::time::Duration| duration.as_nanos() as u64;
        let (executor, driver) = (&snapshot.stats.executor, &snapshot.stats.driver);
        Core {
            core: snapshot.core.get(),
            at_ns: nanoseconds(snapshot.at.saturating_duration_since(opened)),
            cpu_ns: snapshot.cpu_time.map(nanoseconds),
            live: executor.live,
            ready: executor.ready,
            spawned: executor.spawned,
            finished: executor.finished,
            polls: executor.polls,
            overruns: executor.overruns,
            parks: snapshot.stats.parks,
            mails: snapshot.stats.mails,
            timers: snapshot.stats.timers,
            in_flight: driver.in_flight,
            enters: driver.enters,
            completions: driver.completions,
            undelivered: snapshot.undelivered,
        }
    }
}

pub(super) fn numbers(cores: &[CoreId]) -> Vec<u16> {
    cores.iter().map(|core| core.get()).collect()
}

#[cfg(feature = "pool")]
impl From<&crate::pool::ShardStats> for Shard {
    fn from(stats: &crate::pool::ShardStats) -> Shard {
        Shard {
            core: stats.core.get(),
            idle: stats.idle,
            leased: stats.leased,
            waiting: stats.waiting,
            opening: stats.opening,
            closing: stats.closing,
            acquires: stats.acquires,
            waits: stats.capacity_waits,
            refused: stats.timed_out + stats.saturated + stats.would_miss + stats.shed + stats.refused,
            opens: stats.opens,
            connect_failures: stats.connect_failures,
            closes: stats.closes.iter().sum(),
            forwards: stats.forwards,
            lends: stats.lends,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_as_it_is_printed_and_nothing_else_is_one() {
        let pid = Pid(RawPid { core: CoreId(3), index: 17, generation: u32::MAX });
        assert_eq!(pid.to_string().parse(), Ok(pid));
        assert_eq!(serde_json::from_str::<Pid>(&serde_json::to_string(&pid).unwrap()).unwrap(), pid);
        for no_pid in [
            "",
            "<>",
            "<1.2>",
            "<1.2.3",
            "1.2.3",
            "<1.2.3.4>",
            "<a.b.c>",
            "<-1.2.3>",
            "<1024.0.0>",
            "<0.134217728.0>",
        ] {
            assert_eq!(no_pid.parse::<Pid>(), Err(NoPid), "{no_pid}");
        }
    }

    #[test]
    fn questions_and_answers_are_said_as_documented() {
        let say = |question| serde_json::to_string(&question).unwrap();
        let pid = Pid(RawPid { core: CoreId(0), index: 7, generation: 31 });
        assert_eq!(say(Question::Snapshot), r#""snapshot""#);
        assert_eq!(say(Question::Tree), r#""tree""#);
        assert_eq!(say(Question::Actor(pid)), r#"{"actor":"<0.7.31>"}"#);
        let refused = Answer::Refused { why: "because".into() };
        assert_eq!(serde_json::to_string(&refused).unwrap(), r#"{"refused":{"why":"because"}}"#);
        assert_eq!(serde_json::to_string(&Answer::Actor(None)).unwrap(), r#"{"actor":null}"#);
    }

    #[test]
    fn what_is_added_later_is_no_harm() {
        let hello = r#"{"hello":{"format":1,"process":5,"program":"p","mood":"fine"}}"#;
        let expected = Hello { format: 1, process: 5, program: "p".into() };
        assert_eq!(serde_json::from_str::<Answer>(hello).unwrap(), Answer::Hello(expected));
    }
}
