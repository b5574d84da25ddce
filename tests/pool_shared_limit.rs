//! The limit on the connections of all cores and sockets that leases share: no core keeps another from having one for
//! ever by sessions that it holds.
#![cfg(feature = "framed")]
#![allow(missing_docs, clippy::unwrap_used)]

mod framed;
mod support;

use corelet::pool::{CloseReason, FramedConnector, Lease, Pool, TcpConnector};
use framed::{Frames, echo_frames, frame};
use support::{Memory, Upstream, on_cores, poll_until, settled, shard, soon};

/// One connection for two cores, and a session on each core in turn, which nobody closes.
macro_rules! each_core_has_its_turn {
    ($runtime:ident, $cores:ident, $pool:ident, $call:expr) => {
        for core in [$cores[0], $cores[1], $cores[0]] {
            let pool = $pool.clone();
            let work = $runtime.spawn_on(core, move || async move {
                let mut lease = soon(pool.acquire()).await.unwrap();
                $call(&mut lease).await;
            });
            soon(work.unwrap()).await.unwrap();
        }
        let sockets = $pool.sockets().stats().await;
        assert_eq!(sockets.sum(|shard| shard.opens), 3, "{sockets:?}");
        assert_eq!(sockets.sum(|shard| shard.closed_for(CloseReason::Rebalanced)), 2, "{sockets:?}");
        soon($pool.close()).await;
    };
}

#[test]
fn idle_sessions_that_take_turns_keep_no_other_core_from_a_connection() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let builder = Pool::builder(memory.clone()).slots_per_core(2).max_connections(1).leases_per_slot(4);
        let pool = builder.build(&runtime).unwrap();
        each_core_has_its_turn!(runtime, cores, pool, async |lease: &mut Lease<_>| {
            lease.exchange_in_turn(async |_| Ok::<_, ()>(())).await.unwrap();
        });
        assert_eq!((memory.0.peak(), memory.0.live()), (1, 0));
    });
}

#[test]
fn idle_pipelined_sessions_keep_no_other_core_from_a_connection() {
    on_cores(2, async move |runtime, cores| {
        let upstream = Upstream::start(echo_frames);
        let connector = FramedConnector::new(TcpConnector::new(upstream.address), || Frames);
        let builder = Pool::builder(connector).slots_per_core(2).max_connections(1).leases_per_slot(4);
        let pool = builder.pipelined().build(&runtime).unwrap();
        each_core_has_its_turn!(runtime, cores, pool, async |lease: &mut Lease<_>| {
            assert_eq!(lease.call(frame(7)).await.unwrap(), frame(7));
        });
    });
}

/// The one that is asked first may be in use for long.
#[test]
fn one_busy_socket_does_not_keep_another_core_from_an_idle_one() {
    on_cores(2, async move |runtime, cores| {
        for busy in 0..2 {
            let memory = Memory::default();
            let builder = Pool::builder(memory.clone()).slots_per_core(2).max_connections(2);
            let pool = builder.leases_per_slot(1).build(&runtime).unwrap();
            let mut leases = vec![soon(pool.acquire()).await.unwrap(), soon(pool.acquire()).await.unwrap()];
            drop(leases.remove(1 - busy));
            let there = pool.clone();
            let work = runtime.spawn_on(cores[1], move || async move {
                drop(soon(there.acquire()).await.unwrap());
            });
            soon(work.unwrap()).await.unwrap();
            leases[0].exchange_in_turn(async |_| Ok::<_, ()>(())).await.unwrap();
            drop(leases);
            soon(pool.close()).await;
            assert_eq!(memory.0.peak(), 2);
        }
    });
}

/// A lease that is out is not broken for it, and one that comes meanwhile does not delay it for ever.
#[test]
fn a_socket_that_another_core_waits_for_goes_when_its_leases_have_ended() {
    on_cores(2, async move |runtime, cores| {
        let memory = Memory::default();
        let builder = Pool::builder(memory.clone()).slots_per_core(1).max_connections(1).leases_per_slot(4);
        let pool = builder.build(&runtime).unwrap();
        let mut lease = soon(pool.acquire()).await.unwrap();
        let there = pool.clone();
        let waiting = runtime.spawn_on(cores[1], move || async move {
            drop(soon(there.acquire()).await.unwrap());
        });
        poll_until(async || shard(pool.sockets(), 1).await.hungry_waits > 0).await;
        // Its sessions are leased to nobody new: this one waits behind the other core.
        poll_until(async || {
            let handle = pool.handle();
            let mut newcomer = handle.acquire();
            support::poll_once(&mut newcomer).await.is_pending()
        })
        .await;
        lease.exchange_in_turn(async |_| Ok::<_, ()>(())).await.unwrap();
        drop(lease);
        soon(waiting.unwrap()).await.unwrap();
        assert_eq!(memory.0.peak(), 1);
        soon(pool.close()).await;
        for index in 0..2 {
            settled(pool.sockets(), index).await;
        }
    });
}
