//! A door with a code lock, as a state machine that is written as a table.
//!
//! cargo run --example door
//!
//! `door_expanded` is the same program with the machine written by hand. Both print the same.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use corelet::actor::machine::{self, Context, Next};
use corelet::actor::{self, CallError, ExitReason, Reply, channel};
use corelet::runtime::{Cores, Runtime, sleep, timeout};

/// Where the door can be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Locked,
    Closed,
    Open,
}

/// Where it can go from [`State::Locked`].
enum FromLocked {
    Closed,
}

/// Where it can go from [`State::Closed`].
enum FromClosed {
    Locked,
    Open,
}

/// Where it can go from [`State::Open`].
enum FromOpen {
    Closed,
}

/// What it has in every state.
struct Data {
    code: u32,
    wrong: u32,
    lines: Lines,
}

/// What it does after a while.
#[derive(PartialEq)]
enum Timer {
    /// It locks itself.
    Lock,
    /// Wrong codes are forgotten.
    Forget,
}

/// What it hears of by the way.
enum Weather {
    Wind,
    Rain,
}

/// A moment in the life of a door.
const MOMENT: Duration = Duration::from_millis(20);

corelet::machine! {
    /// The door.
    machine Door {
        state State;
        data Data;
        context(data, prev, cx);

        /// What is done to it.
        events Event {
            /// Somebody types a code.
            Code(u32),
            /// Somebody goes through, and waits until the door lets them.
            Enter(Box<str>, Reply<()>),
            /// Somebody shuts it.
            Shut,
            /// Somebody looks how it stands.
            Look(Reply<State>),
        }
        timeouts Timer;
        infos Weather;
        unhandled(_) => data.say("nobody minds the weather");

        in State::Locked => FromLocked { Closed } {
            enter => stand(data, prev, State::Locked),
            on Event::Code(code) => try_code(data, cx, code),
            on Event::Shut => Next::Stay,
            postpone Event::Enter(..),
            after Timer::Lock => Next::Stay,
        }

        in State::Closed => FromClosed { Locked, Open } {
            enter => stand_closed(data, prev, cx),
            on Event::Enter(who, reply) => go_through(data, &who, reply),
            on Event::Code(_) | Event::Shut => Next::Stay,
            after Timer::Lock => Next::To(FromClosed::Locked),
        }

        in State::Open => FromOpen { Closed } {
            enter => stand(data, prev, State::Open),
            on Event::Shut => Next::To(FromOpen::Closed),
            postpone Event::Code(_) | Event::Enter(..),
            after Timer::Lock => Next::Stay,
            info Weather::Wind => slam(data),
        }

        in State::Locked | State::Closed | State::Open => Anywhere {} {
            on Event::Look(reply) => look(prev, reply),
            after Timer::Forget => forget(data),
        }
    }
}

/// Where it can go wherever it is: nowhere.
enum Anywhere {}

impl Data {
    fn new(lines: &Lines) -> Data {
        Data { code: 1234, wrong: 0, lines: Rc::clone(lines) }
    }

    fn say(&self, line: impl Into<String>) {
        self.lines.borrow_mut().push(line.into());
    }
}

fn stand(data: &Data, prev: Option<&State>, now: State) {
    match prev {
        Some(prev) => data.say(format!("{prev:?} -> {now:?}")),
        None => data.say(format!("{now:?}")),
    }
}

fn stand_closed(data: &Data, prev: Option<&State>, cx: &mut Context<Door>) {
    stand(data, prev, State::Closed);
    cx.set_state_timeout(MOMENT, Timer::Lock);
}

fn try_code(data: &mut Data, cx: &mut Context<Door>, code: u32) -> Next<FromLocked> {
    if code == data.code {
        return Next::To(FromLocked::Closed);
    }
    data.wrong += 1;
    data.say(format!("wrong code: {}", data.wrong));
    if data.wrong == 3 {
        return Next::fail("somebody tries codes");
    }
    // Not a matter of the state: it is remembered wherever the door goes meanwhile.
    cx.set_timeout(MOMENT, Timer::Forget);
    Next::Stay
}

