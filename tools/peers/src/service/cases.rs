//! The cases without sockets, written once for all who take part.

use super::frames::{BODY, MIDDLEWARE, ROUTES, body, on_the_wire};
use super::memory::{Input, Memory, Sink};
use super::stopwatch::Stopwatch;
use crate::meter::{Meter, Throughput};
use crate::rtt::MESSAGE;
use crate::runtimes::{Runtime, in_task};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Frames that are queued before a connection may send; half of them in each queue.
pub const QUEUED: u16 = 1000;

/// Places in a push queue.
pub const PLACES: usize = QUEUED as usize / 2;

/// How a library runs something as a task on the calling thread.
pub trait Kit: Send + 'static {
    type Runtime: Runtime;

    fn run<T, F>(main: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        Self::Runtime::run(move || in_task::<Self::Runtime, _>(main()))
    }
}

/// Pushes frames to one connection.
pub trait Pusher {
    fn high(&self, frame: Bytes) -> Result<()>;
    fn low(&self, frame: Bytes) -> Result<()>;
}

/// A connection with two push queues.
pub trait Connects: Kit {
    /// Starts one in a task of its own. It lives as long as the runtime.
    fn connect(transport: Memory) -> impl Future<Output = Result<impl Pusher>>;
}

/// Has a connection send what is queued, over and over; only the sending is timed.
pub fn queued_frames<K: Connects>(slice: Duration) -> Result<Throughput> {
    K::run(move || async move {
        let sink = Sink::new();
        let pusher = K::connect(Memory::new(Input::Silence, &sink)).await?;
        let queue = || {
            for number in (0..QUEUED).step_by(2) {
                pusher.high(numbered(number))?;
                pusher.low(numbered(number + 1))?;
            }
            Ok::<_, anyhow::Error>(sink.bytes() + MESSAGE * usize::from(QUEUED))
        };
        sink.keep();
        sink.reached(queue()?).await;
        check_numbers(&sink.kept()?)?;
        let mut watch = Stopwatch::new(slice);
        loop {
            let bytes = queue()?;
            watch.start();
            sink.reached(bytes).await;
            let goes_on = watch.stop(u64::from(QUEUED));
            ensure!(sink.bytes() == bytes, "{} bytes were sent, not {bytes}", sink.bytes());
            if !goes_on {
                return watch.outcome();
            }
        }
    })?
}

/// A frame that begins with `number`. The bytes are nobody's, so that neither a clone nor its end is a cost.
fn numbered(number: u16) -> Bytes {
    static BODIES: [[u8; BODY]; QUEUED as usize] = {
        let mut bodies = [[7; BODY]; QUEUED as usize];
        let mut number = 0;
        while number < bodies.len() {
            bodies[number][0] = (number >> 8) as u8;
            bodies[number][1] = number as u8;
            number += 1;
        }
        bodies
    };
    Bytes::from_static(&BODIES[usize::from(number)])
}

/// Everything that was queued was sent, that of each queue in its order.
fn check_numbers(sent: &[[u8; BODY]]) -> Result<()> {
    ensure!(sent.len() == usize::from(QUEUED), "{} frames were sent", sent.len());
    for queue in 0..2 {
        let of_queue = sent.iter().filter(|&body| body[1] % 2 == queue);
        let wanted = (0..QUEUED).filter(|number| number % 2 == u16::from(queue)).map(body);
        ensure!(of_queue.copied().eq(wanted), "the frames of a queue are not those that were pushed");
    }
    Ok(())
}

/// How often a middleware was passed.
pub type Passes = Arc<AtomicU64>;

/// An application of [`ROUTES`] routes, each behind [`MIDDLEWARE`] middleware that count who passes.
pub trait Serves: Kit {
    /// What there is of the application once for a core.
    type App: 'static;

    fn app(passes: Passes) -> impl Future<Output = Result<Self::App>>;

    /// Serves one connection to its end. It has push queues, as wide as by default.
    fn serve(app: &Self::App, transport: Memory) -> impl Future<Output = Result<()>>;

    /// The same for a connection that has an application of its own made for it.
    fn make_and_serve(
        app: &Self::App,
        passes: &Passes,
        transport: Memory,
    ) -> impl Future<Output = Result<()>>;
}

/// Sets up connections that are at their end at once.
pub fn startup<K: Serves>(made_for_each: bool, slice: Duration) -> Result<Throughput> {
    K::run(move || async move {
        let (sink, passes) = (Sink::new(), Passes::default());
        let app = K::app(passes.clone()).await?;
        let serve = async |input: Vec<u8>| {
            let transport = Memory::new(Input::Bytes(input), &sink);
            match made_for_each {
                true => K::make_and_serve(&app, &passes, transport).await,
                false => K::serve(&app, transport).await,
            }
        };
        // That all of the application is there.
        sink.keep();
        serve((0..ROUTES).flat_map(|route| on_the_wire(&body(route))).collect()).await?;
        check_routes(&sink, &passes)?;
        let (meter, mut ended) = (Meter::new(slice), sink.ends());
        while meter.add(1) {
            serve(Vec::new()).await?;
            ended += 1;
        }
        ensure!(sink.ends() == ended, "not every connection has read to its end");
        meter.outcome().context("the slice is not over")
    })?
}

fn check_routes(sink: &Rc<Sink>, passes: &Passes) -> Result<()> {
    let answers = sink.kept()?;
    ensure!(answers.iter().copied().eq((0..ROUTES).map(body)), "not every route has answered: {answers:?}");
    let passes = passes.load(Ordering::Relaxed);
    ensure!(passes == MIDDLEWARE * u64::from(ROUTES), "{passes} passes through middleware");
    Ok(())
}

/// Counts one more.
#[inline]
pub fn pass(passes: &AtomicU64) {
    passes.fetch_add(1, Ordering::Relaxed);
}

/// Two push queues without a connection, both ends.
pub trait Queues: Kit {
    type Ends;

    fn queues() -> Self::Ends;

    fn push(ends: &mut Self::Ends, high: bool, number: u64) -> Result<()>;

    /// Waits for the next number of either queue.
    fn receive(ends: &mut Self::Ends) -> impl Future<Output = Result<u64>>;
}

/// Pushes and receives in turn.
pub fn pushes<K: Queues>(high: bool, slice: Duration) -> Result<Throughput> {
    K::run(move || async move {
        let mut ends = K::queues();
        let (mut pushed, mut sum) = (0, 0);
        let meter = Meter::new(slice);
        while meter.add(1) {
            pushed += 1;
            K::push(&mut ends, high, pushed)?;
            sum += K::receive(&mut ends).await?;
        }
        ensure!(sum == pushed * (pushed + 1) / 2, "not what was pushed was received");
        meter.outcome().context("the slice is not over")
    })?
}
