//! A cache that everybody finds by its name: supervised, started anew when it fails, asked from two cores.
//!
//! cargo run --example named_server

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use corelet::actor::server::{self, Context, Server, ServerName};
use corelet::actor::supervisor::{ChildRef, Supervisor};
use corelet::actor::{self, CallError, Down, Name, Pid, Reply};
use corelet::runtime::{Cores, Runtime, handle, yield_now};

/// Its name, and by it the types of what it is asked, told and answers.
const CACHE: ServerName<Cache> = Name::new("cache");

#[derive(Default)]
struct Cache {
    entries: HashMap<String, (String, Pid)>,
    /// Those who wait for a key that is not there yet.
    waiting: HashMap<String, Vec<Reply<Option<String>>>>,
}

enum Ask {
    Get(String),
    /// Answered when there is one.
    Await(String),
}

/// Entries last as long as the actor that has put them there.
enum Tell {
    Put { key: String, value: String, owner: Pid },
    Fail,
}

impl Server for Cache {
    type Call = Ask;
    type Reply = Option<String>;
    type Cast = Tell;
    type Info = Infallible;

    async fn handle_call(&mut self, ask: Ask, reply: Reply<Option<String>>, _: &Context<Self>) {
        match ask {
            Ask::Get(key) => reply.send(self.entries.get(&key).map(|(value, _)| value.clone())),
            Ask::Await(key) => match self.entries.get(&key) {
                Some((value, _)) => reply.send(Some(value.clone())),
                None => self.waiting.entry(key).or_default().push(reply),
            },
        }
    }

    async fn handle_cast(&mut self, tell: Tell, ctx: &Context<Self>) {
        match tell {
            Tell::Put { key, value, owner } => {
                for reply in self.waiting.remove(&key).unwrap_or_default() {
                    reply.send(Some(value.clone()));
                }
                ctx.watcher().watch(owner);
                self.entries.insert(key, (value, owner));
            }
            Tell::Fail => panic!("on purpose"),
        }
    }

    async fn handle_down(&mut self, down: Down, _: &Context<Self>) {
        self.entries.retain(|_, (_, owner)| *owner != down.pid);
    }

    async fn terminate(&mut self, _: &Context<Self>) {
        println!("the cache ends with {} entries", self.entries.len());
    }
}

fn get(key: &str) -> impl Future<Output = Result<Option<String>, CallError>> {
    server::call(CACHE, Ask::Get(key.to_owned()))
}

fn put(key: &str, value: &str, owner: Pid) {
    let put = Tell::Put { key: key.to_owned(), value: value.to_owned(), owner };
    server::cast(CACHE, put).expect("the cache is there");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().cores(Cores::Count(2)).pinned(false).build()?;
    let cores = runtime.cores();
    runtime.block_on(move || async move {
        // Nobody has the name yet.
        assert_eq!(get("colour").await, Err(CallError::Unresolved));

        let build = || server::build(Cache::default()).bounded(1024).named(CACHE);
        let child = server::child("cache", &ChildRef::new(), build);
        let supervisor = Supervisor::builder().child(child).start().await.expect("the name is free");

        // Who waits on the other core is answered when somebody here puts the entry there.
        let patient = handle()
            .spawn_on(cores[1], || async {
                server::call_timeout(CACHE, Ask::Await("colour".into()), Duration::from_secs(10)).await
            })
            .expect("a core of this runtime");
        let owner = actor::spawn(std::future::pending::<()>());
        put("colour", "blue", owner);
        assert_eq!(patient.await.expect("it does not panic"), Ok(Some("blue".into())));
        assert_eq!(get("colour").await, Ok(Some("blue".into())));

        // An entry goes with its owner.
        actor::request_stop(owner);
        while get("colour").await != Ok(None) {
            yield_now().await;
        }

        // The name is taken while the server lives.
        let second = server::build(Cache::default()).named(CACHE).start();
        assert!(second.is_err_and(|error| error.is_taken()));

        // A failure empties the cache, and whoever calls the name reaches the next life.
        put("shape", "round", supervisor.pid().erase());
        let life = server::whereis(CACHE).expect("it lives").pid();
        server::cast(CACHE, Tell::Fail).expect("it lives");
        while server::whereis(CACHE).is_none_or(|server| server.pid() == life) {
            yield_now().await;
        }
        assert_eq!(get("shape").await, Ok(None));

        supervisor.shutdown().await;
        assert_eq!(get("shape").await, Err(CallError::Unresolved));
        println!("all as it should be");
    })?;
    Ok(())
}
