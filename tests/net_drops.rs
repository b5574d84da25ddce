//! Futures dropped at every point: no descriptor, no receive buffer and no operation is left, and the kernel writes to no
//! buffer that is gone.
#![allow(missing_docs, unsafe_code, clippy::unwrap_used)]

mod net_support;

use std::cell::RefCell;
use std::future::Future;
use std::net::Shutdown;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use corelet::net::{OwnedBuf, OwnedBufMut, TcpListener, TcpStream, UnixListener, UnixStream};
use corelet::runtime::{Runtime, RuntimeBuilder, core_stats, sleep, spawn, timeout, yield_now};
use net_support::*;

/// Polls after which every operation of the table has either ended or will wait for ever.
const POLLS: usize = 8;

/// Has `case` run with every number of polls until its future ends by itself, and looks for leftovers after each.
async fn at_every_poll<F, Fut>(what: &str, case: F)
where
    F: Fn(usize) -> Fut,
    Fut: Future<Output = bool>,
{
    settled().await;
    let base = descriptors();
    for polls in 0..POLLS {
        let ended = case(polls).await;
        println!("{what}: {polls} polls, ended: {ended}");
        settled_at(base).await;
    }
}

async fn every_future_dropped_at_every_poll_leaves_nothing() {
    for family in Family::all() {
        at_every_poll("read", |polls| async move {
            let (_near, mut far) = pair(family).await;
            poll_times(far.read(Vec::with_capacity(100)), polls).await.is_some()
        })
        .await;
        at_every_poll("read of what is there", |polls| async move {
            let (mut near, mut far) = pair(family).await;
            near.write_all("there").await.0.unwrap();
            poll_times(far.read(Vec::with_capacity(100)), polls).await.is_some()
        })
        .await;
        at_every_poll("receive", |polls| async move {
            let (_near, mut far) = pair(family).await;
            poll_times(far.receive(), polls).await.is_some()
        })
        .await;
        at_every_poll("receive of what is there", |polls| async move {
            let (mut near, mut far) = pair(family).await;
            near.write_all(pattern(0, 20_000)).await.0.unwrap();
            poll_times(far.receive(), polls).await.is_some()
        })
        .await;
        at_every_poll("small write", |polls| async move {
            let (mut near, _far) = pair(family).await;
            poll_times(near.write_all(pattern(0, 100)), polls).await.is_some()
        })
        .await;
        at_every_poll("large write", |polls| async move {
            let (mut near, _far) = narrow_pair(family).await;
            poll_times(near.write_all(pattern(0, MORE_THAN_FITS)), polls).await.is_some()
        })
        .await;
        at_every_poll("vectored write", |polls| async move {
            let (mut near, _far) = narrow_pair(family).await;
            poll_times(near.write_vectored(vec![pattern(0, MORE_THAN_FITS); 3]), polls).await.is_some()
        })
        .await;
        at_every_poll("small write behind a full socket", |polls| async move {
            let (mut near, far) = narrow_pair(family).await;
            while timeout(Duration::from_millis(5), near.write(pattern(0, 50_000))).await.is_ok() {}
            near.write_all(pattern(0, 4096)).await.0.unwrap();
            let ended = poll_times(near.write_all(pattern(0, 4096)), polls).await.is_some();
            // What was accepted is sent even after the drop, so the peer has to go first.
            drop(far);
            ended
        })
        .await;
        at_every_poll("flush", |polls| async move {
            let (mut near, far) = narrow_pair(family).await;
            while timeout(Duration::from_millis(5), near.write(pattern(0, 50_000))).await.is_ok() {}
            near.write_all(pattern(0, 4096)).await.0.unwrap();
            let ended = poll_times(near.flush(), polls).await.is_some();
            drop(far);
            ended
        })
        .await;
        at_every_poll("shutdown", |polls| async move {
            let (mut near, _far) = pair(family).await;
            near.write_all("before").await.0.unwrap();
            poll_times(near.shutdown(Shutdown::Both), polls).await.is_some()
        })
        .await;
    }
    at_every_poll("close", |polls| async move {
        let (mut near, _far) = tcp_pair(Family::V4).await;
        assert!(poll_times(near.receive(), 2).await.is_none());
        near.write_all("before").await.0.unwrap();
        poll_times(near.close(), polls).await.is_some()
    })
    .await;
}

