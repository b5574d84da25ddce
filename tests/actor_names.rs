//! A name leads to the live actor that has it, by a channel for each type of message, over all cores of a runtime.

mod support;

use std::cell::RefCell;
use std::future::{Future, pending};
use std::rc::Rc;

use corelet::actor::{
    self, Addressable, CallError, Directory, Erased, ExitReason, Name, Pid, RegisterError, Reply, SendError,
    channel,
};
use corelet::runtime::{CoreId, RawPid, RuntimeHandle, yield_now};
use support::{block_until, on_cores, poll_until, runtime, soon, watched};

enum Numbers {}

impl Addressable for Numbers {
    type Msg = u64;
}

enum Texts {}

impl Addressable for Texts {
    type Msg = &'static str;
}

const NUMBERS: Name<u64> = Name::new("both");
const TEXTS: Name<&str> = Name::new("both");

/// Starts an actor on `core` and waits until it has said that it is ready.
async fn start<F, Fut>(runtime: &RuntimeHandle, core: CoreId, body: F) -> Pid
where
    F: FnOnce(channel::Sender<Pid>) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + 'static,
{
    let (ready, mut readied) = channel::unbounded();
    runtime.spawn_on(core, move || body(ready)).unwrap().detach();
    soon(readied.recv()).await.unwrap()
}

/// One that has a name, and an inbox that it does not read.
async fn holder(runtime: &RuntimeHandle, core: CoreId, name: Name<u64>) -> Pid {
    start(runtime, core, move |ready| async move {
        let (_sender, inbox) = channel::unbounded();
        actor::register(name, &inbox).unwrap();
        ready.send(actor::myself().unwrap()).unwrap();
        pending().await
    })
    .await
}

async fn end(pid: Pid) {
    let end = actor::monitor(pid);
    actor::request_stop(pid);
    assert_eq!(soon(end).await.reason, ExitReason::Stopped);
}

#[test]
fn one_name_leads_to_one_actor_by_a_channel_for_each_type() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            let (told, mut tells) = channel::unbounded::<String>();
            let pid = start(&runtime, core, |ready| async move {
                let (_sender, mut numbers) = channel::unbounded();
                let (_sender, mut texts) = channel::unbounded();
                actor::register(NUMBERS, &numbers).unwrap();
                actor::register(TEXTS, &texts).unwrap();
                ready.send(actor::myself().unwrap()).unwrap();
                told.send(texts.recv().await.unwrap().to_owned()).unwrap();
                told.send(numbers.recv().await.unwrap().to_string()).unwrap();
            })
            .await;
            assert_eq!((actor::whereis(NUMBERS), actor::whereis("both")), (Some(pid), Some(pid)));
            actor::send(NUMBERS, 7).unwrap();
            actor::send(TEXTS, "a text").unwrap();
            assert_eq!(soon(tells.recv()).await.unwrap(), "a text");
            assert_eq!(soon(tells.recv()).await.unwrap(), "7");
            soon(actor::monitor(pid)).await;
        }
    });
}

#[test]
fn a_later_channel_of_the_same_type_takes_the_place_of_the_first() {
    on_cores(1, async |_, _| {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let theirs = Rc::clone(&heard);
        let pid = actor::spawn(async move {
            let (sender, mut first) = channel::unbounded();
            let (_sender, mut second) = channel::unbounded();
            actor::register(NUMBERS, &first).unwrap();
            actor::register(NUMBERS, &second).unwrap();
            let number = second.recv().await.unwrap();
            theirs.borrow_mut().push(number);
            drop(sender);
            assert!(first.recv().await.is_err(), "nobody can send there any more");
        });
        yield_now().await;
        actor::send(NUMBERS, 1).unwrap();
        assert_eq!(soon(actor::monitor(pid)).await.reason, ExitReason::Normal);
        assert_eq!(*heard.borrow(), [1]);
    });
}

#[test]
fn a_name_is_taken_only_by_another_live_actor() {
    on_cores(2, async |runtime, cores| {
        for core in &cores {
            let first = holder(&runtime, *core, NUMBERS).await;
            let second = actor::spawn_addr::<Numbers, _, _>(async |_inbox| pending::<()>().await);
            let refused = actor::register_pid(NUMBERS, second).unwrap_err();
            assert_eq!(refused, RegisterError::NameTaken { holder: first });
            assert!(refused.is_taken() && refused.to_string().contains(&first.to_string()));
            assert_eq!(actor::whereis(NUMBERS), Some(first));
            end(first).await;
            // Free as soon as anybody can know.
            assert_eq!(actor::whereis(NUMBERS), None);
            actor::register_pid(NUMBERS, second).unwrap();
            actor::register_pid(NUMBERS, second).unwrap();
            assert_eq!(actor::whereis(NUMBERS), Some(second.erase()));
            end(second.erase()).await;
        }
    });
}

