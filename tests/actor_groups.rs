//! A group has exactly its live members, on every core, whatever ended the others.

mod support;

use std::future::pending;

use corelet::actor::{self, Addressable, Directory, Incarnation, NodeId, Pid, SendError, channel, group};
use corelet::runtime::{CoreId, Cores, Runtime, RuntimeHandle};
use support::{block_until, on_cores, poll_until, runtime, soon, watched};

enum Worker {}

impl Addressable for Worker {
    type Msg = u64;
}

enum Other {}

impl Addressable for Other {
    type Msg = &'static str;
}

async fn worker(runtime: &RuntimeHandle, core: CoreId) -> Pid<Worker> {
    let body = async |mut inbox: channel::Receiver<u64>| {
        while let Ok(number) = inbox.recv().await {
            assert!(number != 13, "panics on purpose");
        }
    };
    soon(actor::spawn_addr_on(runtime, core, body)).await.unwrap()
}

/// Also of another core, which has to agree.
async fn joined(name: &'static str, pid: Pid<Worker>) {
    group::join(name, pid);
    poll_until(async || group::members_as::<Worker>(name).contains(&pid)).await;
}

async fn end(pid: Pid<Worker>) {
    let end = actor::monitor(pid);
    actor::request_stop(pid);
    soon(end).await;
}

#[test]
fn members_of_all_cores_are_told_in_the_order_in_which_they_joined() {
    on_cores(2, async |runtime, cores| {
        let mut workers = Vec::new();
        for index in 0..6 {
            let pid = worker(&runtime, cores[index % 2]).await;
            joined("workers", pid).await;
            group::join("workers", pid);
            workers.push(pid);
        }
        assert_eq!(group::members_as::<Worker>("workers"), workers);
        let there = move || async { group::members_as::<Worker>("workers") };
        assert_eq!(soon(runtime.spawn_on(cores[1], there).unwrap()).await.unwrap(), workers);
        let member = group::members("workers")[0];
        assert_eq!((member.node, member.incarnation), (NodeId(0), Incarnation(0)));
        for pid in workers {
            end(pid).await;
        }
        assert_eq!(group::members("workers"), []);
    });
}

#[test]
fn whatever_ends_a_member_takes_it_out_of_all_its_groups_before_anybody_hears_of_it() {
    on_cores(2, async |runtime, cores| {
        for round in 0..200 {
            let core = cores[round % 2];
            let (stays, goes) = (worker(&runtime, core).await, worker(&runtime, core).await);
            for name in ["one", "two"] {
                joined(name, stays).await;
                joined(name, goes).await;
            }
            let end_of_it = actor::monitor(goes);
            match round / 2 % 2 {
                0 => actor::request_stop(goes),
                _ => actor::send_to(goes, 13).unwrap(),
            }
            soon(end_of_it).await;
            for name in ["one", "two"] {
                assert_eq!(group::members_as::<Worker>(name), [stays]);
                assert_eq!(group::pick(name), Some(stays.erase()));
            }
            end(stays).await;
            assert_eq!(group::pick("one"), None);
        }
    });
}

#[test]
fn to_leave_one_group_is_to_leave_no_other() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            let (one, two) = (worker(&runtime, core).await, worker(&runtime, core).await);
            for pid in [one, two] {
                joined("left", pid).await;
                joined("kept", pid).await;
            }
            group::leave("left", one);
            group::leave("never joined", one);
            poll_until(async || group::members_as::<Worker>("left") == [two]).await;
            assert_eq!(group::members_as::<Worker>("kept"), [one, two]);
            // In the order of asking, also where the asking takes its time.
            group::join("left", one);
            group::leave("left", one);
            group::join("left", one);
            poll_until(async || group::members_as::<Worker>("left") == [two, one]).await;
            for pid in [one, two] {
                end(pid).await;
            }
        }
    });
}

#[test]
fn one_that_has_ended_does_not_join() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            let (dead, live) = (worker(&runtime, core).await, worker(&runtime, core).await);
            end(dead).await;
            group::join("late", dead);
            // Behind it, from the same sender.
            joined("late", live).await;
            assert_eq!(group::members_as::<Worker>("late"), [live]);
            end(live).await;
        }
    });
}

