//! Whatever a pool went through, its descriptors are closed in the end. Alone in its process, which it counts.
#![cfg(feature = "pool")]
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::time::Duration;

use corelet::pool::{Pool, TcpConnector};
use corelet::runtime::{core_stats, spawn};
use support::{Cut, Random, Upstream, cut_off, echo, on_cores, poll_until, soon};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn descriptors_operations_and_tasks_return_to_their_base() {
    on_cores(2, async move |runtime, cores| {
        let mut random = Random::new();
        let mut upstream = Some(Upstream::echo());
        let address = upstream.as_ref().unwrap().address;
        let far_stats =
            async || runtime.spawn_on(cores[1], || async { core_stats().unwrap() }).unwrap().await.unwrap();
        let base = (descriptors(), core_stats().unwrap(), far_stats().await);
        for ending in 0..6 {
            let pool = Pool::builder(TcpConnector::new(address))
                .slots_per_core(3)
                .acquire_timeout(Duration::from_secs(10))
                .build(&runtime)
                .unwrap();
            let mut tasks = Vec::new();
            for lane in 0..6 {
                let (pool, home) = (pool.clone(), cores[lane % 2]);
                let mut random = Random::seeded(random.next());
                tasks.push(spawn(async move {
                    let handle = pool.handle_on(home).unwrap();
                    for _ in 0..20 {
                        let cut = if random.below(2) == 0 { Cut::AtOnce } else { Cut::WhenWoken };
                        let polls = 1 + random.below(6) as usize;
                        let Some(lease) = cut_off(polls, cut, handle.acquire()).await else { continue };
                        let Ok(mut lease) = lease else { return };
                        let exchange = lease.exchange(async |stream| echo(stream, b"some bytes").await);
                        let _ = cut_off(1 + random.below(3) as usize, cut, exchange).await;
                    }
                }));
            }
            match ending {
                // In the middle of it all, in some ways.
                0 => soon(pool.close()).await,
                1 => tasks.truncate(3),
                2 => upstream.as_ref().unwrap().hang_up(),
                _ => {}
            }
            for task in tasks {
                soon(task).await.unwrap();
            }
            match ending {
                3 => drop(pool),
                _ => soon(pool.drain(support::PATIENCE)).await.unwrap(),
            }
            poll_until(async || upstream.as_ref().unwrap().live() == 0).await;
            upstream.as_ref().unwrap().hang_up();
            poll_until(async || descriptors() == base.0).await;
            poll_until(async || {
                let (here, there) = (core_stats().unwrap(), far_stats().await);
                here.executor.live == base.1.executor.live
                    && there.executor.live == base.2.executor.live
                    && here.driver.in_flight == base.1.driver.in_flight
                    && there.driver.in_flight == base.2.driver.in_flight
                    && here.driver.buffers_out == 0
                    && there.driver.buffers_out == 0
            })
            .await;
        }
        upstream.take();
    });
}
