//! Calls and casts on one core allocate nothing, and an idle server is small.
#![allow(missing_docs, clippy::unwrap_used, unsafe_code)]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use corelet::actor::server::{self, Context, Request, Server};
use corelet::actor::{self, Addressable, Reply};
use corelet::runtime::yield_now;
use support::{on_cores, poll_until};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread, and the bytes that it holds.
struct Counting;

// SAFETY: hands every call on to the system's allocator unchanged; the counters are plain thread-locals that need no
// allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get() + layout.size() as i64);
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get() - layout.size() as i64);
        // SAFETY: likewise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get() + size as i64 - layout.size() as i64);
        // SAFETY: likewise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WARM_UP: u64 = 100;
const ROUNDS: u64 = 1000;

struct Sum(u64);

impl Server for Sum {
    type Call = ();
    type Reply = u64;
    type Cast = u64;
    type Info = Infallible;

    async fn handle_call(&mut self, (): (), reply: Reply<u64>, _: &Context<Self>) {
        reply.send(self.0);
    }

    async fn handle_cast(&mut self, summand: u64, _: &Context<Self>) {
        self.0 += summand;
    }
}

/// The allocations of `ROUNDS` rounds, after some to warm up.
async fn count(mut round: impl AsyncFnMut()) -> u64 {
    for _ in 0..WARM_UP {
        round().await;
    }
    let before = ALLOCATIONS.get();
    for _ in 0..ROUNDS {
        round().await;
    }
    ALLOCATIONS.get() - before
}

#[test]
fn a_local_call_allocates_nothing() {
    on_cores(1, async |_, _| {
        for server in [server::start(Sum(1)), server::build(Sum(1)).bounded(2).start()] {
            let pid = server.pid();
            let by_reference = count(async || assert_eq!(server.call(()).await, Ok(1))).await;
            let by_pid = count(async || {
                assert_eq!(actor::call(pid, |reply| Request::call((), reply)).await, Ok(1));
            })
            .await;
            let limit = Duration::from_secs(60);
            let limited = count(async || assert_eq!(server.call_timeout((), limit).await, Ok(1))).await;
            assert_eq!((by_reference, by_pid, limited), (0, 0, 0), "in {ROUNDS} calls each");
        }
    });
}

#[test]
fn a_local_cast_allocates_nothing() {
    on_cores(1, async |_, _| {
        let server = server::start(Sum(0));
        let allocations = count(async || {
            for _ in 0..64 {
                server.cast(1).unwrap();
                actor::send_to(server.pid(), Request::cast(1)).unwrap();
            }
            yield_now().await;
        })
        .await;
        assert_eq!(allocations, 0, "in {ROUNDS} rounds of 128 casts");
        assert_eq!(server.call(()).await, Ok(128 * (WARM_UP + ROUNDS)));
    });
}

enum Idle {}

impl Addressable for Idle {
    type Msg = u64;
}

#[test]
fn an_idle_actor_holds_at_most_512_bytes_and_a_server_little_more() {
    /// Just below a power of two, where the tables of a core are full.
    const COUNT: i64 = 16_000;

    on_cores(1, async |_, _| {
        let mut per_actor = Vec::new();
        for servers in [false, true] {
            let mut references = Vec::with_capacity(COUNT as usize);
            let mut pids = Vec::with_capacity(COUNT as usize);
            let live = || corelet::runtime::core_stats().unwrap().executor.live as i64;
            let (before, lived) = (BYTES.get(), live());
            for _ in 0..COUNT {
                if servers {
                    references.push(server::start(Sum(0)));
                } else {
                    pids.push(actor::spawn_addr::<Idle, _, _>(async |mut inbox| {
                        inbox.recv().await.unwrap();
                    }));
                }
            }
            // All have run and wait.
            poll_until(async || corelet::runtime::core_stats().unwrap().executor.ready == 0).await;
            per_actor.push((BYTES.get() - before) / COUNT);
            drop(references);
            pids.into_iter().for_each(actor::request_stop);
            poll_until(async || live() == lived).await;
        }
        println!("bytes: an actor {}, a server {}", per_actor[0], per_actor[1]);
        assert!(per_actor[0] <= 512, "an idle actor with an address holds {} bytes", per_actor[0]);
        assert!(per_actor[1] <= 576, "an idle server holds {} bytes", per_actor[1]);
    });
}

#[test]
fn a_million_actors_live_on_one_core() {
    const COUNT: i64 = 1_000_000;

    // Without a bound on its time: on a busy machine it takes long.
    let test = || async {
        let executor = || corelet::runtime::core_stats().unwrap().executor;
        let (before, lived) = (BYTES.get(), executor().live);
        let mut pids = Vec::with_capacity(COUNT as usize);
        let place = BYTES.get() - before;
        for _ in 0..COUNT {
            pids.push(actor::spawn_addr::<Idle, _, _>(
                async |mut inbox| {
                    while let Ok(1..) = inbox.recv().await {}
                },
            ));
        }
        while executor().ready > 0 {
            yield_now().await;
        }
        let each = (BYTES.get() - before - place) / COUNT;
        println!("{each} bytes each");
        assert!(each <= 512, "{each} bytes each");
        // Each of them is there, and ends when it is told to.
        for pid in &pids {
            actor::send_to(*pid, 0).unwrap();
        }
        while executor().ready > 0 {
            yield_now().await;
        }
        assert_eq!(executor().live, lived);
    };
    support::runtime(1).block_on(test).unwrap();
}
