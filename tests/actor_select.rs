//! Of several things that are waited for, the first one that is ready wins, and the others are as if nobody had waited.

mod support;

use std::cell::Cell;
use std::future::{pending, poll_fn, ready};
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use corelet::actor::channel::{self, Disconnected};
use corelet::actor::{self, Arm, ExitReason, Mutex, select, select_timeout};
use corelet::net::{TcpListener, TcpStream, wait_readable, wait_writable};
use corelet::runtime::{core_stats, now, sleep, spawn, timeout, yield_now};
use support::{on_cores, poll_once, poll_until, soon};

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3600);

fn timers() -> usize {
    core_stats().unwrap().timers
}

fn in_flight() -> usize {
    core_stats().unwrap().driver.in_flight
}

#[test]
fn the_lowest_arm_that_is_ready_wins() {
    on_cores(1, async |_, _| {
        let channels: [_; 3] = std::array::from_fn(|_| channel::unbounded());
        let [(a, mut from_a), (b, mut from_b), (c, mut from_c)] = channels;
        for ready in 1..8 {
            for (number, sender) in [&a, &b, &c].into_iter().enumerate() {
                if ready & 1 << number != 0 {
                    sender.send(ready).unwrap();
                }
            }
            for number in (0..3).filter(|number| ready & 1 << number != 0) {
                let won = select((from_a.recv(), from_b.recv(), from_c.recv())).await;
                let expected = [Arm::First(Ok(ready)), Arm::Second(Ok(ready)), Arm::Third(Ok(ready))];
                assert_eq!(won, expected[number], "of the arms {ready:#b}");
            }
        }
        let nothing = select_timeout(SHORT, (from_a.recv(), from_b.recv(), from_c.recv())).await;
        assert_eq!(nothing, None);
    });
}

#[test]
fn an_arm_that_is_always_ready_keeps_those_behind_it_waiting() {
    on_cores(1, async |_, _| {
        let (sender, mut receiver) = channel::unbounded();
        for number in 0..1_000 {
            sender.send(number).unwrap();
        }
        for number in 0..1_000 {
            assert_eq!(select((receiver.recv(), ready(()))).await, Arm::First(Ok(number)));
        }
        assert_eq!(select((receiver.recv(), ready(()))).await, Arm::Second(()));
    });
}

#[test]
fn every_arm_of_every_size_is_told_apart() {
    /// Gives its number, if it is the one.
    async fn arm(number: usize, chosen: usize) -> usize {
        if number == chosen { number } else { pending().await }
    }

    fn place(arm: Arm<usize, usize, usize, usize, usize, usize, usize, usize>) -> (usize, usize) {
        match arm {
            Arm::First(number) => (0, number),
            Arm::Second(number) => (1, number),
            Arm::Third(number) => (2, number),
            Arm::Fourth(number) => (3, number),
            Arm::Fifth(number) => (4, number),
            Arm::Sixth(number) => (5, number),
            Arm::Seventh(number) => (6, number),
            Arm::Eighth(number) => (7, number),
        }
    }

    on_cores(1, async |_, _| {
        for chosen in 0..8 {
            let a = |number| arm(number, chosen);
            assert_eq!(
                place(select((a(0), a(1), a(2), a(3), a(4), a(5), a(6), a(7))).await),
                (chosen, chosen)
            );
            let array: [_; 8] = std::array::from_fn(|number| Box::pin(a(number)));
            assert_eq!(select(array).await, (chosen, chosen));
            let vector: Vec<_> = (0..8).map(|number| Box::pin(a(number))).collect();
            assert_eq!(select(vector).await, (chosen, chosen));
        }
        let a = |number| ready(number);
        // Arms that there are not need no branch.
        match select((a(0), a(1))).await {
            Arm::First(number) => assert_eq!(number, 0),
            Arm::Second(_) => panic!("the first one is ready"),
        }
        assert_eq!(select((pending::<()>(), a(1), a(2))).await, Arm::Second(1));
        assert_eq!(select((pending::<()>(), pending::<()>(), a(2), a(3))).await, Arm::Third(2));
        let no = pending::<()>;
        assert_eq!(select((no(), no(), no(), no(), a(4))).await, Arm::Fifth(4));
        assert_eq!(select((no(), no(), no(), no(), no(), a(5))).await, Arm::Sixth(5));
        assert_eq!(select((no(), no(), no(), no(), no(), no(), a(6))).await, Arm::Seventh(6));
    });
}

