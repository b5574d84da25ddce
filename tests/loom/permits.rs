//! A permit that is granted on one core to a waiter on another, who may give up at any moment: permits are conserved,
//! and nobody sleeps for ever.
//!
//! Two cores, each asleep by the crate's protocol when it has nothing to do, and a third thread that has the asker give
//! up. The home core grants by sending the permit; an asker that has given up meanwhile sends it home on arrival.

use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::sync::Arc;
use loom::thread;

use super::doorbell::{Core, bounded};

/// One permit; the model counts those alive, outside of loom, because nothing hangs on the order.
struct Permit(StdArc<AtomicUsize>);

impl Permit {
    fn new(alive: &StdArc<AtomicUsize>) -> Permit {
        alive.fetch_add(1, Ordering::Relaxed);
        Permit(StdArc::clone(alive))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

enum ToHome {
    Acquire {
        token: u32,
    },
    Cancel {
        token: u32,
    },
    Return(Permit),
    /// What a faulty asker does instead.
    Lost,
    End,
}

enum ToAsker {
    Granted { token: u32, permit: Permit },
    GiveUp { token: u32 },
    Ended,
}

/// Serves until it is told to end and no permit is out; gives how many it then has.
fn home(core: &Core<ToHome>, asker: &Core<ToAsker>, mut free: Vec<Permit>) -> usize {
    let mut total = free.len();
    let mut waiters = Vec::new();
    let mut ending = false;
    while !ending || free.len() < total {
        match core.receive() {
            ToHome::Acquire { token } => waiters.push(token),
            // Of a waiter that is not there any more nothing is to be done: its grant is on its way.
            ToHome::Cancel { token } => waiters.retain(|waiter| *waiter != token),
            ToHome::Return(permit) => free.push(permit),
            ToHome::Lost => total -= 1,
            ToHome::End => ending = true,
        }
        assert!(free.len() <= total, "a permit came home twice");
        while !waiters.is_empty()
            && let Some(permit) = free.pop()
        {
            asker.send(ToAsker::Granted { token: waiters.remove(0), permit });
        }
    }
    assert!(waiters.is_empty(), "somebody still waits");
    asker.send(ToAsker::Ended);
    free.len()
}

/// Asks for `tokens` permits, gives up those it is told to; returns how many it got.
fn ask(core: &Core<ToAsker>, home: &Core<ToHome>, tokens: u32, returns_late_grants: bool) -> u32 {
    let mut waiting: Vec<u32> = (0..tokens).collect();
    let mut granted = 0;
    for token in 0..tokens {
        home.send(ToHome::Acquire { token });
    }
    let mut end_sent = false;
    loop {
        if waiting.is_empty() && !end_sent {
            home.send(ToHome::End);
            end_sent = true;
        }
        match core.receive() {
            ToAsker::Granted { token, permit } => {
                let wanted = waiting.iter().position(|waiter| *waiter == token);
                if let Some(at) = wanted {
                    waiting.remove(at);
                    granted += 1;
                }
                let returns = wanted.is_some() || returns_late_grants;
                home.send(if returns { ToHome::Return(permit) } else { ToHome::Lost });
            }
            ToAsker::GiveUp { token } => {
                if let Some(at) = waiting.iter().position(|waiter| *waiter == token) {
                    waiting.remove(at);
                    home.send(ToHome::Cancel { token });
                }
            }
            ToAsker::Ended => return granted,
        }
    }
}

fn hand_over(permits: usize, tokens: u32, returns_late_grants: bool) {
    bounded(2).check(move || {
        let alive = StdArc::new(AtomicUsize::new(0));
        let (home_core, asker_core) = (Core::new(), Core::new());
        let server = {
            let (core, asker) = (Arc::clone(&home_core), Arc::clone(&asker_core));
            let free: Vec<_> = (0..permits).map(|_| Permit::new(&alive)).collect();
            thread::spawn(move || home(&core, &asker, free))
        };
        let canceller = {
            let core = Arc::clone(&asker_core);
            thread::spawn(move || core.send(ToAsker::GiveUp { token: 0 }))
        };
        let granted = ask(&asker_core, &home_core, tokens, returns_late_grants);
        assert!(granted == tokens || granted + 1 == tokens, "only one may have given up");
        let kept = server.join().unwrap();
        canceller.join().unwrap();
        drop((home_core, asker_core));
        assert_eq!(kept, permits, "permits are conserved");
        assert_eq!(alive.load(Ordering::Relaxed), 0, "none is left on its way");
    });
}

#[test]
fn a_grant_that_meets_a_cancel_comes_home() {
    hand_over(1, 1, true);
}

#[test]
fn a_permit_given_up_reaches_the_next_waiter() {
    hand_over(1, 2, true);
}

#[test]
#[should_panic(expected = "permits are conserved")]
fn a_late_grant_that_is_not_sent_home_is_found_missing() {
    hand_over(1, 1, false);
}
