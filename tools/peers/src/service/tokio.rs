//! tokio: one task a connection, with `Framed` of tokio-util and two bounded mpsc queues, on a current-thread runtime.
//!
//! The task waits in a biased `select!`. What is queued behind the frame that woke it goes into the same write: `feed`, and
//! a `flush` when nothing is left. As `tokio_each` it waits for each frame in the `select!` and flushes each, as short
//! examples do. Routes are services of tower, each in a box and cloned for its request, as axum has them.

use super::Announce;
use super::cases::{Connects, Kit, PLACES, Passes, Pusher, Queues, Serves, pass};
use super::frames::{self, ROUTES, answer, first};
use super::memory::Memory;
use crate::runtimes::Runtime as _;
use crate::runtimes::tokio::Tokio as Current;
use anyhow::{Context as _, Result};
use bytes::{Bytes, BytesMut};
use futures::{SinkExt, StreamExt as _};
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::spawn_local;
use tokio_util::codec::Framed;
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceBuilder, ServiceExt as _, service_fn};

pub struct Tokio;

impl Kit for Tokio {
    type Runtime = Current;
}

/// How a connection's task sends what is queued.
#[derive(Clone, Copy, PartialEq)]
enum Sending {
    Together,
    Each,
}

/// The sending and the receiving ends of a connection's queues.
fn queues<T>(high: usize, low: usize) -> (Pushes<T>, Pushed<T>) {
    let ((push_high, high), (push_low, low)) = (mpsc::channel(high), mpsc::channel(low));
    (Pushes { high: push_high, low: push_low }, Pushed { high, low })
}

pub struct Pushes<T> {
    high: Sender<T>,
    low: Sender<T>,
}

pub struct Pushed<T> {
    high: Receiver<T>,
    low: Receiver<T>,
}

/// Serves one connection to its end, without pushes from anybody; its queues are as wide as corelet's by default.
pub async fn serve(
    io: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl AsyncFnMut(BytesMut) -> Result<Bytes>,
) -> Result<()> {
    let (_pushes, pushed) = queues(64, 256);
    connection(io, pushed, Sending::Together, answer).await
}

async fn connection(
    io: impl AsyncRead + AsyncWrite + Unpin,
    Pushed { mut high, mut low }: Pushed<Bytes>,
    sending: Sending,
    mut answer: impl AsyncFnMut(BytesMut) -> Result<Bytes>,
) -> Result<()> {
    let mut framed = Framed::new(io, frames::codec());
    loop {
        let frame = tokio::select! {
            biased;
            Some(frame) = high.recv() => frame,
            Some(frame) = low.recv() => frame,
            request = framed.next() => match request {
                Some(request) => answer(request?).await?,
                None => return Ok(()),
            },
        };
        framed.feed(frame).await?;
        if sending == Sending::Together {
            while let Ok(frame) = high.try_recv().or_else(|_| low.try_recv()) {
                framed.feed(frame).await?;
            }
        }
        SinkExt::<Bytes>::flush(&mut framed).await?;
    }
}

impl Pusher for Pushes<Bytes> {
    fn high(&self, frame: Bytes) -> Result<()> {
        Ok(self.high.try_send(frame)?)
    }

    fn low(&self, frame: Bytes) -> Result<()> {
        Ok(self.low.try_send(frame)?)
    }
}

impl Connects for Tokio {
    async fn connect(transport: Memory) -> Result<impl Pusher> {
        Ok(connect(transport, Sending::Together))
    }
}

/// A task that flushes each frame.
pub struct TokioEach;

impl Kit for TokioEach {
    type Runtime = Current;
}

impl Connects for TokioEach {
    async fn connect(transport: Memory) -> Result<impl Pusher> {
        Ok(connect(transport, Sending::Each))
    }
}

fn connect(transport: Memory, sending: Sending) -> Pushes<Bytes> {
    let (pushes, pushed) = queues(PLACES, PLACES);
    spawn_local(connection(transport, pushed, sending, async |request| Ok(request.freeze())));
    pushes
}

type Route = BoxCloneService<BytesMut, Bytes, Infallible>;

/// Counts who passes.
#[derive(Clone)]
struct CountingLayer(Passes);

impl<S> Layer<S> for CountingLayer {
    type Service = Counting<S>;

    fn layer(&self, inner: S) -> Counting<S> {
        Counting { inner, passes: self.0.clone() }
    }
}

#[derive(Clone)]
struct Counting<S> {
    inner: S,
    passes: Passes,
}

impl<R, S: Service<R>> Service<R> for Counting<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        pass(&self.passes);
        self.inner.call(request)
    }
}

fn routes(passes: &Passes) -> HashMap<u16, Route> {
    let counting = || CountingLayer(passes.clone());
    let middleware =
        ServiceBuilder::new().layer(counting()).layer(counting()).layer(counting()).layer(counting());
    let echo = service_fn(|request: BytesMut| async { Ok(answer(request)) });
    (0..ROUTES).map(|route| (route, BoxCloneService::new(middleware.service(echo)))).collect()
}

async fn serve_routes(routes: &HashMap<u16, Route>, transport: Memory) -> Result<()> {
    serve(transport, async |request| {
        let route = first(&request).and_then(|first| routes.get(&first)).context("there is no such route")?;
        Ok(route.clone().oneshot(request).await?)
    })
    .await
}

impl Serves for Tokio {
    type App = Rc<HashMap<u16, Route>>;

    async fn app(passes: Passes) -> Result<Self::App> {
        Ok(Rc::new(routes(&passes)))
    }

    async fn serve(app: &Self::App, transport: Memory) -> Result<()> {
        let app = app.clone();
        serve_routes(&app, transport).await
    }

    async fn make_and_serve(_: &Self::App, passes: &Passes, transport: Memory) -> Result<()> {
        serve_routes(&routes(passes), transport).await
    }
}

impl Queues for Tokio {
    type Ends = (Pushes<u64>, Pushed<u64>);

    fn queues() -> Self::Ends {
        queues(64, 256)
    }

    #[inline]
    fn push((pushes, _): &mut Self::Ends, high: bool, number: u64) -> Result<()> {
        let queue = if high { &pushes.high } else { &pushes.low };
        Ok(queue.try_send(number)?)
    }

    #[inline]
    async fn receive((_, pushed): &mut Self::Ends) -> Result<u64> {
        let number = tokio::select! {
            biased;
            number = pushed.high.recv() => number,
            number = pushed.low.recv() => number,
        };
        number.context("a queue is closed")
    }
}

/// One channel, and nothing to choose from.
pub struct TokioMpsc;

impl Kit for TokioMpsc {
    type Runtime = Current;
}

impl Queues for TokioMpsc {
    type Ends = (Sender<u64>, Receiver<u64>);

    fn queues() -> Self::Ends {
        mpsc::channel(64)
    }

    #[inline]
    fn push((sender, _): &mut Self::Ends, _: bool, number: u64) -> Result<()> {
        Ok(sender.try_send(number)?)
    }

    #[inline]
    async fn receive((_, receiver): &mut Self::Ends) -> Result<u64> {
        receiver.recv().await.context("the queue is closed")
    }
}

/// Serves echoes on the calling thread, without end.
pub fn serve_echoes(announce: Announce) -> Result<()> {
    Current::run(move || async move {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        announce(listener.local_addr()?)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            spawn_local(serve(stream, async |request| Ok(answer(request))));
        }
    })?
}