async fn connects_and_accepts_dropped_at_every_poll_leave_nothing() {
    for family in Family::all().into_iter().filter(|family| *family != Family::Unix) {
        at_every_poll("connect", |polls| async move {
            let listener = TcpListener::bind(family.loopback()).unwrap();
            poll_times(TcpStream::connect(listener.local_addr().unwrap()), polls).await.is_some()
        })
        .await;
        at_every_poll("accept", |polls| async move {
            let mut listener = TcpListener::bind(family.loopback()).unwrap();
            poll_times(listener.accept(), polls).await.is_some()
        })
        .await;
        at_every_poll("accept with connects", |polls| async move {
            let mut listener = TcpListener::bind(family.loopback()).unwrap();
            let address = listener.local_addr().unwrap();
            let connects: Vec<_> = (0..5).map(|_| spawn(TcpStream::connect(address))).collect();
            let ended = poll_times(listener.accept(), polls).await.is_some();
            drop(listener);
            for connect in connects {
                // Refused when the listener went first.
                drop(connect.await.unwrap());
            }
            ended
        })
        .await;
    }
    let path = fresh_path();
    at_every_poll("Unix connect", |polls| {
        let path = path.clone();
        async move {
            let listener = UnixListener::bind(&path).unwrap();
            let ended = poll_times(UnixStream::connect(&path), polls).await.is_some();
            std::fs::remove_file(&path).unwrap();
            drop(listener);
            ended
        }
    })
    .await;
    at_every_poll("Unix connect to a full backlog", |polls| {
        let path = path.clone();
        async move {
            let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
            set_backlog(&listener, 0);
            let _first = std::os::unix::net::UnixStream::connect(&path).unwrap();
            let ended = poll_times(UnixStream::connect(&path), polls).await.is_some();
            std::fs::remove_file(&path).unwrap();
            ended
        }
    })
    .await;
}

/// Connections that were accepted for a listener, but taken by nobody, are closed with it.
async fn a_dropped_listener_closes_what_it_had_accepted() {
    settled().await;
    let base = descriptors();
    for held in [0, 1, 30] {
        let mut listener = TcpListener::bind(Family::V4.loopback()).unwrap();
        let address = listener.local_addr().unwrap();
        assert!(poll_times(listener.accept(), 2).await.is_none());
        let clients: Vec<_> = (0..held).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        if held > 0 {
            eventually("the kernel has accepted for us", || descriptors() > base + 1 + held).await;
        }
        drop(listener);
        drop(clients);
        settled_at(base).await;
    }
}

/// Where buffers go when they are dropped: their pages stay, filled with one byte, and tell of every later write. (A page
/// without access would not: the kernel's EFAULT leaves the data on the socket, and nobody hears of it.)
#[derive(Default)]
struct Graveyard {
    pages: RefCell<Vec<*mut u8>>,
}

const PAGE: usize = 4096;
const REST: u8 = 0xee;

impl Graveyard {
    fn count(&self) -> usize {
        self.pages.borrow().len()
    }

    #[track_caller]
    fn assert_undisturbed(&self) {
        for page in &*self.pages.borrow() {
            for at in 0..PAGE {
                // SAFETY: the page stays mapped as long as the graveyard. The read is volatile because the very
                // question is whether the kernel writes to it.
                let byte = unsafe { page.add(at).read_volatile() };
                assert_eq!(byte, REST, "the kernel wrote to a buffer that was gone");
            }
        }
    }
}

impl Drop for Graveyard {
    fn drop(&mut self) {
        for page in self.pages.get_mut() {
            // SAFETY: the mapping has been left to the graveyard, and each only once.
            unsafe { libc::munmap(page.cast(), PAGE) };
        }
    }
}

/// A buffer of one page, which goes to the graveyard when it is dropped.
struct GuardedPage {
    page: *mut u8,
    len: usize,
    graveyard: Rc<Graveyard>,
    owner: std::thread::ThreadId,
}

