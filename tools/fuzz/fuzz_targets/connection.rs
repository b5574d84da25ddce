//! Bytes to the actor of a real connection, by a transport in memory that gives them in pieces, waits and fails as the
//! input says. What comes out is what a simple model of the service expects, and so is the way it ends.
//!
//! An input is a byte that says how many settings follow (four bits) and after how many sends the transport fails, these
//! settings, and what the peer sends: RESP. A setting is the length of a piece (six bits) and whether it is waited for.
#![no_main]

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use corelet::runtime::{Core, Cores, Runtime, yield_now};
use corelet::service::app::{Frame, Frames, Reply};
use corelet::service::codec::{RespCodec, Value};
use corelet::service::connection::serve;
use corelet::service::push::PushSettings;
use corelet::service::{App, Connection, End, Limits, Prepared, Protocol, RequestError, Transport, Verdict};
use libfuzzer_sys::fuzz_target;
use tokio_util::codec::Decoder;

struct Resp;

fn codec() -> RespCodec {
    RespCodec::new().max_frame(512).max_items(16).max_depth(2)
}

impl Protocol for Resp {
    type Codec = RespCodec;
    type Request = Value;
    type Response = Value;
    type Id = u8;
    type Session = ();

    fn codec(&self) -> RespCodec {
        codec()
    }

    fn session(&self) {}

    /// The first byte of the first word.
    fn id(&self, request: &Value) -> Option<u8> {
        request.items().first()?.as_bytes()?.first().copied()
    }

    /// `Q` ends the connection, and so does what has no route.
    fn failed(&self, error: &RequestError, _connection: &Connection<Resp>) -> Verdict<Value> {
        let close = !matches!(error, RequestError::Failed { .. });
        Verdict { reply: Some(Value::error("ERR")), close }
    }
}

fn word(request: &Value) -> Value {
    request.items().get(1).cloned().unwrap_or(Value::Null)
}

fn many(request: &Value) -> Vec<Value> {
    request.items().iter().skip(1).cloned().collect()
}

fn app() -> Prepared<Resp> {
    let app = App::new(Resp)
        .route(b'E', async |Frame(request): Frame<Value>| Reply(word(&request)))
        .route(b'W', async |Frame(request): Frame<Value>| {
            yield_now().await;
            Reply(word(&request))
        })
        .route(b'M', async |Frame(request): Frame<Value>| Frames(many(&request)))
        .route(b'N', async || {})
        .route(b'F', async || Err::<Reply<Value>, _>("on purpose"))
        .route(b'P', async |Frame(request): Frame<Value>, connection: Connection<Resp>| {
            let handle = connection.push_handle();
            for (number, _) in request.items().iter().enumerate() {
                // It may be full.
                let _ = if number % 2 == 0 { handle.high(pushed()) } else { handle.low(pushed()) };
            }
            Reply(word(&request))
        })
        .route(b'D', async |connection: Connection<Resp>| {
            connection.drain();
            Reply(Value::simple("DRAINING"))
        })
        .route(b'S', async |connection: Connection<Resp>| connection.shut_down());
    app.prepare().unwrap()
}

fn pushed() -> Value {
    Value::simple("pushed")
}

/// What the peer gets for what it sends, pushes aside, and how the connection ends. Any beginning of it if `cut`.
struct Expected {
    replies: Vec<Value>,
    end: &'static str,
    cut: bool,
}

fn expected(mut input: BytesMut) -> Expected {
    let (mut codec, mut replies) = (codec(), Vec::new());
    let end = loop {
        let request = match codec.decode_eof(&mut input) {
            Ok(Some(request)) => request,
            Ok(None) => break "closed",
            Err(_) => break "decode",
        };
        match Resp.id(&request) {
            Some(b'E' | b'W' | b'P') => replies.push(word(&request)),
            Some(b'M') => replies.extend(many(&request)),
            Some(b'N') => {}
            Some(b'F') => replies.push(Value::error("ERR")),
            Some(b'D') => {
                replies.push(Value::simple("DRAINING"));
                break "shut_down";
            }
            Some(b'S') => return Expected { replies, end: "shut_down", cut: true },
            _ => {
                replies.push(Value::error("ERR"));
                break "request_failed";
            }
        }
    };
    Expected { replies, end, cut: false }
}

