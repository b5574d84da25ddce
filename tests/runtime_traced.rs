//! The life of tasks as `tracing` sees it: who was spawned by whom and where, and how each ended.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::fmt::{Debug, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use common::on_core;
use corelet::runtime::{current_task, spawn, yield_now};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes down what it hears of tasks.
struct Scribe;

static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static SPANS: Mutex<Vec<(u64, String)>> = Mutex::new(Vec::new());
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

fn note(text: String) {
    NOTES.lock().unwrap().push(text);
}

fn span_of(id: &Id) -> String {
    SPANS.lock().unwrap().iter().find(|(other, _)| *other == id.into_u64()).unwrap().1.clone()
}

impl Subscriber for Scribe {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().ends_with("::task")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = IDS.fetch_add(1, Ordering::SeqCst);
        let mut fields = Fields(String::new());
        span.record(&mut fields);
        let metadata = span.metadata();
        SPANS.lock().unwrap().push((id, format!("{} {}{}", metadata.target(), metadata.name(), fields.0)));
        Id::from_u64(id)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        let metadata = event.metadata();
        note(format!("{} {} {}", metadata.level(), metadata.target(), fields.0));
        // A subscriber's panic is nobody else's.
        assert!(!fields.0.contains("ended") || !fields.0.contains("Panicked"), "on purpose");
    }

    fn enter(&self, id: &Id) {
        note(format!("enter {}", span_of(id)));
    }

    fn try_close(&self, id: Id) -> bool {
        note(format!("close {}", span_of(&id)));
        true
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn noted(words: &[&str]) -> usize {
    let all = |note: &&String| words.iter().all(|word| note.contains(word));
    NOTES.lock().unwrap().iter().filter(all).count()
}

// One test, for there is one subscriber in a process.
#[test]
fn the_life_of_a_task_can_be_followed() {
    tracing::subscriber::set_global_default(Scribe).unwrap();
    on_core(|| async {
        let me = current_task().unwrap();
        let line = line!() + 1;
        let task = spawn(async { yield_now().await });
        let (pid, place) = (format!("pid={}", task.pid()), format!("site={}:{line}:", file!()));
        let parent = format!("parent={me}");
        assert_eq!(noted(&["TRACE corelet::task spawned", &pid, &parent, &place]), 1);
        assert_eq!(noted(&["ended", &pid]), 0);
        task.await.unwrap();
        assert_eq!(noted(&["TRACE corelet::task ended", &pid, "ending=Returned"]), 1);

        let failing = spawn(async { panic!("on purpose") });
        let pid = format!("pid={}", failing.pid());
        assert!(failing.await.is_err_and(|error| error.is_panic()));
        assert_eq!(noted(&["ended", &pid, "ending=Panicked(\"on purpose\")"]), 1);

        let stopped = spawn(std::future::pending::<()>());
        let pid = format!("pid={}", stopped.pid());
        stopped.abort();
        assert!(stopped.await.is_err());
        assert_eq!(noted(&["ended", &pid, "ending=Stopped"]), 1);

        if cfg!(feature = "console") {
            let line = line!() + 1;
            let task = spawn(async { yield_now().await });
            let id = format!(
                "task.id={}",
                u64::from(task.pid().core().get()) << 32 | u64::from(task.pid().generation())
            );
            let place = [format!("loc.file={:?}", file!()), format!("loc.line={line}")];
            let span = ["tokio::task runtime.spawn", "kind=\"task\"", &id, &place[0], &place[1], "loc.col="];
            task.await.unwrap();
            // Two polls and the future's drop.
            assert_eq!(noted(&[&["enter"][..], &span[..]].concat()), 3);
            assert_eq!(noted(&[&["close"][..], &span[..]].concat()), 1);
        }
    });
    assert_eq!(noted(&["enter"]) > 0, cfg!(feature = "console"));
}
