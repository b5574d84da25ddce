//! A state machine that is written by hand keeps the promises of its callbacks: when they are called, in which order, and
//! what becomes of the events.

mod support;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::ready;
use std::rc::Rc;

use corelet::actor::machine::{self, Context, Machine, Next};
use corelet::actor::{self, Addressable, CallError, ExitReason, Pid, Reply, SendError, channel};
use corelet::runtime::yield_now;
use support::{on_cores, poll_until, soon};

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Shut,
    Open,
}

/// What lets somebody through. It cannot be cloned.
#[derive(Debug, PartialEq)]
struct Ticket(u32);

enum Event {
    Open,
    Shut,
    /// Waits for an open gate.
    Pass(Ticket),
    /// Waits for an open gate, and so does whoever asks.
    PassWith(Ticket, Reply<Ticket>),
    Look(Reply<State>),
    Panic,
    Stop,
    Fail,
}

/// The state before, where there was one, and the one that was entered.
type Entry = (Option<State>, State);

#[derive(Clone, Default)]
struct Notes {
    entered: Rc<RefCell<Vec<Entry>>>,
    passed: Rc<RefCell<Vec<Ticket>>>,
    heard: Rc<RefCell<Vec<&'static str>>>,
    unhandled: Rc<Cell<usize>>,
}

#[derive(Default)]
struct Gate(Notes);

impl Addressable for Gate {
    type Msg = Event;
}

impl Machine for Gate {
    type State = State;
    type Timeout = Infallible;
    type Info = &'static str;

    fn enter(&mut self, state: &State, previous: Option<&State>, _: &mut Context<Self>) {
        self.0.entered.borrow_mut().push((previous.copied(), *state));
    }

    fn postpones(&self, state: &State, event: &Event) -> bool {
        matches!((state, event), (State::Shut, Event::Pass(_) | Event::PassWith(..)))
    }

    fn handle(&mut self, state: &State, event: Event, _: &mut Context<Self>) -> Next<State> {
        match (state, event) {
            (State::Open, Event::Pass(ticket)) => {
                self.0.passed.borrow_mut().push(ticket);
                Next::Stay
            }
            (State::Open, Event::PassWith(ticket, reply)) => {
                reply.send(ticket);
                // One at a time.
                Next::To(State::Shut)
            }
            (State::Shut, Event::Pass(_) | Event::PassWith(..)) => unreachable!("it is postponed"),
            (State::Shut | State::Open, Event::Open) => Next::To(State::Open),
            (State::Open, Event::Shut) => Next::To(State::Shut),
            (State::Shut, Event::Shut) => Next::Stay,
            (state, Event::Look(reply)) => {
                reply.send(*state);
                Next::Stay
            }
            (_, Event::Panic) => panic!("on purpose"),
            (_, Event::Stop) => Next::Stop,
            (_, Event::Fail) => Next::fail("had enough"),
        }
    }

    fn timeout(&mut self, _: &State, timeout: Infallible, _: &mut Context<Self>) -> Next<State> {
        match timeout {}
    }

    fn info(&mut self, state: &State, info: &'static str, _: &mut Context<Self>) -> Next<State> {
        match (state, info) {
            (State::Open, "shut") => Next::To(State::Shut),
            (State::Open, _) => {
                self.0.heard.borrow_mut().push(info);
                Next::Stay
            }
            (State::Shut, _) => {
                self.on_unhandled(state, info);
                Next::Stay
            }
        }
    }

    fn on_unhandled(&mut self, _: &State, _: &'static str) {
        self.0.unhandled.set(self.0.unhandled.get() + 1);
    }
}

fn gate(state: State) -> (Pid<Gate>, Notes) {
    let notes = Notes::default();
    (machine::start(Gate(notes.clone()), state), notes)
}

async fn look(gate: Pid<Gate>) -> State {
    soon(actor::call(gate, Event::Look)).await.unwrap()
}

