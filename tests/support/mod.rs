//! What the tests of pool and actors share: cores to run on, bounded waits, and an upstream on threads.
//!
//! Never: a sleep that stands in for a condition.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use corelet::runtime::{CoreId, Cores, Runtime, RuntimeHandle, sleep, yield_now};

#[cfg(feature = "pool")]
mod pool;
#[cfg(feature = "pool")]
#[allow(unused_imports)]
pub use pool::*;

/// How long anything may take that should happen at once, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Ends the process when `test` hangs, so that a lost wake-up fails instead of stalling the run.
pub fn watched<T>(test: impl FnOnce() -> T) -> T {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let (done, watch) = mpsc::channel::<()>();
    let dog = std::thread::spawn(move || {
        // A test has many steps, each of which may take its time on a machine that is busy.
        if watch.recv_timeout(6 * PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} hangs");
            std::process::abort();
        }
    });
    let result = test();
    drop(done);
    dog.join().unwrap();
    result
}

/// A runtime of `count` cores, pinned where the machine has as many.
pub fn runtime(count: usize) -> Runtime {
    let pinned = std::thread::available_parallelism().is_ok_and(|available| available.get() >= count);
    Runtime::builder().cores(Cores::Count(count)).pinned(pinned).build().unwrap()
}

/// Runs a test on the first of `count` cores.
pub fn on_cores<F, Fut>(count: usize, test: F)
where
    F: FnOnce(RuntimeHandle, Vec<CoreId>) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    watched(|| {
        let runtime = runtime(count);
        let (handle, cores) = (runtime.handle(), runtime.cores());
        runtime.block_on(move || test(handle, cores)).unwrap();
    });
}

/// Looks until `condition` holds.
#[track_caller]
pub fn poll_until(condition: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    poll_until_at(place, condition)
}

async fn poll_until_at(
    place: &'static std::panic::Location<'static>,
    mut condition: impl AsyncFnMut() -> bool,
) {
    let begun = Instant::now();
    for look in 0_u32.. {
        if condition().await {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "what is waited for at {place} does not happen");
        if look < 100 { yield_now().await } else { sleep(Duration::from_millis(1)).await }
    }
}

/// Blocks the thread until `condition` holds; for threads that are no core's.
#[track_caller]
pub fn block_until(mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "what is waited for does not happen");
        std::thread::yield_now();
    }
}

/// Gives `future` a bound, so that a hang names its place.
#[track_caller]
pub fn soon<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    async move {
        match corelet::runtime::timeout(PATIENCE, future).await {
            Ok(output) => output,
            Err(_) => panic!("what is awaited at {place} does not happen"),
        }
    }
}

/// Polls once, with the waker of the calling task.
pub async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx))).await
}

/// When [`cut_off`] drops its future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Right after the last poll.
    AtOnce,
    /// When it was woken again, before it is polled: what it waited for has come and is not collected.
    WhenWoken,
}

/// Polls `future` at most `polls` times and then drops it. `None` when it was dropped unfinished.
pub async fn cut_off<F: Future>(polls: usize, cut: Cut, future: F) -> Option<F::Output> {
    if polls == 0 {
        return None;
    }
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |cx: &mut Context<'_>| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 && cut == Cut::AtOnce => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A small generator; the seed is printed, and `CORELET_TEST_SEED` replays it.
pub struct Random(u64);

impl Random {
    pub fn new() -> Random {
        let seed = match std::env::var("CORELET_TEST_SEED") {
            Ok(seed) => seed.parse().unwrap(),
            Err(_) => std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into(),
        };
        println!("CORELET_TEST_SEED={seed}");
        Random::seeded(seed)
    }

    pub fn seeded(seed: u64) -> Random {
        Random(seed ^ 0x9E37_79B9_7F4A_7C15)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A TCP server on threads of its own, and what it sees of its clients.
pub struct Upstream {
    pub address: SocketAddr,
    state: Arc<UpstreamState>,
    acceptor: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct UpstreamState {
    stop: AtomicBool,
    accepted: AtomicUsize,
    live: AtomicUsize,
    sockets: Mutex<Vec<TcpStream>>,
}

impl Upstream {
    /// Serves each connection, with its number, on a thread.
    pub fn start(serve: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> Upstream {
        Upstream::start_at("127.0.0.1:0".parse().unwrap(), serve)
    }

    pub fn start_at(
        address: SocketAddr,
        serve: impl Fn(TcpStream, usize) + Send + Sync + 'static,
    ) -> Upstream {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(UpstreamState::default());
        let (serve, shared) = (Arc::new(serve), Arc::clone(&state));
        let acceptor = std::thread::spawn(move || {
            let mut threads = Vec::new();
            while let Ok((socket, _)) = listener.accept() {
                if shared.stop.load(Ordering::SeqCst) {
                    break;
                }
                socket.set_nodelay(true).unwrap();
                shared.sockets.lock().unwrap().push(socket.try_clone().unwrap());
                let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
                shared.live.fetch_add(1, Ordering::SeqCst);
                let (serve, shared) = (Arc::clone(&serve), Arc::clone(&shared));
                threads.push(std::thread::spawn(move || {
                    serve(socket.try_clone().unwrap(), number);
                    let _ = socket.shutdown(Shutdown::Both);
                    shared.live.fetch_sub(1, Ordering::SeqCst);
                }));
            }
            shared.hang_up();
            for thread in threads {
                thread.join().unwrap();
            }
        });
        Upstream { address, state, acceptor: Some(acceptor) }
    }

    /// Sends back what it gets.
    pub fn echo() -> Upstream {
        Upstream::start(|mut socket, _| {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = socket.read(&mut buffer) {
                if socket.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
        })
    }

    pub fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }

    /// Connections whose client has not closed.
    pub fn live(&self) -> usize {
        self.state.live.load(Ordering::SeqCst)
    }

    /// Closes every connection.
    pub fn hang_up(&self) {
        self.state.hang_up();
    }

    /// Sends to every client unasked.
    pub fn say(&self, bytes: &[u8]) {
        for mut socket in &*self.state.sockets.lock().unwrap() {
            let _ = socket.write_all(bytes);
        }
    }
}

impl UpstreamState {
    fn hang_up(&self) {
        for socket in self.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// Sends `text` and reads as many bytes back.
pub async fn echo(stream: &mut corelet::net::Stream, text: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(text.to_vec()).await.0?;
    let mut reply = Vec::with_capacity(text.len());
    while reply.len() < text.len() {
        let count;
        (count, reply) = stream.read(reply).await;
        if count? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(reply)
}
