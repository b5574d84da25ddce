//! What the tests of connections share: a protocol of lines that notes what its hooks see, handlers for every situation,
//! and a transport in memory that can be held up.
//!
//! Never: a socket.
#![allow(dead_code, clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use corelet::runtime::{JoinHandle, spawn, yield_now};
use corelet::service::app::{Frame, Reply, Streamed};
use corelet::service::push::{PushError, PushSettings};
use corelet::service::{
    App, Connection, End, Limits, Prepared, Protocol, RequestError, Transport, Verdict, serve,
};
use futures_util::{StreamExt as _, stream};
use tokio_util::codec::{Decoder, Encoder, LinesCodec};

/// What the hooks saw and the handlers did, in order.
#[derive(Clone, Default)]
pub struct Log(Rc<RefCell<Vec<String>>>, pub Rc<Cell<Option<Connection<Lines>>>>);

impl Log {
    pub fn note(&self, what: impl Into<String>) {
        self.0.borrow_mut().push(what.into());
    }

    pub fn take(&self) -> Vec<String> {
        self.0.take()
    }

    pub fn has(&self, what: &str) -> bool {
        self.0.borrow().iter().any(|noted| noted == what)
    }

    pub fn count(&self, what: &str) -> usize {
        self.0.borrow().iter().filter(|noted| *noted == what).count()
    }
}

/// A door that handlers wait at.
#[derive(Clone, Default)]
pub struct Door(Rc<(Cell<bool>, RefCell<Vec<Waker>>)>);

impl Door {
    pub fn open(&self) {
        self.0.0.set(true);
        self.0.1.take().into_iter().for_each(Waker::wake);
    }

    pub fn pass(&self) -> impl Future<Output = ()> + use<> {
        let door = self.clone();
        poll_fn(move |cx| {
            if door.0.0.get() {
                return Poll::Ready(());
            }
            door.0.1.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
    }
}

/// Lines, some of which make the codec fail.
pub struct Codec(LinesCodec);

impl Decoder for Codec {
    type Item = String;
    type Error = io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> io::Result<Option<String>> {
        let line = self.0.decode(bytes).map_err(io::Error::other)?;
        match line.as_deref() {
            Some("PANIC-DECODE") => panic!("the decoder panics on purpose"),
            Some("BAD-DECODE") => Err(io::Error::other("a bad line")),
            _ => Ok(line),
        }
    }

    fn decode_eof(&mut self, bytes: &mut BytesMut) -> io::Result<Option<String>> {
        self.0.decode_eof(bytes).map_err(io::Error::other)
    }
}

impl Encoder<String> for Codec {
    type Error = io::Error;

    fn encode(&mut self, line: String, bytes: &mut BytesMut) -> io::Result<()> {
        if line.contains("PANIC-ENCODE") {
            bytes.put_slice(b"half a li");
            panic!("the encoder panics on purpose");
        }
        if line.contains("BAD-ENCODE") {
            bytes.put_slice(b"half a li");
            return Err(io::Error::other("cannot be encoded"));
        }
        self.0.encode(line, bytes).map_err(io::Error::other)
    }
}

/// Lines: the first word is the route, `#7` at the end a correlation.
pub struct Lines {
    pub log: Log,
}

impl Protocol for Lines {
    type Codec = Codec;
    type Request = String;
    type Response = String;
    type Id = String;
    type Session = Cell<u32>;

    fn codec(&self) -> Codec {
        Codec(LinesCodec::new())
    }

    fn session(&self) -> Cell<u32> {
        Cell::new(0)
    }

    fn id(&self, line: &String) -> Option<String> {
        assert!(!line.starts_with("PANIC-ID"), "the route panics on purpose");
        line.split(' ').next().filter(|word| !word.is_empty()).map(str::to_owned)
    }

    fn correlation(&self, line: &String) -> Option<u64> {
        line.rsplit_once('#')?.1.parse().ok()
    }

    fn correlate(&self, line: &mut String, correlation: u64) {
        *line += &format!(" #{correlation}");
    }

    fn connected(&self, connection: &Connection<Lines>) {
        self.log.note("connected");
        if self.log.has("greet") {
            connection.push_handle().high("welcome".into()).unwrap();
        }
        assert!(!self.log.has("refuse"), "connected panics on purpose");
    }

    fn before_send(&self, line: &mut String, _: &Connection<Lines>) {
        assert!(!line.contains("PANIC-SEND"), "before_send panics on purpose");
        self.log.note(format!("send {line}"));
    }

    fn command_ended(&self, connection: &Connection<Lines>) {
        self.log.note("ended");
        assert!(connection.session().get() != 77, "command_ended panics on purpose");
    }

    fn stream_end(&self) -> Option<String> {
        Some("end".into())
    }

    fn failed(&self, error: &RequestError, connection: &Connection<Lines>) -> Verdict<String> {
        let reply = match error {
            RequestError::Panicked { message, .. } => format!("panicked: {message}"),
            RequestError::TimedOut { after } => format!("late: {after:?}"),
            RequestError::UnknownRoute { id } => format!("no {id}"),
            _ => "failed".to_owned(),
        };
        Verdict { reply: Some(reply), close: connection.session().get() == 99 }
    }

    fn disconnected(&self, _: &Connection<Lines>, end: &End) {
        self.log.note(format!("gone {}", end.reason().name()));
        assert!(!matches!(end, End::Decode(_)), "disconnected panics on purpose");
    }
}

/// Notes its drop.
pub struct Guard(pub Log);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.note("dropped");
    }
}