#[test]
fn of_many_who_want_a_name_at_once_one_gets_it() {
    on_cores(2, async |runtime, cores| {
        for _ in 0..200 {
            let (told, mut tells) = channel::unbounded();
            for core in [0, 1, 0, 1] {
                let told = told.clone();
                let claim = move || async move {
                    let (_sender, inbox) = channel::unbounded();
                    let won = actor::register(NUMBERS, &inbox).is_ok();
                    told.send((actor::myself().unwrap(), won)).unwrap();
                    pending::<()>().await;
                };
                runtime.spawn_on(cores[core], claim).unwrap().detach();
            }
            let mut claimants = Vec::new();
            for _ in 0..4 {
                claimants.push(soon(tells.recv()).await.unwrap());
            }
            let winners: Vec<_> = claimants.iter().filter(|(_, won)| *won).map(|(pid, _)| *pid).collect();
            assert_eq!(winners.len(), 1);
            assert_eq!(actor::whereis(NUMBERS), Some(winners[0]));
            for (pid, _) in claimants {
                end(pid).await;
            }
            assert_eq!(actor::whereis(NUMBERS), None);
        }
    });
}

#[test]
fn a_name_is_free_when_others_hear_of_the_end_of_its_holder() {
    on_cores(2, async |runtime, cores| {
        let successor = actor::spawn_addr::<Numbers, _, _>(async |_inbox| pending::<()>().await);
        for round in 0..500 {
            let first = holder(&runtime, cores[round % 2], NUMBERS).await;
            let end = actor::monitor(first);
            actor::request_stop(first);
            soon(end).await;
            actor::register_pid(NUMBERS, successor).unwrap();
            assert!(actor::unregister(NUMBERS) && !actor::unregister(NUMBERS));
        }
    });
}

#[test]
fn unregistering_frees_the_name_and_nothing_else() {
    on_cores(1, async |_, _| {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let theirs = Rc::clone(&heard);
        let pid = actor::spawn_addr::<Numbers, _, _>(async move |mut inbox| {
            while let Ok(number) = inbox.recv().await {
                theirs.borrow_mut().push(number);
            }
        });
        const OTHER: Name<u64> = Name::new("other");
        actor::register_pid(NUMBERS, pid).unwrap();
        actor::register_pid(OTHER, pid).unwrap();
        assert!(actor::unregister(NUMBERS));
        assert_eq!(actor::whereis(NUMBERS), None);
        assert_eq!(actor::send(NUMBERS, 1), Err(SendError::Unresolved(1)));
        assert_eq!(actor::whereis(OTHER), Some(pid.erase()));
        actor::send_to(pid, 2).unwrap();
        actor::send(OTHER, 3).unwrap();
        poll_until(async || *heard.borrow() == [2, 3]).await;
        end(pid.erase()).await;
    });
}

#[test]
fn what_is_refused_comes_back_and_says_why_on_every_core() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            const BOUNDED: Name<u8> = Name::new("refuses");
            const CLOSED: Name<u16> = Name::new("refuses");
            const UNKNOWN: Name<u32> = Name::new("refuses");
            const NOBODY: Name<u8> = Name::new("nobody");
            let pid = start(&runtime, core, |ready| async move {
                let (_sender, bounded) = channel::bounded(2);
                let (_sender, closed) = channel::unbounded();
                actor::register(BOUNDED, &bounded).unwrap();
                actor::register(CLOSED, &closed).unwrap();
                drop(closed);
                ready.send(actor::myself().unwrap()).unwrap();
                pending().await
            })
            .await;
            assert_eq!(actor::send(NOBODY, 1), Err(SendError::Unresolved(1)));
            assert_eq!(actor::send(UNKNOWN, 1), Err(SendError::NoChannel(1)));
            assert_eq!(actor::send(CLOSED, 1), Err(SendError::Closed(1)));
            assert_eq!(actor::send(BOUNDED, 1), Ok(()));
            assert_eq!(actor::send(BOUNDED, 2), Ok(()));
            assert_eq!(actor::send(BOUNDED, 3), Err(SendError::Full(3)));
            end(pid).await;
            assert_eq!(actor::send(BOUNDED, 4), Err(SendError::Unresolved(4)));
        }
    });
}