#[test]
fn a_machine_answers_calls_and_takes_what_is_sent() {
    on_cores(2, async |runtime, cores| {
        for core in cores {
            let start = move || ready(machine::start(Gate::default(), State::Shut));
            let gate = soon(runtime.spawn_on(core, start).unwrap()).await.unwrap();
            assert_eq!(look(gate).await, State::Shut);
            actor::send_to(gate, Event::Open).unwrap();
            assert_eq!(look(gate).await, State::Open);
            let end = actor::monitor(gate);
            actor::request_stop(gate);
            assert_eq!(soon(end).await.reason, ExitReason::Stopped);
            assert!(soon(actor::call(gate, Event::Look)).await.is_err());
        }
    });
}

#[test]
fn a_state_is_entered_at_the_start_and_by_transitions_and_not_by_staying() {
    on_cores(1, async |_, _| {
        let (gate, notes) = gate(State::Shut);
        // Its task has not run.
        assert!(notes.entered.borrow().is_empty());
        assert_eq!(look(gate).await, State::Shut);
        assert_eq!(*notes.entered.borrow(), [(None, State::Shut)]);
        for event in [Event::Shut, Event::Open, Event::Open, Event::Shut] {
            actor::send_to(gate, event).unwrap();
        }
        look(gate).await;
        let transitions = [
            (None, State::Shut),
            (Some(State::Shut), State::Open),
            (Some(State::Open), State::Open),
            (Some(State::Open), State::Shut),
        ];
        assert_eq!(*notes.entered.borrow(), transitions);
    });
}

#[test]
fn handlers_own_events_that_cannot_be_cloned_also_postponed_ones() {
    on_cores(1, async |_, _| {
        let (gate, notes) = gate(State::Shut);
        for number in 0..3 {
            actor::send_to(gate, Event::Pass(Ticket(number))).unwrap();
        }
        assert_eq!(look(gate).await, State::Shut);
        assert!(notes.passed.borrow().is_empty());
        actor::send_to(gate, Event::Open).unwrap();
        // Sent before the gate is open, and behind what was postponed all the same.
        actor::send_to(gate, Event::Pass(Ticket(3))).unwrap();
        assert_eq!(look(gate).await, State::Open);
        assert_eq!(*notes.passed.borrow(), [0, 1, 2, 3].map(Ticket));
    });
}

#[test]
fn a_postponed_call_is_answered_by_a_later_state_and_may_be_postponed_again() {
    on_cores(2, async |runtime, cores| {
        let start = move || ready(machine::start(Gate::default(), State::Shut));
        for core in cores {
            let gate = soon(runtime.spawn_on(core, start).unwrap()).await.unwrap();
            let mut answers = Vec::new();
            for number in 0..3 {
                let (reply, answer) = actor::reply();
                actor::send_to(gate, Event::PassWith(Ticket(number), reply)).unwrap();
                answers.push(answer);
            }
            // Each opening lets one through, and shuts the gate to the others.
            for (number, answer) in answers.into_iter().enumerate() {
                actor::send_to(gate, Event::Open).unwrap();
                assert_eq!(soon(answer).await, Ok(Ticket(number as u32)));
                assert_eq!(look(gate).await, State::Shut);
            }
            actor::request_stop(gate);
        }
    });
}

#[test]
fn a_panic_in_a_handler_reaches_monitors_and_all_callers() {
    on_cores(1, async |_, _| {
        let (gate, _) = gate(State::Shut);
        let end = actor::monitor(gate);
        let (reply, postponed) = actor::reply();
        actor::send_to(gate, Event::PassWith(Ticket(0), reply)).unwrap();
        actor::send_to(gate, Event::Panic).unwrap();
        let (reply, waiting) = actor::reply();
        actor::send_to(gate, Event::Look(reply)).unwrap();
        assert_eq!(soon(end).await.reason, ExitReason::Panicked("on purpose".into()));
        assert_eq!(soon(postponed).await, Err(CallError::NoReply));
        assert_eq!(soon(waiting).await, Err(CallError::NoReply));
        assert_eq!(actor::call(gate, Event::Look).await, Err(CallError::Dead));
        let refused = actor::send_to(gate, Event::Pass(Ticket(7))).unwrap_err();
        assert!(matches!(refused, SendError::Dead(Event::Pass(Ticket(7)))));
    });
}

