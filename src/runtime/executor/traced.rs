//! What `tracing` is told of tasks: that one was spawned, and how it ended. While nobody listens at level `trace` it costs a
//! look at one number for each.
//!
//! With the feature `console`, each task that is spawned while somebody listens also runs in a span such as tokio's console
//! knows them.

use std::panic::Location;

use super::task::{Ending, contain};
use crate::runtime::identity::RawPid;

/// Runs `tell` if somebody listens. A subscriber's panic is not the task's, nor the core's.
#[inline]
fn when_heard(tell: impl FnOnce()) {
    if tracing::enabled!(target: "corelet::task", tracing::Level::TRACE) {
        contain("a trace", tell);
    }
}

/// A task has been put into the queue.
#[inline]
pub(super) fn spawned(
    pid: RawPid,
    parent: impl FnOnce() -> Option<RawPid>,
    site: &'static Location<'static>,
) {
    when_heard(|| {
        let parent = parent().map(tracing::field::display);
        tracing::trace!(target: "corelet::task", %pid, parent, %site, "spawned");
    });
}

/// A task has ended, as `ending` says; its identity names nobody any more.
#[inline]
pub(super) fn ended(pid: RawPid, ending: impl FnOnce() -> Ending) {
    when_heard(|| tracing::trace!(target: "corelet::task", %pid, ending = ?ending(), "ended"));
}

/// The span of a task, by the names that tokio's console looks for; none while nobody listens.
#[cfg(feature = "console")]
pub(super) fn span(id: u64, site: &'static Location<'static>) -> Option<tracing::Span> {
    let span = tracing::trace_span!(
        target: "tokio::task",
        parent: None,
        "runtime.spawn",
        kind = "task",
        task.name = tracing::field::Empty,
        task.id = id,
        loc.file = site.file(),
        loc.line = site.line(),
        loc.col = site.column(),
    );
    (!span.is_disabled()).then_some(span)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Hears everything and keeps nothing.
    struct Listener;

    impl tracing::Subscriber for Listener {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, _: &tracing::Event<'_>) {}
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn what_nobody_hears_is_not_even_worked_out() {
        let pid = RawPid { core: crate::runtime::CoreId(0), index: 0, generation: 0 };
        let worked_out = Cell::new(0);
        let tell = || {
            ended(pid, || {
                worked_out.set(worked_out.get() + 1);
                Ending::Returned
            });
            spawned(
                pid,
                || {
                    worked_out.set(worked_out.get() + 1);
                    None
                },
                Location::caller(),
            );
        };
        tell();
        assert_eq!(worked_out.get(), 0);
        tracing::subscriber::with_default(Listener, tell);
        assert_eq!(worked_out.get(), 2);
    }
}
