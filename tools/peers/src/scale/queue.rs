//! A shard whose only slot is leased, and a queue of acquires that this one task polls itself.

use super::{Outcome, Place, What};
use crate::acquire::corelet::Numbers;
use crate::alloc;
use crate::meter::Meter;
use crate::runtimes::{Runtime, corelet::Corelet, in_task, wake_itself};
use anyhow::{Context as _, Result, ensure};
use corelet::pool::{Acquire, Fairness, Handle, Lease, Pool};
use futures::task::noop_waker_ref;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Acquires between two yields: fewer than a task may make in one poll.
const PER_YIELD: usize = 16;

type Queued = Pin<Box<Acquire<'static, Numbers>>>;

pub fn run(what: What, place: Option<Place>, n: usize, slice: Duration) -> Result<Outcome> {
    Corelet::run(move || in_task::<Corelet, _>(measure(what, place, n, slice)))?
}

async fn measure(what: What, place: Option<Place>, n: usize, slice: Duration) -> Result<Outcome> {
    let pool = Pool::builder(Numbers)
        .slots_per_core(1)
        .max_waiters(n + 1)
        .fairness(if what == What::Handles { Fairness::RoundRobin } else { Fairness::Fifo })
        // A deadline for each, as in a service, and none that comes.
        .acquire_timeout(Duration::from_secs(3600))
        .build(&corelet::runtime::handle())
        .context("cannot build the pool")?;
    let lease = pool.handle().acquire().await?;

    let before = alloc::held_by_this_thread();
    let handles = if what == What::Handles { n } else { 1 };
    // The acquires borrow them; they end with the process, a few megabytes later.
    let handles: &'static [Handle<Numbers>] =
        Box::leak((0..handles).map(|_| pool.handle()).collect::<Vec<_>>().into_boxed_slice());
    let with_handles = alloc::held_by_this_thread();

    let mut queue: Vec<Queued> =
        (0..n).map(|index| Box::pin(handles[index % handles.len()].acquire())).collect();
    let with_futures = alloc::held_by_this_thread();
    for chunk in queue.chunks_mut(PER_YIELD) {
        for acquire in chunk {
            ensure!(poll(acquire).is_none(), "an acquire was served with the only slot leased");
        }
        wake_itself().await;
    }
    let with_waiters = alloc::held_by_this_thread();
    let waiting = pool.stats().await.shards[0].waiting;
    ensure!(waiting == n, "{waiting} acquires wait, not {n}");

    let throughput = match place {
        None => serve(lease, handles, &mut queue, slice).await,
        Some(place) => cancel(place, handles, &mut queue, slice).await,
    }?;
    drop(queue);
    pool.close().await;
    let bytes = match what {
        What::Handles => with_handles - before,
        _ => with_waiters - with_futures,
    };
    Ok(Outcome { throughput, bytes_per_item: bytes as f64 / n as f64 })
}

/// The lease goes round the queue.
async fn serve(
    mut lease: Lease<Numbers>,
    handles: &'static [Handle<Numbers>],
    queue: &mut [Queued],
    slice: Duration,
) -> Result<crate::meter::Throughput> {
    let meter = Meter::new(slice);
    let mut first = 0;
    while meter.add(PER_YIELD as u64) {
        for _ in 0..PER_YIELD {
            drop(lease);
            lease = poll(&mut queue[first]).context("the first in the queue was not served")?;
            queue[first].set(handles[first % handles.len()].acquire());
            ensure!(poll(&mut queue[first]).is_none(), "an acquire overtook a queue");
            first = (first + 1) % queue.len();
        }
        wake_itself().await;
    }
    meter.outcome().context("the slice ended without an outcome")
}

/// One acquire after the other is given up and asked for anew; it then stands last.
async fn cancel(
    place: Place,
    handles: &'static [Handle<Numbers>],
    queue: &mut [Queued],
    slice: Duration,
) -> Result<crate::meter::Throughput> {
    let meter = Meter::new(slice);
    let n = queue.len();
    let mut next = 0_usize;
    while meter.add(PER_YIELD as u64) {
        for _ in 0..PER_YIELD {
            queue[next].set(handles[0].acquire());
            ensure!(poll(&mut queue[next]).is_none(), "an acquire overtook a queue");
            next = match place {
                // The oldest: they are renewed in order.
                Place::First => (next + 1) % n,
                // Whoever stands last is the one that was just renewed.
                Place::Last => next,
                // A step that visits every place, and is far from the last one.
                Place::Any => (next + n / 3 * 2 + 1) % n,
            };
        }
        wake_itself().await;
    }
    meter.outcome().context("the slice ended without an outcome")
}

fn poll(acquire: &mut Queued) -> Option<Lease<Numbers>> {
    match acquire.as_mut().poll(&mut Context::from_waker(noop_waker_ref())) {
        Poll::Ready(lease) => lease.ok(),
        Poll::Pending => None,
    }
}
