//! A protocol of lines, and calls of an application that speaks it.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::cell::Cell;
use std::error::Error;

use corelet::service::app::{Caller, IntoPrepared};
use corelet::service::{Connection, Protocol, RequestError, Verdict};
use tokio_util::codec::LinesCodec;

/// Requests are `verb argument`, or `verb argument #correlation`. What fails is answered with why, and does not end the
/// connection unless it says so.
pub struct Lines;

impl Protocol for Lines {
    type Codec = LinesCodec;
    type Request = String;
    type Response = String;
    type Id = String;
    type Session = Cell<u32>;

    fn codec(&self) -> LinesCodec {
        LinesCodec::new_with_max_length(4096)
    }

    fn session(&self) -> Cell<u32> {
        Cell::new(0)
    }

    fn id(&self, line: &String) -> Option<String> {
        assert!(!line.starts_with("unspeakable"), "an id on purpose");
        line.split(' ').next().filter(|verb| !verb.is_empty()).map(str::to_owned)
    }

    fn correlation(&self, line: &String) -> Option<u64> {
        assert!(!line.ends_with("#unspeakable"), "a correlation on purpose");
        line.split('#').nth(1)?.parse().ok()
    }

    fn failed(&self, error: &RequestError, _: &Connection<Lines>) -> Verdict<String> {
        Verdict { reply: Some(with_source(error)), close: error.to_string().contains("fatal") }
    }
}

pub fn with_source(error: &RequestError) -> String {
    error.source().map_or(error.to_string(), |source| format!("{error}: {source}"))
}

pub fn caller(app: impl IntoPrepared<Lines>) -> Caller<Lines> {
    app.into_prepared().unwrap().caller()
}

/// The frame that answers `request`.
pub async fn one(caller: &mut Caller<Lines>, request: &str) -> String {
    let mut frames = caller.call(request.to_owned()).await.unwrap();
    assert_eq!(frames.len(), 1, "{frames:?}");
    frames.remove(0)
}

/// Why `request` has no answer, with the cause of that.
pub async fn error(caller: &mut Caller<Lines>, request: &str) -> String {
    with_source(&caller.call(request.to_owned()).await.unwrap_err())
}
