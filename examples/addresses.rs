//! The ways to address an actor: by its pid, by its pid without its kind, by a name, and later.
//!
//! ```text
//! cargo run --release --example addresses
//! ```
//!
//! A thermometer measures, on a core of its own, and a recorder on another keeps what it is sent. The example checks every
//! answer and ends with status 0 if all was well.

use std::error::Error;
use std::time::Duration;

use corelet::actor::{self, Addressable, Directory, ExitReason, Name, Pid, Reply, SendError, channel};
use corelet::runtime::{CoreId, Cores, Runtime, RuntimeHandle, yield_now};

/// A kind of actor, and what it understands.
enum Recorder {}

enum Record {
    Degrees(i32),
    Mean(Reply<Option<i32>>),
}

impl Addressable for Recorder {
    type Msg = Record;
}

enum Thermometer {}

impl Addressable for Thermometer {
    type Msg = i32;
}

/// One actor, two names of one text: each leads to the channel of its type.
const RECORDS: Name<Record> = Name::new("recorder");
const NOTES: Name<&str> = Name::new("recorder");

fn main() -> Result<(), Box<dyn Error>> {
    let pinned = std::thread::available_parallelism()?.get() >= 2;
    let runtime = Runtime::builder().cores(Cores::Count(2)).pinned(pinned).build()?;
    let (handle, cores) = (runtime.handle(), runtime.cores());
    runtime.block_on(move || async move {
        by_pid().await;
        by_name(&handle, cores[1]).await;
        later().await;
    })?;
    // A thread that is no core's reaches the names of a runtime by its directory. Nobody is left.
    assert_eq!(Directory::of(&runtime.handle()).whereis(RECORDS), None);
    println!("every message went where it should");
    Ok(())
}

/// Starts a recorder on the current core.
fn recorder() -> Pid<Recorder> {
    actor::spawn_addr(async |mut inbox| {
        let mut records = Vec::new();
        while let Ok(message) = inbox.recv().await {
            match message {
                Record::Degrees(degrees) => records.push(degrees),
                Record::Mean(reply) => {
                    let sum: i32 = records.iter().sum();
                    reply.send(sum.checked_div(records.len() as i32));
                }
            }
        }
    })
}

async fn stop(pid: Pid) {
    let end = actor::monitor(pid);
    actor::request_stop(pid);
    assert_eq!(end.await.reason, ExitReason::Stopped);
}

async fn by_pid() {
    let first = recorder();
    // Sent before it has run for the first time.
    actor::send_to(first, Record::Degrees(18)).expect("it has just been started");
    actor::send_to(first, Record::Degrees(22)).expect("it lives");
    assert_eq!(actor::call(first, Record::Mean).await, Ok(Some(20)));

    // Without its kind it can be watched and stopped, and sent to by the type of a message.
    let erased: Pid = first.erase();
    assert!(actor::send_dyn(erased, Record::Degrees(26)).is_ok());
    assert_eq!(actor::send_dyn(erased, 26_i32), Err(SendError::NoChannel(26)));
    assert_eq!(actor::call(first, Record::Mean).await, Ok(Some(22)));

    // A pid is this one actor, for ever: never another in its place.
    stop(erased).await;
    let second = recorder();
    assert_eq!(second.raw().index(), first.raw().index());
    assert!(matches!(actor::send_to(first, Record::Degrees(99)), Err(SendError::Dead(Record::Degrees(99)))));
    assert_eq!(actor::call(second, Record::Mean).await, Ok(None));
    stop(second.erase()).await;
}

async fn by_name(runtime: &RuntimeHandle, core: CoreId) {
    assert!(matches!(actor::send(RECORDS, Record::Degrees(1)), Err(SendError::Unresolved(_))));
    for life in 1..=2 {
        let (told, mut tells) = channel::unbounded();
        // On the other core: an actor with two inboxes, which has the name twice.
        let body = move || async move {
            let (_sender, mut records) = channel::bounded(1);
            let (_sender, mut notes) = channel::unbounded();
            actor::register(RECORDS, &records).expect("nobody else has the name");
            actor::register(NOTES, &notes).expect("it has the name already");
            told.send(Ok(actor::myself().expect("this is a task"))).ok();
            told.send(Err(notes.recv().await.expect("the name keeps it open"))).ok();
            while let Ok(Record::Degrees(_)) = records.recv().await {}
        };
        runtime.spawn_on(core, body).expect("it is a core of this runtime").detach();
        let pid = tells.recv().await.expect("it tells").expect("first its pid");
        assert_eq!((actor::whereis(RECORDS), actor::whereis("recorder")), (Some(pid), Some(pid)));

        // The channel is found at once, so that even another core's says at once that it is full.
        actor::send(RECORDS, Record::Degrees(life)).expect("there is room for one");
        let refused = actor::send(RECORDS, Record::Degrees(life)).expect_err("and for one only");
        assert!(refused.is_full() && matches!(refused.into_inner(), Record::Degrees(_)));
        actor::send(NOTES, "a clear day").expect("there is room for any number");
        assert_eq!(tells.recv().await, Ok(Err("a clear day")));

        // The name is taken while its holder lives, and free once anybody knows that it has ended.
        let rival = recorder();
        assert!(actor::register_pid(RECORDS, rival).is_err_and(|error| error.is_taken()));
        stop(pid).await;
        assert_eq!(actor::whereis(RECORDS), None);
        actor::register_pid(RECORDS, rival).expect("the name is free");

        // Whoever takes it for another kind is refused, and nobody gets what was not meant for him.
        let mistaken = actor::lookup_as::<Thermometer>(RECORDS).expect("somebody has the name");
        assert_eq!(actor::send_to(mistaken, 21), Err(SendError::NoChannel(21)));
        assert!(actor::unregister(RECORDS));
        assert_eq!(actor::call(rival, Record::Mean).await, Ok(None));
        stop(rival.erase()).await;
    }
}

async fn later() {
    // Long enough for all that is to be done before, also on a machine that is busy with something else.
    let wait = Duration::from_millis(250);
    let first = recorder();
    actor::register_pid(RECORDS, first).expect("nobody has the name");
    // To this one; to whoever has the name then; and not at all.
    let to_first = actor::send_after(first, Record::Degrees(1), wait);
    actor::send_after_named(RECORDS, Record::Degrees(2), wait);
    let cancelled = actor::send_after_named(RECORDS, Record::Degrees(3), wait);
    assert!(actor::cancel_timer(cancelled).await);
    assert!(!actor::cancel_timer(cancelled).await, "it was taken back before");
    stop(first.erase()).await;
    let second = recorder();
    actor::register_pid(RECORDS, second).expect("the first has ended");
    while actor::call(second, Record::Mean).await != Ok(Some(2)) {
        yield_now().await;
    }
    // It fired in vain, and that is no error.
    assert!(!actor::cancel_timer(to_first).await);
    stop(second.erase()).await;
}