impl GuardedPage {
    fn new(graveyard: &Rc<Graveyard>) -> GuardedPage {
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        let owner = std::thread::current().id();
        GuardedPage { page: page.cast(), len: 0, graveyard: Rc::clone(graveyard), owner }
    }

    fn filled(graveyard: &Rc<Graveyard>) -> GuardedPage {
        let mut page = GuardedPage::new(graveyard);
        // SAFETY: the mapping is of that length, and nobody else's.
        unsafe { page.page.write_bytes(SENT, PAGE) };
        page.len = PAGE;
        page
    }
}

/// What sent pages are filled with.
const SENT: u8 = 0x5a;

// SAFETY: the mapping stays where it is until the drop; its first `len` bytes are initialised, as are all, by mmap.
unsafe impl OwnedBuf for GuardedPage {
    fn stable_ptr(&self) -> *const u8 {
        self.page
    }

    fn init_len(&self) -> usize {
        self.len
    }
}

// SAFETY: as above; the room is the rest of the page.
unsafe impl OwnedBufMut for GuardedPage {
    fn spare(&mut self) -> (*mut u8, usize) {
        // SAFETY: `len` is at most the length of the page.
        (unsafe { self.page.add(self.len) }, PAGE - self.len)
    }

    unsafe fn advance(&mut self, count: usize) {
        self.len += count;
    }
}

impl Drop for GuardedPage {
    fn drop(&mut self) {
        assert_eq!(self.owner, std::thread::current().id(), "a buffer stays on its core");
        // SAFETY: the mapping is this value's own, of that length.
        unsafe { self.page.write_bytes(REST, PAGE) };
        self.graveyard.pages.borrow_mut().push(self.page);
    }
}

/// A read that was dropped is over before its buffer goes: what the peer sends later is never received into it.
async fn no_byte_is_received_into_a_buffer_that_is_gone() {
    let graveyard = Rc::new(Graveyard::default());
    let mut random = Random::logged("the drops");
    for round in 1..=300 {
        let family = if round % 2 == 0 { Family::Unix } else { Family::V4 };
        let (mut near, mut far) = pair(family).await;
        let before = graveyard.count();
        let in_flight_before = core_stats().unwrap().driver.in_flight;
        let polls = 1 + random.below(3) as usize;
        assert!(poll_times(far.read(GuardedPage::new(&graveyard)), polls).await.is_none());
        // The future is gone; the operation is not, and so the buffer is still there.
        assert!(core_stats().unwrap().driver.in_flight > in_flight_before);
        assert_eq!(graveyard.count(), before, "the kernel may still write to it");
        for _ in 0..random.below(3) {
            yield_now().await;
        }
        near.write_all(pattern(0, 64)).await.0.unwrap();
        near.flush().await.unwrap();
        // Either the dropped read had been cancelled, and all the bytes are here; or it took all of them.
        near.write_all(pattern(64, 1)).await.0.unwrap();
        let (count, got) = far.read(Vec::with_capacity(100)).await;
        let skipped = if got[0] == pattern_at(0) { 0 } else { 64 };
        assert_pattern(skipped, &got);
        assert!(skipped == 0 || count.unwrap() == 1);
        eventually("the buffer is dropped", || graveyard.count() == before + 1).await;
    }
    settled().await;
    graveyard.assert_undisturbed();
}

