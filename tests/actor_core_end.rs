//! Actors while their core ends, and what is left of them for a later core that has its id.

mod support;

use std::future::pending;
use std::sync::mpsc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use corelet::actor::{self, Addressable, ExitReason, channel, group};
use corelet::runtime::{CoreId, Runtime, Simulation};
use support::{poll_once, runtime, watched};

/// Ids of cores are given away again at once: no other test of this file is to get in between.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Worker {}

impl Addressable for Worker {
    type Msg = u64;
}

/// Does something when it is dropped.
struct Finally<F: FnMut()>(F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Starts members of a group, each of which passes a job on when it is dropped, and leaves them to the end of the core.
async fn leave_jobs_behind(dropped: mpsc::Sender<(bool, ExitReason)>) {
    for _ in 0..3 {
        let dropped = dropped.clone();
        let worker = actor::spawn_addr::<Worker, _, _>(async move |mut jobs| {
            let me = actor::myself().unwrap();
            let _finally = Finally(move || {
                // Also to the member itself, as the last one.
                let taken = group::dispatch::<Worker>("workers", 7).is_ok();
                let lives = actor::monitor(me).down().is_none();
                let reason = if lives { ExitReason::Normal } else { ExitReason::NoProcess };
                dropped.send((taken, reason)).unwrap();
            });
            while let Ok(_job) = jobs.recv().await {}
            pending::<()>().await
        });
        group::join("workers", worker);
    }
    corelet::runtime::yield_now().await;
}

#[test]
fn a_destructor_that_passes_work_on_while_the_core_ends_is_not_caught_in_it() {
    let _alone = alone();
    watched(|| {
        let (dropped, drops) = mpsc::channel();
        let runtime = runtime(1);
        runtime.block_on(move || leave_jobs_behind(dropped)).unwrap();
        drop(runtime);
        let drops: Vec<_> = drops.iter().collect();
        assert_eq!(drops, vec![(true, ExitReason::Normal); 3], "each lives until it has been dropped");

        let (dropped, drops) = mpsc::channel();
        Simulation::new(1, 1).block_on(move || leave_jobs_behind(dropped)).unwrap();
        assert_eq!(drops.iter().count(), 3);
    });
}

/// A runtime whose core has the id of an ended one.
fn again(core: CoreId) -> Runtime {
    let runtime = runtime(1);
    assert_eq!(runtime.cores(), [core], "the id is free, and the lowest");
    runtime
}

#[test]
fn an_answer_for_an_ended_core_is_nobodys_on_a_later_one() {
    let _alone = alone();
    watched(|| {
        let first = runtime(1);
        let core = first.cores()[0];
        let (stale, late) =
            first.block_on(|| async { (actor::reply::<u64>().0, actor::reply::<u64>().0) }).unwrap();
        drop(first);
        let second = again(core);
        let answers = second.block_on(move || async move {
            let (reply, mut answer) = actor::reply::<u64>();
            let (_other, mut unanswered) = actor::reply::<u64>();
            stale.send(13);
            // From elsewhere, and before what follows.
            std::thread::spawn(move || late.send(14)).join().unwrap();
            corelet::runtime::yield_now().await;
            assert!(poll_once(&mut answer).await.is_pending());
            assert!(poll_once(&mut unanswered).await.is_pending());
            reply.send(7);
            answer.await
        });
        assert_eq!(answers.unwrap(), Ok(7));
    });
}

#[test]
fn the_senders_of_an_ended_core_are_nobodys_on_a_later_one() {
    let _alone = alone();
    watched(|| {
        let first = runtime(1);
        let core = first.cores()[0];
        let stale = first.block_on(|| async { channel::unbounded::<u64>().0 }).unwrap();
        drop(first);
        let second = again(core);
        second
            .block_on(move || async move {
                let (sender, mut receiver) = channel::unbounded::<u64>();
                assert_eq!(stale.send(13).unwrap_err().into_inner(), 13);
                assert!(stale.is_closed());
                drop(stale);
                sender.send(7).unwrap();
                assert_eq!(receiver.recv().await, Ok(7));
                assert_eq!(receiver.try_recv(), Err(channel::TryRecvError::Empty));
            })
            .unwrap();
    });
}
