//! Requests and replies as decisions: what goes in at random, held against a plain list.

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::matching::{ById, InOrder, Matching};
use super::state::{Arrived, Limits, Outcome, State};
use crate::pool::framed::Correlated;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reply(u64);

impl Correlated for Reply {
    type Id = u64;

    fn correlation_id(&self) -> u64 {
        self.0
    }
}

const LIMITS: Limits = Limits { outstanding: 5, unsent_bytes: 40 };

#[derive(Clone, Debug)]
enum Event {
    /// A call, of so many bytes.
    Call(usize),
    HandOver,
    Wrote,
    /// The reply to one of the requests that may have one.
    Arrive(usize),
    Collect(usize),
    Abandon(usize),
    /// A waiting call looks whether there is room, or leaves.
    Look(usize),
    Leave(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1_usize..20).prop_map(Event::Call),
        3 => Just(Event::HandOver),
        3 => Just(Event::Wrote),
        5 => any::<usize>().prop_map(Event::Arrive),
        4 => any::<usize>().prop_map(Event::Collect),
        2 => any::<usize>().prop_map(Event::Abandon),
        3 => any::<usize>().prop_map(Event::Look),
        1 => any::<usize>().prop_map(Event::Leave),
    ]
}

/// What is known of one request.
#[derive(Clone, Copy, Debug)]
struct Known {
    id: u64,
    key: u32,
    handed: bool,
    replied: bool,
    abandoned: bool,
}

struct World<M> {
    state: State<Reply, M>,
    ids: u64,
    requests: Vec<Known>,
    /// Calls that wait for room: place, bytes, and whether they were told that there is.
    waiting: VecDeque<(u32, usize, bool)>,
}

impl<M: Matching<Reply>> World<M> {
    fn new() -> World<M> {
        World { state: State::new(LIMITS), ids: 0, requests: Vec::new(), waiting: VecDeque::new() }
    }

    fn begin(&mut self, len: usize, id_of: impl Fn(u64) -> M::Id) {
        let id = self.ids;
        self.ids += 1;
        let key = self.state.begin(id_of(id), len, None);
        self.requests.push(Known { id, key, handed: false, replied: false, abandoned: false });
    }

    fn admit(&mut self) -> Result<(), TestCaseError> {
        while self.state.admit().is_some() {
            let next = self.waiting.iter_mut().find(|(_, _, told)| !told);
            prop_assert!(next.is_some(), "only who waits is told");
            next.unwrap().2 = true;
        }
        Ok(())
    }

