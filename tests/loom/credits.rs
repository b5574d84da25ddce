//! Credits that change hands between cores: a free credit and a shard that goes without never miss each other, no
//! credit is lost or made, and no two shards close a connection for the same one.

use std::sync::Arc as StdArc;
use std::sync::atomic::AtomicUsize as Count;

use loom::sync::Arc;
use loom::thread;

use super::doorbell::bounded;
use super::ledger::{Call, Ledger, Promise};
use super::sync::{AtomicU8, AtomicU64, Ordering, fence};

/// Credits under way to each shard. Outside of the model: what is asserted is asserted when all threads have ended.
type Mail = StdArc<[Count]>;

fn mail(shards: usize) -> Mail {
    (0..shards).map(|_| Count::new(0)).collect()
}

fn sweep(ledger: &Ledger, mail: &Mail) {
    while let Some(to) = ledger.sweep() {
        mail[to].fetch_add(1, Ordering::Relaxed);
    }
}

fn give(ledger: &Ledger, mail: &Mail, shard: usize, promise: Option<Promise>) {
    if let Some(to) = ledger.give(shard, promise) {
        mail[to].fetch_add(1, Ordering::Relaxed);
    }
    sweep(ledger, mail);
}

/// Takes a credit, or goes hungry; true when it was taken.
fn ask(ledger: &Ledger, mail: &Mail, shard: usize) -> bool {
    let taken = ledger.take(shard);
    if !taken {
        ledger.go_hungry(shard);
        sweep(ledger, mail);
    }
    taken
}

fn came(mail: &Mail, shard: usize) -> usize {
    mail[shard].load(Ordering::Relaxed)
}

#[test]
fn a_credit_given_back_reaches_the_shard_that_goes_hungry() {
    bounded(4).check(|| {
        let (ledger, mail) = (Arc::new(Ledger::new(2, 1)), mail(2));
        assert!(ask(&ledger, &mail, 0));
        let giver = {
            let (ledger, mail) = (Arc::clone(&ledger), StdArc::clone(&mail));
            thread::spawn(move || give(&ledger, &mail, 0, None))
        };
        let taken = ask(&ledger, &mail, 1);
        giver.join().unwrap();
        assert_eq!(usize::from(taken) + came(&mail, 1), 1, "it has the credit, and has it once");
        assert_eq!((ledger.held(0), ledger.held(1), ledger.has_free()), (0, 1, false));
    });
}

#[test]
fn two_credits_given_back_reach_two_hungry_shards() {
    bounded(2).check(|| {
        let (ledger, mail) = (Arc::new(Ledger::new(3, 2)), mail(3));
        assert!(ask(&ledger, &mail, 0) && ask(&ledger, &mail, 0));
        let giver = {
            let (ledger, mail) = (Arc::clone(&ledger), StdArc::clone(&mail));
            thread::spawn(move || (0..2).for_each(|_| give(&ledger, &mail, 0, None)))
        };
        let other = {
            let (ledger, mail) = (Arc::clone(&ledger), StdArc::clone(&mail));
            thread::spawn(move || ask(&ledger, &mail, 2))
        };
        let one = usize::from(ask(&ledger, &mail, 1));
        let two = usize::from(other.join().unwrap());
        giver.join().unwrap();
        assert_eq!((one + came(&mail, 1), two + came(&mail, 2)), (1, 1), "{ledger:?}");
        assert_eq!((ledger.held(0), ledger.held(1), ledger.held(2)), (0, 1, 1));
    });
}

#[test]
fn a_shard_that_takes_its_request_back_loses_no_credit() {
    bounded(4).check(|| {
        let (ledger, mail) = (Arc::new(Ledger::new(2, 1)), mail(2));
        assert!(ask(&ledger, &mail, 0));
        let giver = {
            let (ledger, mail) = (Arc::clone(&ledger), StdArc::clone(&mail));
            thread::spawn(move || give(&ledger, &mail, 0, None))
        };
        let taken = ask(&ledger, &mail, 1);
        let withdrawn = !taken && ledger.withdraw(1);
        giver.join().unwrap();
        let had = usize::from(taken) + came(&mail, 1);
        assert_eq!(had, usize::from(!withdrawn), "what is not taken back is answered, and nothing else");
        assert_eq!((ledger.held(1), ledger.has_free()), (had, had == 0));
    });
}

#[test]
fn one_hungry_shard_costs_one_connection_whoever_has_one_to_spare() {
    bounded(3).check(|| {
        let (ledger, mail) = (Arc::new(Ledger::new(3, 2)), mail(3));
        assert!(ask(&ledger, &mail, 0) && ask(&ledger, &mail, 1) && !ask(&ledger, &mail, 2));
        let give_up = |shard: usize| {
            let (ledger, mail) = (Arc::clone(&ledger), StdArc::clone(&mail));
            move || {
                let promise = ledger.promise(shard, Call::Spare);
                if promise.is_some() {
                    give(&ledger, &mail, shard, promise);
                }
                usize::from(promise.is_some())
            }
        };
        let other = thread::spawn(give_up(0));
        let closed = give_up(1)() + other.join().unwrap();
        assert_eq!((closed, came(&mail, 2)), (1, 1));
        assert_eq!(ledger.held(0) + ledger.held(1), 1);
        assert!(ledger.held(2) == 1 && !ledger.has_free());
    });
}

#[test]
fn a_lowered_limit_is_made_up_for_once() {
    bounded(3).check(|| {
        let (ledger, mail) = (Arc::new(Ledger::new(2, 4)), mail(2));
        (0..4).for_each(|turn| assert!(ask(&ledger, &mail, turn % 2)));
        ledger.set_limit(3);
        let give_up = |shard: usize| {
            let (ledger, mail) = (Arc::clone(&ledger), StdArc::clone(&mail));
            move || {
                while let Some(promise) = ledger.promise(shard, Call::Share) {
                    give(&ledger, &mail, shard, Some(promise));
                }
            }
        };
        let other = thread::spawn(give_up(0));
        give_up(1)();
        other.join().unwrap();
        assert_eq!(ledger.held(0) + ledger.held(1), 3);
        assert!(!ledger.has_free() && ledger.call(0) == Call::Nothing);
    });
}

/// The heart of it, with and without the barrier in the sweep.
fn free_credit_meets_hunger(barrier: bool) {
    loom::model(move || {
        let (free, hunger) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU8::new(0)));
        let giver = {
            let (free, hunger) = (Arc::clone(&free), Arc::clone(&hunger));
            thread::spawn(move || {
                free.fetch_add(1, Ordering::AcqRel);
                if barrier {
                    fence(Ordering::SeqCst);
                }
                hunger.load(Ordering::Relaxed) == 1
            })
        };
        hunger.store(1, Ordering::Relaxed);
        if barrier {
            fence(Ordering::SeqCst);
        }
        let seen = free.load(Ordering::Relaxed) > 0;
        assert!(giver.join().unwrap() || seen, "a free credit, and a hungry shard beside it");
    });
}

#[test]
fn a_free_credit_and_a_hungry_shard_never_miss_each_other() {
    free_credit_meets_hunger(true);
}

#[test]
#[should_panic(expected = "a free credit, and a hungry shard beside it")]
fn without_the_barrier_the_model_finds_them_missing_each_other() {
    free_credit_meets_hunger(false);
}