/// Many sends and receives at once, dropped while they are under way: nothing is received into a buffer that is gone,
/// and nothing is sent out of one.
async fn buffers_dropped_under_traffic_outlive_their_operations() {
    let graveyard = Rc::new(Graveyard::default());
    let mut random = Random::logged("the drops");
    let mut made = 0;
    for _ in 0..100 {
        let (mut near, mut far) = narrow_pair(Family::V4).await;
        let peer = spawn(async move {
            let (mut reading, mut writing) = near.split();
            let write = async { while writing.write_all(pattern(0, 5000)).await.0.is_ok() {} };
            let read = async {
                while let Ok(Some(received)) = reading.receive().await {
                    assert!(received.iter().all(|byte| *byte == SENT), "sent from a buffer that was gone");
                    // Slow, so that the sender has to wait at times.
                    yield_now().await;
                }
            };
            both(write, read).await;
        });
        for _ in 0..random.below(10) {
            made += 1;
            match poll_times(far.read(GuardedPage::new(&graveyard)), random.below(4) as usize).await {
                Some((count, page)) => {
                    assert_ne!(count.unwrap(), 0);
                    assert!(page.len > 0);
                }
                None => yield_now().await,
            }
            made += 8;
            let pages = (0..8).map(|_| GuardedPage::filled(&graveyard)).collect::<Vec<_>>();
            drop(poll_times(far.write_vectored(pages), random.below(4) as usize).await);
        }
        drop(far);
        peer.await.unwrap();
    }
    settled().await;
    assert_eq!(graveyard.count(), made, "each of them is dropped once");
    graveyard.assert_undisturbed();
}

/// A buffer that itself holds a listener with connections nobody took.
struct Carrier {
    bytes: Vec<u8>,
    _cargo: TcpListener,
}

// SAFETY: the vector keeps the promises.
unsafe impl OwnedBuf for Carrier {
    fn stable_ptr(&self) -> *const u8 {
        self.bytes.as_ptr()
    }

    fn init_len(&self) -> usize {
        self.bytes.len()
    }
}

// SAFETY: the vector keeps the promises.
unsafe impl OwnedBufMut for Carrier {
    fn spare(&mut self) -> (*mut u8, usize) {
        self.bytes.spare()
    }

    unsafe fn advance(&mut self, count: usize) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.bytes.advance(count) };
    }
}

/// What drops late, when its operation has ended, may itself own sockets and operations.
async fn a_listener_inside_a_dropped_buffer_is_closed_like_any_other() {
    settled().await;
    let base = descriptors();
    let (near, mut far) = tcp_pair(Family::V4).await;
    let mut listener = TcpListener::bind(Family::V4.loopback()).unwrap();
    let address = listener.local_addr().unwrap();
    assert!(poll_times(listener.accept(), 2).await.is_none());
    let clients: Vec<_> = (0..3).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    eventually("the kernel has accepted for us", || descriptors() > base + 3 + 3).await;
    let carrier = Carrier { bytes: Vec::with_capacity(8), _cargo: listener };
    assert!(poll_times(far.read(carrier), 2).await.is_none());
    drop((near, far, clients));
    settled_at(base).await;
}

/// A waker whose drop asks the core for its counts, which it can only while nothing of the core's is borrowed.
struct Nosy;

impl Wake for Nosy {
    fn wake(self: Arc<Nosy>) {}
}

impl Drop for Nosy {
    fn drop(&mut self) {
        core_stats();
    }
}

/// Wakers come from anywhere, and dropping one is user code like any other: it may call back.
async fn a_waker_may_call_back_when_it_is_dropped() {
    let poll = |future: Pin<&mut dyn Future<Output = bool>>| {
        let waker = Waker::from(Arc::new(Nosy));
        assert!(future.poll(&mut Context::from_waker(&waker)).is_pending());
    };
    for family in Family::all() {
        // Replaced by another one, and left with a future that is dropped.
        let (mut near, mut far) = narrow_pair(family).await;
        {
            let mut read = Box::pin(async { far.read(Vec::with_capacity(8)).await.0.is_ok() });
            poll(read.as_mut());
            poll(read.as_mut());
        }
        // The same for what waits behind a full socket.
        while timeout(Duration::from_millis(5), near.write(pattern(0, 50_000))).await.is_ok() {}
        near.write_all(pattern(0, 4096)).await.0.unwrap();
        {
            let mut flush = Box::pin(async { near.flush().await.is_ok() });
            poll(flush.as_mut());
            yield_now().await;
            poll(flush.as_mut());
            poll(flush.as_mut());
        }
        drop((near, far));
        let (mut near, _far) = narrow_tcp_pair(Family::V4).await;
        while timeout(Duration::from_millis(5), near.write(pattern(0, 50_000))).await.is_ok() {}
        near.write_all(pattern(0, 4096)).await.0.unwrap();
        {
            let mut flush = Box::pin(async { near.flush().await.is_ok() });
            poll(flush.as_mut());
            yield_now().await;
            poll(flush.as_mut());
        }
        near.close().await;
    }
}