#[test]
fn a_closed_channel_is_ready_for_ever_and_others_run_all_the_same() {
    on_cores(1, async |_, _| {
        let (sender, mut closed) = channel::unbounded::<()>();
        let (kept, mut open) = channel::unbounded::<()>();
        drop(sender);
        let others = Rc::new(Cell::new(0_u32));
        let theirs = Rc::clone(&others);
        let _other = spawn(async move {
            loop {
                theirs.set(theirs.get() + 1);
                yield_now().await;
            }
        });
        for _ in 0..10_000 {
            let won = select((closed.recv(), open.recv())).await;
            assert_eq!(won, Arm::First(Err(Disconnected)));
        }
        assert!(
            others.get() >= 10_000 / 128,
            "a loop of 10,000 selects let others run {} times",
            others.get()
        );
        assert_eq!(
            select_timeout(SHORT, (open.recv(), closed.recv())).await,
            Some(Arm::Second(Err(Disconnected)))
        );
        drop(kept);
    });
}

#[test]
fn an_arm_is_not_passed_over_because_the_task_has_used_up_its_steps() {
    on_cores(1, async |_, _| {
        let (sender, mut receiver) = channel::unbounded();
        let (steps, mut to_spend) = channel::unbounded();
        (0..1_000).for_each(|step| steps.send(step).unwrap());
        sender.send(1).unwrap();
        yield_now().await;
        let mut wait = pin!(select((receiver.recv(), ready(()))));
        poll_fn(|cx| {
            while to_spend.poll_recv(cx).is_ready() {}
            assert!(wait.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(soon(wait).await, Arm::First(Ok(1)));
    });
}

#[test]
fn an_arm_that_is_ready_when_the_time_is_over_wins() {
    on_cores(1, async |_, _| {
        let (sender, mut receiver) = channel::unbounded();
        let (_other, mut silent) = channel::unbounded::<()>();
        for message in [None, Some(1)] {
            let mut wait = pin!(select_timeout(SHORT, (silent.recv(), receiver.recv())));
            assert!(poll_once(&mut wait).await.is_pending());
            assert_eq!(timers(), 1);
            poll_until(async || timers() == 0).await;
            message.into_iter().for_each(|message| sender.send(message).unwrap());
            let expected = message.map(|message| Arm::Second(Ok(message)));
            assert_eq!(poll_once(&mut wait).await, Poll::Ready(expected));
        }
        sender.send(2).unwrap();
        assert_eq!(select_timeout(LONG, (silent.recv(), receiver.recv())).await, Some(Arm::Second(Ok(2))));
        assert!(
            poll_once(&mut pin!(select_timeout(LONG, (silent.recv(), receiver.recv())))).await.is_pending()
        );
        assert_eq!(timers(), 0, "no timer is left");
    });
}

#[test]
fn a_losing_channel_that_fires_later_has_no_effect_but_its_message() {
    on_cores(2, async |runtime, cores| {
        const PAUSE: Duration = Duration::from_millis(20);
        let (sender, mut loser) = channel::unbounded();
        let (winner, mut winners) = channel::unbounded();
        winner.send("won").unwrap();
        // The loser is looked at first, so it has the waker.
        assert_eq!(select((loser.recv(), winners.recv())).await, Arm::Second(Ok("won")));
        for core in [cores[0], cores[1]] {
            let sender = sender.clone();
            let sent = runtime
                .spawn_on(core, async move || {
                    for number in 0..20 {
                        sender.send(number).unwrap();
                        sleep(SHORT).await;
                    }
                })
                .unwrap();
            let begun = now();
            sleep(PAUSE).await;
            assert!(now() - begun >= PAUSE, "the sleep was cut short");
            assert!(timeout(SHORT, winners.recv()).await.is_err());
            soon(sent).await.unwrap();
            for number in 0..20 {
                assert_eq!(soon(loser.recv()).await, Ok(number));
            }
        }
    });
}

#[test]
fn a_descriptor_is_an_arm_that_leaves_nothing_behind_however_the_select_ends() {
    on_cores(1, async |_, _| {
        let base = in_flight();
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let (sender, mut receiver) = channel::unbounded();
        let usable = async |here: &mut UnixStream, there: &mut UnixStream| {
            poll_until(async || in_flight() == base).await;
            there.write_all(b"!").unwrap();
            soon(wait_readable(&*here)).await.unwrap();
            here.read_exact(&mut [0]).unwrap();
            poll_until(async || in_flight() == base).await;
        };
        usable(&mut here, &mut there).await;

        // Another arm wins, later and at once.
        let theirs = sender.clone();
        spawn(async move { theirs.send(1).unwrap() }).detach();
        let won = select((wait_readable(&here), receiver.recv())).await;
        assert!(matches!(won, Arm::Second(Ok(1))));
        usable(&mut here, &mut there).await;
        sender.send(2).unwrap();
        assert!(matches!(select((receiver.recv(), wait_readable(&here))).await, Arm::First(Ok(2))));
        assert_eq!(in_flight(), base, "an arm that is not looked at asks the kernel for nothing");
        usable(&mut here, &mut there).await;

        // The time is over.
        assert!(select_timeout(SHORT, (receiver.recv(), wait_readable(&here))).await.is_none());
        usable(&mut here, &mut there).await;

        // The task is stopped, before and after its poll has reached the kernel.
        for turns in [0, 5] {
            let (theirs, waits) = (here.try_clone().unwrap(), Rc::new(Cell::new(false)));
            let waiting = Rc::clone(&waits);
            let waiter = spawn(async move {
                let (_kept, mut silent) = channel::unbounded::<()>();
                waiting.set(true);
                drop(select((silent.recv(), wait_readable(&theirs))).await);
            });
            poll_until(async || waits.get()).await;
            for _ in 0..turns {
                yield_now().await;
            }
            waiter.abort();
            assert!(soon(waiter).await.is_err_and(|error| error.is_cancelled()));
            usable(&mut here, &mut there).await;
        }

        // The descriptor wins, and beats one behind it that is ready as well.
        there.write_all(b"!").unwrap();
        let won = soon(select((receiver.recv(), wait_readable(&here), pending::<()>()))).await;
        assert!(matches!(won, Arm::Second(Ok(()))));
        here.read_exact(&mut [0]).unwrap();
        assert!(matches!(
            soon(select((wait_readable(&here), wait_writable(&here)))).await,
            Arm::Second(Ok(()))
        ));
        usable(&mut here, &mut there).await;

        // The other end goes.
        drop(there);
        let won = soon(select((receiver.recv(), wait_readable(&here)))).await;
        assert!(matches!(won, Arm::Second(Ok(()))));
        assert_eq!(here.read(&mut [0]).unwrap(), 0);
        poll_until(async || in_flight() == base).await;
        drop(sender);
    });
}

#[test]
fn a_wait_for_a_descriptor_may_go_on_over_several_selects() {
    on_cores(1, async |_, _| {
        let (here, mut there) = UnixStream::pair().unwrap();
        let (sender, mut receiver) = channel::unbounded();
        let mut readable = pin!(wait_readable(&here));
        for number in 0..100 {
            sender.send(number).unwrap();
            let won = select((receiver.recv(), readable.as_mut())).await;
            assert!(matches!(won, Arm::First(Ok(got)) if got == number));
        }
        let writer = spawn(async move {
            there.write_all(b"!").unwrap();
            there
        });
        assert!(matches!(soon(select((receiver.recv(), readable.as_mut()))).await, Arm::Second(Ok(()))));
        drop(soon(writer).await);
    });
}

#[test]
fn what_is_wrong_with_a_descriptor_is_what_its_arm_gives() {
    on_cores(1, async |_, _| {
        let base = in_flight();
        let (_sender, mut receiver) = channel::unbounded::<()>();
        // SAFETY: no descriptor has this number, and nothing is done with it but to be refused.
        #[allow(unsafe_code)]
        let nobodys = unsafe { BorrowedFd::borrow_raw(999_999) };
        match soon(select_timeout(LONG, (receiver.recv(), wait_readable(nobodys)))).await {
            Some(Arm::Second(Err(error))) => assert_eq!(error.raw_os_error(), Some(libc::EBADF)),
            other => panic!("{other:?}"),
        }
        assert_eq!((in_flight(), timers()), (base, 0));
    });
}

#[test]
fn whatever_is_a_future_can_be_an_arm() {
    on_cores(1, async |_, _| {
        let (_kept, mut silent) = channel::unbounded::<()>();

        let frail = actor::spawn(async { panic!("on purpose") });
        let mut monitor = actor::monitor(frail);
        match soon(select((silent.recv(), &mut monitor))).await {
            Arm::Second(down) => assert_eq!(down.reason, ExitReason::Panicked("on purpose".into())),
            Arm::First(_) => panic!("nobody sends"),
        }

        let mut exits = actor::trap_exits();
        actor::spawn_link(async { panic!("on purpose too") });
        let exit = soon(select((silent.recv(), exits.recv()))).await;
        assert!(matches!(exit, Arm::Second(exit) if exit.reason.is_failure()));

        let mut task = spawn(async { 5 });
        assert!(matches!(soon(select((silent.recv(), &mut task))).await, Arm::Second(Ok(5))));

        let (reply, answer) = actor::reply::<u8>();
        spawn(async move { reply.send(6) }).detach();
        assert_eq!(soon(select((silent.recv(), answer))).await, Arm::Second(Ok(6)));

        let mutex = Mutex::new(7);
        let held = mutex.lock().await;
        assert!(matches!(select((mutex.lock(), sleep(SHORT))).await, Arm::Second(())));
        drop(held);
        assert!(matches!(select((mutex.lock(), sleep(SHORT))).await, Arm::First(guard) if *guard == 7));

        let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = soon(TcpStream::connect(address)).await.unwrap();
        let Arm::Second(Ok(mut server)) = soon(select((silent.recv(), listener.accept()))).await else {
            panic!("a connection was made")
        };
        assert!(matches!(select((server.receive(), sleep(SHORT))).await, Arm::Second(())));
        client.write_all("text").await.0.unwrap();
        match soon(select((silent.recv(), server.receive()))).await {
            Arm::Second(Ok(Some(received))) => assert_eq!(&received[..], b"text"),
            other => panic!("{other:?}"),
        }
    });
}

#[cfg(feature = "pool")]
#[test]
fn an_acquire_can_be_an_arm_and_goes_on_when_it_loses() {
    use corelet::pool::Pool;
    use support::Memory;

    on_cores(1, async |runtime, _| {
        let (_kept, mut silent) = channel::unbounded::<()>();
        let pool = Pool::builder(Memory::default()).slots_per_core(1).build(&runtime).unwrap();
        let handle = pool.handle();
        let lease = soon(handle.acquire()).await.unwrap();
        let mut acquire = pin!(handle.acquire());
        assert!(matches!(select((acquire.as_mut(), sleep(SHORT))).await, Arm::Second(())));
        drop(lease);
        let lease = soon(select((silent.recv(), acquire.as_mut()))).await;
        assert!(matches!(lease, Arm::Second(Ok(_))));
        drop(lease);
        pool.close().await;
    });
}
