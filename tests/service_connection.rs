//! What a connection answers, and in which order.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

mod service_support;
mod support;

use corelet::service::push::{PushError, PushSettings};
use corelet::service::{End, Limits};
use service_support::{Served, settle};
use support::{on_cores, soon};

/// Serves `input` to its end, and gives what came back.
async fn converse(input: &str) -> (String, Served, End) {
    let served = Served::new();
    served.wire.feed(input);
    served.wire.end();
    let Served { task, wire, log, door, app } = served;
    let end = soon(task).await.unwrap();
    let task = corelet::runtime::spawn(async { End::Closed });
    (wire.got(), Served { task, wire, log, door, app }, end)
}

#[test]
fn pipelined_requests_are_answered_in_order_and_a_half_closed_peer_gets_all() {
    on_cores(1, async |_, _| {
        let (got, served, end) = converse("echo a\nstream 3\nnone\nfail\necho b\necho unfini").await;
        assert!(matches!(end, End::Closed), "{end:?}");
        assert_eq!(got, "echo a\n0\n1\n2\nend\nfailed\necho b\necho unfini\n");
        let counts = served.app.counts();
        assert_eq!((counts.requests, counts.failed, counts.frames_out), (6, 1, 8));
        assert_eq!((counts.opened, counts.open(), counts.cancelled), (1, 0, 0));
        assert_eq!(counts.bytes_out, got.len() as u64);
        assert_eq!(served.log.count("ended"), 6);
        assert!(served.wire.is_closed());
    });
}

#[test]
fn a_peer_that_ends_its_side_while_a_handler_runs_gets_its_answer() {
    on_cores(1, async |_, _| {
        let served = Served::new();
        served.wire.feed("wait\necho after\n");
        served.wire.end();
        settle().await;
        assert!(served.log.has("waiting") && served.wire.got().is_empty());
        served.door.open();
        assert!(matches!(soon(served.task).await, Ok(End::Closed)));
        assert_eq!(served.wire.got(), "waited\necho after\n");
    });
}

#[test]
fn a_reset_while_a_handler_runs_cancels_it() {
    on_cores(1, async |_, _| {
        let served = Served::new();
        served.wire.feed("wait\n");
        settle().await;
        served.wire.fail(std::io::ErrorKind::ConnectionReset);
        assert!(matches!(soon(served.task).await, Ok(End::Io(_))));
        let log = served.log.take();
        assert_eq!(log, ["connected", "waiting", "dropped", "ended", "gone io"]);
        assert_eq!(served.app.counts().cancelled, 1);
    });
}

#[test]
fn every_frame_of_a_response_carries_its_correlation() {
    on_cores(1, async |_, _| {
        let (got, _, _) = converse("stream 2 #7\necho #8\nfail #9\nbreak #10\nnope #11\n").await;
        let wanted = "0 #7\n1 #7\nend #7\necho #8 #8\nfailed #9\none #10\nfailed #10\n\
                      no \"nope\" #11\n";
        assert_eq!(got, wanted);
    });
}

#[test]
fn an_error_in_mid_stream_is_answered_in_place_of_the_rest() {
    on_cores(1, async |_, _| {
        let (got, served, end) = converse("break\necho on\n").await;
        assert_eq!(got, "one\nfailed\necho on\n");
        assert!(matches!(end, End::Closed));
        assert_eq!(served.log.count("ended"), 2);
        let (got, _, end) = converse("session 99\nbreak\necho on\n").await;
        assert_eq!(got, "one\nfailed\n", "the protocol has the connection end");
        assert!(matches!(end, End::RequestFailed));
    });
}

#[test]
fn a_panic_in_a_handler_or_its_stream_ends_the_request_only() {
    on_cores(1, async |_, _| {
        let (got, served, end) = converse("panic\nstreampanic\nstreamdrop\nPANIC-ID\necho on\n").await;
        let wanted = "panicked: on purpose\n0\n1\npanicked: in the stream\n0\n1\n\
                      panicked: dropped on purpose\npanicked: the route panics on purpose\n\
                      echo on\n";
        assert_eq!(got, wanted);
        assert!(matches!(end, End::Closed));
        assert_eq!((served.app.counts().panicked, served.log.count("ended")), (4, 5));
    });
}

#[test]
fn a_stream_is_asked_only_while_the_output_has_room() {
    on_cores(1, async |_, _| {
        let served = Served::with(Limits { send_at: 1000, ..Limits::default() }, PushSettings::default());
        served.wire.stuck(true);
        served.wire.feed("endless\n");
        settle().await;
        let asked = served.log.take().len();
        assert!((10..=12).contains(&asked), "{asked}: frames of 100 bytes for 1,000 bytes of room");
        settle().await;
        assert!(served.log.take().is_empty(), "no frame is made while the peer does not read");
        served.wire.stuck(false);
        settle().await;
        assert!(served.log.take().len() > 100);
    });
}