macro_rules! under {
    ($($setup:ident),*: $($case:ident),* $(,)?) => { under!(@each [$($setup)*] [$($case)*]); };
    (@each [$($setup:ident)*] $cases:tt) => { $( under!(@one $setup $cases); )* };
    (@one $setup:ident [$($case:ident)*]) => {
        mod $setup {
            $(
                #[test]
                fn $case() {
                    crate::net_support::run_alone(crate::net_support::setups::$setup(), crate::$case);
                }
            )*
        }
    };
}

under!(ordinary, tiny_ring, troubled_tiny_ring, one_small_buffer:
    every_future_dropped_at_every_poll_leaves_nothing,
    connects_and_accepts_dropped_at_every_poll_leave_nothing,
    a_dropped_listener_closes_what_it_had_accepted,
    no_byte_is_received_into_a_buffer_that_is_gone,
    buffers_dropped_under_traffic_outlive_their_operations,
    a_listener_inside_a_dropped_buffer_is_closed_like_any_other,
    a_waker_may_call_back_when_it_is_dropped,
);

/// Starts one of everything that waits for ever.
async fn start_what_never_ends() {
    let listener = TcpListener::bind_with(
        Family::V4.loopback(),
        corelet::net::ListenerOptions { backlog: 0, ..Default::default() },
    )
    .unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..4 {
        spawn(async move { TcpStream::connect(address).await.map(std::mem::forget) }).detach();
    }
    let path = fresh_path();
    let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
    set_backlog(&unix, 0);
    for _ in 0..3 {
        let path = path.clone();
        spawn(async move {
            let _stream = UnixStream::connect(&path).await.unwrap();
            sleep(PATIENCE).await;
        })
        .detach();
    }
    spawn(async move {
        let mut listener = TcpListener::bind(Family::V4.loopback()).unwrap();
        let _streams = (listener.accept().await, unix, &listener);
    })
    .detach();
    for family in Family::all() {
        let (mut near, mut far) = narrow_pair(family).await;
        spawn(async move { near.write_all(pattern(0, MORE_THAN_FITS)).await.0 }).detach();
        let (mut also_near, also_far) = narrow_pair(family).await;
        spawn(async move {
            let _far = also_far;
            loop {
                also_near.write_all(pattern(0, 4096)).await.0.unwrap();
            }
        })
        .detach();
        let (also_near, mut also_far) = pair(family).await;
        spawn(async move {
            let _near = also_near;
            also_far.read(Vec::with_capacity(10)).await.0.map(drop)
        })
        .detach();
        let (near, mut third) = pair(family).await;
        spawn(async move {
            let _near = near;
            let _received = third.receive().await;
            // Never reached, but keeps the other end open.
            far.flush().await.unwrap();
        })
        .detach();
    }
    sleep(Duration::from_millis(30)).await;
    std::fs::remove_file(&path).unwrap();
    drop(listener);
}

