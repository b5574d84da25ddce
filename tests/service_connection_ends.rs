//! A connection ends at any stage as it was told to, with its hooks in pairs, whatever panics or is dropped.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

mod service_support;
mod support;

use corelet::service::push::{PushError, PushSettings};
use corelet::service::{Connection, End, EndReason, Limits};
use service_support::{Lines, Served, settle};
use support::{on_cores, soon};

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    MidFrame,
    Handling,
    Streaming,
    SendStuck,
    PushesQueued,
}

const STAGES: [Stage; 6] =
    [Stage::Idle, Stage::MidFrame, Stage::Handling, Stage::Streaming, Stage::SendStuck, Stage::PushesQueued];

/// A connection in that stage.
async fn at(stage: Stage) -> (Served, Connection<Lines>) {
    let served = Served::new();
    let connection = served.connection().await;
    settle().await;
    match stage {
        Stage::Idle => {}
        Stage::MidFrame => served.wire.feed("echo half of a li"),
        Stage::Handling => served.wire.feed("wait\necho next\n"),
        Stage::Streaming => served.wire.feed("slow\necho next\n"),
        Stage::SendStuck => {
            served.wire.stuck(true);
            served.wire.feed("echo stuck\necho next\n");
        }
        Stage::PushesQueued => {
            served.wire.stuck(true);
            connection.push_handle().high("first".into()).unwrap();
            settle().await;
            connection.push_handle().high("second".into()).unwrap();
            connection.push_handle().low("third".into()).unwrap();
        }
    }
    settle().await;
    (served, connection)
}

/// The hooks came in pairs, and last of all came the end.
fn assert_paired(served: &Served, reason: EndReason) {
    let (log, counts) = (served.log.take(), served.app.counts());
    let count = |what: &str| log.iter().filter(|noted| *noted == what).count() as u64;
    assert_eq!((log[0].as_str(), count("connected")), ("connected", 1), "{log:?}");
    assert_eq!(log.last().unwrap(), &format!("gone {}", reason.name()), "{log:?}");
    assert_eq!(count("ended"), counts.requests, "{log:?}");
    let begun = count("waiting") + count("streaming");
    assert_eq!(count("dropped"), begun, "what a handler held is gone: {log:?}");
    assert_eq!((counts.opened, counts.open(), counts.closed_for(reason)), (1, 0, 1));
}

#[test]
fn a_drained_connection_sends_what_has_begun_and_takes_no_more() {
    on_cores(1, async |_, _| {
        for stage in STAGES {
            let (served, connection) = at(stage).await;
            let handle = connection.push_handle();
            connection.drain();
            connection.drain();
            settle().await;
            assert!(
                matches!(handle.high("late".into()), Err(PushError::Closed(frame)) if frame == "late"),
                "{stage:?}"
            );
            served.wire.feed("echo too late\n");
            settle().await;
            served.wire.stuck(false);
            served.door.open();
            let (wire, log, app) = (served.wire.clone(), served.log.clone(), served.app.clone());
            let end = soon(served.task).await.unwrap();
            assert!(matches!(end, End::ShutDown), "{stage:?}: {end:?}");
            let wanted = match stage {
                Stage::Idle | Stage::MidFrame => "",
                Stage::Handling => "waited\n",
                Stage::Streaming => "first\nsecond\nend\n",
                // Both had been answered when the first send got stuck.
                Stage::SendStuck => "echo stuck\necho next\n",
                Stage::PushesQueued => "first\nsecond\nthird\n",
            };
            assert_eq!(wire.got(), wanted, "{stage:?}");
            assert!(wire.is_closed(), "{stage:?}: it was seen off");
            let task = corelet::runtime::spawn(async { End::Closed });
            let served = Served { wire, log, app, task, door: served.door };
            assert_eq!((served.app.counts().cancelled, served.app.counts().pushes_dropped), (0, 0));
            assert_paired(&served, EndReason::ShutDown);
        }
    });
}

#[test]
fn a_connection_that_is_shut_down_ends_at_once_at_every_stage() {
    on_cores(1, async |_, _| {
        for draining in [false, true] {
            for stage in STAGES {
                let (served, connection) = at(stage).await;
                if draining {
                    connection.drain();
                    settle().await;
                }
                let over = draining && matches!(stage, Stage::Idle | Stage::MidFrame);
                let sent = served.wire.got();
                connection.shut_down();
                let (wire, log, app) = (served.wire.clone(), served.log.clone(), served.app.clone());
                let end = soon(served.task).await.unwrap();
                assert!(matches!(end, End::ShutDown), "{stage:?}: {end:?}");
                assert_eq!(wire.got(), sent, "{stage:?}: nothing more is sent");
                assert!(wire.is_aborted() && (over || !wire.is_closed()), "{stage:?}");
                let counts = app.counts();
                let cancelled = matches!(stage, Stage::Handling | Stage::Streaming);
                assert_eq!(counts.cancelled, u64::from(cancelled), "{stage:?}");
                let dropped = if stage == Stage::PushesQueued { 2 } else { 0 };
                assert_eq!(counts.pushes_dropped, dropped, "{stage:?}");
                let task = corelet::runtime::spawn(async { End::Closed });
                assert_paired(&Served { wire, log, app, task, door: served.door }, EndReason::ShutDown);
            }
        }
    });
}

