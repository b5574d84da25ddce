//! The engine held against a model, in random runs.

use proptest::prelude::*;

use super::*;

const NAMES: u8 = 3;

/// What the engine should do, written as plainly as can be: one list of what has arrived and was not handled.
struct Model {
    table: Rc<Table>,
    state: u8,
    moody: bool,
    arrived: Vec<Event>,
    /// How many of them were looked at in this state, and put off.
    looked_at: usize,
    /// By the number of the setting.
    state_timeout: Option<(usize, u8)>,
    named: Vec<(usize, u8)>,
    settings: usize,
    notes: Vec<Note>,
}

impl Model {
    fn new(table: Rc<Table>) -> Model {
        let mut model = Model {
            table,
            state: 0,
            moody: false,
            arrived: Vec::new(),
            looked_at: 0,
            state_timeout: None,
            named: Vec::new(),
            settings: 0,
            notes: Vec::new(),
        };
        model.enter(0, None);
        model
    }

    fn event(&mut self, event: Event) {
        self.arrived.push(event);
        self.look();
    }

    fn fired(&mut self, setting: usize) {
        let name = if let Some((number, name)) = self.state_timeout
            && number == setting
        {
            self.state_timeout = None;
            name
        } else if let Some(place) = self.named.iter().position(|(number, _)| *number == setting) {
            self.named.remove(place).1
        } else {
            return;
        };
        self.notes.push(Note::TimedOut { state: self.state, name });
        self.react(self.table.timeouts[usize::from(self.state)]);
        self.look();
    }

    fn look(&mut self) {
        while let Some(event) = self.arrived.get(self.looked_at) {
            let reaction = self.table.events[usize::from(self.state)][usize::from(event.kind)];
            if reaction == Reaction::Postpone || (reaction == Reaction::PostponeInMood && self.moody) {
                self.looked_at += 1;
                continue;
            }
            let event = self.arrived.remove(self.looked_at);
            self.notes.push(Note::Handled { state: self.state, number: event.number });
            self.react(reaction);
        }
    }

    fn react(&mut self, reaction: Reaction) {
        match reaction {
            Reaction::To(state) => self.enter(state, Some(self.state)),
            Reaction::ChangeMood => self.moody = !self.moody,
            Reaction::SetState(name) => self.state_timeout = Some(self.set(name)),
            Reaction::ResetState => self.state_timeout = None,
            Reaction::Set(name) => {
                self.named.retain(|(_, set)| *set != name);
                let set = self.set(name);
                self.named.push(set);
            }
            Reaction::Cancel(name) => self.named.retain(|(_, set)| *set != name),
            Reaction::Stay | Reaction::Postpone | Reaction::PostponeInMood => {}
        }
    }

    fn enter(&mut self, state: u8, from: Option<u8>) {
        self.state = state;
        self.state_timeout = None;
        self.looked_at = 0;
        self.notes.push(Note::Entered { state, from });
        if self.table.enters[usize::from(state)] {
            self.state_timeout = Some(self.set(state));
        }
    }

    fn set(&mut self, name: u8) -> (usize, u8) {
        self.settings += 1;
        (self.settings - 1, name)
    }
}

fn reaction() -> impl Strategy<Value = Reaction> {
    let name = || 0..NAMES;
    prop_oneof![
        2 => Just(Reaction::Stay),
        3 => (0..STATES).prop_map(Reaction::To),
        3 => Just(Reaction::Postpone),
        1 => Just(Reaction::PostponeInMood),
        1 => Just(Reaction::ChangeMood),
        1 => name().prop_map(Reaction::SetState),
        1 => Just(Reaction::ResetState),
        2 => name().prop_map(Reaction::Set),
        1 => name().prop_map(Reaction::Cancel),
    ]
}

fn any_table() -> impl Strategy<Value = Table> {
    let states = usize::from(STATES);
    let row = prop::collection::vec(reaction(), usize::from(KINDS));
    let events = prop::collection::vec(row, states);
    let timeouts = prop::collection::vec(reaction(), states);
    (events, timeouts, prop::collection::vec(any::<bool>(), states))
        .prop_map(|(events, timeouts, enters)| Table { events, timeouts, enters })
}

proptest! {
    /// Whatever the table, whatever happens, and whichever timers fire, also those that were disarmed.
    #[test]
    fn it_does_what_a_plain_list_of_arrivals_would_do(
        table in any_table(),
        happenings in prop::collection::vec((0..2 * KINDS, any::<prop::sample::Index>()), 0..60),
    ) {
        let table = Rc::new(table);
        let mut bench = Bench::new(Rc::clone(&table));
        let mut model = Model::new(table);
        for (number, (kind, timer)) in happenings.into_iter().enumerate() {
            if kind < KINDS {
                bench.event(Event { number, kind });
                model.event(Event { number, kind });
            } else if !bench.armed.is_empty() {
                let setting = timer.index(bench.armed.len());
                bench.fired(bench.armed[setting]);
                model.fired(setting);
            }
            prop_assert_eq!(&*bench.notes.borrow(), &model.notes);
            prop_assert_eq!(bench.engine.backlog.len(), model.arrived.len());
            let set = usize::from(model.state_timeout.is_some()) + model.named.len();
            prop_assert_eq!(bench.live.len(), set, "a timer is armed exactly while its time-out is set");
        }
    }
}
