//! corelet: a lease acquired from the other core's shard of a pool and given back, the connection a number.
//!
//! One operation is more than the round trip the other subjects make: the acquire goes there, the connection comes
//! here, and goes home again when the lease is dropped.

use super::{Answers, Mode, pair};
use crate::acquire::corelet::pool;
use crate::alloc;
use crate::meter::{Latency, LatencyMeter};
use anyhow::{Context, Result};
use corelet::runtime::{Cores, Runtime};
use futures::channel::oneshot;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub fn run(mode: Mode, slice: Duration) -> Result<Latency> {
    let busy_poll = match mode {
        Mode::Spinning => Duration::from_secs(1),
        Mode::Asleep => Duration::ZERO,
    };
    let builder = Runtime::builder().cores(Cores::Count(2)).pinned(false).busy_poll(busy_poll);
    let (handle, mut guests) = builder.build_guests().context("cannot build corelet")?;
    let (there, here) = (guests.pop().context("two cores")?, guests.pop().context("two cores")?);
    let far = handle.cores()[1];
    let (started, start) = oneshot::channel::<()>();
    let (warm, warmed) = oneshot::channel::<()>();
    let (over, ended) = oneshot::channel::<()>();
    let operations = Arc::new(AtomicU64::new(0));
    let counted = operations.clone();
    pair(
        move || {
            let mut core = there.start()?;
            // Dropped by the asking side when it ends early; there is nothing to answer then.
            let _ = started.send(());
            let when_warm = Rc::new(Cell::new(alloc::on_this_thread()));
            let at_warm = when_warm.clone();
            core.block_on(async move {
                let _ = warmed.await;
                at_warm.set(alloc::on_this_thread());
                let _ = ended.await;
            })?;
            Ok(Answers::counted(when_warm.get(), counted.load(Ordering::Relaxed)))
        },
        move || {
            let mut core = here.start()?;
            core.block_on(async move {
                start.await.context("the answering core did not start")?;
                let pool = pool(1, None, &handle)?;
                let session = pool.handle_on(far)?;
                for _ in 0..64 {
                    drop(session.acquire().await?);
                }
                let _ = warm.send(());
                let meter = LatencyMeter::new(slice);
                let mut began = Instant::now();
                let mut made = 0;
                loop {
                    drop(session.acquire().await?);
                    made += 1;
                    match meter.lap(began) {
                        Some(next) => began = next,
                        None => break,
                    }
                }
                operations.store(made, Ordering::Relaxed);
                drop(over);
                drop((session, pool));
                meter.outcome().context("the slice ended without an outcome")
            })?
        },
    )
}