#[test]
fn a_dispatch_says_who_got_it_or_gives_the_message_back() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            assert_eq!(group::dispatch::<Worker>("jobs", 1), Err(SendError::NoMember(1)));
            let (one, two) = (worker(&runtime, core).await, worker(&runtime, core).await);
            joined("jobs", one).await;
            joined("jobs", two).await;
            let turns = [0; 4].map(|_| group::dispatch::<Worker>("jobs", 1).unwrap());
            assert_eq!(turns, [one, two, one, two]);
            assert_eq!(group::pick_as::<Worker>("jobs"), Some(one));
            if core == actor::myself().unwrap().core() {
                let wrong = group::dispatch::<Other>("jobs", "a text");
                assert_eq!(wrong, Err(SendError::NoChannel("a text")), "never to another mailbox");
            }
            for pid in [one, two] {
                end(pid).await;
            }
            assert_eq!(group::dispatch::<Worker>("jobs", 2), Err(SendError::NoMember(2)));
        }
    });
}

#[test]
fn no_dispatch_is_refused_while_members_come_and_go_as_long_as_one_stays() {
    on_cores(2, async |runtime, cores| {
        let stays = worker(&runtime, cores[1]).await;
        joined("churn", stays).await;
        let churn = |core: CoreId| {
            let runtime = runtime.clone();
            move || async move {
                for _ in 0..300 {
                    let pid = worker(&runtime, core).await;
                    group::join("churn", pid);
                    corelet::runtime::yield_now().await;
                    end(pid).await;
                    assert!(!group::members_as::<Worker>("churn").contains(&pid));
                }
            }
        };
        let mut tasks: Vec<_> =
            cores.iter().map(|core| runtime.spawn_on(*core, churn(*core)).unwrap()).collect();
        while let Some(mut task) = tasks.pop() {
            poll_until(async || {
                // A member of this core may have dropped its receiver and be about to end.
                match group::dispatch::<Worker>("churn", 1) {
                    Ok(_) | Err(SendError::Closed(_)) => {}
                    Err(refused) => panic!("{refused}"),
                }
                match support::poll_once(&mut task).await {
                    std::task::Poll::Ready(ended) => {
                        ended.unwrap();
                        true
                    }
                    std::task::Poll::Pending => false,
                }
            })
            .await;
        }
        assert_eq!(group::members_as::<Worker>("churn"), [stays]);
        end(stays).await;
    });
}

#[test]
fn threads_that_are_no_cores_have_the_groups_of_a_runtime_and_no_others() {
    watched(|| {
        let (one, other) = (runtime(1), runtime(1));
        let (here, there) = (Directory::of(&one.handle()), Directory::of(&other.handle()));
        let start = || async { actor::spawn_addr::<Worker, _, _>(async |_inbox| pending::<()>().await) };
        let pid = one.block_on(start).unwrap();
        here.join("workers", pid);
        block_until(|| here.members_as::<Worker>("workers") == [pid]);
        assert_eq!(here.dispatch::<Worker>("workers", 1), Ok(pid));
        assert_eq!((here.pick("workers"), here.pick_as("workers")), (Some(pid.erase()), Some(pid)));
        there.join("others", pid);
        other.block_on(move || async move { group::join("others", pid) }).unwrap();
        // Whatever that has sent has arrived when this has.
        here.join("marker", pid);
        block_until(|| !here.members("marker").is_empty());
        assert_eq!(there.members("others"), [], "an actor of another runtime has no place there");
        assert_eq!(here.members("others"), [], "and was not asked by its own");
        here.leave("workers", pid);
        block_until(|| here.members("workers").is_empty());
        here.join("workers", pid);
        block_until(|| !here.members("workers").is_empty());
        drop(one);
        assert_eq!(here.members("workers"), [], "it ended with its core");
        assert_eq!(here.dispatch::<Worker>("workers", 1), Err(SendError::NoMember(1)));
    });
}

#[test]
fn members_carry_their_runtimes_node_and_life_and_are_swept_when_it_is_over() {
    watched(|| {
        let builder = Runtime::builder().cores(Cores::Count(1));
        let runtime = builder.node(NodeId(7)).incarnation(Incarnation(3)).build().unwrap();
        let handle = runtime.handle();
        assert_eq!((handle.node(), handle.incarnation()), (NodeId(7), Incarnation(3)));
        runtime
            .block_on(|| async {
                let pid = actor::spawn_addr::<Worker, _, _>(async |_inbox| pending::<()>().await);
                group::join("workers", pid);
                group::join("others", pid);
                let member = group::members("workers")[0];
                assert_eq!(
                    (member.node, member.incarnation, member.pid),
                    (NodeId(7), Incarnation(3), pid.erase())
                );
                assert_eq!(group::sweep(NodeId(7), Incarnation(3)), 0, "this life goes on");
                assert_eq!(group::sweep(NodeId(8), Incarnation(9)), 0, "another node");
                assert_eq!(group::members("workers"), [member]);
                assert_eq!(group::sweep(NodeId(7), Incarnation(4)), 2);
                assert_eq!((group::members("workers"), group::members("others")), (vec![], vec![]));
            })
            .unwrap();
    });
}
