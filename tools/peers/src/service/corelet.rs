//! corelet: its service layer. Beside it, as `corelet_raw`, an echo server on its streams without the layer.

use super::Announce;
use super::cases::{Connects, Kit, PLACES, Passes, Pusher, Queues, Serves, pass};
use super::frames::{self, ROUTES, answer, answer_raw};
use super::memory::Memory;
use crate::runtimes::corelet::{Corelet as Core, core};
use anyhow::{Context as _, Result, anyhow, bail};
use bytes::{Bytes, BytesMut};
use corelet::net::{ListenerOptions, TcpListener, TcpStream};
use corelet::runtime::{handle, spawn};
use corelet::service::app::{Frame, Incoming, Middleware, Next, Outcome, Reply};
use corelet::service::push::{PushBuilder, PushHandle, PushQueues, PushSettings};
use corelet::service::{App, Connection, End, Limits, Prepared, Protocol, Server, serve};
use futures::channel::oneshot;
use std::cell::RefCell;
use std::future::pending;
use std::net::Ipv4Addr;
use tokio_util::codec::LengthDelimitedCodec;

pub struct Corelet;

impl Kit for Corelet {
    type Runtime = Core;
}

/// Frames by their first bytes.
#[derive(Default)]
pub struct Frames {
    /// Whoever wants to push to the next connection.
    pusher: RefCell<Option<oneshot::Sender<PushHandle<Bytes>>>>,
    /// Every connection has its queues made, though nobody pushes.
    queues: bool,
}

impl Protocol for Frames {
    type Codec = LengthDelimitedCodec;
    type Request = BytesMut;
    type Response = Bytes;
    type Id = u16;
    type Session = ();

    fn codec(&self) -> LengthDelimitedCodec {
        frames::codec()
    }

    fn session(&self) {}

    fn id(&self, request: &BytesMut) -> Option<u16> {
        frames::first(request)
    }

    fn connected(&self, connection: &Connection<Self>) {
        if self.queues {
            drop(connection.push_handle());
        }
        if let Some(pusher) = self.pusher.take() {
            // It may have gone; nobody pushes then.
            let _ = pusher.send(connection.push_handle());
        }
    }
}

async fn echo(Frame(request): Frame<BytesMut>) -> Reply<Bytes> {
    Reply(answer(request))
}

struct Handle(PushHandle<Bytes>);

impl Pusher for Handle {
    fn high(&self, frame: Bytes) -> Result<()> {
        Ok(self.0.high(frame)?)
    }

    fn low(&self, frame: Bytes) -> Result<()> {
        Ok(self.0.low(frame)?)
    }
}

impl Connects for Corelet {
    async fn connect(transport: Memory) -> Result<impl Pusher> {
        let (pusher, connected) = oneshot::channel();
        let app = App::new(Frames { pusher: Some(pusher).into(), queues: false }).prepare()?;
        let pushes = PushBuilder::default().high_capacity(PLACES).low_capacity(PLACES).validate()?;
        spawn(async move { serve(transport, &app, &Limits::default(), &pushes).await }).detach();
        connected.await.map(Handle).context("the connection has ended")
    }
}

/// Counts who passes.
#[derive(Clone)]
struct Counting(Passes);

impl<P: Protocol> Middleware<P> for Counting {
    async fn handle<N: Next<P>>(&self, incoming: &mut Incoming<P>, next: &N) -> Outcome<P::Response> {
        pass(&self.0);
        next.run(incoming).await
    }
}

fn prepare(passes: &Passes) -> Result<Prepared<Frames>> {
    let counting = || Counting(passes.clone());
    let app = App::new(Frames { pusher: None.into(), queues: true });
    let app = app.wrap(counting()).wrap(counting()).wrap(counting()).wrap(counting());
    Ok((0..ROUTES).fold(app, |app, route| app.route(route, echo)).prepare()?)
}

impl Serves for Corelet {
    type App = Prepared<Frames>;

    async fn app(passes: Passes) -> Result<Self::App> {
        prepare(&passes)
    }

    async fn serve(app: &Self::App, transport: Memory) -> Result<()> {
        match serve(transport, app, &Limits::default(), &PushSettings::default()).await {
            End::Closed => Ok(()),
            end => bail!("a connection ended because {end}"),
        }
    }

    async fn make_and_serve(_: &Self::App, passes: &Passes, transport: Memory) -> Result<()> {
        Self::serve(&prepare(passes)?, transport).await
    }
}

impl Queues for Corelet {
    type Ends = (PushHandle<u64>, PushQueues<u64>);

    fn queues() -> Self::Ends {
        PushSettings::default().build()
    }

    #[inline]
    fn push((handle, _): &mut Self::Ends, high: bool, number: u64) -> Result<()> {
        let pushed = if high { handle.high(number) } else { handle.low(number) };
        Ok(pushed?)
    }

    #[inline]
    async fn receive((_, queues): &mut Self::Ends) -> Result<u64> {
        let (_, number) = queues.recv().await.context("the queues are closed")?;
        Ok(number)
    }
}

/// Serves echoes on the calling thread, without end.
pub fn serve_echoes(announce: Announce) -> Result<()> {
    core(|builder| builder)?.block_on(async move {
        let server = Server::new(|| App::new(Frames::default()).fallback(echo));
        let server = server.bind((Ipv4Addr::LOCALHOST, 0).into()).start(&handle()).await?;
        announce(server.local_addr())?;
        pending().await
    })?
}

/// The same without frames: what is received is sent.
pub fn serve_raw_echoes(announce: Announce) -> Result<()> {
    core(|builder| builder)?.block_on(async move {
        let mut listener =
            TcpListener::bind_with((Ipv4Addr::LOCALHOST, 0).into(), ListenerOptions::default())?;
        announce(listener.local_addr()?)?;
        loop {
            let stream = listener.accept().await.map_err(|error| anyhow!("accept: {error}"))?;
            spawn(echo_raw(stream)).detach();
        }
    })?
}

async fn echo_raw(mut stream: TcpStream) {
    let mut buffer = Vec::new();
    // An error is the end as well.
    while let Ok(Some(received)) = stream.receive().await {
        match answer_raw(&received) {
            Some(answer) => buffer.extend_from_slice(&answer),
            None => buffer.extend_from_slice(&received),
        }
        drop(received);
        let (sent, mut sent_buffer) = stream.write_all(buffer).await;
        if sent.is_err() {
            break;
        }
        sent_buffer.clear();
        buffer = sent_buffer;
    }
}