#[test]
fn a_task_that_is_stopped_by_force_tears_down_what_it_set_up() {
    on_cores(1, async |_, _| {
        for stage in STAGES {
            let (served, connection) = at(stage).await;
            let handle = connection.push_handle();
            served.task.abort();
            let (wire, log, app) = (served.wire.clone(), served.log.clone(), served.app.clone());
            assert!(soon(served.task).await.is_err(), "{stage:?}");
            assert!(matches!(handle.low("late".into()), Err(PushError::Closed(_))), "{stage:?}");
            assert!(connection.is_ending() && wire.is_aborted(), "{stage:?}");
            let task = corelet::runtime::spawn(async { End::Closed });
            assert_paired(&Served { wire, log, app, task, door: served.door }, EndReason::Stopped);
        }
    });
}

/// Serves `input` by hooks that do what `notes` say.
async fn fate(input: &str, notes: &[&str]) -> (Served, End) {
    let served = Served::noted(Limits::default(), PushSettings::default(), notes);
    served.wire.feed(input);
    let Served { wire, log, door, app, task } = served;
    let end = soon(task).await.unwrap();
    let task = corelet::runtime::spawn(async { End::Closed });
    (Served { wire, log, door, app, task }, end)
}

#[test]
fn a_codec_or_hook_that_panics_ends_its_connection_and_no_other() {
    on_cores(1, async |_, _| {
        let other = Served::new();
        for (input, message, got) in [
            ("echo a\nPANIC-DECODE\necho b\n", "the decoder panics on purpose", "echo a\n"),
            ("echo a\nsay PANIC-ENCODE\necho b\n", "the encoder panics on purpose", "echo a\n"),
            ("echo a\nsay PANIC-SEND\necho b\n", "before_send panics on purpose", "echo a\n"),
            ("echo a\nsession 77\necho b\n", "command_ended panics on purpose", "echo a\n"),
        ] {
            let (served, end) = fate(input, &[]).await;
            assert!(matches!(&end, End::Panicked { message: text } if text == message), "{end:?}");
            assert_eq!(served.wire.got(), got, "whole frames only");
            assert_paired(&served, EndReason::Panicked);
        }
        let (served, end) = fate("echo a\n", &["connected", "refuse"]).await;
        assert!(matches!(&end, End::Panicked { message } if message == "connected panics on purpose"));
        assert_eq!(served.wire.got(), "");
        assert_eq!(served.log.count("gone panicked"), 1);
        // A hook that panics at the very end: there is nothing left to end.
        let (served, end) = fate("echo a\nBAD-DECODE\necho b\n", &[]).await;
        assert!(matches!(end, End::Decode(_)));
        assert_eq!(served.wire.got(), "echo a\n");
        assert_paired(&served, EndReason::Decode);
        other.wire.feed("echo still here\n");
        settle().await;
        assert_eq!(other.wire.got(), "echo still here\n");
    });
}

#[test]
fn what_cannot_be_encoded_ends_the_connection_behind_whole_frames() {
    on_cores(1, async |_, _| {
        let (served, end) = fate("echo a\nsay BAD-ENCODE\necho b\n", &[]).await;
        assert!(matches!(end, End::Encode(_)), "{end:?}");
        assert_eq!(served.wire.got(), "echo a\n");
        assert_paired(&served, EndReason::Encode);
    });
}

#[test]
fn a_write_that_fails_ends_the_connection_and_its_request() {
    on_cores(1, async |_, _| {
        for sends in 0..3 {
            let served = Served::with(Limits { send_at: 1, ..Limits::default() }, PushSettings::default());
            served.wire.fail_after(sends);
            served.wire.feed("slow\n");
            served.door.open();
            let Served { wire, log, door, app, task } = served;
            let end = soon(task).await.unwrap();
            assert!(matches!(end, End::Io(_)), "{end:?}");
            assert_eq!(wire.sends(), sends);
            let task = corelet::runtime::spawn(async { End::Closed });
            assert_paired(&Served { wire, log, door, app, task }, EndReason::Io);
        }
    });
}

#[test]
fn a_handler_that_panics_when_it_is_dropped_ends_with_its_connection() {
    on_cores(1, async |_, _| {
        let served = Served::new();
        let connection = served.connection().await;
        served.wire.feed("handlerdrop\n");
        settle().await;
        connection.shut_down();
        let Served { wire, log, door, app, task } = served;
        assert!(matches!(soon(task).await, Ok(End::ShutDown)));
        let task = corelet::runtime::spawn(async { End::Closed });
        assert_paired(&Served { wire, log, door, app, task }, EndReason::ShutDown);
    });
}

#[test]
fn a_handler_may_drain_its_own_connection() {
    on_cores(1, async |_, _| {
        let (served, end) = fate("push low\ndrain\necho too late\n", &[]).await;
        assert!(matches!(end, End::ShutDown));
        assert_eq!(served.wire.got(), "pushed\nlow0\ndraining\n");
        assert_paired(&served, EndReason::ShutDown);
    });
}
