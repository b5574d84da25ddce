//! A pool's life as `tracing` sees it: spans around attempts to connect and around acquires that wait, events for the
//! rest, each with the pool and the core.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::fmt::{Debug, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corelet::pool::Pool;
use corelet::runtime::sleep;
use support::{Memory, on_cores, poll_once, poll_until, set, shard, soon};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes down every span and event of the crate.
struct Scribe;

static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static OPEN: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());
static IDS: AtomicU64 = AtomicU64::new(1);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.0.insert_str(0, &format!("{value:?}")),
            name => write!(self.0, " {name}={value:?}").unwrap(),
        }
    }
}

impl Subscriber for Scribe {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("corelet")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = IDS.fetch_add(1, Ordering::SeqCst);
        let mut fields = Fields(String::new());
        span.record(&mut fields);
        OPEN.lock().unwrap().push((id, format!("{}{}", span.metadata().name(), fields.0)));
        Id::from_u64(id)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        NOTES.lock().unwrap().push(format!("{} {}", event.metadata().level(), fields.0));
    }

    fn try_close(&self, id: Id) -> bool {
        let mut open = OPEN.lock().unwrap();
        let at = open.iter().position(|(other, _)| *other == id.into_u64()).unwrap();
        let (_, name) = open.remove(at);
        NOTES.lock().unwrap().push(format!("end of {name}"));
        true
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn noted(words: &[&str]) -> usize {
    let all = |note: &&String| words.iter().all(|word| note.contains(word));
    NOTES.lock().unwrap().iter().filter(all).count()
}

fn open(words: &[&str]) -> usize {
    OPEN.lock().unwrap().iter().filter(|(_, name)| words.iter().all(|word| name.contains(word))).count()
}

// One test, for there is one subscriber in a process.
#[test]
fn a_pools_life_can_be_followed() {
    tracing::subscriber::set_global_default(Scribe).unwrap();
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let script = memory.0.clone();
        let builder = Pool::builder(memory).slots_per_core(1).detect_leaks(Duration::from_millis(2));
        let pool = builder.warn_slow_acquires(Duration::from_millis(1)).build(&runtime).unwrap();
        let (id, handle) = (format!("pool={}", pool.id()), pool.handle());
        set(&script.hold_connects, true);
        let mut first = handle.acquire();
        assert!(poll_once(&mut first).await.is_pending());
        assert_eq!(open(&["acquire", &id, &format!("handle={}", handle.id()), file!()]), 1);
        poll_until(async || open(&["connect", &id, "core="]) == 1).await;
        set(&script.hold_connects, false);
        let lease = soon(first).await.unwrap();
        assert_eq!((open(&["acquire"]), open(&["connect"])), (0, 0));
        assert_eq!(noted(&["end of connect", &id]), 1);
        assert_eq!(noted(&["DEBUG", "a connection was opened", &id, "core="]), 1);
        poll_until(async || noted(&["WARN", "a lease has not been given back", &id, file!()]) == 1).await;
        // Given up, timed out, and slow; here and from another core.
        let far = pool.handle_on(cores[0]).unwrap();
        let mut given_up = far.acquire();
        assert!(poll_once(&mut given_up).await.is_pending());
        assert_eq!(open(&["acquire"]), 1);
        drop(given_up);
        assert!(soon(far.acquire_within(Duration::from_millis(1))).await.is_err());
        assert_eq!(open(&["acquire"]), 0);
        let (theirs, near) = (pool.clone(), cores[0]);
        let waiting = runtime
            .spawn_on(cores[1], move || async move {
                let handle = theirs.handle_on(near).unwrap();
                drop(handle.acquire().await.unwrap());
            })
            .unwrap();
        poll_until(async || shard(&pool, 0).await.waiting == 1).await;
        assert_eq!(open(&["acquire", &id]), 1);
        sleep(Duration::from_millis(2)).await;
        drop(lease);
        soon(waiting).await.unwrap();
        poll_until(async || noted(&["WARN", "an acquire was slow", "position=0", &id]) >= 1).await;
        assert_eq!(open(&["acquire"]), 0);
        poll_until(async || shard(&pool, 0).await.leased == 0).await;
        let mut lease = soon(handle.acquire()).await.unwrap();
        let before = noted(&["end of acquire"]);
        assert!(lease.exchange(async |_| Err::<(), _>(())).await.is_err());
        drop(lease);
        poll_until(async || noted(&["DEBUG", "closing a connection", "reason=\"dirty\"", &id]) == 1).await;
        assert_eq!(noted(&["end of acquire"]), before, "what does not wait has no span");
        set(&script.fail_connects, true);
        assert!(soon(handle.acquire()).await.is_err());
        assert!(noted(&["DEBUG", "could not be opened", "refused on purpose", &id]) >= 1);
        soon(pool.close()).await;
    });
}