fn ends_in_time_with_everything_in_flight(builder: RuntimeBuilder) {
    let _alone = alone();
    let before = descriptors();
    within(PATIENCE, move || {
        let runtime: Runtime = builder.build().unwrap();
        runtime.block_on(|| async { start_what_never_ends().await }).unwrap();
        let begun = Instant::now();
        drop(runtime);
        assert!(begun.elapsed() < SHUTDOWN_LIMIT, "the runtime took {:?} to end", begun.elapsed());
    });
    // Those streams that were forgotten are the test's own leak.
    let begun = Instant::now();
    while descriptors() > before + 4 {
        assert!(begun.elapsed() < SHUTDOWN_LIMIT, "{} descriptors, {before} before", descriptors());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_runtime_ends_in_time_with_everything_in_flight() {
    ends_in_time_with_everything_in_flight(setups::ordinary());
}

#[test]
fn a_runtime_with_a_tiny_ring_ends_in_time_with_everything_in_flight() {
    ends_in_time_with_everything_in_flight(setups::tiny_ring());
}

#[test]
fn a_runtime_with_a_troubled_kernel_ends_in_time_with_everything_in_flight() {
    for _ in 0..5 {
        ends_in_time_with_everything_in_flight(setups::troubled_tiny_ring());
    }
}

/// What a task left with the thread that drives the core.
type Kept<T> = Rc<RefCell<Vec<T>>>;

fn with_guest_core<T: 'static, Fut: Future<Output = ()> + 'static>(
    fill: impl FnOnce(Kept<T>) -> Fut,
) -> Kept<T> {
    let (_, guests) = setups::ordinary().build_guests().unwrap();
    let mut core = guests.into_iter().next().unwrap().start().unwrap();
    let kept: Kept<T> = Rc::default();
    core.block_on(fill(Rc::clone(&kept))).unwrap();
    kept
}

#[test]
fn streams_that_outlive_their_core_close_when_they_are_dropped() {
    let _alone = alone();
    let before = descriptors();
    let kept = with_guest_core(|kept| async move {
        for family in Family::all() {
            // Idle; with an armed receive; with unread bytes; with posted bytes.
            let (near, far) = pair(family).await;
            kept.borrow_mut().extend([near, far]);
            let (near, mut far) = pair(family).await;
            assert!(poll_times(far.receive(), 2).await.is_none());
            kept.borrow_mut().extend([near, far]);
            let (mut near, mut far) = pair(family).await;
            near.write_all("unread").await.0.unwrap();
            let (count, _) = far.read(Vec::with_capacity(1)).await;
            count.unwrap();
            assert!(poll_times(far.receive(), 0).await.is_none());
            kept.borrow_mut().extend([near, far]);
            let (mut near, far) = pair(family).await;
            near.write_all("posted").await.0.unwrap();
            kept.borrow_mut().extend([near, far]);
        }
    });
    drop(kept);
    assert_descriptors_soon(before);
}

#[test]
fn a_listener_that_outlives_its_core_closes_what_it_had_accepted() {
    let _alone = alone();
    let before = descriptors();
    let kept = with_guest_core(move |kept| async move {
        let mut listener = TcpListener::bind(Family::V4.loopback()).unwrap();
        assert!(poll_times(listener.accept(), 2).await.is_none());
        let base = descriptors();
        let clients: Vec<_> =
            (0..3).map(|_| std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect();
        eventually("the kernel has accepted for us", || descriptors() == base + 6).await;
        drop(clients);
        kept.borrow_mut().push(listener);
    });
    drop(kept);
    assert_descriptors_soon(before);
}

#[test]
fn a_stream_used_after_its_core_has_ended_gives_errors() {
    let _alone = alone();
    let kept = with_guest_core(|kept| async move {
        let (near, far) = pair(Family::V4).await;
        kept.borrow_mut().extend([near, far]);
    });
    let mut stream = kept.borrow_mut().pop().unwrap();
    let waker = std::task::Waker::noop();
    let mut cx = std::task::Context::from_waker(waker);
    let mut write = std::pin::pin!(stream.write_all("late"));
    match write.as_mut().poll(&mut cx) {
        std::task::Poll::Ready((result, _)) => assert!(result.is_err()),
        std::task::Poll::Pending => panic!("a write to an ended core waits for ever"),
    }
    drop(kept);
}

#[test]
fn dropping_a_stream_between_two_turns_of_its_core_closes_it() {
    let _alone = alone();
    let before = descriptors();
    let (_, guests) = setups::ordinary().build_guests().unwrap();
    let mut core = guests.into_iter().next().unwrap().start().unwrap();
    let kept: Kept<AnyStream> = Rc::default();
    let far = core.block_on({
        let kept = Rc::clone(&kept);
        async move {
            let (mut near, far) = pair(Family::V4).await;
            assert!(poll_times(near.receive(), 2).await.is_none());
            kept.borrow_mut().push(near);
            far
        }
    });
    let mut far = far.unwrap();
    kept.borrow_mut().clear();
    core.block_on(async move { expect_end(&mut far).await }).unwrap();
    drop(core);
    assert_descriptors_soon(before);
}