#[test]
fn an_endless_response_lets_the_core_and_pushes_live() {
    on_cores(1, async |_, _| {
        let served = Served::new();
        served.wire.feed("push h\nendless\n");
        settle().await;
        let frames = served.app.counts().frames_out;
        settle().await;
        assert!(served.app.counts().frames_out > frames, "it goes on");
    });
}

#[test]
fn pushes_go_before_the_response_and_high_before_low() {
    on_cores(1, async |_, _| {
        let served = Served::new();
        let handle = served.connection().await.push_handle();
        served.wire.feed("wait\n");
        settle().await;
        // All of them are ready at the same poll.
        served.door.open();
        for frame in ["low", "low again"] {
            handle.low(frame.into()).unwrap();
            handle.high("high".into()).unwrap();
        }
        settle().await;
        assert_eq!(served.wire.got(), "high\nhigh\nlow\nlow again\nwaited\n");
        assert_eq!((served.app.counts().pushes, served.app.counts().frames_out), (4, 5));
        assert_eq!(served.wire.sends(), 1, "all in one");
    });
}

#[test]
fn a_hook_that_begins_a_connection_may_push() {
    on_cores(1, async |_, _| {
        let served = Served::greeting();
        settle().await;
        assert_eq!(served.wire.got(), "welcome\n");
    });
}

/// Nothing has registered with the connection yet when the first request comes before the task has ever waited.
#[test]
fn what_a_handler_does_before_it_waits_is_seen_in_the_connections_first_poll_too() {
    on_cores(1, async |_, _| {
        for early in [true, false] {
            for (request, answer) in [("report\n", "working\n"), ("leave\n", "")] {
                let served = Served::new();
                if !early {
                    settle().await;
                }
                served.wire.feed(request);
                settle().await;
                assert_eq!(served.wire.got(), answer, "{request}, early: {early}");
                assert_eq!(served.task.is_finished(), request == "leave\n", "early: {early}");
            }
        }
    });
}

/// Whatever else has woken the task and taken its waker meanwhile.
#[test]
fn a_handler_that_shuts_its_connection_down_is_heard_in_every_poll() {
    on_cores(1, async |_, _| {
        let served = Served::new();
        let connection = served.connection().await;
        settle().await;
        connection.push_handle();
        served.wire.feed("leave\n");
        settle().await;
        assert!(served.task.is_finished());
    });
}

#[test]
fn what_comes_while_a_send_is_stuck_is_served_behind_it() {
    on_cores(1, async |_, _| {
        let served = Served::new();
        let handle = served.connection().await.push_handle();
        served.wire.stuck(true);
        served.wire.feed("say one\n");
        settle().await;
        served.wire.feed("say two\n");
        settle().await;
        served.wire.stuck(false);
        settle().await;
        assert_eq!(served.wire.got(), "one\ntwo\n");
        // The same with a push.
        served.wire.stuck(true);
        served.wire.feed("say three\n");
        settle().await;
        handle.low("pushed".to_owned()).unwrap();
        settle().await;
        served.wire.stuck(false);
        settle().await;
        assert_eq!(served.wire.got(), "one\ntwo\nthree\npushed\n");
    });
}

#[test]
fn a_flood_of_pushes_keeps_no_request_from_its_answer() {
    on_cores(1, async |_, _| {
        let served = Served::new();
        served.wire.feed("push l\n");
        settle().await;
        // A handle by way of the session would do as well; this one pushes whenever there is room, for ever.
        let flood = served.flood();
        settle().await;
        served.wire.feed("echo heard\n");
        support::poll_until(async || served.wire.got().contains("echo heard\n")).await;
        assert!(served.app.counts().pushes > 100, "there was a flood");
        // The peer's end is heard as well, though the flood goes on.
        served.wire.end();
        assert!(matches!(soon(served.task).await, Ok(End::Closed)));
        let refused = soon(flood).await.unwrap();
        assert!(matches!(refused, PushError::Closed(frame) if frame == "flood"));
    });
}

#[test]
fn a_handle_taken_after_the_end_refuses() {
    on_cores(1, async |_, _| {
        let served = Served::new();
        let connection = served.connection().await;
        served.wire.end();
        assert!(matches!(soon(served.task).await, Ok(End::Closed)));
        assert!(connection.is_ending());
        let refused = connection.push_handle().high("late".into());
        assert!(matches!(refused, Err(PushError::Closed(frame)) if frame == "late"));
    });
}

#[test]
fn ids_are_unique_and_peers_known() {
    on_cores(1, async |_, _| {
        let (first, second) = (Served::new(), Served::new());
        let (one, two) = (first.connection().await, second.connection().await);
        assert_ne!(one.id(), two.id());
        assert_eq!(one.peer_addr(), None, "the transport has no address");
        assert!(format!("{one:?}").contains("Connection") && !one.is_ending());
    });
}
