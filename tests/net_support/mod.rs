//! What the socket tests share: the runtimes they run under, bounds on waiting, pairs of streams, and patterned bytes.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::ops::DerefMut;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::Poll;
use std::time::{Duration, Instant};

use corelet::net::{
    ListenerOptions, Stream, StreamOptions, TcpListener, TcpStream, UnixListener, UnixStream,
};
use corelet::runtime::{Cores, EnterHook, Runtime, RuntimeBuilder, core_stats, sleep, yield_now};

/// Long enough for anything that ends at all, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a runtime may take to end, whatever is in flight.
pub const SHUTDOWN_LIMIT: Duration = Duration::from_secs(4);

/// The runtimes under which the suite runs.
pub mod setups {
    use super::*;

    pub fn ordinary() -> RuntimeBuilder {
        Runtime::builder().cores(Cores::Count(1)).pinned(false)
    }

    /// Everything overflows: the submission queue holds one entry, the completion queue two.
    pub fn tiny_ring() -> RuntimeBuilder {
        ordinary().submission_entries(1).completion_entries(2)
    }

    /// Every other kernel entry fails for a passing reason, or takes only some of what was staged.
    pub fn troubled_kernel() -> RuntimeBuilder {
        trouble(ordinary())
    }

    pub fn troubled_tiny_ring() -> RuntimeBuilder {
        trouble(tiny_ring())
    }

    /// Receives find no buffer most of the time.
    pub fn one_small_buffer() -> RuntimeBuilder {
        ordinary().receive_buffers(1, 64)
    }

    pub fn two_buffers() -> RuntimeBuilder {
        ordinary().receive_buffers(2, 4096)
    }

    pub fn spinning() -> RuntimeBuilder {
        ordinary().busy_poll(Duration::from_micros(100))
    }

    fn trouble(builder: RuntimeBuilder) -> RuntimeBuilder {
        let random = Random::logged("kernel entries");
        let state = AtomicU64::new(random.0);
        builder.enter_hook(EnterHook::new(move |call| {
            let mut random = Random(state.load(Ordering::Relaxed));
            let (kind, part) = (random.below(8), random.next());
            state.store(random.0, Ordering::Relaxed);
            match kind {
                0 => Some(libc::EBUSY),
                1 => Some(libc::EAGAIN),
                2 => Some(libc::EINTR),
                3 if call.to_submit > 0 => {
                    // The kernel does not wait when it did not take everything.
                    call.to_submit = (part % u64::from(call.to_submit)) as u32;
                    call.min_complete = 0;
                    None
                }
                _ => None,
            }
        }))
    }
}

/// A small generator of reproducible numbers (xorshift); the seed is printed, and set by `CORELET_TEST_SEED`.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn logged(what: &str) -> Random {
        let seed = match std::env::var("CORELET_TEST_SEED") {
            Ok(text) => text.parse().unwrap(),
            Err(_) => std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 | 1,
        };
        println!("seed of {what}: CORELET_TEST_SEED={seed}");
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Runs `body` on a thread of its own; one that does not end in time fails the test instead of hanging it.
pub fn within<R: Send + 'static>(limit: Duration, body: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, outcome) = channel();
    let thread = std::thread::spawn(move || {
        let result = body();
        // Received below, or nobody cares any more.
        let _ = done.send(());
        result
    });
    if let Err(RecvTimeoutError::Timeout) = outcome.recv_timeout(limit) {
        panic!("still not over after {limit:?}");
    }
    match thread.join() {
        Ok(result) => result,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// Runs a case on one core. Afterwards no operation is in flight, no receive buffer is held, and the runtime ends.
pub fn run<F, Fut>(builder: RuntimeBuilder, case: F)
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    within(PATIENCE, move || {
        let runtime = builder.build().unwrap();
        let outcome = runtime.block_on(move || async move {
            case().await;
            settled().await;
        });
        let begun = Instant::now();
        drop(runtime);
        assert!(begun.elapsed() < SHUTDOWN_LIMIT, "the runtime took {:?} to end", begun.elapsed());
        if let Err(error) = outcome {
            std::panic::resume_unwind(error.try_into_panic().unwrap());
        }
    });
}

/// Waits until `condition` holds, looking once a millisecond.
#[track_caller]
pub fn eventually<C: FnMut() -> bool>(what: &str, mut condition: C) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < PATIENCE / 2, "{place}: not in time: {what}: {:?}", core_stats());
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Nothing is in flight and no receive buffer is held, soon.
pub async fn settled() {
    eventually("no operation in flight, no buffer out", || {
        let driver = core_stats().unwrap().driver;
        driver.in_flight == 0 && driver.buffers_out == 0
    })
    .await;
}

/// Descriptors of this process. For tests that have the process to themselves.
pub fn descriptors() -> usize {
    // One of them is the listing itself.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// Polls `future` so many times, with a turn of the core after each, and then drops it.
pub async fn poll_times<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..times {
        if let Poll::Ready(output) = poll_once(future.as_mut()).await {
            return Some(output);
        }
        yield_now().await;
    }
    None
}

pub async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// What a stream runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
    Unix,
}

impl Family {
    /// Those that this machine has.
    pub fn all() -> Vec<Family> {
        let v6 = std::net::TcpListener::bind("[::1]:0").is_ok();
        [Family::V4, Family::V6, Family::Unix]
            .into_iter()
            .filter(|family| v6 || *family != Family::V6)
            .collect()
    }

