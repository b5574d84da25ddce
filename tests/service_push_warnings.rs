//! What push queues say in the log: once a second, however many frames they drop.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

use std::fmt::Debug;
use std::sync::Mutex;
use std::time::Duration;

use corelet::actor::channel;
use corelet::runtime::{Simulation, sleep};
use corelet::service::push::{PushBuilder, WhenFull};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Writes down the crate's warnings.
struct Scribe;

static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Scribe {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("corelet") && *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        WARNINGS.lock().unwrap().push(message.0);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn heard(words: &str) -> usize {
    WARNINGS.lock().unwrap().iter().filter(|warning| warning.contains(words)).count()
}

#[test]
fn dropped_frames_and_lost_letters_are_warned_of_once_a_second() {
    tracing::subscriber::set_global_default(Scribe).unwrap();
    // Its clock stands still unless somebody sleeps.
    let test = || async {
        let silent = PushBuilder::new().low_capacity(1).when_full(WhenFull::Drop).build().unwrap();
        (0..100).for_each(|number| silent.0.low(number).unwrap());
        assert_eq!(heard("push queue is full"), 0);

        let (sink, _letters) = channel::bounded(1);
        let warning = PushBuilder::new().low_capacity(1).when_full(WhenFull::WarnAndDrop).dead_letters(sink);
        let (handle, _queues) = warning.build().unwrap();
        for second in 1..=3 {
            (0..100).for_each(|number| handle.low(number).unwrap());
            assert_eq!(heard("push queue is full"), second);
            assert_eq!(heard("a dead letter is lost: "), second);
            sleep(Duration::from_secs(1)).await;
        }
    };
    Simulation::new(1, 1).block_on(test).unwrap();
}
