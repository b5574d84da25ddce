//! The chat example's rooms and routes, without a socket: what the program itself shows over many is told apart here.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../examples/chat/room.rs"]
mod room;
#[path = "../examples/chat/service.rs"]
mod service;
mod support;

use corelet::actor::server::{self, ServerRef};
use corelet::runtime::{spawn, yield_now};
use corelet::service::app::Caller;
use corelet::service::push::Priority;

use room::{Answer, Ask, HISTORY, Room};
use service::{Chat, Rooms};
use support::on_cores;

/// A room, and callers that have not joined it yet.
fn room() -> (ServerRef<Room>, impl Fn() -> Caller<Chat>) {
    let room = server::start(Room::default());
    let rooms = Rooms::from([("red", room.clone())]);
    let app = service::app(rooms).prepare().unwrap();
    (room, move || app.caller())
}

/// What was pushed, when the room has done all that it was told.
async fn heard(room: &ServerRef<Room>, caller: &mut Caller<Chat>) -> Vec<(Priority, String)> {
    room.call(Ask::Missed).await.unwrap();
    caller.pushed()
}

fn low(line: &str) -> (Priority, String) {
    (Priority::Low, line.to_owned())
}

fn high(line: &str) -> (Priority, String) {
    (Priority::High, line.to_owned())
}

#[test]
fn what_is_said_is_pushed_and_the_house_goes_first() {
    on_cores(1, async |_, _| {
        let (room, caller) = room();
        let mut ann = caller();
        assert_eq!(ann.call("/join red ann".into()).await.unwrap(), ["+ 1"]);
        assert!(ann.call("hello".into()).await.unwrap().is_empty());
        assert!(ann.call("anybody?".into()).await.unwrap().is_empty());
        room.call(Ask::Notice("we close".into())).await.unwrap();
        let expected = [high("* we close"), low("1 ann: hello"), low("2 ann: anybody?")];
        assert_eq!(heard(&room, &mut ann).await, expected);
    });
}

#[test]
fn who_leaves_is_missed_and_hears_nothing_more() {
    on_cores(1, async |_, _| {
        let (room, caller) = room();
        let (mut ann, mut bob) = (caller(), caller());
        ann.call("/join red ann".into()).await.unwrap();
        // A member is the task in which its handlers run.
        let there = room.clone();
        spawn(async move {
            assert_eq!(bob.call("/join red bob".into()).await.unwrap(), ["+ 2"]);
            bob.call("I must go".into()).await.unwrap();
            // An end overtakes what is still in the room's mailbox.
            assert!(!heard(&there, &mut bob).await.is_empty());
        })
        .await
        .unwrap();
        let mut lines = Vec::new();
        while lines.len() < 3 {
            lines.extend(heard(&room, &mut ann).await);
            yield_now().await;
        }
        let (house, said): (Vec<_>, Vec<_>) =
            lines.into_iter().partition(|(priority, _)| *priority == Priority::High);
        assert_eq!(
            (house, said),
            (vec![high("* bob has come"), high("* bob has gone")], vec![low("1 bob: I must go")])
        );
        let there = room.call(Ask::Notice("count".into())).await.unwrap();
        assert!(matches!(there, Answer::Number(1)));
    });
}

#[test]
fn who_does_not_listen_misses_messages_and_is_told_how_many() {
    on_cores(1, async |_, _| {
        let (room, caller) = room();
        let mut ann = caller();
        ann.call("/join red ann".into()).await.unwrap();
        // More than a queue of low priority has room for by default.
        for number in 0..260 {
            ann.call(format!("message {number}")).await.unwrap();
        }
        let heard_of = heard(&room, &mut ann).await;
        assert_eq!((heard_of.len(), heard_of.last()), (256, Some(&low("256 ann: message 255"))));
        assert!(matches!(room.call(Ask::Missed).await.unwrap(), Answer::Number(4)));
        ann.call("at last".into()).await.unwrap();
        assert_eq!(heard(&room, &mut ann).await, [high("* you have missed 4"), low("261 ann: at last")]);
    });
}

#[test]
fn the_history_is_the_latest_messages_in_their_order() {
    on_cores(1, async |_, _| {
        let (room, caller) = room();
        let mut ann = caller();
        ann.call("/join red ann".into()).await.unwrap();
        for number in 1..=HISTORY + 3 {
            ann.call(format!("message {number}")).await.unwrap();
        }
        heard(&room, &mut ann).await;
        assert_eq!(ann.call("/history".into()).await.unwrap(), [format!("+ {HISTORY}")]);
        let mut expected = vec![high("* this is what was said")];
        expected.extend((4..=HISTORY + 3).map(|number| low(&format!("{number} ann: message {number}"))));
        assert_eq!(ann.pushed(), expected);
    });
}

#[test]
fn what_cannot_be_done_is_refused_with_a_reason() {
    on_cores(1, async |_, _| {
        let (_room, caller) = room();
        let mut ann = caller();
        let mut refusals = Vec::new();
        for line in
            ["hello", "/history", "/join", "/join green ann", "/join red ann", "/join red ann", "/leave"]
        {
            if let Err(error) = ann.call(line.into()).await {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                refusals.push(source.unwrap_or(error.to_string()));
            }
        }
        let no_seat = "join a room first";
        let (no_words, no_room, twice) = ("a room and a name", "there is no such room", "one room at a time");
        assert_eq!(refusals[..5], [no_seat, no_seat, no_words, no_room, twice]);
        assert_eq!(refusals[5], "the frame does not say what it is");
    });
}