    pub fn loopback(self) -> SocketAddr {
        match self {
            Family::V4 => "127.0.0.1:0".parse().unwrap(),
            Family::V6 => "[::1]:0".parse().unwrap(),
            Family::Unix => panic!("a Unix socket has no IP address"),
        }
    }
}

/// A stream of either family.
pub type AnyStream = Box<dyn DerefMut<Target = Stream>>;

/// A path nobody has used, for a Unix socket.
pub fn fresh_path() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("corelet-test-{}-{number}", std::process::id()))
}

/// Two ends of a connection, with buffers of ordinary size.
pub async fn pair(family: Family) -> (AnyStream, AnyStream) {
    match family {
        Family::Unix => {
            let (near, far) = unix_pair().await;
            (Box::new(near), Box::new(far))
        }
        _ => {
            let (near, far) = tcp_pair(family).await;
            (Box::new(near), Box::new(far))
        }
    }
}

pub async fn tcp_pair(family: Family) -> (TcpStream, TcpStream) {
    let mut listener = TcpListener::bind(family.loopback()).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap())
}

pub async fn unix_pair() -> (UnixStream, UnixStream) {
    // An abstract address is no file, which is quicker.
    let name = format!("\0{}", fresh_path().display());
    let mut listener = UnixListener::bind(&name).unwrap();
    let near = UnixStream::connect(&name).await.unwrap();
    (near, listener.accept().await.unwrap())
}

/// Two ends of a connection that holds little: a writer soon has to wait for the reader.
pub async fn narrow_pair(family: Family) -> (AnyStream, AnyStream) {
    if family == Family::Unix {
        return pair(family).await;
    }
    let (near, far) = narrow_tcp_pair(family).await;
    (Box::new(near), Box::new(far))
}

pub async fn narrow_tcp_pair(family: Family) -> (TcpStream, TcpStream) {
    let narrow = StreamOptions {
        receive_buffer: Some(8 * 1024),
        send_buffer: Some(8 * 1024),
        ..StreamOptions::default()
    };
    let options = ListenerOptions { stream: narrow, ..ListenerOptions::default() };
    let mut listener = TcpListener::bind_with(family.loopback(), options).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    near.set_options(&narrow).unwrap();
    (near, listener.accept().await.unwrap())
}

/// More than a narrow pair of any family holds, and also more than one that is not narrow on the receiving side.
pub const MORE_THAN_FITS: usize = 1 << 19;

/// The byte at position `at` of every patterned stream. Two stretches never look alike by accident.
pub fn pattern_at(at: usize) -> u8 {
    (at % 251) as u8 ^ (at / 251 % 253) as u8
}

pub fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(pattern_at).collect()
}

#[track_caller]
pub fn assert_pattern(from: usize, bytes: &[u8]) {
    for (offset, byte) in bytes.iter().enumerate() {
        assert_eq!(*byte, pattern_at(from + offset), "at {} of the stream", from + offset);
    }
}

/// Reads `len` patterned bytes, the first of which is at `from`.
pub async fn expect_pattern(stream: &mut Stream, from: usize, len: usize) {
    let mut at = from;
    while at < from + len {
        let room = (from + len - at).min(64 * 1024);
        let (count, buffer) = stream.read(Vec::with_capacity(room)).await;
        assert_ne!(count.unwrap(), 0, "the stream ended at {at} instead of {}", from + len);
        assert_pattern(at, &buffer);
        at += buffer.len();
    }
    assert_eq!(at, from + len);
}

/// The stream has ended.
pub async fn expect_end(stream: &mut Stream) {
    let (count, _) = stream.read(Vec::with_capacity(1)).await;
    assert_eq!(count.unwrap(), 0);
}

/// The stream has ended, one way or the other: a peer that closed with something unread resets.
pub async fn expect_gone(stream: &mut Stream) {
    let (count, _) = stream.read(Vec::with_capacity(1)).await;
    match count {
        Ok(count) => assert_eq!(count, 0),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

/// Both futures, polled by one task.
pub async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    futures_util::future::join(a, b).await
}

/// Sets how many connections may wait for a listener.
#[allow(unsafe_code)]
pub fn set_backlog(listener: &impl std::os::fd::AsRawFd, backlog: i32) {
    // SAFETY: touches no memory; the descriptor is a listening socket's, borrowed for the call.
    let result = unsafe { libc::listen(listener.as_raw_fd(), backlog) };
    assert_eq!(result, 0);
}

/// Runs a case that counts descriptors: alone among the tests of its binary, and back at the count it began with.
pub fn run_alone<F, Fut>(builder: RuntimeBuilder, case: F)
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let _alone = alone();
    let before = descriptors();
    run(builder, case);
    assert_descriptors_soon(before);
}

/// The process to oneself, among the tests of one binary that ask for it.
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The kernel closes some descriptors, such as those of a ring, a moment after their owner.
#[track_caller]
pub fn assert_descriptors_soon(expected: usize) {
    let begun = Instant::now();
    while descriptors() != expected {
        assert!(begun.elapsed() < SHUTDOWN_LIMIT, "{} descriptors instead of {expected}", descriptors());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The core's descriptors are back at `base`, and nothing is in flight, soon.
pub async fn settled_at(base: usize) {
    settled().await;
    eventually("all descriptors closed", || descriptors() == base).await;
}