#[test]
fn a_machine_ends_itself_in_good_order_or_as_a_failure() {
    on_cores(1, async |_, _| {
        for (event, reason) in
            [(Event::Stop, ExitReason::Normal), (Event::Fail, ExitReason::Failed("had enough".into()))]
        {
            let (gate, notes) = gate(State::Open);
            let end = actor::monitor(gate);
            actor::send_to(gate, event).unwrap();
            actor::send_to(gate, Event::Pass(Ticket(0))).unwrap();
            let (reply, waiting) = actor::reply();
            actor::send_to(gate, Event::Look(reply)).unwrap();
            assert_eq!(soon(waiting).await, Err(CallError::NoReply));
            assert_eq!(soon(end).await.reason, reason);
            assert!(notes.passed.borrow().is_empty(), "nothing is handled after the end");
        }
    });
}

#[test]
fn infos_come_before_events_and_go_to_the_hook_where_they_are_of_no_interest() {
    on_cores(1, async |_, _| {
        let notes = Notes::default();
        let (first, firsts) = channel::unbounded::<&'static str>();
        let (second, seconds) = channel::unbounded::<&'static str>();
        let gate =
            machine::build(Gate(notes.clone()), State::Open).with_info(firsts).with_info(seconds).start();
        second.send("d").unwrap();
        actor::send_to(gate, Event::Shut).unwrap();
        first.send("a").unwrap();
        first.send("b").unwrap();
        assert_eq!(look(gate).await, State::Shut);
        assert_eq!(*notes.heard.borrow(), ["a", "b", "d"]);
        assert_eq!(notes.unhandled.get(), 0);

        first.send("lost").unwrap();
        poll_until(async || notes.unhandled.get() == 1).await;
        actor::send_to(gate, Event::Open).unwrap();
        look(gate).await;
        assert_eq!(notes.heard.borrow().len(), 3, "what nobody handled is not kept");

        // A transition by an info is one, and the machine lives on without any sender.
        first.send("shut").unwrap();
        poll_until(async || look(gate).await == State::Shut).await;
        drop((first, second));
        yield_now().await;
        assert_eq!(look(gate).await, State::Shut);
        actor::request_stop(gate);
    });
}

#[test]
fn a_bounded_mailbox_refuses_and_gives_back_what_is_too_much() {
    on_cores(1, async |_, _| {
        let gate = machine::build(Gate::default(), State::Shut).bounded(2).start();
        for number in 0..2 {
            actor::send_to(gate, Event::Pass(Ticket(number))).unwrap();
        }
        let refused = actor::send_to(gate, Event::Pass(Ticket(2))).unwrap_err();
        assert!(matches!(refused, SendError::Full(Event::Pass(Ticket(2)))));
        // What is postponed makes room, or the event that is waited for could not come.
        poll_until(async || actor::send_to(gate, Event::Pass(Ticket(2))).is_ok()).await;
        poll_until(async || actor::send_to(gate, Event::Open).is_ok()).await;
        poll_until(async || actor::call(gate, Event::Look).await == Ok(State::Open)).await;
        actor::request_stop(gate);
    });
}

#[test]
fn a_machine_with_much_to_replay_lets_others_run() {
    on_cores(1, async |_, _| {
        let (gate, notes) = gate(State::Shut);
        for number in 0..10_000 {
            actor::send_to(gate, Event::Pass(Ticket(number))).unwrap();
        }
        look(gate).await;
        actor::send_to(gate, Event::Open).unwrap();
        let mut seen = Vec::new();
        poll_until(async || {
            seen.push(notes.passed.borrow().len());
            seen.last() == Some(&10_000)
        })
        .await;
        assert!(seen.iter().any(|seen| (1..10_000).contains(seen)), "looked on only after the end: {seen:?}");
        assert!(notes.passed.borrow().is_sorted_by_key(|ticket| ticket.0));
        actor::request_stop(gate);
    });
}
