//! A receive takes the message that fits, and gives up when its time is over and not before.

mod support;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use corelet::actor::channel::{self, Disconnected, RecvTimeoutError, TryRecvError};
use corelet::actor::{self, SendError};
use corelet::runtime::{core_stats, spawn, yield_now};
use support::{on_cores, poll_once, poll_until, soon};

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3600);

fn timers() -> usize {
    core_stats().unwrap().timers
}

#[test]
fn a_message_that_is_there_when_the_time_is_over_wins() {
    on_cores(1, async |_, _| {
        let (sender, mut receiver) = channel::unbounded();
        for message in [None, Some(7)] {
            let mut wait = pin!(receiver.recv_timeout(SHORT));
            assert!(poll_once(&mut wait).await.is_pending());
            assert_eq!(timers(), 1);
            poll_until(async || timers() == 0).await;
            message.into_iter().for_each(|message| sender.send(message).unwrap());
            let expected = message.ok_or(RecvTimeoutError::Timeout);
            assert_eq!(poll_once(&mut wait).await, Poll::Ready(expected));
        }
        for message in [None, Some(4)] {
            let mut wait = pin!(receiver.recv_match_timeout(SHORT, |number| number % 2 == 0));
            assert!(poll_once(&mut wait).await.is_pending());
            poll_until(async || timers() == 0).await;
            sender.send(5).unwrap();
            message.into_iter().for_each(|message| sender.send(message).unwrap());
            let expected = message.ok_or(RecvTimeoutError::Timeout);
            assert_eq!(poll_once(&mut wait).await, Poll::Ready(expected));
        }
        assert_eq!(receiver.recv().await, Ok(5));
        assert_eq!(receiver.recv().await, Ok(5));
    });
}

#[test]
fn a_message_that_waits_for_the_next_turn_of_its_task_wins_too() {
    on_cores(1, async |_, _| {
        let (sender, mut receiver) = channel::unbounded();
        let (steps, mut to_spend) = channel::unbounded();
        let mut wait = pin!(receiver.recv_timeout(SHORT));
        assert!(poll_once(&mut wait).await.is_pending());
        poll_until(async || timers() == 0).await;
        sender.send(1).unwrap();
        (0..1_000).for_each(|step| steps.send(step).unwrap());
        yield_now().await;
        // All in one poll: the first receive that yields has found the budget spent.
        std::future::poll_fn(|cx| {
            while to_spend.poll_recv(cx).is_ready() {}
            assert!(!to_spend.is_empty(), "a task that never yields keeps its core");
            assert!(wait.as_mut().poll(cx).is_pending(), "the message is there, and the time is over");
            Poll::Ready(())
        })
        .await;
        yield_now().await;
        assert_eq!(soon(wait).await, Ok(1));
    });
}

#[test]
fn a_limited_receive_leaves_no_timer_and_tells_the_end_of_the_senders_from_that_of_the_time() {
    on_cores(1, async |_, _| {
        let (sender, mut receiver) = channel::unbounded();
        sender.send(1).unwrap();
        assert_eq!(receiver.recv_timeout(LONG).await, Ok(1));
        let theirs = sender.clone();
        actor::spawn(async move { theirs.send(2).unwrap() });
        assert_eq!(receiver.recv_timeout(LONG).await, Ok(2));
        assert_eq!(timers(), 0);
        assert!(poll_once(&mut pin!(receiver.recv_timeout(LONG))).await.is_pending());
        assert_eq!(timers(), 0, "nor does one that is given up");
        assert_eq!(receiver.recv_timeout(SHORT).await, Err(RecvTimeoutError::Timeout));
        assert_eq!(receiver.recv_match_timeout(SHORT, |_| true).await, Err(RecvTimeoutError::Timeout));
        actor::spawn(async move { drop(sender) });
        assert_eq!(receiver.recv_timeout(LONG).await, Err(RecvTimeoutError::Disconnected));
        assert_eq!(receiver.recv_match_timeout(LONG, |_| true).await, Err(RecvTimeoutError::Disconnected));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(receiver.try_recv_match(|_| true), Err(TryRecvError::Disconnected));
        assert_eq!(timers(), 0);
    });
}

