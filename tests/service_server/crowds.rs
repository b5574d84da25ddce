//! Crowds that mean no good: those that drip, those that say nothing, those that are gone before they are there.

use std::time::Duration;

use corelet::net::{StreamOptions, TcpStream};
use corelet::runtime::{core_stats, sleep, spawn};
use corelet::service::Limits;
use corelet::service::connection::EndReason;

use crate::fixture::*;
use crate::support::{on_cores, poll_until, soon};

const CROWD: usize = 1000;

async fn crowd(server: &corelet::service::ServerHandle) -> Vec<TcpStream> {
    let mut streams = Vec::with_capacity(CROWD);
    for _ in 0..CROWD {
        streams.push(connect(server).await);
    }
    streams
}

/// One accept stays armed for all; each connection adds the receive that it waits by.
#[test]
fn accepting_takes_one_submission_however_many_come() {
    const COUNT: u64 = 100;
    on_cores(1, async move |runtime, _| {
        let server = soon(server().start(&runtime)).await.unwrap();
        let submitted = || core_stats().unwrap().driver.submitted;
        let before = submitted();
        let address = server.local_addr();
        let crowd: Vec<_> = (0..COUNT).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        until_open(&server, COUNT).await;
        poll_until(async || submitted() - before >= COUNT).await;
        let took = submitted() - before;
        assert!(took < COUNT + 20, "{took} submissions for {COUNT} connections");
        drop(crowd);
    });
}

#[test]
fn a_thousand_that_drip_are_cut_off_and_disturb_nobody() {
    on_cores(2, async move |runtime, _| {
        limit_descriptors(u64::MAX);
        let limits = Limits { frame_timeout: Some(Duration::from_secs(1)), ..Limits::default() };
        let server = soon(server().limits(limits).start(&runtime)).await.unwrap();
        let mut honest = connect(&server).await;
        let mut drips = crowd(&server).await;
        let dripping = spawn(async move {
            while !drips.is_empty() {
                let mut left = Vec::with_capacity(drips.len());
                for mut stream in drips {
                    if stream.write_all("x").await.0.is_ok() {
                        left.push(stream);
                    }
                }
                drips = left;
                sleep(Duration::from_millis(50)).await;
            }
        });
        poll_until(async || figure(&server, |core| core.counts.bytes_in).await >= CROWD as u64).await;
        loop {
            talk(&mut honest, "echo still here", "echo still here").await;
            if figure(&server, |core| core.counts.closed_for(EndReason::FrameTimeout)).await == CROWD as u64 {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        soon(dripping).await.unwrap();
        until_open(&server, 1).await;
    });
}

#[test]
fn a_thousand_that_say_nothing_are_cut_off() {
    on_cores(2, async move |runtime, _| {
        limit_descriptors(u64::MAX);
        let limits = Limits { idle_timeout: Some(Duration::from_millis(300)), ..Limits::default() };
        let server = soon(server().limits(limits).start(&runtime)).await.unwrap();
        let silent = crowd(&server).await;
        let mut honest = connect(&server).await;
        let idle =
            |core: &corelet::service::server::ServerCoreStats| core.counts.closed_for(EndReason::IdleTimeout);
        while figure(&server, idle).await < CROWD as u64 {
            talk(&mut honest, "echo here", "echo here").await;
            sleep(Duration::from_millis(1)).await;
        }
        drop(silent);
    });
}

#[test]
fn a_flood_of_connections_that_are_gone_at_once_leaves_nothing_behind() {
    on_cores(2, async move |runtime, _| {
        let server = soon(server().start(&runtime)).await.unwrap();
        let mut honest = connect(&server).await;
        talk(&mut honest, "echo a", "echo a").await;
        let base = core_stats().unwrap();
        for round in 0..CROWD {
            let flood = connect(&server).await;
            // Every other one by a reset.
            let linger = (round % 2 == 0).then_some(Duration::ZERO);
            flood.set_options(&StreamOptions { linger, ..StreamOptions::default() }).unwrap();
            flood.close().await;
            if round % 100 == 0 {
                talk(&mut honest, "echo b", "echo b").await;
            }
        }
        until_open(&server, 1).await;
        talk(&mut honest, "echo c", "echo c").await;
        poll_until(async || {
            let stats = core_stats().unwrap();
            stats.executor.live == base.executor.live && stats.driver.in_flight == base.driver.in_flight
        })
        .await;
        let stats = server.stats().await;
        assert_eq!(stats.sum(|core| core.accepted), stats.sum(|core| core.ended) + 1);
    });
}
