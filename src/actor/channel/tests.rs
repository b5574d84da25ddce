//! What only the inside shows: every way to receive counts for the task that receives.

use std::time::Duration;

use super::*;
use crate::actor;
use crate::runtime::{Cores, Runtime};

/// Messages that the running task has received in this poll.
fn received() -> u32 {
    context::current().executor().received_in_this_poll()
}

#[test]
fn every_way_to_receive_counts_once() {
    let runtime = Runtime::builder().cores(Cores::Count(1)).pinned(false).build().unwrap();
    let counted = runtime.block_on(|| async {
        let (sender, mut receiver) = unbounded();
        for number in 0..9 {
            sender.send(number).unwrap();
        }
        let long = Duration::from_secs(60);
        let mut counts = vec![received()];
        // All of this is there at once, and so is one poll.
        receiver.recv().await.unwrap();
        counts.push(received());
        receiver.try_recv().unwrap();
        counts.push(received());
        receiver.recv_timeout(long).await.unwrap();
        counts.push(received());
        receiver.recv_match(|number| *number == 4).await.unwrap();
        counts.push(received());
        receiver.recv_match_timeout(long, |number| *number == 6).await.unwrap();
        counts.push(received());
        receiver.try_recv_match(|number| *number == 8).unwrap();
        counts.push(received());
        // What was passed over.
        receiver.try_recv().unwrap();
        counts.push(received());
        receiver.recv().await.unwrap();
        counts.push(received());
        actor::select((std::future::pending::<()>(), receiver.recv())).await;
        counts.push(received());
        assert!(receiver.try_recv().is_err() && receiver.try_recv_match(|_| true).is_err());
        counts.push(received());
        counts
    });
    assert_eq!(counted.unwrap(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9]);
}

#[test]
fn receiving_outside_a_task_counts_for_nobody() {
    let queue = Queue::new(1);
    assert!(queue.push(()).is_ok());
    assert!(queue.take_counted().is_some());
}
