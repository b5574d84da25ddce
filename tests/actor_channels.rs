//! What is sent is received once and in order, within the bound, and before the end of the senders.

mod support;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use corelet::actor::channel::{self, Disconnected, RecvTimeoutError, TryRecvError};
use corelet::actor::{self, Addressable, SendError};
use corelet::runtime::{Simulation, core_stats, spawn, yield_now};
use proptest::prelude::*;
use support::{on_cores, poll_once, soon};

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3600);

fn timers() -> usize {
    core_stats().unwrap().timers
}

#[test]
fn a_bound_holds_exactly_over_all_threads() {
    on_cores(2, async |runtime, cores| {
        const ROUNDS: usize = 200;
        const CAPACITY: usize = 4;
        let (sender, mut receiver) = channel::bounded::<usize>(CAPACITY);
        let sent = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (sender, sent) = (sender.clone(), Arc::clone(&sent));
                std::thread::spawn(move || {
                    while sent.load(Ordering::Relaxed) < ROUNDS {
                        if sender.send(0).is_ok() {
                            sent.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        let far = {
            let (sender, sent) = (sender.clone(), Arc::clone(&sent));
            runtime.spawn_on(cores[1], async move || {
                while sent.load(Ordering::Relaxed) < ROUNDS {
                    match sender.send(0) {
                        Ok(()) => drop(sent.fetch_add(1, Ordering::Relaxed)),
                        Err(refused) => assert!(refused.is_full()),
                    }
                    yield_now().await;
                }
            })
        };
        drop(sender);
        let mut received = 0;
        loop {
            assert!(receiver.len() <= CAPACITY, "{} messages in a channel for {CAPACITY}", receiver.len());
            match soon(receiver.recv()).await {
                Ok(_) => received += 1,
                Err(Disconnected) => break,
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        soon(far.unwrap()).await.unwrap();
        assert_eq!(received, sent.load(Ordering::Relaxed), "what was accepted is received");
    });
}

#[test]
fn the_end_of_the_senders_never_overtakes_a_message() {
    on_cores(2, async |runtime, cores| {
        for round in 0..300 {
            let (sender, mut receiver) = channel::unbounded::<usize>();
            let senders: Vec<_> = (0..3).map(|_| sender.clone()).collect();
            drop(sender);
            for (number, sender) in senders.into_iter().enumerate() {
                let send = move || (0..round % 5).for_each(|_| sender.send(number).unwrap());
                match number {
                    0 => send(),
                    1 => drop(std::thread::spawn(send)),
                    _ => runtime.spawn_on(cores[1], async move || send()).unwrap().detach(),
                }
            }
            let mut received = [0; 3];
            while let Ok(number) = soon(receiver.recv()).await {
                received[number] += 1;
            }
            assert_eq!(received, [round % 5; 3]);
        }
    });
}

#[test]
fn the_end_of_the_last_sender_here_waits_for_what_comes_from_elsewhere() {
    on_cores(1, async |_, _| {
        let (sender, mut receiver) = channel::unbounded();
        let far = sender.clone();
        // Delivered when this task yields.
        std::thread::spawn(move || far.send(1).unwrap()).join().unwrap();
        drop(sender);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty), "not disconnected yet");
        assert_eq!(soon(receiver.recv()).await, Ok(1));
        assert_eq!(soon(receiver.recv()).await, Err(Disconnected));
    });
}

#[test]
fn the_end_of_earlier_senders_is_not_that_of_a_later_one() {
    on_cores(1, async |_, _| {
        let (sender, mut receiver) = channel::unbounded();
        let (filler, mut fillers) = channel::unbounded();
        // Nothing is delivered before this task yields, and then 256 mails in a turn: the news of the first sender's end
        // arrives in one, the later one's message and its own end in another.
        std::thread::spawn(move || sender.send(1).unwrap()).join().unwrap();
        let later = receiver.sender();
        std::thread::spawn(move || {
            (0..300).for_each(|number| filler.send(number).unwrap());
            later.send(2).unwrap();
        })
        .join()
        .unwrap();
        let mut heard = Vec::new();
        while let Ok(message) = soon(receiver.recv()).await {
            heard.push(message);
        }
        assert_eq!(heard, [1, 2]);
        while soon(fillers.recv()).await.is_ok() {}

        let again = receiver.sender();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        drop(again);
        assert_eq!(soon(receiver.recv()).await, Err(Disconnected));
    });
}

#[test]
fn every_way_to_receive_counts_once() {
    on_cores(1, async |_, _| {
        let counter = spawn(async {
            let me = actor::myself().unwrap();
            let count = async || {
                // What is received in a poll is added up at its end.
                yield_now().await;
                actor::actor_info(me).await.unwrap().unwrap().messages_received
            };
            let (sender, mut receiver) = channel::unbounded();
            (0..9).for_each(|number| sender.send(number).unwrap());
            let mut counts = vec![count().await];
            receiver.recv().await.unwrap();
            counts.push(count().await);
            receiver.try_recv().unwrap();
            counts.push(count().await);
            receiver.recv_timeout(LONG).await.unwrap();
            counts.push(count().await);
            receiver.recv_match(|number| *number == 4).await.unwrap();
            counts.push(count().await);
            receiver.recv_match_timeout(LONG, |number| *number == 6).await.unwrap();
            counts.push(count().await);
            receiver.try_recv_match(|number| *number == 8).unwrap();
            counts.push(count().await);
            // What was passed over.
            receiver.try_recv().unwrap();
            counts.push(count().await);
            receiver.recv().await.unwrap();
            counts.push(count().await);
            actor::select((std::future::pending::<()>(), receiver.recv())).await;
            counts.push(count().await);
            assert!(receiver.try_recv().is_err() && receiver.try_recv_match(|_| true).is_err());
            counts.push(count().await);
            counts
        });
        let counts = soon(counter).await.unwrap();
        let counts: Vec<_> = counts.iter().map(|count| count - counts[0]).collect();
        assert_eq!(counts, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9]);
    });
}

enum Numbers {}

impl Addressable for Numbers {
    type Msg = u32;
}

#[test]
fn an_address_keeps_a_channel_open() {
    on_cores(1, async |_, _| {
        let (told, mut tells) = channel::unbounded();
        let pid = actor::spawn_addr::<Numbers, _, _>(async move |mut inbox| {
            assert_eq!(inbox.recv_timeout(SHORT).await, Err(RecvTimeoutError::Timeout));
            told.send(()).unwrap();
            assert_eq!(inbox.recv_match(|number| *number > 1).await, Ok(2));
            assert_eq!(inbox.recv().await, Ok(1));
        });
        let end = actor::monitor(pid);
        soon(tells.recv()).await.unwrap();
        actor::send_to(pid, 1).unwrap();
        actor::send_to(pid, 2).unwrap();
        assert!(!soon(end).await.reason.is_abnormal());
    });
}

#[test]
fn a_channel_whose_receiver_leaked_ends_with_its_core() {
    let senders: Vec<_> = (0..3)
        .map(|round| {
            let runtime = support::runtime(1);
            let sender = runtime
                .block_on(move || async move {
                    let (sender, mut receiver) = channel::unbounded();
                    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty), "a channel of its own");
                    std::mem::forget(receiver);
                    sender.send(round).unwrap();
                    sender
                })
                .unwrap();
            drop(runtime);
            sender
        })
        .collect();
    for sender in senders {
        assert_eq!(sender.send(7), Err(SendError::Closed(7)));
        assert!(sender.is_closed());
    }
}

#[test]
fn messages_that_nobody_receives_are_dropped_once() {
    struct Counted(u32, Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    on_cores(1, async |_, _| {
        let drops = Arc::new(AtomicUsize::new(0));
        let dropped = || drops.load(Ordering::Relaxed);
        let (sender, mut receiver) = channel::unbounded();
        for number in 0..5 {
            sender.send(Counted(number, Arc::clone(&drops))).unwrap();
        }
        drop(receiver.try_recv_match(|message| message.0 == 2).unwrap());
        assert_eq!((dropped(), receiver.len()), (1, 4));
        drop(receiver);
        assert_eq!(dropped(), 5);
        assert!(sender.is_closed());
        let refused = sender.send(Counted(5, Arc::clone(&drops))).unwrap_err();
        assert_eq!((dropped(), refused.is_final(), refused.into_inner().0), (5, true, 5));
    });
}

/// What is done to a channel, and to its model.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send,
    Clone,
    DropSender,
    MakeSender,
    Recv,
    TryRecv,
    RecvTimeout,
    /// With the remainder by three that is wanted.
    RecvMatch(u32),
    TryRecvMatch(u32),
    RecvMatchTimeout(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => Just(Step::Send),
        1 => Just(Step::Clone),
        2 => Just(Step::DropSender),
        1 => Just(Step::MakeSender),
        1 => Just(Step::Recv),
        1 => Just(Step::TryRecv),
        1 => Just(Step::RecvTimeout),
        2 => (0..3_u32).prop_map(Step::RecvMatch),
        2 => (0..3_u32).prop_map(Step::TryRecvMatch),
        1 => (0..3_u32).prop_map(Step::RecvMatchTimeout),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn any_use_of_a_channel_is_that_of_a_list(
        steps in steps(),
        capacity in prop_oneof![Just(None), (1..6_usize).prop_map(Some)],
    ) {
        let mut simulation = Simulation::new(0, 1);
        simulation.block_on(async move || against_a_list(&steps, capacity).await).unwrap();
    }
}

async fn against_a_list(steps: &[Step], capacity: Option<usize>) {
    let (sender, mut receiver) = match capacity {
        Some(capacity) => channel::bounded(capacity),
        None => channel::unbounded(),
    };
    let mut senders = vec![sender];
    let mut model = VecDeque::new();
    let mut next = 0_u32;
    for step in steps {
        let over = senders.is_empty();
        let fits = |wanted: u32| move |number: &u32| number % 3 == wanted;
        let place = |wanted: u32| model.iter().position(fits(wanted));
        match *step {
            Step::Send => {
                let Some(sender) = senders.last() else { continue };
                next += 1;
                match sender.send(next) {
                    Ok(()) => model.push_back(next),
                    Err(SendError::Full(back)) => assert_eq!((back, Some(model.len())), (next, capacity)),
                    Err(other) => panic!("{other}"),
                }
            }
            Step::Clone => senders.extend(senders.last().cloned()),
            Step::DropSender => drop(senders.pop()),
            Step::MakeSender => senders.push(receiver.sender()),
            Step::Recv => {
                let got = poll_once(&mut pin!(receiver.recv())).await;
                let expected = match model.pop_front() {
                    Some(message) => Poll::Ready(Ok(message)),
                    None if over => Poll::Ready(Err(Disconnected)),
                    None => Poll::Pending,
                };
                assert_eq!(got, expected);
            }
            Step::TryRecv => {
                let why = if over { TryRecvError::Disconnected } else { TryRecvError::Empty };
                assert_eq!(receiver.try_recv(), model.pop_front().ok_or(why));
            }
            Step::RecvTimeout => {
                let got = poll_once(&mut pin!(receiver.recv_timeout(LONG))).await;
                let expected = match model.pop_front() {
                    Some(message) => Poll::Ready(Ok(message)),
                    None if over => Poll::Ready(Err(RecvTimeoutError::Disconnected)),
                    None => Poll::Pending,
                };
                assert_eq!(got, expected);
            }
            Step::RecvMatch(wanted) => {
                let got = poll_once(&mut pin!(receiver.recv_match(fits(wanted)))).await;
                let expected = match place(wanted) {
                    Some(place) => Poll::Ready(Ok(model.remove(place).unwrap())),
                    None if over => Poll::Ready(Err(Disconnected)),
                    None => Poll::Pending,
                };
                assert_eq!(got, expected);
            }
            Step::RecvMatchTimeout(wanted) => {
                let got = poll_once(&mut pin!(receiver.recv_match_timeout(LONG, fits(wanted)))).await;
                let expected = match place(wanted) {
                    Some(place) => Poll::Ready(Ok(model.remove(place).unwrap())),
                    None if over => Poll::Ready(Err(RecvTimeoutError::Disconnected)),
                    None => Poll::Pending,
                };
                assert_eq!(got, expected);
            }
            Step::TryRecvMatch(wanted) => {
                let why = if over { TryRecvError::Disconnected } else { TryRecvError::Empty };
                let expected = place(wanted).map(|place| model.remove(place).unwrap()).ok_or(why);
                assert_eq!(receiver.try_recv_match(fits(wanted)), expected);
            }
        }
        assert_eq!(receiver.len(), model.len());
        // A step of the budget each, at most; a full one for the next.
        yield_now().await;
    }
    assert_eq!(timers(), 0);
}
