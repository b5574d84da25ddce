//! A chat over all cores: what is said in a room is pushed to its members, wherever they are.
//!
//! ```text
//! cargo run --release --example chat
//! ```
//!
//! One room is joined over TCP, the other over a Unix socket. A room is an actor; connections give it handles to push by,
//! and it watches them, so that who leaves is gone. Words of the house go by the queues of high priority. The program
//! brings its own members and checks that
//!
//! - everybody in a room gets every message, in one order, the same for all;
//! - a word of high priority overtakes what was pushed before it;
//! - one who does not listen misses messages, is told how many, and holds up nobody;
//! - at the end all hear that it is the end, and then the service hangs up.
//!
//! | file         | shows                                                   |
//! |--------------|---------------------------------------------------------|
//! | `service.rs` | a protocol, its routes, state of connections, pushes    |
//! | `room.rs`    | an actor that pushes to connections on all cores         |
//! | `client.rs`  | the other side: a codec over a stream                   |

mod client;
mod room;
mod service;

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use corelet::actor::server;
use corelet::runtime::{CoreId, Cores, Runtime, RuntimeHandle, handle, spawn, yield_now};
use corelet::service::Server;
use corelet::service::push::PushBuilder;
use corelet::service::server::Address;

use client::Client;
use room::{Answer, Ask, HISTORY, Room};
use service::Rooms;

/// Members of each room, and what each of them says.
const MEMBERS: u64 = 8;
const MESSAGES: u64 = 50;
/// What the one who does not listen may have waiting: less than is said before anybody looks.
const UNREAD: usize = 64;

/// How long the end may take.
const PATIENCE: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let runtime = Runtime::builder().cores(Cores::Count(2)).pinned(false).build()?;
    let cores = runtime.cores();
    runtime.block_on(move || chat(cores))?
}

async fn chat(cores: Vec<CoreId>) -> Result<(), Failure> {
    let rooms = open_rooms(&cores).await?;
    let served = rooms.clone();
    let file = std::env::temp_dir().join(format!("corelet-chat-{}", std::process::id()));
    let server = Server::new(move || service::app(served.clone()))
        .pushes(PushBuilder::default().low_capacity(UNREAD).validate()?)
        .bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .bind_unix(&file)
        .start(&handle())
        .await?;
    let [tcp, unix] = server.addresses() else { return Err("two were asked for".into()) };

    let mut members = Vec::new();
    for ((room, core), address) in ["red", "blue"].into_iter().zip(&cores).zip([tcp, unix]) {
        for number in 0..MEMBERS {
            let address = address.clone();
            members.push((room, handle().spawn_on(*core, move || talk(address, room, number))?));
        }
    }
    let mut heard: Vec<(&str, Vec<String>)> = Vec::new();
    for (room, member) in members {
        heard.push((room, member.await??));
    }
    check(&heard);

    overtaking(unix).await?;
    deafness(unix, &rooms).await?;

    // The end: a word of the house, and what had been said before that arrives, too.
    let mut last = Client::connect(tcp).await?;
    last.join("red", "last").await?;
    last.send("is it late?").await?;
    assert!(last.message().await?.ends_with(" last: is it late?"));
    let noticed = rooms["red"].call(Ask::Notice("good night".into())).await?;
    assert!(matches!(noticed, Answer::Number(_)));
    let drained = server.drain(PATIENCE).await?;
    assert!(drained.connections >= 1);
    while last.line().await?.ok_or("nobody said good night")? != "* good night" {}
    assert_eq!(last.line().await?, None);
    assert!(!file.exists());
    println!("{} messages went to each of {MEMBERS} members in {} rooms", MEMBERS * MESSAGES, rooms.len());
    Ok(())
}

/// One room on each core.
async fn open_rooms(cores: &[CoreId]) -> Result<Rooms, Failure> {
    let runtime: RuntimeHandle = handle();
    let mut rooms = Rooms::new();
    for (name, core) in ["red", "blue"].into_iter().zip(cores) {
        let opened = runtime.spawn_on(*core, || async { server::start(Room::default()) })?;
        rooms.insert(name, opened.await?);
    }
    Ok(rooms)
}