#[test]
fn a_pid_is_never_led_to_the_successor_that_a_name_leads_to() {
    on_cores(1, async |_, _| {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let begin = |life: u64| {
            let heard = Rc::clone(&heard);
            let pid = actor::spawn_addr::<Numbers, _, _>(async move |mut inbox| {
                while let Ok(number) = inbox.recv().await {
                    heard.borrow_mut().push((life, number));
                }
            });
            actor::register_pid(NUMBERS, pid).unwrap();
            pid
        };
        let first = begin(1);
        actor::send(NUMBERS, 10).unwrap();
        poll_until(async || heard.borrow().len() == 1).await;
        end(first.erase()).await;
        let second = begin(2);
        assert_eq!(first.raw().index(), second.raw().index(), "it has the same slot");
        assert_eq!(actor::send_to(first, 11), Err(SendError::Dead(11)));
        actor::send(NUMBERS, 12).unwrap();
        poll_until(async || heard.borrow().len() == 2).await;
        assert_eq!(*heard.borrow(), [(1, 10), (2, 12)]);
        end(second.erase()).await;
    });
}

#[test]
fn a_wrong_kind_is_never_delivered() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            let (told, mut tells) = channel::unbounded();
            let pid = soon(actor::spawn_addr_on::<Numbers, _, _>(&runtime, core, async move |mut inbox| {
                told.send(inbox.recv().await.unwrap()).unwrap();
            }))
            .await
            .unwrap();
            let registrar = move || async move { actor::register_pid(NUMBERS, pid) };
            soon(runtime.spawn_on(core, registrar).unwrap()).await.unwrap().unwrap();
            let (right, wrong) =
                (actor::lookup_as::<Numbers>(NUMBERS).unwrap(), actor::lookup_as::<Texts>(NUMBERS).unwrap());
            assert!(right == pid && wrong == pid);
            let sent = actor::send_to(wrong, "a text");
            if core == actor::myself().unwrap().core() {
                assert_eq!(sent, Err(SendError::NoChannel("a text")));
            } else {
                assert_eq!(sent, Ok(()), "dropped and counted there");
            }
            assert_eq!(actor::send(TEXTS, "a text"), Err(SendError::NoChannel("a text")));
            actor::send_to(right, 5).unwrap();
            assert_eq!(soon(tells.recv()).await, Ok(5));
            soon(actor::monitor(pid)).await;
        }
    });
}

#[test]
fn only_a_live_actor_of_this_core_with_a_mailbox_is_registered() {
    on_cores(2, async |runtime, cores| {
        let plain = actor::spawn(pending::<()>());
        assert_eq!(actor::register_pid(NUMBERS, plain), Err(RegisterError::NoChannel));
        let texts = actor::spawn_addr::<Texts, _, _>(async |_inbox| pending::<()>().await);
        assert_eq!(actor::register_pid(NUMBERS, texts), Err(RegisterError::NoChannel));
        end(texts.erase()).await;
        assert_eq!(actor::register_pid(TEXTS, texts), Err(RegisterError::Dead));
        let far = soon(actor::spawn_addr_on::<Numbers, _, _>(&runtime, cores[1], async |_inbox| {
            pending::<()>().await
        }));
        let far = far.await.unwrap();
        assert_eq!(actor::register_pid(NUMBERS, far), Err(RegisterError::OtherCore));
        assert_eq!(actor::whereis("both"), None);
        for pid in [plain, far.erase()] {
            end(pid).await;
        }
    });
}

#[test]
fn threads_that_are_no_cores_reach_a_runtimes_names_and_those_of_another_are_others() {
    watched(|| {
        let (one, other) = (runtime(1), runtime(1));
        let (here, there) = (Directory::of(&one.handle()), Directory::of(&other.handle()));
        let core = one.cores()[0];
        let (told, heard) = std::sync::mpsc::channel();
        one.spawn_on(core, move || async move {
            let (_sender, mut inbox) = channel::unbounded();
            actor::register(NUMBERS, &inbox).unwrap();
            while let Ok(number) = inbox.recv().await {
                told.send(number).unwrap();
            }
        })
        .unwrap()
        .detach();
        block_until(|| here.whereis(NUMBERS).is_some());
        let pid = here.lookup_as::<Numbers>(NUMBERS).unwrap();
        assert_eq!(pid.core(), core);
        here.send(NUMBERS, 1).unwrap();
        actor::send_to(pid, 2).unwrap();
        here.send(NUMBERS, 3).unwrap();
        assert_eq!(heard.iter().take(2).collect::<Vec<_>>(), [1, 3], "a name is not an address by itself");
        assert_eq!(here.send(TEXTS, "a text"), Err(SendError::NoChannel("a text")));
        assert_eq!(there.whereis(NUMBERS), None);
        assert_eq!(there.send(NUMBERS, 1), Err(SendError::Unresolved(1)));
        drop(one);
        assert_eq!(here.whereis(NUMBERS), None, "it ended with its core");
        assert_eq!(here.send(NUMBERS, 4), Err(SendError::Unresolved(4)));
    });
}

