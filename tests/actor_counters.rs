//! What is counted of an actor: messages where they are taken, polls that took too long, and who has to do with it.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use common::on_core;
use corelet::actor::{self, ActorInfo, Addressable, Monitors, Name, Pid, channel};
use corelet::runtime::{spawn, yield_now};

struct Words;
impl Addressable for Words {
    type Msg = &'static str;
}

async fn info<A>(pid: Pid<A>) -> ActorInfo {
    actor::actor_info(pid).await.unwrap().unwrap()
}

async fn mine() -> ActorInfo {
    info(actor::myself().unwrap()).await
}

async fn let_others_run() {
    for _ in 0..4 {
        yield_now().await;
    }
}

#[test]
fn a_message_counts_where_it_is_taken_and_nowhere_else() {
    on_core(|| async {
        let (sender, mut receiver) = channel::unbounded();
        for number in 0..10 {
            sender.send(number).unwrap();
        }
        let counted = async |expected| assert_eq!(mine().await.messages_received, expected);
        counted(0).await;
        let soon = Duration::from_secs(10);
        receiver.recv().await.unwrap();
        counted(1).await;
        receiver.try_recv().unwrap();
        counted(2).await;
        receiver.recv_timeout(soon).await.unwrap();
        counted(3).await;
        receiver.recv_match(|number| *number == 8).await.unwrap();
        counted(4).await;
        receiver.recv_match_timeout(soon, |number| *number == 6).await.unwrap();
        counted(5).await;
        receiver.try_recv_match(|number| *number == 4).unwrap();
        counted(6).await;
        // Those that were passed over count when they are taken.
        assert_eq!(receiver.recv().await, Ok(3));
        counted(7).await;

        // Neither a wait that is given up, nor an empty channel, nor one that nothing fits.
        let (_kept, mut empty) = channel::unbounded::<u8>();
        assert!(empty.try_recv().is_err() && receiver.try_recv_match(|number| *number > 9).is_err());
        assert!(empty.recv_timeout(Duration::ZERO).await.is_err());
        poll_fn(|cx| {
            assert!(pin!(empty.recv()).poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        counted(7).await;

        // Trapped exits are messages too, and so are ends that come by a queue.
        let (mut exits, mut ends) = (actor::trap_exits(), Monitors::new());
        for _ in 0..2 {
            ends.watch(actor::spawn_link(async {}));
        }
        exits.recv().await;
        counted(8).await;
        ends.recv().await;
        counted(9).await;
        let_others_run().await;
        exits.try_recv().unwrap();
        counted(10).await;
        ends.try_recv().unwrap();
        counted(11).await;

        // What another takes is not ours.
        let other = actor::spawn(async move {
            while receiver.recv().await.is_ok() {}
            pending::<()>().await;
        });
        let_others_run().await;
        assert_eq!((info(other).await.messages_received, mine().await.messages_received), (3, 11));
    });
}

#[test]
fn the_mailbox_is_what_the_address_leads_to_and_no_private_channel() {
    on_core(|| async {
        let pid = actor::spawn_addr::<Words, _, _>(|inbox| async move {
            let (sender, private) = channel::unbounded();
            sender.send(1).unwrap();
            pending::<()>().await;
            drop((inbox, private));
        });
        let_others_run().await;
        assert_eq!(info(pid).await.mailbox, 0);
        for word in ["one", "two", "three"] {
            actor::send_to(pid, word).unwrap();
        }
        assert_eq!(info(pid).await.mailbox, 3);
    });
}

#[test]
fn watchers_links_and_traps_are_told_while_they_last() {
    on_core(|| async {
        let other = actor::spawn(pending::<()>());
        let bonds = |info: ActorInfo| (info.monitors, info.links, info.traps_exits);
        assert_eq!(bonds(info(other).await), (0, 0, false));
        let (first, second) = (actor::monitor(other), actor::monitor(other));
        actor::link(other);
        assert_eq!((bonds(info(other).await), bonds(mine().await)), ((2, 1, false), (0, 1, false)));
        let exits = actor::trap_exits();
        assert_eq!(bonds(mine().await), (0, 1, true));
        drop((first, exits));
        actor::unlink(other);
        assert_eq!((bonds(info(other).await), bonds(mine().await)), ((1, 0, false), (0, 0, false)));
        drop(second);
    });
}

#[test]
fn a_label_is_seen_and_leads_nowhere() {
    on_core(|| async {
        assert_eq!(mine().await.label, None);
        actor::set_label("first");
        actor::set_label(String::from("second"));
        assert_eq!(mine().await.label.as_deref(), Some("second"));
    });
}

#[test]
fn names_are_seen_while_they_are_held_by_one_and_by_all() {
    const DESK: Name<u8> = Name::new("desk");
    const BELL: Name<u8> = Name::new("bell");
    on_core(|| async {
        let (_sender, inbox) = channel::unbounded::<u8>();
        let nameless = actor::spawn(pending::<()>());
        actor::register(DESK, &inbox).unwrap();
        actor::register(BELL, &inbox).unwrap();
        let me = actor::myself().unwrap();
        let snapshot = actor::snapshot().await;
        let names = |pid: Pid| snapshot.actors().find(|actor| actor.pid == pid).unwrap().names.clone();
        assert_eq!((names(me), names(nameless)), (vec!["desk", "bell"], vec![]));
        assert_eq!(mine().await.names, ["desk", "bell"]);
        actor::unregister(DESK);
        assert_eq!((mine().await.names, info(nameless).await.names), (vec!["bell"], vec![]));
    });
}

#[test]
fn a_poll_that_spends_its_budget_is_an_overrun_and_a_short_one_is_none() {
    on_core(|| async {
        let greedy = spawn(async {
            for _ in 0..1000 {
                actor::checkpoint().await;
            }
            pending::<()>().await;
        });
        let modest = spawn(async {
            for _ in 0..10 {
                actor::checkpoint().await;
            }
            pending::<()>().await;
        });
        for _ in 0..20 {
            yield_now().await;
        }
        let of = async |pid| actor::actor_info(pid).await.unwrap().unwrap();
        let (greedy, modest) = (of(greedy.pid()).await, of(modest.pid()).await);
        assert!(greedy.overruns >= 1 && greedy.polls > greedy.overruns, "{greedy:?}");
        assert_eq!((modest.polls, modest.overruns), (1, 0));
    });
}

#[test]
fn counters_begin_anew_with_the_next_tenant_of_a_slot() {
    on_core(|| async {
        let first = actor::spawn_addr::<Words, _, _>(async |mut inbox| {
            actor::set_label("the first");
            inbox.recv().await.unwrap();
            for _ in 0..1000 {
                actor::checkpoint().await;
            }
            inbox.recv().await.unwrap();
        });
        actor::send_to(first, "go on").unwrap();
        for _ in 0..20 {
            yield_now().await;
        }
        let watched = info(first).await;
        assert!(watched.messages_received == 1 && watched.overruns > 0 && watched.label.is_some());
        actor::send_to(first, "end").unwrap();
        actor::monitor(first).await;

        let second = actor::spawn(pending::<()>());
        assert_eq!(second.raw().index(), first.raw().index(), "the slot is used again");
        let_others_run().await;
        let fresh = info(second).await;
        assert_eq!((fresh.polls, fresh.overruns, fresh.messages_received), (1, 0, 0));
        assert_eq!((fresh.label, fresh.mailbox, fresh.monitors, fresh.links), (None, 0, 0, 0));
    });
}

#[cfg(feature = "pool")]
#[test]
fn the_schedulers_of_a_pool_have_their_place_in_the_tree() {
    use corelet::pool::{Pool, TcpConnector};
    use corelet::runtime::handle;

    on_core(|| async {
        let nowhere = ([127, 0, 0, 1], 1).into();
        let pool = Pool::builder(TcpConnector::new(nowhere)).build(&handle()).unwrap();
        yield_now().await;
        let tree = actor::tree().await;
        let label = format!("scheduler of pool {}", pool.id());
        let schedulers = tree.nodes.iter().filter(|node| node.actor.label.as_deref() == Some(label.as_str()));
        assert_eq!(schedulers.count(), 1, "{tree}");
    });
}
