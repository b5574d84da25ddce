use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

mod model;

use super::*;
use crate::actor::pid::Addressable;
use crate::runtime::{CoreId, RawPid};

const STATES: u8 = 4;
const KINDS: u8 = 5;

/// An event. It has no `Clone`, and a number by which it is told from others.
struct Event {
    number: usize,
    kind: u8,
}

/// What a drawn machine does with an event of one kind in one state, or with a time-out in one state.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reaction {
    Stay,
    To(u8),
    Postpone,
    /// Postpones only in a bad mood, which is a matter of the machine's data.
    PostponeInMood,
    ChangeMood,
    SetState(u8),
    ResetState,
    Set(u8),
    Cancel(u8),
}

#[derive(Clone, Debug)]
struct Table {
    events: Vec<Vec<Reaction>>,
    timeouts: Vec<Reaction>,
    /// Whether a state sets its time-out when it is entered.
    enters: Vec<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Note {
    Entered { state: u8, from: Option<u8> },
    Handled { state: u8, number: usize },
    TimedOut { state: u8, name: u8 },
}

#[derive(Clone)]
struct Drawn {
    table: Rc<Table>,
    moody: bool,
    notes: Rc<RefCell<Vec<Note>>>,
}

impl Drawn {
    fn react(&mut self, reaction: Reaction, cx: &mut Context<Drawn>) -> Next<u8> {
        let second = Duration::from_secs(1);
        match reaction {
            Reaction::To(state) => return Next::To(state),
            Reaction::ChangeMood => self.moody = !self.moody,
            Reaction::SetState(name) => cx.set_state_timeout(second, name),
            Reaction::ResetState => drop(cx.cancel_state_timeout()),
            Reaction::Set(name) => cx.set_timeout(second, name),
            Reaction::Cancel(name) => drop(cx.cancel_timeout(&name)),
            Reaction::Stay | Reaction::Postpone | Reaction::PostponeInMood => {}
        }
        Next::Stay
    }
}

impl Addressable for Drawn {
    type Msg = Event;
}

impl Machine for Drawn {
    type State = u8;
    type Timeout = u8;
    type Info = u8;

    fn enter(&mut self, state: &u8, previous: Option<&u8>, cx: &mut Context<Self>) {
        self.notes.borrow_mut().push(Note::Entered { state: *state, from: previous.copied() });
        if self.table.enters[usize::from(*state)] {
            cx.set_state_timeout(Duration::ZERO, *state);
        }
    }

    fn postpones(&self, state: &u8, event: &Event) -> bool {
        match self.table.events[usize::from(*state)][usize::from(event.kind)] {
            Reaction::Postpone => true,
            Reaction::PostponeInMood => self.moody,
            _ => false,
        }
    }

    fn handle(&mut self, state: &u8, event: Event, cx: &mut Context<Self>) -> Next<u8> {
        self.notes.borrow_mut().push(Note::Handled { state: *state, number: event.number });
        let reaction = self.table.events[usize::from(*state)][usize::from(event.kind)];
        self.react(reaction, cx)
    }

    fn timeout(&mut self, state: &u8, name: u8, cx: &mut Context<Self>) -> Next<u8> {
        self.notes.borrow_mut().push(Note::TimedOut { state: *state, name });
        let reaction = self.table.timeouts[usize::from(*state)];
        self.react(reaction, cx)
    }

    fn info(&mut self, _: &u8, state: u8, _: &mut Context<Self>) -> Next<u8> {
        Next::To(state)
    }
}

fn nobody() -> Pid<Drawn> {
    Pid::new(RawPid { core: CoreId(0), index: 0, generation: 0 })
}

/// An engine as its task runs it, with timers that fire when the test says so.
struct Bench {
    engine: Engine<Drawn>,
    notes: Rc<RefCell<Vec<Note>>>,
    /// Every timer that was ever armed.
    armed: Vec<TimeoutId>,
    live: Vec<TimeoutId>,
}

impl Bench {
    fn new(table: Rc<Table>) -> Bench {
        let notes = Rc::default();
        let machine = Drawn { table, moody: false, notes: Rc::clone(&notes) };
        let engine = Engine::start(machine, 0, nobody());
        let mut bench = Bench { engine, notes, armed: Vec::new(), live: Vec::new() };
        bench.obey();
        bench
    }

    fn event(&mut self, event: Event) -> Step {
        let step = self.engine.event(event);
        self.settle();
        step
    }

    /// Also of a timer that was disarmed: it may have fired before.
    fn fired(&mut self, id: TimeoutId) -> Option<Step> {
        self.live.retain(|live| *live != id);
        let step = self.engine.fired(id);
        self.settle();
        step
    }

    fn settle(&mut self) {
        self.obey();
        while self.engine.has_due() {
            self.engine.replay();
            self.obey();
        }
        assert_eq!(self.engine.replay(), None);
    }

    fn obey(&mut self) {
        for order in self.engine.take_orders() {
            match order {
                Order::Arm(id, _) => {
                    self.armed.push(id);
                    self.live.push(id);
                }
                Order::Disarm(id) => self.live.retain(|live| *live != id),
            }
        }
    }

