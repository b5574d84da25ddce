//! A connection allocates nothing for each frame, little when it begins, and holds little while it is idle.
#![cfg(feature = "service")]
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../benches/common/alloc.rs"]
mod alloc;
mod support;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use corelet::net::{TcpListener, TcpStream};
use corelet::runtime::{JoinHandle, core_stats, spawn, yield_now};
use corelet::service::app::{Frame, Reply, Streamed};
use corelet::service::push::{PushBuilder, PushHandle};
use corelet::service::{App, Connection, End, Limits, Prepared, Protocol, Transport, serve};
use futures_util::stream;
use support::{on_cores, poll_until};
use tokio_util::codec::{Decoder, Encoder, LengthDelimitedCodec};

thread_local! {
    /// Of the connection that began last.
    static HANDLE: RefCell<Option<PushHandle<Bytes>>> = const { RefCell::new(None) };
}

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

const LENGTH: usize = 64;
static BODY: [u8; LENGTH] = [b'e'; LENGTH];
static REQUEST: [u8; LENGTH + 4] = {
    let mut request = [b'e'; LENGTH + 4];
    (request[0], request[1], request[2], request[3]) = (0, 0, 0, LENGTH as u8);
    request
};
/// One that is answered after a wait.
static WAIT: [u8; LENGTH + 4] = {
    let mut request = REQUEST;
    request[4] = b'w';
    request
};
static STREAM: [u8; 5] = [0, 0, 0, 1, b's'];

/// Length-delimited frames.
struct Codec(LengthDelimitedCodec);

impl Decoder for Codec {
    type Item = Bytes;
    type Error = io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> io::Result<Option<Bytes>> {
        // Unlike the other codec this one asks for no room behind a frame.
        let Some((head, rest)) = bytes.split_at_checked(4) else { return Ok(None) };
        let length = u32::from_be_bytes(head.try_into().unwrap()) as usize;
        if rest.len() < length {
            return Ok(None);
        }
        bytes.advance(4);
        Ok(Some(bytes.split_to(length).freeze()))
    }
}

impl Encoder<Bytes> for Codec {
    type Error = io::Error;

    fn encode(&mut self, frame: Bytes, bytes: &mut BytesMut) -> io::Result<()> {
        self.0.encode(frame, bytes)
    }
}

/// Requests by their first byte; each connection leaves a handle for its pushes, if it is to.
struct Frames {
    pushed_to: bool,
}

impl Protocol for Frames {
    type Codec = Codec;
    type Request = Bytes;
    type Response = Bytes;
    type Id = u8;
    type Session = ();

    fn codec(&self) -> Codec {
        Codec(LengthDelimitedCodec::new())
    }

    fn session(&self) {}

    fn id(&self, frame: &Bytes) -> Option<u8> {
        frame.first().copied()
    }

    fn connected(&self, connection: &Connection<Frames>) {
        if self.pushed_to {
            HANDLE.set(Some(connection.push_handle()));
        }
    }
}

/// Waits for something that comes soon. (A task that yields does not rest.)
async fn wait() {
    let mut waited = false;
    let once = poll_fn(|cx| match std::mem::replace(&mut waited, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    });
    once.await;
}

fn app(pushed_to: bool) -> Prepared<Frames> {
    App::new(Frames { pushed_to })
        .route(b'e', async |Frame(frame): Frame<Bytes>| Reply(frame))
        .route(b'w', async |Frame(frame): Frame<Bytes>| {
            wait().await;
            Reply(frame)
        })
        .route(b's', async || {
            Streamed(stream::iter((0..1000).map(|_| Ok::<_, io::Error>(Bytes::from_static(&BODY)))))
        })
        .prepare()
        .unwrap()
}

#[derive(Default)]
struct State {
    incoming: Option<&'static [u8]>,
    ended: bool,
    sent: usize,
    waker: Option<Waker>,
}

/// A transport that swallows what is sent.
#[derive(Clone, Default)]
struct Wire(Rc<RefCell<State>>);

impl Wire {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.borrow_mut();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Until so many bytes have been sent in all.
    async fn until(&self, bytes: usize) {
        while self.0.borrow().sent < bytes {
            yield_now().await;
        }
        assert_eq!(self.0.borrow().sent, bytes);
    }
}

