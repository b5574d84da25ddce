//! Upstreams at several addresses, and upstreams that move.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;
mod support;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::threads_named;
use corelet::pool::{AcquireError, Addresses, CloseReason, Pool, Resolve, TcpConnector};
use support::{Upstream, assert_settled, block_until, echo, on_cores, poll_until, shard, soon};

const NEVER: Duration = Duration::from_secs(3600);

/// A resolver that says what it is told to, and on which threads it was asked.
#[derive(Clone, Default)]
struct Names {
    answer: Arc<Mutex<Option<Vec<SocketAddr>>>>,
    asked: Arc<AtomicUsize>,
    threads: Arc<Mutex<Vec<String>>>,
}

impl Names {
    fn saying(addresses: &[SocketAddr]) -> Names {
        let names = Names::default();
        names.say(addresses);
        names
    }

    fn say(&self, addresses: &[SocketAddr]) {
        *self.answer.lock().unwrap() = Some(addresses.to_vec());
    }

    fn fail(&self) {
        *self.answer.lock().unwrap() = None;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Resolve for Names {
    fn resolve(&mut self) -> io::Result<Vec<SocketAddr>> {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.threads.lock().unwrap().push(thread);
        let answer = self.answer.lock().unwrap().clone();
        self.asked.fetch_add(1, Ordering::SeqCst);
        answer.ok_or_else(|| io::Error::new(io::ErrorKind::HostUnreachable, "no answer on purpose"))
    }
}

/// Has the name resolved again, and waits for the answer.
async fn resolve(addresses: &Addresses, names: &Names) {
    let asked = names.asked();
    addresses.resolve_now();
    poll_until(async || names.asked() > asked).await;
}

fn nowhere() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn addresses_take_turns() {
    on_cores(1, async move |runtime, _| {
        let upstreams = [Upstream::echo(), Upstream::echo(), Upstream::echo()];
        let addresses = Addresses::fixed(upstreams.iter().map(|upstream| upstream.address));
        let pool = Pool::builder(TcpConnector::to(addresses)).slots_per_core(6).build(&runtime).unwrap();
        let handle = pool.handle();
        let mut leases = Vec::new();
        for _ in 0..6 {
            leases.push(soon(handle.acquire()).await.unwrap());
        }
        for upstream in &upstreams {
            poll_until(async || upstream.live() == 2).await;
        }
        drop(leases);
        soon(pool.close()).await;
    });
}

#[test]
fn an_address_that_cannot_be_reached_falls_to_the_next() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        // One refuses, one never answers: its backlog is full.
        let hole = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        hole.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        hole.listen(0).unwrap();
        let silent = hole.local_addr().unwrap().as_socket().unwrap();
        let connect = || std::net::TcpStream::connect_timeout(&silent, Duration::from_millis(50));
        let fillers: Vec<_> = std::iter::from_fn(|| connect().ok()).take(16).collect();
        assert!(fillers.len() < 16, "the backlog does not fill");
        let addresses = Addresses::fixed([nowhere(), silent, upstream.address]);
        let connector = TcpConnector::to(addresses).attempt_timeout(Duration::from_millis(50));
        let pool = Pool::builder(connector).slots_per_core(6).build(&runtime).unwrap();
        let handle = pool.handle();
        let mut leases = Vec::new();
        for _ in 0..6 {
            let mut lease = soon(handle.acquire()).await.unwrap();
            lease.exchange(async |stream| echo(stream, b"reached").await).await.unwrap();
            leases.push(lease);
        }
        assert_eq!(shard(&pool, 0).await.connect_failures, 0);
        drop(leases);
        soon(pool.close()).await;
    });
}

#[test]
fn without_any_address_the_attempt_fails() {
    on_cores(1, async move |runtime, _| {
        let names = Names::default();
        let unanswered = Addresses::resolved_by(NEVER, names.clone()).unwrap();
        for (addresses, cause) in [
            (Addresses::fixed([]), "no address is given"),
            (unanswered, "no address is known: no answer on purpose"),
        ] {
            let pool = Pool::builder(TcpConnector::to(addresses)).build(&runtime).unwrap();
            let Err(AcquireError::Connect { source }) = soon(pool.acquire()).await.map(drop) else {
                panic!("there is none")
            };
            assert_eq!(source.to_string(), cause);
            soon(pool.close()).await;
        }
    });
}

#[test]
fn a_name_is_resolved_on_a_thread_of_its_own_that_ends_with_the_last_user() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let names = Names::saying(&[upstream.address]);
        let addresses = Addresses::resolved_by(Duration::from_millis(5), names.clone()).unwrap();
        let pool = Pool::builder(TcpConnector::to(addresses)).build(&runtime).unwrap();
        drop(soon(pool.acquire()).await.unwrap());
        poll_until(async || names.asked() > 3).await;
        assert!(names.threads.lock().unwrap().iter().all(|thread| thread == "corelet-resolve"));
        soon(pool.close()).await;
        drop(pool);
        poll_until(async || Arc::strong_count(&names.asked) == 1).await;
    });
    block_until(|| threads_named("corelet-0") == 0);
}