    fn step(
        &mut self,
        event: &Event,
        ordered: bool,
        id_of: impl Fn(u64) -> M::Id,
    ) -> Result<(), TestCaseError> {
        match *event {
            Event::Call(len) => {
                if self.state.may_begin() {
                    self.begin(len, id_of);
                } else {
                    self.waiting.push_back((self.state.enter(Waker::noop().clone()), len, false));
                }
            }
            Event::HandOver => {
                self.state.hand_over();
                self.requests.iter_mut().for_each(|request| request.handed = true);
            }
            Event::Wrote => self.state.wrote(),
            Event::Arrive(at) => {
                let mut candidates: Vec<usize> = (0..self.requests.len())
                    .filter(|&at| self.requests[at].handed && !self.requests[at].replied)
                    .collect();
                if ordered {
                    candidates.truncate(1);
                }
                if candidates.is_empty() {
                    // Nobody has asked.
                    prop_assert!(
                        matches!(self.state.arrive(Reply(u64::MAX)), Arrived::Unsolicited(Reply(u64::MAX)))
                            || ordered
                    );
                    if ordered {
                        // It would have gone to a request that was not sent; that must not be.
                        prop_assert!(self.requests.iter().all(|request| request.replied || !request.handed));
                    }
                    return Ok(());
                }
                let at = candidates[at % candidates.len()];
                let Known { id, abandoned, .. } = self.requests[at];
                match self.state.arrive(Reply(id)) {
                    Arrived::Expected(_) => prop_assert!(!abandoned),
                    Arrived::Unwanted(reply) => prop_assert!(abandoned && reply == Reply(id)),
                    Arrived::Unsolicited(_) => prop_assert!(false, "it was asked for"),
                }
                match abandoned {
                    true => drop(self.requests.remove(at)),
                    false => self.requests[at].replied = true,
                }
            }
            Event::Collect(at) | Event::Abandon(at) => {
                let live: Vec<usize> =
                    (0..self.requests.len()).filter(|&at| !self.requests[at].abandoned).collect();
                if live.is_empty() {
                    return Ok(());
                }
                let at = live[at % live.len()];
                let Known { id, key, replied, .. } = self.requests[at];
                if let Event::Collect(_) = event {
                    let expected =
                        if replied { Poll::Ready(Outcome::Replied(Reply(id))) } else { Poll::Pending };
                    prop_assert_eq!(self.state.poll(key, Waker::noop()), expected);
                } else {
                    prop_assert_eq!(self.state.abandon(key), replied.then_some(Reply(id)));
                    self.requests[at].abandoned = true;
                }
                if replied {
                    self.requests.remove(at);
                }
            }
            Event::Look(at) | Event::Leave(at) => {
                if self.waiting.is_empty() {
                    return Ok(());
                }
                let at = at % self.waiting.len();
                let (place, len, told) = self.waiting[at];
                if let Event::Leave(_) = event {
                    self.waiting.remove(at);
                    self.state.leave(place);
                } else {
                    let polled = self.state.poll_room(place, Waker::noop());
                    prop_assert_eq!(polled, if told { Poll::Ready(true) } else { Poll::Pending });
                    if told {
                        self.waiting.remove(at);
                        self.begin(len, id_of);
                    }
                }
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let outstanding = self.requests.iter().filter(|request| !request.replied).count();
        prop_assert_eq!(self.state.outstanding(), outstanding);
        prop_assert!(outstanding <= LIMITS.outstanding);
        prop_assert_eq!(self.state.remembered(), self.requests.len());
        Ok(())
    }

    /// The socket fails: each caller learns whether its request may have been sent, and nothing is left.
    fn end(mut self) -> Result<(), TestCaseError> {
        self.state.fail();
        prop_assert!(!self.state.may_begin());
        while self.state.next_lost().is_some() {}
        for Known { id, key, handed, replied, abandoned } in self.requests {
            if abandoned {
                continue;
            }
            let expected = if replied { Outcome::Replied(Reply(id)) } else { Outcome::Lost { sent: handed } };
            prop_assert_eq!(self.state.poll(key, Waker::noop()), Poll::Ready(expected));
        }
        // Also those who were told that there is room.
        for (place, _, _) in self.waiting {
            prop_assert_eq!(self.state.poll_room(place, Waker::noop()), Poll::Ready(false));
        }
        prop_assert_eq!((self.state.remembered(), self.state.outstanding()), (0, 0));
        Ok(())
    }
}

fn run<M: Matching<Reply>>(
    events: &[Event],
    ordered: bool,
    id_of: impl Fn(u64) -> M::Id + Copy,
) -> Result<(), TestCaseError> {
    let mut world = World::<M>::new();
    for event in events {
        world.step(event, ordered, id_of)?;
        world.admit()?;
        world.check()?;
    }
    world.end()
}

proptest! {
    #[test]
    fn replies_in_order_reach_their_requests(events in prop::collection::vec(event(), 0..200)) {
        run::<InOrder>(&events, true, |_| ())?;
    }

    #[test]
    fn replies_by_id_reach_their_requests_in_any_order(events in prop::collection::vec(event(), 0..200)) {
        run::<ById<u64>>(&events, false, |id| id)?;
    }
}

#[test]
fn an_id_is_taken_until_its_reply_has_come_also_when_its_caller_has_gone() {
    let mut state = State::<Reply, ById<u64>>::new(LIMITS);
    let key = state.begin(7, 1, None);
    assert!(state.expects(&7));
    assert_eq!(state.abandon(key), None);
    assert!(state.expects(&7));
    state.hand_over();
    assert!(matches!(state.arrive(Reply(7)), Arrived::Unwanted(_)));
    assert!(!state.expects(&7) && matches!(state.arrive(Reply(7)), Arrived::Unsolicited(_)));
}

#[test]
fn a_newcomer_does_not_overtake_those_who_wait_for_room() {
    let mut state = State::<Reply, InOrder>::new(Limits { outstanding: 1, ..LIMITS });
    let first = state.begin((), 1, None);
    let second = state.enter(Waker::noop().clone());
    assert!(state.admit().is_none());
    state.hand_over();
    state.wrote();
    assert!(matches!(state.arrive(Reply(0)), Arrived::Expected(_)));
    assert_eq!(state.poll(first, Waker::noop()), Poll::Ready(Outcome::Replied(Reply(0))));
    assert!(!state.may_begin(), "somebody came before");
    assert!(state.admit().is_some() && state.admit().is_none());
    assert!(!state.may_begin(), "the room is spoken for");
    assert_eq!(state.poll_room(second, Waker::noop()), Poll::Ready(true));
    assert!(state.may_begin());
}

#[test]
fn unsent_bytes_hold_calls_back_until_they_are_written() {
    let mut state = State::<Reply, InOrder>::new(LIMITS);
    state.begin((), LIMITS.unsent_bytes, None);
    assert!(!state.may_begin());
    state.hand_over();
    assert!(!state.may_begin() && !state.is_drained());
    state.wrote();
    assert!(state.may_begin());
}