impl Transport for Wire {
    type Received = &'static [u8];

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<&'static [u8]>>> {
        let mut state = self.0.borrow_mut();
        match state.incoming.take() {
            Some(bytes) => Poll::Ready(Ok(Some(bytes))),
            None if state.ended => Poll::Ready(Ok(None)),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    async fn send(&mut self, bytes: BytesMut) -> (io::Result<()>, BytesMut) {
        self.0.borrow_mut().sent += bytes.len();
        (Ok(()), bytes)
    }

    async fn finish(&mut self, _: bool) -> io::Result<()> {
        Ok(())
    }
}

fn serve_on(transport: impl Transport, app: &Prepared<Frames>) -> JoinHandle<End> {
    let (app, limits) = (app.clone(), Limits { idle_timeout: Some(support::PATIENCE), ..Limits::default() });
    spawn(async move {
        let pushes = PushBuilder::default().high_capacity(1000).low_capacity(1000).validate().unwrap();
        serve(transport, &app, &limits, &pushes).await
    })
}

/// The allocations of `rounds` rounds, after some to warm up.
async fn count(rounds: usize, mut round: impl AsyncFnMut()) -> u64 {
    for _ in 0..10 {
        round().await;
    }
    let before = alloc::on_this_thread();
    for _ in 0..rounds {
        round().await;
    }
    alloc::on_this_thread() - before
}

#[test]
fn requests_pushes_and_frames_of_streams_allocate_nothing() {
    on_cores(1, async |_, _| {
        let (wire, app) = (Wire::default(), app(true));
        let task = serve_on(wire.clone(), &app);
        yield_now().await;
        let handle = HANDLE.take().unwrap();
        let (body, mut sent) = (Bytes::from_static(&BODY), 0);

        let requests = count(1000, async || {
            wire.change(|state| state.incoming = Some(&REQUEST));
            sent += REQUEST.len();
            wire.until(sent).await;
        });
        assert_eq!(requests.await, 0, "for 1,000 requests");

        // The connection rests meanwhile, and the handler holds a frame cut from its buffer.
        let waits = count(1000, async || {
            wire.change(|state| state.incoming = Some(&WAIT));
            sent += WAIT.len();
            wire.until(sent).await;
        });
        assert_eq!(waits.await, 0, "for 1,000 requests whose handlers wait");

        let pushes = count(10, async || {
            for _ in 0..500 {
                handle.high(body.clone()).unwrap();
                handle.low(body.clone()).unwrap();
            }
            sent += 1000 * REQUEST.len();
            wire.until(sent).await;
        });
        assert_eq!(pushes.await, 0, "for 10,000 pushes");

        let streams = count(10, async || {
            wire.change(|state| state.incoming = Some(&STREAM));
            sent += 1000 * REQUEST.len();
            wire.until(sent).await;
        });
        assert_eq!(streams.await, 10, "a box for each of 10 streams of 1,000 frames");

        assert_eq!(app.counts().bytes_out, sent as u64);
        wire.change(|state| state.ended = true);
        assert!(matches!(task.await, Ok(End::Closed)));
    });
}

#[test]
fn a_request_over_a_socket_allocates_nothing_and_costs_one_kernel_entry_on_each_side() {
    on_cores(1, async |_, _| {
        let app = app(false);
        let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let server = listener.accept().await.unwrap();
        drop(listener);
        let task = serve_on(server, &app);
        let mut buffer = Vec::with_capacity(REQUEST.len());
        let mut entries = 0;
        let allocations = count(1000, async || {
            let before = core_stats().unwrap().driver.enters;
            client.write_all(&REQUEST[..]).await.0.unwrap();
            buffer.clear();
            let result;
            (result, buffer) = client.read_exact(std::mem::take(&mut buffer), REQUEST.len()).await;
            result.unwrap();
            entries += core_stats().unwrap().driver.enters - before;
        });
        assert_eq!(allocations.await, 0, "for 1,000 requests");
        assert_eq!(buffer, REQUEST);
        // Client and server share the core: one entry for the client's wait, one for the server's.
        println!("{} kernel entries for each request, of both sides", entries as f64 / 1010.0);
        assert!(entries <= 2 * 1010 + 20, "{entries} kernel entries");
        drop(client);
        assert!(task.await.is_ok());
    });
}

#[test]
fn beginning_a_connection_with_queues_takes_four_allocations_at_most() {
    on_cores(1, async |_, _| {
        for (pushed_to, most) in [(true, 4), (false, 2)] {
            let app = app(pushed_to);
            let (mut connections, mut begun) = (Vec::with_capacity(1000), 0);
            for _ in 0..1000 {
                let wire = Wire::default();
                let before = alloc::on_this_thread();
                connections.push((serve_on(wire.clone(), &app), wire));
                yield_now().await;
                begun += alloc::on_this_thread() - before;
            }
            let each = begun as f64 / 1000.0;
            println!("{each} allocations to begin a connection");
            // Tables of the core that grow are shared by all.
            assert!(each < f64::from(most) + 0.2, "{each} allocations");
            for (task, wire) in connections {
                wire.change(|state| state.ended = true);
                assert!(matches!(task.await, Ok(End::Closed)));
            }
        }
    });
}

#[test]
fn an_idle_connection_holds_little_and_no_buffer() {
    const COUNT: i64 = 1000;
    on_cores(1, async |_, _| {
        let app = app(false);
        let mut connections: Vec<(JoinHandle<End>, Wire)> = Vec::with_capacity(COUNT as usize);
        let before = alloc::held_by_this_thread();
        for _ in 0..COUNT {
            let wire = Wire::default();
            connections.push((serve_on(wire.clone(), &app), wire));
        }
        poll_until(async || core_stats().unwrap().executor.ready == 0).await;
        let fresh = (alloc::held_by_this_thread() - before) / COUNT;
        // All of them have been busy, with requests that use a buffer up to its last byte.
        let requests = [&[0, 0, 0, 60][..], &[b'e'; 60]].concat().repeat(64).leak();
        for (_, wire) in &connections {
            wire.change(|state| state.incoming = Some(requests));
            wire.until(4096).await;
        }
        poll_until(async || core_stats().unwrap().executor.ready == 0).await;
        let used = (alloc::held_by_this_thread() - before) / COUNT;
        println!("an idle connection holds {fresh} bytes, and {used} when it has been busy");
        assert!(fresh <= 2048 && used <= 2048, "{fresh} and {used} bytes");
        for (task, wire) in connections {
            wire.change(|state| state.ended = true);
            assert!(matches!(task.await, Ok(End::Closed)));
        }
    });
}