/// One member's evening: it speaks, hears what everybody says, and speaks again, so that nobody falls behind by more than a
/// queue has room for. Gives all that it has heard.
async fn talk(address: Address, room: &'static str, number: u64) -> Result<Vec<String>, Failure> {
    let name = format!("member-{number}");
    let mut client = Client::connect(&address).await?;
    let mut there = client.join(room, &name).await?;
    // Nobody speaks before all are there.
    while there < MEMBERS {
        let line = client.line().await?.ok_or("hung up")?;
        there += u64::from(line.starts_with('*') && line.ends_with("has come"));
    }
    let mut heard = Vec::new();
    for message in 0..MESSAGES {
        client.send(&format!("message {message}")).await?;
        while (heard.len() as u64) < MEMBERS * (message + 1) {
            heard.push(client.message().await?);
        }
    }
    Ok(heard)
}

/// All in a room have heard all that was said there, in one order.
fn check(heard: &[(&str, Vec<String>)]) {
    for (room, lines) in heard {
        for (number, line) in (1..).zip(lines) {
            assert!(line.starts_with(&format!("{number} ")), "{line:?} is not the {number}th");
        }
        let (_, first) = heard.iter().find(|(other, _)| other == room).expect("it is one of them");
        assert_eq!(first, lines, "all in {room} hear the same");
        for member in 0..MEMBERS {
            let begin = format!("member-{member}: message ");
            let said = lines.iter().filter_map(|line| line.split_once(' ')?.1.strip_prefix(&begin));
            assert!(said.eq((0..MESSAGES).map(|message| message.to_string())), "each one's order is kept");
        }
    }
}

/// The history is pushed message by message, and then the word of the house, which arrives first.
async fn overtaking(address: &Address) -> Result<(), Failure> {
    let mut late = Client::connect(address).await?;
    late.join("blue", "late").await?;
    late.send("/history").await?;
    let mut lines = Vec::new();
    // Beside that comes the answer; and others may just be leaving.
    while lines.len() < 1 + HISTORY {
        let line = late.line().await?.ok_or("hung up")?;
        if line != format!("+ {HISTORY}") && !line.ends_with("has gone") {
            lines.push(line);
        }
    }
    assert_eq!(lines[0], "* this is what was said");
    let first = MEMBERS * MESSAGES - HISTORY as u64 + 1;
    for (number, line) in (first..).zip(&lines[1..]) {
        assert!(line.starts_with(&format!("{number} ")), "{line:?} is not the {number}th");
    }
    Ok(())
}

/// One does not read, while another talks on until the first has missed something; then it reads, and hears of that.
async fn deafness(address: &Address, rooms: &Rooms) -> Result<(), Failure> {
    let mut deaf = Client::connect(address).await?;
    deaf.join("red", "deaf").await?;
    let mut talker = Client::connect(address).await?;
    talker.join("red", "talker").await?;
    let text = "x".repeat(4096);
    let missed = loop {
        talker.send(&text).await?;
        talker.message().await?;
        match rooms["red"].call(Ask::Missed).await? {
            Answer::Number(0) => {}
            Answer::Number(missed) => break missed,
            Answer::Lines(_) => unreachable!("it is a number"),
        }
    };

    let listening = spawn(async move {
        let mut last = 0;
        loop {
            let line = deaf.line().await?.ok_or("hung up")?;
            if let Some(count) = line.strip_prefix("* you have missed ") {
                return Ok::<u64, Failure>(count.parse()?);
            }
            let Some((number, _)) = line.split_once(' ').filter(|_| !line.starts_with('*')) else { continue };
            let number: u64 = number.parse()?;
            assert!(number > last, "the order is kept over what is missing");
            last = number;
        }
    });
    // It catches up, and with the next message that has room it is told.
    while !listening.is_finished() {
        talker.send("are you there?").await?;
        talker.message().await?;
        yield_now().await;
    }
    assert!(listening.await?? >= missed);
    Ok(())
}
