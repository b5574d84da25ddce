//! Writers wait for a peer that does not read, and nothing is lost over it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corelet::net::Stream;
use corelet::runtime::{core_stats, sleep, spawn, timeout};

use crate::net_support::{
    Family, MORE_THAN_FITS, assert_pattern, eventually, expect_end, expect_gone, expect_pattern, narrow_pair,
    narrow_tcp_pair, pair, pattern, poll_times,
};

/// Waits until `progress` stands still: the writer behind it is stuck.
async fn stuck(progress: &Cell<usize>) {
    let (mut seen, mut unchanged) = (progress.get(), 0);
    while unchanged < 20 {
        sleep(Duration::from_millis(1)).await;
        unchanged = if progress.get() == seen && seen > 0 { unchanged + 1 } else { 0 };
        seen = progress.get();
    }
}

pub async fn small_writes_to_a_peer_that_does_not_read_wait_and_then_arrive_in_order() {
    for family in Family::all() {
        let (mut near, mut far) = narrow_pair(family).await;
        let progress = Rc::new(Cell::new(0));
        let writer = spawn({
            let progress = Rc::clone(&progress);
            async move {
                let mut at = 0;
                while at < MORE_THAN_FITS {
                    let len = (1 + at % 3000).min(MORE_THAN_FITS - at);
                    near.write_all(pattern(at, len)).await.0.unwrap();
                    at += len;
                    progress.set(at);
                }
            }
        });
        stuck(&progress).await;
        assert!(!writer.is_finished(), "{family:?}: the peer has read nothing");
        expect_pattern(&mut far, 0, MORE_THAN_FITS).await;
        expect_end(&mut far).await;
        writer.await.unwrap();
    }
}

/// How long a writer must get nowhere to count as stuck.
const STANDSTILL: Duration = Duration::from_millis(20);

/// Writes until the connection takes no more, and gives the number of bytes it took. Nothing is left in flight.
async fn fill(stream: &mut Stream) -> usize {
    let mut at = 0;
    while let Ok((count, _)) = timeout(STANDSTILL, stream.write(pattern(at, 16 * 1024))).await {
        at += count.unwrap();
    }
    at
}

/// Fills the connection and leaves posted bytes behind that the kernel did not take.
async fn overfill(stream: &mut Stream) -> usize {
    let mut at = fill(stream).await;
    loop {
        stream.write_all(pattern(at, 4096)).await.0.unwrap();
        at += 4096;
        if timeout(STANDSTILL, stream.flush()).await.is_err() {
            return at;
        }
    }
}

pub async fn a_flush_waits_until_all_is_with_the_kernel() {
    for family in Family::all() {
        let (mut near, mut far) = narrow_pair(family).await;
        near.flush().await.unwrap();
        let written = overfill(&mut near).await;
        let flushed = spawn(async move {
            near.flush().await.unwrap();
            near
        });
        sleep(STANDSTILL).await;
        assert!(!flushed.is_finished(), "{family:?}: the peer has read nothing");
        expect_pattern(&mut far, 0, written).await;
        drop(flushed.await.unwrap());
        expect_end(&mut far).await;
    }
}

pub async fn closing_gives_up_what_the_peer_does_not_take() {
    // Stuck already when it is closed.
    let (mut near, mut far) = narrow_tcp_pair(Family::V4).await;
    overfill(&mut near).await;
    near.close().await;
    drain(&mut far).await;

    // Accepted, not yet sent, and found to be stuck only while closing.
    let (mut near, mut far) = narrow_tcp_pair(Family::V4).await;
    let filled = fill(&mut near).await;
    near.write_all(pattern(filled, 4096)).await.0.unwrap();
    let begun = Instant::now();
    near.close().await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    drain(&mut far).await;
}

/// Reads what had been sent, to the end.
async fn drain(stream: &mut Stream) {
    while let Some(received) = stream.receive().await.unwrap() {
        drop(received);
    }
}

pub async fn a_dropped_stream_still_sends_what_was_written() {
    for family in Family::all() {
        let (mut near, mut far) = pair(family).await;
        near.write_all(pattern(0, 3000)).await.0.unwrap();
        drop(near);
        expect_pattern(&mut far, 0, 3000).await;
        expect_end(&mut far).await;

        let (mut near, mut far) = narrow_pair(family).await;
        let written = overfill(&mut near).await;
        drop(near);
        expect_pattern(&mut far, 0, written).await;
        expect_end(&mut far).await;

        // A peer that goes away ends it too.
        let (mut near, far) = narrow_pair(family).await;
        overfill(&mut near).await;
        drop(far);
        expect_gone(&mut near).await;
    }
}

/// A stream whose receive is armed, and that nobody reads, must not draw in all of the core's buffers.
pub async fn an_unread_stream_draws_in_a_bounded_number_of_buffers() {
    const TOTAL: usize = 3 << 20;
    for family in Family::all() {
        let (mut near, mut far) = pair(family).await;
        assert!(poll_times(far.receive(), 3).await.is_none());
        let writer = spawn(async move { near.write_all(pattern(0, TOTAL)).await.0.unwrap() });
        eventually("data has arrived", || !far.is_quiet()).await;
        sleep(STANDSTILL).await;
        let out = core_stats().unwrap().driver.buffers_out;
        assert!(out < 256, "{family:?}: {out} of 512 buffers are held by one stream");
        let mut at = 0;
        while at < TOTAL {
            let received = far.receive().await.unwrap().unwrap();
            assert_pattern(at, &received);
            at += received.len();
        }
        writer.await.unwrap();
        expect_end(&mut far).await;
    }
}