    fn notes(&self) -> Vec<Note> {
        self.notes.borrow().clone()
    }
}

/// A table of which every state stays, whatever comes, except for what `change` does to it.
fn table(change: impl FnOnce(&mut Table)) -> Rc<Table> {
    let states = usize::from(STATES);
    let mut table = Table {
        events: vec![vec![Reaction::Stay; usize::from(KINDS)]; states],
        timeouts: vec![Reaction::Stay; states],
        enters: vec![false; states],
    };
    change(&mut table);
    Rc::new(table)
}

fn handled(notes: &[Note]) -> Vec<(u8, usize)> {
    let handled = notes.iter().filter_map(|note| match note {
        Note::Handled { state, number } => Some((*state, *number)),
        _ => None,
    });
    handled.collect()
}

#[test]
fn a_state_is_entered_at_the_start_and_by_transitions_and_not_by_staying() {
    let mut bench = Bench::new(table(|table| {
        table.events[0][1] = Reaction::To(1);
        table.events[1][1] = Reaction::To(1);
    }));
    assert_eq!(bench.event(Event { number: 0, kind: 0 }), Step::Stayed);
    assert_eq!(bench.notes().len(), 2);
    assert_eq!(bench.event(Event { number: 1, kind: 1 }), Step::Transitioned);
    // A transition to the same state is one.
    assert_eq!(bench.event(Event { number: 2, kind: 1 }), Step::Transitioned);
    let mut entries = bench.notes();
    entries.retain(|note| matches!(note, Note::Entered { .. }));
    let entered = |state, from| Note::Entered { state, from };
    assert_eq!(entries, [entered(0, None), entered(1, Some(0)), entered(1, Some(1))]);
}

#[test]
fn what_was_postponed_comes_again_in_order_and_before_what_follows() {
    let mut bench = Bench::new(table(|table| {
        table.events[0][0] = Reaction::Postpone;
        table.events[0][1] = Reaction::Postpone;
        table.events[0][2] = Reaction::To(1);
        // Put off once more, in the next state.
        table.events[1][0] = Reaction::Postpone;
        table.events[1][1] = Reaction::To(2);
    }));
    for (number, kind) in [0, 3, 1, 0, 3].into_iter().enumerate() {
        let expected = if kind == 3 { Step::Stayed } else { Step::Postponed };
        assert_eq!(bench.event(Event { number, kind }), expected);
    }
    assert_eq!(bench.engine.backlog.len(), 3);
    bench.event(Event { number: 5, kind: 2 });
    assert_eq!(bench.engine.backlog.len(), 0);
    assert_eq!(handled(&bench.notes()), [(0, 1), (0, 4), (0, 5), (1, 2), (2, 0), (2, 3)]);
}

#[test]
fn a_state_timeout_is_taken_back_by_every_transition_and_by_nothing_else() {
    let mut bench = Bench::new(table(|table| {
        table.events[0][1] = Reaction::SetState(7);
        table.events[0][2] = Reaction::To(0);
    }));
    bench.event(Event { number: 0, kind: 1 });
    bench.event(Event { number: 1, kind: 0 });
    assert_eq!(bench.live, bench.armed);
    bench.event(Event { number: 2, kind: 2 });
    assert!(bench.live.is_empty());
    // Its timer had fired before, and is only heard of now.
    let stale = bench.armed[0];
    assert_eq!(bench.fired(stale), None);
    bench.event(Event { number: 3, kind: 1 });
    let fresh = bench.armed[1];
    assert_eq!(bench.fired(stale), None);
    assert_eq!(bench.fired(fresh), Some(Step::Stayed));
    assert_eq!(bench.fired(fresh), None);
}

#[test]
fn a_named_timeout_survives_transitions_and_is_cancelled_by_its_name() {
    let mut bench = Bench::new(table(|table| {
        table.events[0][0] = Reaction::Set(0);
        table.events[0][1] = Reaction::Set(1);
        table.events[0][2] = Reaction::To(1);
        table.events[1][0] = Reaction::Cancel(0);
        table.timeouts[1] = Reaction::To(2);
    }));
    for (number, kind) in [0, 1, 2, 0].into_iter().enumerate() {
        bench.event(Event { number, kind });
    }
    let [cancelled, kept] = bench.armed[..] else { panic!("two were set") };
    assert_eq!(bench.live, [kept]);
    assert_eq!(bench.fired(cancelled), None);
    assert_eq!(bench.fired(kept), Some(Step::Transitioned));
    assert_eq!(bench.notes().iter().rev().nth(1), Some(&Note::TimedOut { state: 1, name: 1 }));
}

#[test]
fn what_comes_by_another_way_may_be_a_transition() {
    let mut bench = Bench::new(table(|table| table.events[0][0] = Reaction::Postpone));
    bench.event(Event { number: 0, kind: 0 });
    assert_eq!(bench.engine.info(3), Step::Transitioned);
    assert!(bench.engine.has_due());
    bench.settle();
    assert_eq!(handled(&bench.notes()), [(3, 0)]);
}