#[test]
fn a_pid_is_as_light_as_an_identity_and_goes_everywhere_whatever_its_kind() {
    fn goes_everywhere<T: Copy + Send + Sync + Eq + std::hash::Hash + std::fmt::Debug + 'static>() {}
    struct NotSend(#[allow(dead_code)] Rc<()>);
    goes_everywhere::<Pid<NotSend>>();
    goes_everywhere::<Pid<Erased>>();
    goes_everywhere::<Pid>();
    assert_eq!(size_of::<Pid<NotSend>>(), size_of::<RawPid>());
    fn names<T: Copy + Send + Sync>() {}
    names::<Name<Rc<()>>>();
}

#[test]
fn a_refusal_names_its_kind_and_gives_the_message_back() {
    struct Silent;
    type Refusal = fn(Silent) -> SendError<Silent>;
    let refusals: [(Refusal, &str, &str); 6] = [
        (SendError::Unresolved, "Unresolved(..)", "nobody has this name"),
        (SendError::NoMember, "NoMember(..)", "the group has no live member"),
        (SendError::Dead, "Dead(..)", "the actor has ended"),
        (SendError::NoChannel, "NoChannel(..)", "the actor has no mailbox for messages of this type"),
        (SendError::Closed, "Closed(..)", "the receiver was dropped"),
        (SendError::Full, "Full(..)", "the mailbox is full"),
    ];
    for (refusal, debug, display) in refusals {
        let error = refusal(Silent);
        assert_eq!((format!("{error:?}").as_str(), error.to_string().as_str()), (debug, display));
        assert_eq!(error.is_full(), debug == "Full(..)");
        assert_eq!(error.is_final(), matches!(debug, "Dead(..)" | "Closed(..)"));
        let Silent = error.into_inner();
    }
}

#[test]
fn a_name_keeps_a_channel_open_until_its_holder_ends_or_it_is_freed() {
    on_cores(1, async |_, _| {
        for frees in [false, true] {
            let kept = Rc::new(RefCell::new(None));
            let theirs = Rc::clone(&kept);
            let pid = actor::spawn(async move {
                let (sender, inbox) = channel::unbounded();
                actor::register(NUMBERS, &inbox).unwrap();
                theirs.replace(Some(inbox));
                drop(sender);
                pending::<()>().await;
            });
            poll_until(async || actor::whereis(NUMBERS).is_some()).await;
            let mut inbox = kept.take().unwrap();
            assert_eq!(inbox.try_recv(), Err(channel::TryRecvError::Empty), "the name has a sender");
            if frees {
                assert!(actor::unregister(NUMBERS));
            } else {
                actor::request_stop(pid);
            }
            assert_eq!(soon(inbox.recv()).await, Err(channel::Disconnected));
            actor::request_stop(pid);
            soon(actor::monitor(pid)).await;
        }
    });
}

#[test]
fn a_call_by_name_asks_whoever_has_it_and_says_when_nobody_has() {
    const DOUBLES: Name<(u64, Reply<u64>)> = Name::new("doubles");
    on_cores(2, async |runtime, cores| {
        let ask = async |number| soon(actor::call_named(DOUBLES, |reply| (number, reply))).await;
        assert_eq!(ask(1).await, Err(CallError::Unresolved));
        for core in cores {
            let started = runtime.spawn_on(core, async || {
                let (_, mut asked) = channel::unbounded();
                actor::register(DOUBLES, &asked).unwrap();
                let (number, reply): (u64, Reply<u64>) = asked.recv().await.unwrap();
                reply.send(2 * number);
            });
            let task = started.unwrap();
            poll_until(async || actor::whereis(DOUBLES.as_str()).is_some()).await;
            assert_eq!(ask(21).await, Ok(42));
            soon(task).await.unwrap();
            assert_eq!(ask(1).await, Err(CallError::Unresolved));
        }
    });
}
