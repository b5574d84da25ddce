//! The observer's socket: for its user alone, true to what it relays, and no burden to the process that is looked into.
#![cfg(feature = "observer")]
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::fs;
use std::future::pending;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{PATIENCE, cores, eventually, on_core, within};
use corelet::actor::{self, ActorInfo, Addressable, SNAPSHOT_FORMAT, Snapshot, Tree, channel, server};
use corelet::observer::protocol::{Actor, Answer, FORMAT, Node, Overview, Pid, Question, State};
use corelet::observer::{Inspector, Look, Observer, ObserverError, View};
use corelet::runtime::{RawPid, Runtime, current_task, yield_now};

/// A path that no other test uses, in a directory that goes with it.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("corelet-observer-{}-{number}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        Place(directory)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn open(runtime: &Runtime, path: PathBuf) -> Result<Observer, ObserverError> {
    runtime.block_on(move || async move { Observer::open(path) }).unwrap()
}

/// A user of the socket, on a thread of its own.
struct Client {
    lines: BufReader<UnixStream>,
}

impl Client {
    fn connect(place: &Place) -> Client {
        let socket = UnixStream::connect(place.socket()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { lines: BufReader::new(socket) }
    }

    fn greeted(place: &Place) -> Client {
        let mut client = Client::connect(place);
        let Answer::Hello(hello) = client.hear().unwrap() else { panic!("no greeting") };
        assert_eq!((hello.format, hello.process), (FORMAT, std::process::id()));
        assert!(hello.program.starts_with("observer"), "{hello:?}");
        client
    }

    fn say(&mut self, line: &str) {
        self.lines.get_mut().write_all(line.as_bytes()).unwrap();
    }

    /// None when the connection was closed.
    fn hear(&mut self) -> Option<Answer> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    fn ask(&mut self, question: &Question) -> Answer {
        self.say(&(serde_json::to_string(question).unwrap() + "\n"));
        self.hear().unwrap()
    }

    fn snapshot(&mut self) -> (Overview, Vec<Actor>) {
        let Answer::Snapshot(overview) = self.ask(&Question::Snapshot) else { panic!("no snapshot") };
        let mut actors = Vec::new();
        while actors.len() < overview.actors {
            let Answer::Actors(rows) = self.hear().unwrap() else { panic!("no actors") };
            actors.extend(rows);
        }
        (overview, actors)
    }

    fn actor(&mut self, pid: RawPid) -> Option<Actor> {
        match self.ask(&Question::Actor(Pid(pid))) {
            Answer::Actor(actor) => actor.map(|actor| *actor),
            other => panic!("{other:?}"),
        }
    }

    fn tree(&mut self) -> Vec<Node> {
        let Answer::Tree(head) = self.ask(&Question::Tree) else { panic!("no tree") };
        let mut nodes = Vec::new();
        while nodes.len() < head.nodes {
            let Answer::Nodes(rows) = self.hear().unwrap() else { panic!("no nodes") };
            nodes.extend(rows);
        }
        nodes
    }
}

#[test]
fn only_its_user_may_connect() {
    within(PATIENCE, || {
        let (place, runtime) = (Place::new(), cores(1).build().unwrap());
        let observer = open(&runtime, place.socket()).unwrap();
        assert_eq!(observer.path(), place.socket());
        assert_eq!(fs::metadata(place.socket()).unwrap().permissions().mode() & 0o777, 0o600);
    });
}

#[test]
fn the_socket_ends_with_the_observer_and_with_the_runtime() {
    within(PATIENCE, || {
        let (place, runtime) = (Place::new(), cores(1).build().unwrap());
        let observer = open(&runtime, place.socket()).unwrap();
        drop(observer);
        eventually("the file is removed", || !place.socket().exists());

        open(&runtime, place.socket()).unwrap().detach();
        let mut client = Client::greeted(&place);
        drop(runtime);
        assert!(!place.socket().exists());
        assert_eq!(client.hear(), None);
    });
}

#[test]
fn a_socket_left_by_the_dead_is_replaced_and_nothing_else() {
    within(PATIENCE, || {
        let (place, runtime) = (Place::new(), cores(1).build().unwrap());
        drop(UnixListener::bind(place.socket()).unwrap());
        assert!(place.socket().exists());
        let observer = open(&runtime, place.socket()).unwrap();
        let again = open(&runtime, place.socket()).unwrap_err();
        assert!(matches!(again, ObserverError::InUse { .. }), "{again:?}");
        // The refusal has harmed nothing.
        Client::greeted(&place).snapshot();
        drop(observer);
        eventually("the file is removed", || !place.socket().exists());

        fs::write(place.socket(), "somebody's data").unwrap();
        let refused = open(&runtime, place.socket()).unwrap_err();
        assert!(matches!(refused, ObserverError::NotOurs { .. }), "{refused:?}");
        assert_eq!(fs::read_to_string(place.socket()).unwrap(), "somebody's data");

        let nowhere = open(&runtime, place.0.join("no/such/directory")).unwrap_err();
        assert!(matches!(nowhere, ObserverError::Refused { .. }), "{nowhere:?}");
    });
}

#[test]
fn a_file_that_took_the_sockets_place_is_left_alone() {
    within(PATIENCE, || {
        let (place, runtime) = (Place::new(), cores(1).build().unwrap());
        open(&runtime, place.socket()).unwrap().detach();
        fs::remove_file(place.socket()).unwrap();
        fs::write(place.socket(), "somebody's data").unwrap();
        drop(runtime);
        assert_eq!(fs::read_to_string(place.socket()).unwrap(), "somebody's data");
    });
}

struct Words;
impl Addressable for Words {
    type Msg = &'static str;
}

#[test]
fn each_question_is_answered_as_the_kit_answers_it() {
    within(PATIENCE, || {
        let (place, runtime) = (Place::new(), cores(2).build().unwrap());
        let _observer = open(&runtime, place.socket()).unwrap();
        let parked = runtime
            .block_on(|| async {
                let pid = actor::spawn_addr::<Words, _, _>(async |mut inbox| {
                    actor::set_label("keeps what it gets");
                    inbox.recv().await.unwrap();
                    actor::spawn(pending::<()>());
                    pending::<()>().await;
                    drop(inbox);
                });
                for word in ["one", "two", "three"] {
                    actor::send_to(pid, word).unwrap();
                }
                actor::spawn_link(async move {
                    actor::link(pid);
                    pending::<()>().await;
                });
                for _ in 0..4 {
                    yield_now().await;
                }
                pid.raw()
            })
            .unwrap();
        let mut client = Client::greeted(&place);
        let own = || {
            let look = move || async move {
                let info = actor::actor_info(parked).await.unwrap();
                (info.as_ref().map(Actor::from), actor::snapshot().await)
            };
            runtime.block_on(look).unwrap()
        };

        let theirs = client.actor(parked);
        let (info, snapshot) = own();
        assert_eq!(theirs, info);
        let theirs = theirs.unwrap();
        assert_eq!(
            (theirs.state, theirs.mailbox, theirs.messages_received, theirs.links),
            (State::Parked, 2, 1, 1)
        );
        assert_eq!(theirs.label.as_deref(), Some("keeps what it gets"));

        let (overview, actors) = client.snapshot();
        assert_eq!((overview.format, overview.missing.len(), overview.cores.len()), (SNAPSHOT_FORMAT, 0, 2));
        assert_eq!(overview.actors, actors.len());
        // Those that came in order to look have no parents, or are the observer's.
        let at_rest = |actor: &Actor| {
            let who = actor.label.as_deref();
            actor.parent.is_some() && !matches!(who, Some("observer connection" | "inspector"))
        };
        let theirs: Vec<Actor> = actors.into_iter().filter(at_rest).collect();
        let ours: Vec<Actor> = snapshot.actors().map(Actor::from).filter(at_rest).collect();
        assert!(theirs == ours && theirs.len() >= 3, "{theirs:#?}\n{ours:#?}");

        let tree = client.tree();
        let place = tree.iter().position(|node| node.actor.pid == Pid(parked)).unwrap();
        assert!(tree[place].orphaned && tree[place + 1].depth == tree[place].depth + 1);
        assert_eq!(tree[place + 1].actor.parent, Some(Pid(parked)));
    });
}

#[test]
fn the_inspector_relays_exactly_what_the_kit_says() {
    on_core(|| async {
        let inspector = server::start(Inspector);
        let parent = actor::spawn(async {
            actor::set_label("parent");
            actor::spawn(pending::<()>());
            pending::<()>().await;
        });
        for _ in 0..4 {
            yield_now().await;
        }
        // Those that take no part in looking.
        let at_rest = |info: &&ActorInfo| info.pid == parent || info.parent == Some(parent);
        let Ok(View::Snapshot(relayed)) = inspector.call(Look::Snapshot).await else { panic!() };
        let own = actor::snapshot().await;
        let actors = |snapshot: &Snapshot| snapshot.actors().filter(at_rest).cloned().collect::<Vec<_>>();
        assert_eq!((actors(&relayed), relayed.format), (actors(&own), own.format));
        assert_eq!(actors(&own).len(), 2);

        let Ok(View::Tree(relayed)) = inspector.call(Look::Tree).await else { panic!() };
        let own = actor::tree().await;
        let nodes =
            |tree: &Tree| tree.nodes.iter().filter(|node| at_rest(&&node.actor)).cloned().collect::<Vec<_>>();
        assert_eq!((nodes(&relayed), relayed.missing), (nodes(&own), own.missing.clone()));

        let Ok(View::Actor(relayed)) = inspector.call(Look::Actor(parent)).await else { panic!() };
        assert_eq!(relayed, actor::actor_info(parent).await);
        actor::request_stop(parent);
        actor::monitor(parent).await;
        assert!(matches!(inspector.call(Look::Actor(parent)).await, Ok(View::Actor(Ok(None)))));
    });
}

#[test]
fn an_identity_that_names_nobody_is_answered_by_none() {
    within(PATIENCE, || {
        let (place, runtime) = (Place::new(), cores(1).build().unwrap());
        let _observer = open(&runtime, place.socket()).unwrap();
        let stale = on_core(|| async { current_task().unwrap() });
        let mut client = Client::greeted(&place);
        for nobody in [&stale.to_string(), "<0.0.4000000000>", "<1023.7.7>", "<5.134217727.0>"] {
            let question = format!("{{\"actor\":\"{nobody}\"}}\n");
            // The core of that number may be another test's, and busy.
            eventually("an answer", || {
                client.say(&question);
                match client.hear().unwrap() {
                    Answer::Actor(found) => {
                        assert_eq!(found, None, "{nobody}");
                        true
                    }
                    other => !matches!(other, Answer::Refused { .. }),
                }
            });
        }
    });
}

#[test]
fn what_is_no_question_is_refused_and_does_no_harm() {
    within(PATIENCE, || {
        let (place, runtime) = (Place::new(), cores(1).build().unwrap());
        let _observer = open(&runtime, place.socket()).unwrap();
        let mut client = Client::greeted(&place);
        for nonsense in
            ["\n", "{\n", "\"shutdown\"\n", "{\"actor\":\"<1024.0.0>\"}\n", "{\"actor\":7}\n", "\u{0}\n"]
        {
            client.say(nonsense);
            let answer = client.hear().unwrap();
            assert!(
                matches!(&answer, Answer::Refused { why } if why.contains("no question")),
                "{nonsense:?}: {answer:?}"
            );
        }
        // In pieces, and two at once.
        client.say("\"snap");
        client.say("shot\"\n\"snapshot\"\n");
        assert!(matches!(client.hear(), Some(Answer::Snapshot(_))));
        assert!(matches!(client.hear(), Some(Answer::Actors(_))));
        assert!(matches!(client.hear(), Some(Answer::Snapshot(_))));

        let mut endless = Client::greeted(&place);
        endless.say(&"x".repeat(1024));
        assert!(matches!(endless.hear(), Some(Answer::Refused { .. })));
        assert_eq!(endless.hear(), None);
    });
}

#[test]
fn only_so_many_look_at_once() {
    within(PATIENCE, || {
        let (place, runtime) = (Place::new(), cores(1).build().unwrap());
        let _observer = open(&runtime, place.socket()).unwrap();
        let mut clients: Vec<Client> = (0..8).map(|_| Client::greeted(&place)).collect();
        let mut ninth = Client::connect(&place);
        assert!(matches!(ninth.hear(), Some(Answer::Refused { why }) if why.starts_with("8 look already")));
        assert_eq!(ninth.hear(), None);
        clients.pop();
        eventually("the place is free again", || {
            matches!(Client::connect(&place).hear(), Some(Answer::Hello(_)))
        });
    });
}

#[test]
fn whoever_does_not_read_holds_nobody_up() {
    within(PATIENCE, || {
        let (place, runtime) = (Place::new(), cores(1).build().unwrap());
        let _observer = open(&runtime, place.socket()).unwrap();
        runtime.block_on(|| async { (0..20_000).for_each(|_| _ = actor::spawn(pending::<()>())) }).unwrap();
        let mut deaf = Client::greeted(&place);
        for _ in 0..20 {
            deaf.say("\"snapshot\"\n");
        }
        let mut client = Client::greeted(&place);
        assert!(client.snapshot().1.len() > 20_000);
        assert_eq!(runtime.block_on(|| async { 7 }).unwrap(), 7);
        drop(deaf);
        eventually("its connection is given up", || {
            let (_, actors) = client.snapshot();
            actors.iter().filter(|actor| actor.label.as_deref() == Some("observer connection")).count() == 1
        });
    });
}

#[test]
fn a_core_that_does_not_answer_is_named() {
    within(PATIENCE, || {
        let (place, runtime) = (Place::new(), cores(2).build().unwrap());
        let _observer = open(&runtime, place.socket()).unwrap();
        let (busy, stuck) = (runtime.cores()[1], Arc::new(AtomicBool::new(true)));
        let (until, (begun, begins)) = (Arc::clone(&stuck), std::sync::mpsc::channel());
        let occupy = async move || {
            begun.send(()).unwrap();
            while until.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        };
        runtime.spawn_on(busy, occupy).unwrap().detach();
        begins.recv().unwrap();
        let mut client = Client::greeted(&place);
        assert_eq!(client.snapshot().0.missing, [busy.get()]);
        stuck.store(false, Ordering::SeqCst);
        eventually("it answers again", || client.snapshot().0.missing.is_empty());
    });
}

#[cfg(feature = "pool")]
#[test]
fn pools_are_there_while_they_are_used() {
    use corelet::pool::{Pool, TcpConnector};

    within(PATIENCE, || {
        let upstream = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (place, runtime) = (Place::new(), cores(2).build().unwrap());
        let _observer = open(&runtime, place.socket()).unwrap();
        let other = cores(1).build().unwrap();
        let address = upstream.local_addr().unwrap();
        let pool = |runtime: &Runtime| {
            Pool::builder(TcpConnector::new(address)).slots_per_core(3).build(&runtime.handle()).unwrap()
        };
        let (ours, theirs) = (pool(&runtime), pool(&other));
        let mine = ours.clone();
        let (lease, leased) = std::sync::mpsc::channel();
        let hold = async move || {
            let _lease = mine.acquire().await.unwrap();
            lease.send(()).unwrap();
            pending::<()>().await;
        };
        let holder = runtime.spawn_on(runtime.cores()[0], hold).unwrap();
        leased.recv().unwrap();

        let mut client = Client::greeted(&place);
        let (overview, actors) = client.snapshot();
        let [pool] = &overview.pools[..] else { panic!("{:?}", overview.pools) };
        assert_eq!((pool.pool, pool.slots, pool.closed, pool.shards.len()), (ours.id(), 3, false, 2));
        assert!(pool.connector.ends_with("TcpConnector"), "{pool:?}");
        let shard = &pool.shards[0];
        assert_eq!((shard.acquires, shard.opens, shard.leased, shard.idle), (1, 1, 1, 0));
        let label = format!("scheduler of pool {}", ours.id());
        assert_eq!(actors.iter().filter(|actor| actor.label.as_ref() == Some(&label)).count(), 2);

        drop(holder);
        drop(ours);
        eventually("the pool is gone", || client.snapshot().0.pools.is_empty());
        drop(theirs);
    });
}

#[test]
fn looking_costs_nothing_that_is_not_asked_for() {
    on_core(|| async {
        let place = Place::new();
        let observer = Observer::open(place.socket()).unwrap();
        for _ in 0..4 {
            yield_now().await;
        }
        let before = actor::snapshot().await;
        let (sender, mut receiver) = channel::unbounded();
        for number in 0..100 {
            sender.send(number).unwrap();
            receiver.recv().await.unwrap();
            yield_now().await;
        }
        let after = actor::snapshot().await;
        let polls = |snapshot: &actor::Snapshot| {
            let of = |actor: &&actor::ActorInfo| actor.label.as_deref() == Some("observer");
            snapshot.actors().find(of).map(|actor| actor.polls)
        };
        assert!(polls(&before).is_some() && polls(&before) == polls(&after));
        drop(observer);
        let begun = std::time::Instant::now();
        while place.socket().exists() && begun.elapsed() < Duration::from_secs(10) {
            yield_now().await;
        }
        assert!(!place.socket().exists());
    });
}