#[test]
fn connections_to_an_address_that_is_gone_are_drained_and_no_lease_is_broken() {
    on_cores(2, async move |runtime, cores| {
        let (old, new) = (Upstream::echo(), Upstream::echo());
        let names = Names::saying(&[old.address]);
        let addresses = Addresses::resolved_by(NEVER, names.clone()).unwrap();
        let pool =
            Pool::builder(TcpConnector::to(addresses.clone())).slots_per_core(3).build(&runtime).unwrap();
        let (here, there) = (pool.handle_on(cores[0]).unwrap(), pool.handle_on(cores[1]).unwrap());
        let mut near = soon(here.acquire()).await.unwrap();
        let mut far = soon(there.acquire()).await.unwrap();
        drop((soon(here.acquire()).await.unwrap(), soon(there.acquire()).await.unwrap()));
        poll_until(async || old.live() == 4).await;

        names.say(&[new.address]);
        resolve(&addresses, &names).await;
        // The idle ones go at once.
        poll_until(async || old.live() == 2).await;
        near.exchange(async |stream| echo(stream, b"near").await).await.unwrap();
        far.exchange(async |stream| echo(stream, b"far").await).await.unwrap();
        drop((near, far));
        poll_until(async || old.live() == 0).await;
        assert_eq!(pool.stats().await.sum(|shard| shard.closed_for(CloseReason::Superseded)), 4);
        drop((soon(here.acquire()).await.unwrap(), soon(there.acquire()).await.unwrap()));
        poll_until(async || new.live() == 2).await;
        drop((here, there));
        soon(pool.close()).await;
    });
}

#[test]
fn connections_to_an_address_that_stays_are_kept() {
    on_cores(1, async move |runtime, _| {
        let (stays, goes, comes) = (Upstream::echo(), Upstream::echo(), Upstream::echo());
        let names = Names::saying(&[stays.address, goes.address]);
        let addresses = Addresses::resolved_by(NEVER, names.clone()).unwrap();
        let pool =
            Pool::builder(TcpConnector::to(addresses.clone())).slots_per_core(4).build(&runtime).unwrap();
        let handle = pool.handle();
        let mut leases = Vec::new();
        for _ in 0..4 {
            leases.push(soon(handle.acquire()).await.unwrap());
        }
        poll_until(async || (stays.live(), goes.live()) == (2, 2)).await;
        // One to each stays on lease.
        let others = leases.split_off(2);
        drop(others);
        names.say(&[comes.address, stays.address]);
        resolve(&addresses, &names).await;
        poll_until(async || goes.live() == 1).await;
        drop(leases);
        poll_until(async || goes.live() == 0).await;
        assert_eq!(stays.live(), 2);
        let stats = shard(&pool, 0).await;
        assert_eq!((stats.idle, stats.closed_for(CloseReason::Superseded)), (2, 2));
        assert_settled(&stats);
        soon(pool.close()).await;
    });
}

#[test]
fn an_answer_that_fails_or_is_empty_or_the_same_changes_nothing() {
    on_cores(1, async move |runtime, _| {
        let (first, second) = (Upstream::echo(), Upstream::echo());
        let names = Names::saying(&[first.address, second.address]);
        let addresses = Addresses::resolved_by(NEVER, names.clone()).unwrap();
        let pool =
            Pool::builder(TcpConnector::to(addresses.clone())).slots_per_core(2).build(&runtime).unwrap();
        let handle = pool.handle();
        drop((soon(handle.acquire()).await.unwrap(), soon(handle.acquire()).await.unwrap()));
        poll_until(async || shard(&pool, 0).await.idle == 2).await;
        for answer in [None, Some(vec![]), Some(vec![second.address, first.address])] {
            match answer {
                None => names.fail(),
                Some(answer) => names.say(&answer),
            }
            resolve(&addresses, &names).await;
            assert_eq!(addresses.known().len(), 2);
        }
        // The list has flickered; what is gone for good must not stay in use all the same.
        names.say(&[second.address]);
        resolve(&addresses, &names).await;
        poll_until(async || first.live() == 0).await;
        assert_eq!(second.live(), 1);
        assert_eq!(shard(&pool, 0).await.closed_for(CloseReason::Superseded), 1);
        soon(pool.close()).await;
    });
}

#[test]
fn a_peer_that_has_moved_is_looked_for_when_it_cannot_be_reached() {
    on_cores(1, async move |runtime, _| {
        let names = Names::saying(&[nowhere()]);
        let addresses = Addresses::resolved_by(NEVER, names.clone()).unwrap();
        let pool = Pool::builder(TcpConnector::to(addresses))
            .connect_backoff(Duration::from_millis(1), Duration::from_millis(1))
            .build(&runtime)
            .unwrap();
        assert!(soon(pool.acquire()).await.is_err());
        let upstream = Upstream::echo();
        names.say(&[upstream.address]);
        // The attempt that fails asks, and a later one finds it.
        poll_until(async || pool.acquire().await.is_ok()).await;
        soon(pool.close()).await;
    });
}

#[test]
fn refreshing_a_pool_of_fixed_addresses_closes_nothing() {
    on_cores(1, async move |runtime, _| {
        let upstream = Upstream::echo();
        let pool =
            Pool::builder(TcpConnector::new(upstream.address)).slots_per_core(2).build(&runtime).unwrap();
        let handle = pool.handle();
        let lease = soon(handle.acquire()).await.unwrap();
        drop(soon(handle.acquire()).await.unwrap());
        for _ in 0..3 {
            pool.refresh();
            poll_until(async || shard(&pool, 0).await.idle == 1).await;
        }
        drop(lease);
        poll_until(async || shard(&pool, 0).await.idle == 2).await;
        assert_eq!(shard(&pool, 0).await.opens, 2);
        soon(pool.close()).await;
    });
}