fn go_through(data: &Data, who: &str, reply: Reply<()>) -> Next<FromClosed> {
    data.say(format!("{who} goes through"));
    reply.send(());
    Next::To(FromClosed::Open)
}

fn slam(data: &Data) -> Next<FromOpen> {
    data.say("the wind slams it");
    Next::To(FromOpen::Closed)
}

fn look(state: &State, reply: Reply<State>) -> Next<Anywhere> {
    reply.send(*state);
    Next::Stay
}

fn forget(data: &mut Data) -> Next<Anywhere> {
    data.wrong = 0;
    data.say("wrong codes are forgotten");
    Next::Stay
}

/// What happened, a line for each thing.
type Lines = Rc<RefCell<Vec<String>>>;

/// A day of the door.
async fn day(lines: Lines) {
    let (weather, forecast) = channel::unbounded::<Weather>();
    let door = machine::build(Door::new(Data::new(&lines)), State::Locked).with_info(forecast).start();
    let end = actor::monitor(door);

    // Ann stands before a locked door, until somebody who knows the code comes.
    let (reply, ann) = actor::reply();
    send(door, Event::Enter("Ann".into(), reply));
    for code in [1, 1234] {
        send(door, Event::Code(code));
    }
    assert_eq!(ann.await, Ok(()));
    until(&lines, "wrong codes are forgotten").await;

    // It is still open, and what is no matter for an open door is left out, or put off.
    assert_eq!(actor::call(door, Event::Look).await, Ok(State::Open));
    weather.send(Weather::Rain).unwrap();
    until(&lines, "nobody minds the weather").await;
    let (reply, bob) = actor::reply();
    send(door, Event::Enter("Bob".into(), reply));
    assert_eq!(actor::call(door, Event::Look).await, Ok(State::Open));
    weather.send(Weather::Wind).unwrap();
    assert_eq!(bob.await, Ok(()));

    // Left alone, it locks itself.
    send(door, Event::Shut);
    until(&lines, "Closed -> Locked").await;

    // Carl waits in vain.
    let (reply, carl) = actor::reply();
    send(door, Event::Enter("Carl".into(), reply));
    for code in [1, 2, 3] {
        send(door, Event::Code(code));
    }
    assert_eq!(carl.await, Err(CallError::NoReply));
    let reason = end.await.reason;
    assert_eq!(reason, ExitReason::Failed("somebody tries codes".into()));
    lines.borrow_mut().push(format!("the door {reason}"));
}

fn send(door: actor::Pid<Door>, event: Event) {
    assert!(actor::send_to(door, event).is_ok(), "the door is there");
}

/// Waits until the door has said `line`.
async fn until(lines: &Lines, line: &str) {
    let said = async {
        while !lines.borrow().iter().any(|said| said == line) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(timeout(Duration::from_secs(20), said).await.is_ok(), "it never says {line:?}");
}

const EXPECTED: &[&str] = &[
    "Locked",
    "wrong code: 1",
    "Locked -> Closed",
    "Ann goes through",
    "Closed -> Open",
    "wrong codes are forgotten",
    "nobody minds the weather",
    "the wind slams it",
    "Open -> Closed",
    "Bob goes through",
    "Closed -> Open",
    "Open -> Closed",
    "Closed -> Locked",
    "wrong code: 1",
    "wrong code: 2",
    "wrong code: 3",
    "the door failed: somebody tries codes",
];

/// Runs the door through its day, and gives what happened.
pub fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
    let lines = runtime.block_on(|| async {
        let lines = Lines::default();
        day(Rc::clone(&lines)).await;
        lines.take()
    })?;
    Ok(lines)
}

#[allow(dead_code)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let lines = run()?;
    println!("{}", lines.join("\n"));
    assert_eq!(lines, EXPECTED);
    Ok(())
}