/// Panics when it is dropped.
pub struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("dropped on purpose");
        }
    }
}

/// The number behind the first word.
fn number(line: &str) -> u64 {
    line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// An application with a handler for every situation.
pub fn app(log: &Log, door: &Door) -> Prepared<Lines> {
    let (waiting, streaming) = ((log.clone(), door.clone()), (log.clone(), door.clone()));
    let me = Rc::clone(&log.1);
    type Item = Result<String, io::Error>;
    App::new(Lines { log: log.clone() })
        .route("echo".into(), async |Frame(line): Frame<String>| Reply(line))
        .route("none".into(), async || {})
        .route("me".into(), move |connection: Connection<Lines>| {
            me.set(Some(connection));
            std::future::ready(())
        })
        .route("say".into(), async |Frame(line): Frame<String>| Reply(line["say ".len()..].to_owned()))
        .route("big".into(), async |Frame(line): Frame<String>| Reply("x".repeat(number(&line) as usize)))
        .route("session".into(), async |Frame(line): Frame<String>, connection: Connection<Lines>| {
            connection.session().set(number(&line) as u32);
        })
        .route("wait".into(), move || {
            let (log, door) = waiting.clone();
            async move {
                log.note("waiting");
                let _guard = Guard(log);
                door.pass().await;
                Reply("waited".to_owned())
            }
        })
        .route("stream".into(), async |Frame(line): Frame<String>| {
            Streamed(stream::iter((0..number(&line)).map(|n| Item::Ok(n.to_string()))))
        })
        .route("slow".into(), move || {
            let (log, door) = streaming.clone();
            async move {
                log.note("streaming");
                let guard = Guard(log);
                let rest = async move {
                    let _guard = guard;
                    door.pass().await;
                    Item::Ok("second".into())
                };
                let first = stream::iter([Item::Ok("first".into())]);
                Streamed(first.chain(stream::once(rest)))
            }
        })
        .route("endless".into(), async |connection: Connection<Lines>| {
            Streamed(stream::repeat_with(move || {
                connection.session().set(connection.session().get() + 1);
                Item::Ok("x".repeat(99))
            }))
        })
        .route("break".into(), async || {
            Streamed(stream::iter([Item::Ok("one".into()), Err(io::Error::other("broken"))]))
        })
        .route("streampanic".into(), async || {
            let frames = stream::iter(0..9)
                .map(|n| if n < 2 { Item::Ok(n.to_string()) } else { panic!("in the stream") });
            Streamed(frames)
        })
        .route("streamdrop".into(), async || {
            let grenade = Grenade;
            Streamed(stream::iter(0..2).map(move |n| {
                let _ = &grenade;
                Item::Ok(n.to_string())
            }))
        })
        .route("handlerdrop".into(), async || {
            let _grenade = Grenade;
            std::future::pending::<Reply<String>>().await
        })
        .route("panic".into(), async || -> Reply<String> { panic!("on purpose") })
        .route("fail".into(), async || Err::<Reply<String>, _>("it does not work"))
        .route("report".into(), async |connection: Connection<Lines>| {
            connection.push_handle().high("working".to_owned()).unwrap();
            std::future::pending::<()>().await;
        })
        .route("leave".into(), async |connection: Connection<Lines>| {
            connection.shut_down();
            std::future::pending::<()>().await;
        })
        .route("drain".into(), async |connection: Connection<Lines>| {
            connection.drain();
            Reply("draining".to_owned())
        })
        .route("push".into(), async |Frame(line): Frame<String>, connection: Connection<Lines>| {
            let handle = connection.push_handle();
            for (place, word) in line.split(' ').skip(1).enumerate() {
                match word.starts_with('h') {
                    true => handle.high(word.to_owned()).unwrap(),
                    false => handle.low(format!("{word}{place}")).unwrap(),
                }
            }
            Reply("pushed".to_owned())
        })
        .prepare()
        .unwrap()
}

#[derive(Default)]
struct State {
    incoming: VecDeque<Vec<u8>>,
    ended: bool,
    error: Option<io::ErrorKind>,
    outgoing: Vec<u8>,
    sends: usize,
    /// Sends wait.
    stuck: bool,
    /// Sends fail when so many have gone.
    fail_after: Option<usize>,
    received: usize,
    wakers: Vec<Waker>,
    closed: bool,
    told: bool,
    aborted: bool,
}

/// Both ends of a transport in memory, as the test holds them.
#[derive(Clone, Default)]
pub struct Wire(Rc<RefCell<State>>);

impl Wire {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.borrow_mut();
        change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// What the peer sends.
    pub fn feed(&self, bytes: impl AsRef<[u8]>) {
        self.change(|state| state.incoming.push_back(bytes.as_ref().to_vec()));
    }

    /// The peer ends its side.
    pub fn end(&self) {
        self.change(|state| state.ended = true);
    }

    /// The peer resets.
    pub fn fail(&self, error: io::ErrorKind) {
        self.change(|state| state.error = Some(error));
    }

    /// The peer reads no more, or again.
    pub fn stuck(&self, stuck: bool) {
        self.change(|state| state.stuck = stuck);
    }

    pub fn fail_after(&self, sends: usize) {
        self.change(|state| state.fail_after = Some(sends));
    }

    /// What the peer has got.
    pub fn got(&self) -> String {
        String::from_utf8(self.0.borrow().outgoing.clone()).unwrap()
    }

    pub fn sends(&self) -> usize {
        self.0.borrow().sends
    }

    /// Bytes that the connection has taken.
    pub fn received(&self) -> usize {
        self.0.borrow().received
    }

    pub fn is_closed(&self) -> bool {
        self.0.borrow().closed
    }

    /// Whether the peer was told the end by itself.
    pub fn is_told(&self) -> bool {
        self.0.borrow().told
    }

    pub fn is_aborted(&self) -> bool {
        self.0.borrow().aborted
    }

    pub fn transport(&self) -> Far {
        Far(self.clone())
    }
}

/// The connection's end.
pub struct Far(Wire);

impl Transport for Far {
    type Received = Vec<u8>;

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Vec<u8>>>> {
        let mut state = self.0.0.borrow_mut();
        if let Some(bytes) = state.incoming.pop_front() {
            state.received += bytes.len();
            return Poll::Ready(Ok(Some(bytes)));
        }
        if let Some(error) = state.error {
            return Poll::Ready(Err(error.into()));
        }
        if state.ended {
            return Poll::Ready(Ok(None));
        }
        state.wakers.push(cx.waker().clone());
        Poll::Pending
    }

    async fn send(&mut self, bytes: BytesMut) -> (io::Result<()>, BytesMut) {
        let state = &self.0.0;
        poll_fn(|cx| {
            let mut state = state.borrow_mut();
            if state.stuck {
                state.wakers.push(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        let mut state = state.borrow_mut();
        if state.fail_after.is_some_and(|sends| state.sends >= sends) {
            return (Err(io::ErrorKind::BrokenPipe.into()), bytes);
        }
        state.sends += 1;
        state.outgoing.extend_from_slice(&bytes);
        (Ok(()), bytes)
    }

    async fn finish(&mut self, end: bool) -> io::Result<()> {
        let state = &self.0.0;
        poll_fn(|cx| {
            let mut state = state.borrow_mut();
            if state.stuck {
                state.wakers.push(cx.waker().clone());
                return Poll::Pending;
            }
            state.closed = true;
            // A peer that is told the end closes too.
            state.ended |= end;
            state.told |= end;
            Poll::Ready(Ok(()))
        })
        .await
    }

    fn abort(&mut self) {
        self.0.0.borrow_mut().aborted = true;
    }
}

/// A connection over a [`Wire`], being served.
pub struct Served {
    pub wire: Wire,
    pub log: Log,
    pub door: Door,
    pub app: Prepared<Lines>,
    pub task: JoinHandle<End>,
}

impl Served {
    pub fn new() -> Served {
        Served::with(Limits::default(), PushSettings::default())
    }

    pub fn with(limits: Limits, pushes: PushSettings<String>) -> Served {
        Served::noted(limits, pushes, &[])
    }

    /// Whose `connected` hook pushes.
    pub fn greeting() -> Served {
        Served::noted(Limits::default(), PushSettings::default(), &["greet"])
    }

    /// With a log that says beforehand what the hooks shall do.
    pub fn noted(limits: Limits, pushes: PushSettings<String>, notes: &[&str]) -> Served {
        let (wire, log, door) = (Wire::default(), Log::default(), Door::default());
        notes.iter().for_each(|note| log.note(*note));
        let app = app(&log, &door);
        let (transport, theirs) = (wire.transport(), app.clone());
        let task = spawn(async move { serve(transport, &theirs, &limits, &pushes).await });
        Served { wire, log, door, app, task }
    }

    /// The connection, by a request that leaves it with the log.
    pub async fn connection(&self) -> Connection<Lines> {
        self.wire.feed("me\n");
        for _ in 0..100 {
            if let Some(connection) = self.log.1.take() {
                return connection;
            }
            yield_now().await;
        }
        panic!("the connection does not answer");
    }

    /// Pushes whenever there is room until it is refused for good, and gives that refusal.
    pub fn flood(&self) -> JoinHandle<PushError<String>> {
        let (wire, log) = (self.wire.clone(), self.log.clone());
        wire.feed("me\n");
        spawn(async move {
            let connection = loop {
                match log.1.take() {
                    Some(connection) => break connection,
                    None => yield_now().await,
                }
            };
            let handle = connection.push_handle();
            loop {
                match handle.low("flood".to_owned()) {
                    Ok(()) => {}
                    Err(closed @ PushError::Closed(_)) => return closed,
                    Err(_) => yield_now().await,
                }
            }
        })
    }
}

/// Lets every ready task run until nothing happens.
pub async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}

/// Long enough never to pass in a test.
pub const LONG: Duration = Duration::from_secs(3600);
