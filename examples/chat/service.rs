//! The protocol of the chat: lines both ways. What begins with a slash is a command, and the rest is said to the room.
//!
//! | line               | answer                                                         |
//! |--------------------|----------------------------------------------------------------|
//! | `/join room name`  | `+ n`: how many are there; from then on what is said is pushed |
//! | `/history`         | `+ n`: so many messages, which are pushed                     |
//! | anything else      | none; it comes back with all that is said                      |
//!
//! A line of the house begins with `*`, a refusal with `-`.

use std::cell::RefCell;
use std::collections::HashMap;

use corelet::actor::server::ServerRef;
use corelet::actor::{self, Pid};
use corelet::service::app::{Data, Frame};
use corelet::service::codec::{self, LinesCodec};
use corelet::service::{App, BoxError, Connection, Protocol, RequestError, Verdict};

use crate::room::{Answer, Ask, Room, Say};

/// The rooms there are.
pub type Rooms = HashMap<&'static str, ServerRef<Room>>;

/// The application, to be made on the core that serves it.
pub fn app(rooms: Rooms) -> App<Chat> {
    App::new(Chat).data(rooms).route(Verb::Join, join).route(Verb::History, history).route(Verb::Say, say)
}

pub struct Chat;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Join,
    History,
    Say,
}

impl Protocol for Chat {
    type Codec = LinesCodec;
    type Request = String;
    type Response = String;
    type Id = Verb;
    /// Where one is, once one has joined.
    type Session = RefCell<Option<Seat>>;

    fn codec(&self) -> LinesCodec {
        codec::lines()
    }

    fn session(&self) -> RefCell<Option<Seat>> {
        RefCell::default()
    }

    fn id(&self, line: &String) -> Option<Verb> {
        match line.split(' ').next()? {
            "/join" => Some(Verb::Join),
            "/history" => Some(Verb::History),
            word if word.starts_with('/') => None,
            _ => Some(Verb::Say),
        }
    }

    fn failed(&self, error: &RequestError, _: &Connection<Chat>) -> Verdict<String> {
        let reply = match error {
            RequestError::Failed { source: why, .. } => format!("- {why}"),
            other => format!("- {other}"),
        };
        Verdict { reply: Some(reply), close: false }
    }
}

/// A place in a room. Its handlers run in the connection's own actor, which is how the room knows the member.
#[derive(Clone)]
pub struct Seat {
    room: ServerRef<Room>,
    connection: Pid,
}

type Client = Connection<Chat>;

async fn join(Frame(line): Frame<String>, client: Client, rooms: Data<Rooms>) -> Result<String, BoxError> {
    let mut words = line.split(' ').skip(1);
    let (Some(room), Some(name)) = (words.next(), words.next()) else {
        return Err("a room and a name".into());
    };
    if client.session().borrow().is_some() {
        return Err("one room at a time".into());
    }
    let room = rooms.get(room).ok_or("there is no such room")?.clone();
    let connection = actor::myself().ok_or("this is no task")?;
    let ask = Ask::Join { connection, name: name.into(), pushes: client.push_handle() };
    let Answer::Number(there) = room.call(ask).await? else { unreachable!("a join is answered by a number") };
    *client.session().borrow_mut() = Some(Seat { room, connection });
    Ok(format!("+ {there}"))
}

async fn say(Frame(text): Frame<String>, client: Client) -> Result<(), BoxError> {
    let seat = seat(&client)?;
    let told = seat.room.cast(Say { connection: seat.connection, text });
    told.map_err(|_| "the room is closed".into())
}

/// The word of high priority goes before the messages, though it is pushed last.
async fn history(client: Client) -> Result<String, BoxError> {
    let seat = seat(&client)?;
    let Answer::Lines(lines) = seat.room.call(Ask::History).await? else {
        unreachable!("the history is lines");
    };
    let pushes = client.push_handle();
    let count = lines.len();
    for line in lines {
        pushes.low(line).map_err(|_| "there is too much of it")?;
    }
    pushes.high("* this is what was said".into()).map_err(|_| "you do not listen")?;
    Ok(format!("+ {count}"))
}

fn seat(client: &Client) -> Result<Seat, BoxError> {
    client.session().borrow().clone().ok_or_else(|| "join a room first".into())
}