struct Memory {
    settings: Vec<u8>,
    turn: usize,
    waited: bool,
    input: Bytes,
    sends_left: Option<u8>,
    sent: Rc<RefCell<BytesMut>>,
}

impl Memory {
    fn setting(&mut self) -> u8 {
        let setting = self.settings.get(self.turn % self.settings.len().max(1)).copied().unwrap_or(63);
        self.turn += 1;
        setting
    }
}

impl Transport for Memory {
    type Received = Bytes;

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if self.input.is_empty() {
            return Poll::Ready(Ok(None));
        }
        let setting = self.setting();
        if setting & 64 != 0 && !self.waited {
            self.waited = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.waited = false;
        let len = usize::from(setting & 63).clamp(1, self.input.len());
        Poll::Ready(Ok(Some(self.input.split_to(len))))
    }

    async fn send(&mut self, bytes: BytesMut) -> (io::Result<()>, BytesMut) {
        if self.setting() & 128 != 0 {
            yield_now().await;
        }
        match &mut self.sends_left {
            Some(0) => return (Err(io::ErrorKind::BrokenPipe.into()), bytes),
            Some(left) => *left -= 1,
            None => {}
        }
        self.sent.borrow_mut().extend_from_slice(&bytes);
        (Ok(()), bytes)
    }

    async fn finish(&mut self, _end: bool) -> io::Result<()> {
        let mut waited = false;
        poll_fn(|cx| match std::mem::replace(&mut waited, true) {
            true => Poll::Ready(Ok(())),
            false => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await
    }
}

thread_local! {
    static WORLD: RefCell<(Core, Prepared<Resp>)> = {
        let builder = Runtime::builder().cores(Cores::Count(1)).pinned(false);
        let (_, mut guests) = builder.build_guests().unwrap();
        let mut core = guests.remove(0).start().unwrap();
        let app = core.block_on(async { app() }).unwrap();
        RefCell::new((core, app))
    };
}

fuzz_target!(|data: &[u8]| {
    let Some((&head, data)) = data.split_first() else { return };
    let Some((settings, input)) = data.split_at_checked(usize::from(head % 16)) else { return };
    let sends_left = (head >= 128).then_some((head >> 4) % 8);
    let sent = Rc::new(RefCell::new(BytesMut::new()));
    let transport = Memory {
        settings: settings.to_vec(),
        turn: 0,
        waited: false,
        input: Bytes::copy_from_slice(input),
        sends_left,
        sent: Rc::clone(&sent),
    };
    let end = WORLD.with_borrow_mut(|(core, app)| {
        let app = app.clone();
        core.block_on(async move {
            let pushes = PushSettings::default();
            serve(transport, &app, &Limits { max_frame: 512, ..Limits::default() }, &pushes).await
        })
        .unwrap()
    });

    let expected = expected(BytesMut::from(input));
    let failed = matches!(end, End::Io(_)) && sends_left.is_some();
    assert!(failed || end.reason().name() == expected.end, "{end} instead of {}", expected.end);

    let mut sent = sent.take();
    let mut replies = Vec::new();
    let mut codec = RespCodec::new();
    while let Some(reply) = codec.decode(&mut sent).unwrap() {
        if reply != pushed() {
            replies.push(reply);
        }
    }
    assert!(sent.is_empty());
    // The peer may itself ask for what looks like a push.
    let wanted: Vec<_> = expected.replies.into_iter().filter(|reply| *reply != pushed()).collect();
    if failed || expected.cut {
        assert!(wanted.starts_with(&replies), "{replies:?} instead of {wanted:?}");
    } else {
        assert_eq!(replies, wanted);
    }
});