#[test]
fn what_a_selective_receive_passes_over_keeps_its_order() {
    on_cores(1, async |_, _| {
        let (sender, mut receiver) = channel::unbounded();
        (0..6).for_each(|number| sender.send(number).unwrap());
        assert_eq!(receiver.recv_match(|number| *number == 3).await, Ok(3));
        assert_eq!(receiver.try_recv_match(|number| *number == 1), Ok(1));
        assert_eq!(receiver.try_recv_match(|number| *number == 9), Err(TryRecvError::Empty));
        assert_eq!(receiver.len(), 4);
        sender.send(6).unwrap();
        assert_eq!(receiver.recv().await, Ok(0));
        assert_eq!(receiver.recv_timeout(LONG).await, Ok(2));
        assert_eq!(receiver.try_recv(), Ok(4));
        drop(sender);
        assert_eq!(receiver.recv_match(|number| *number == 9).await, Err(Disconnected));
        assert_eq!(receiver.recv().await, Ok(5));
        assert_eq!(receiver.recv().await, Ok(6));
        assert_eq!(receiver.recv().await, Err(Disconnected));
    });
}

#[test]
fn a_waiting_selective_receive_looks_at_each_message_once() {
    on_cores(1, async |_, _| {
        const MESSAGES: usize = 1_000;
        let (sender, mut receiver) = channel::unbounded();
        let mut looks = 0;
        {
            let mut wait = pin!(receiver.recv_match(|number| {
                looks += 1;
                *number == MESSAGES
            }));
            for number in 0..MESSAGES {
                assert!(poll_once(&mut wait).await.is_pending());
                sender.send(number).unwrap();
            }
            sender.send(MESSAGES).unwrap();
            assert_eq!(soon(wait).await, Ok(MESSAGES));
        }
        assert_eq!(looks, MESSAGES + 1);
        for number in 0..MESSAGES {
            assert_eq!(receiver.recv().await, Ok(number));
        }
    });
}

#[test]
fn a_long_search_lets_others_run() {
    on_cores(1, async |_, _| {
        let (sender, mut receiver) = channel::unbounded();
        (0..10_000).for_each(|number| sender.send(number).unwrap());
        let others = Rc::new(Cell::new(0_u32));
        let theirs = Rc::clone(&others);
        let _other = spawn(async move {
            loop {
                theirs.set(theirs.get() + 1);
                yield_now().await;
            }
        });
        // Over new messages, and over those that were passed over then.
        for last in [9_999, 9_998] {
            let before = others.get();
            assert_eq!(receiver.recv_match(|number| *number == last).await, Ok(last));
            let runs = others.get() - before;
            assert!(runs >= 9_000 / 128, "a search through 10,000 messages let others run {runs} times");
        }
    });
}

#[test]
fn a_pattern_may_use_its_own_channel_and_may_panic() {
    on_cores(1, async |_, _| {
        let (sender, mut receiver) = channel::bounded(4);
        sender.send(1).unwrap();
        sender.send(2).unwrap();
        let asks = sender.clone();
        let found = receiver.try_recv_match(|number| {
            if *number < 3 {
                asks.send(number + 2).unwrap();
            }
            *number == 4
        });
        assert_eq!(found, Ok(4));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            receiver.try_recv_match(|number| if *number == 2 { panic!("on purpose") } else { false })
        }));
        assert!(panicked.is_err());
        for number in 1..=3 {
            assert_eq!(receiver.try_recv(), Ok(number));
        }
        for number in 0..4 {
            sender.send(number).unwrap();
        }
        assert_eq!(sender.send(9), Err(SendError::Full(9)), "each message gave its place back once");
    });
}

#[test]
fn a_message_that_is_passed_over_holds_its_place() {
    on_cores(1, async |_, _| {
        let (sender, mut receiver) = channel::bounded(2);
        sender.send(1).unwrap();
        sender.send(2).unwrap();
        assert_eq!(receiver.try_recv_match(|number| *number == 3), Err(TryRecvError::Empty));
        assert_eq!((receiver.len(), receiver.is_empty()), (2, false));
        assert_eq!(sender.send(3), Err(SendError::Full(3)));
        assert_eq!(receiver.try_recv_match(|number| *number == 2), Ok(2));
        sender.send(3).unwrap();
        assert_eq!(sender.send(4), Err(SendError::Full(4)));
        assert_eq!(receiver.recv().await, Ok(1));
        assert_eq!(receiver.recv().await, Ok(3));
    });
}
