//! What an acquire of a connection from the other core's shard costs, its release included; the connection is only a
//! number.
//!
//! The acquire goes there, the connection comes here, and it goes home again when the lease is dropped. Spinning, both
//! cores look at their queues without pause; asleep, each of them sleeps in the kernel until the other wakes it.

mod common;

use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corelet::pool::{Fairness, Handle};
use corelet::runtime::{Core, Cores, Runtime};
use criterion::{Criterion, criterion_group, criterion_main};
use futures_channel::oneshot;

use common::{Numbers, THERE, numbers, pin, settings};

/// Acquires before each measurement: the other core may have fallen asleep since the last.
const WARMING: usize = 64;

/// A handle here for the shard there.
struct World {
    handle: Rc<Handle<Numbers>>,
    here: Core,
    _there: There,
}

/// The other core, which ends with this.
struct There {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl World {
    fn new(busy_poll: Duration) -> World {
        let builder = Runtime::builder().cores(Cores::Count(2)).pinned(false).busy_poll(busy_poll);
        let (runtime, mut guests) = builder.build_guests().unwrap();
        let (there, here) = (guests.remove(1), guests.remove(0));
        let (end, ended) = oneshot::channel::<()>();
        let (started, start) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            pin(THERE);
            let mut core = there.start().unwrap();
            started.send(()).unwrap();
            // An error is the sender's drop.
            core.block_on(async move { ended.await.is_err() }).unwrap();
        });
        start.recv().unwrap();
        let mut here = here.start().unwrap();
        let pool = numbers(&runtime, 1, Fairness::Fifo);
        let far = runtime.cores()[1];
        let handle = here.block_on(async move { Rc::new(pool.handle_on(far).unwrap()) }).unwrap();
        World { handle, here, _there: There { end: Some(end), thread: Some(thread) } }
    }
}

impl Drop for There {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn acquire(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("xcore/acquire");
    for (mode, busy_poll) in [("spinning", Duration::from_secs(1)), ("asleep", Duration::ZERO)] {
        let mut made = None;
        group.bench_function(mode, |bencher| {
            let world = made.get_or_insert_with(|| World::new(busy_poll));
            bencher.iter_custom(|operations| {
                let handle = Rc::clone(&world.handle);
                let measured = async move {
                    for _ in 0..WARMING {
                        drop(handle.acquire().await.unwrap());
                    }
                    let begun = Instant::now();
                    for _ in 0..operations {
                        drop(handle.acquire().await.unwrap());
                    }
                    begun.elapsed()
                };
                world.here.block_on(measured).unwrap()
            });
        });
    }
}

criterion_group! { name = benches; config = settings(); targets = acquire }
criterion_main!(benches);
